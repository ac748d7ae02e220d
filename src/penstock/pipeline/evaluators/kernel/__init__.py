"""The kernel evaluator: routes from bytes of records to bytes of records, without an object for a record.

In: record batches as bytes and a compiled program. Out: bodies of batches for each target and partition, and
counts. Records that the kernel is not certain of go to the reference, one by one, and keep their place in the
order. It knows no Spark, no socket and no progress.
"""
