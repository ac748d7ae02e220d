"""The CloudEvents SQL expression language 1.0.0."""
