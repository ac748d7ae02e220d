"""Events as whole Arrow batches, for DataFrames and conditions of Spark: verdicts as of `penstock.events`.

| module | knows |
|---|---|
| batch | `EventColumns`: attributes, data, key and rejects of one batch, a column each |
| shapes | which rows have the same header names in the same order |
| certain | rules of core that a whole column certainly keeps; what is not certain goes the exact way |
| bindings | whose records they are: Kafka's, or Pulsar's as Kafka records |
| dialects, properties01 | the attributes of a shape, by the names of its headers |
| decode | records to events |
| encode | events to records |
| buffers | the bytes of a column, and booleans as masks |

The one-sided rule: the fast way only says yes when it is certain. Every other row is read and written by
`penstock.events` itself, so that a verdict has one author. Routes are not evaluated here.
"""
