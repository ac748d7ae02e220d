"""One module a Kafka API: its versions, its notes, its handler."""
