"""Events as whole Arrow batches: the same verdicts as `penstock.events`, with no Python per record.

| module | knows |
|---|---|
| batch | `EventColumns`: attributes, data, key and rejects of one batch, a column each |
| shapes | which rows have the same header names in the same order |
| certain | rules of core that a whole column certainly keeps; what is not certain goes the exact way |
| decode | Kafka records to events |
| encode | events to Kafka records |

The one-sided rule: the fast way only says yes when it is certain. Every other row is read by
`penstock.events` itself, so that a verdict has one author.
"""
