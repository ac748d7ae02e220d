"""Real servers as child processes: Kafka, Pulsar and a schema registry, from pinned jars."""
