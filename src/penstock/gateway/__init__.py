"""The Kafka protocol served on Pulsar."""
