"""What decides about the records of a source.

In: records and a frozen plan. Out: the records that they become, and counts. Evaluators know nothing of how
records are read and delivered.
"""
