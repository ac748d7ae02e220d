"""Routes from Kafka bytes to Kafka bytes: batches are walked, filtered and rewritten without objects."""
