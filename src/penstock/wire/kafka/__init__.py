"""The Kafka protocol as bytes: frames, record batch v2, error codes, hot answers."""
