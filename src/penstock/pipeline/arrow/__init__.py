"""Events as whole Arrow batches: the same verdicts as `penstock.events`, with no Python per record.

| module | knows |
|---|---|
| batch | `EventColumns`: attributes, data, key and rejects of one batch, a column each |
| shapes | which rows have the same header names in the same order |
| certain | rules of core that a whole column certainly keeps; what is not certain goes the exact way |
| bindings | whose records they are: Kafka's, or Pulsar's as the gateway shows them |
| dialects, properties01 | the attributes of a shape, by the names of its headers |
| decode | records to events |
| encode | events to records |
| buffers | the bytes of a column |
| found | paths into the JSON data, by one scan for all routes |
| cells | a value for each row, and of which rows it is not certain |
| evaluate, calls | the expressions of a plan over columns |
| route | a whole route over a batch: what it keeps, drops, or leaves to the reference |
| departure | what a route keeps, as records |

The one-sided rule: the fast way only says yes when it is certain. Every other row is read by
`penstock.events` and routed by `pipeline.reference` itself, so that a verdict has one author.
"""
