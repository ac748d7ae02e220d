"""Pulsar as a side of the delivery: entries are read as record batches, batch bodies are written as entries.

In: partitions and positions to read; batch bodies with sequence ids to write. Out: record batches as bytes;
receipts. It knows nothing of routes, events and Spark.
"""
