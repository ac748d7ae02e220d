"""Clients of clusters: Kafka, Pulsar and the schema registry."""
