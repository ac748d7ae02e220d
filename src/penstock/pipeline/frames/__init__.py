"""Events as DataFrames, decoded and encoded exactly, in Arrow batches.

| module | knows |
|---|---|
| table | the event columns of a DataFrame, and how a batch of them becomes `EventColumns` and back |
| decode | Kafka-shaped rows to events and rejects |
| encode | events to Kafka-shaped rows |
| conditions | `sql:` conditions of routes over the event columns |
"""
