"""An interpreter that routes CloudEvents from record bytes to record bytes: one kernel for all programs.

| module     | what is in it                                                                  |
|------------|--------------------------------------------------------------------------------|
| boxes      | the records that wait for their batch, by target and partition                 |
| texts      | texts in one of two buffers: compared, judged, copied, escaped                 |
| grammar    | what is certainly a reference, a timestamp, a match of a pattern               |
| memory     | texts that somebody has judged already                                         |
| attributes | the attributes of the record at hand                                           |
| headers    | the attributes of binary mode                                                  |
| envelope   | the attributes of structured mode, JSON format                                 |
| ..._01     | the same for events of CloudEvents 0.1, in Pulsar's profile 0.1                |
| conditions | the opcodes of conditions, in three-valued logic                               |
| computed   | the opcodes of values, on a stack of their own                                 |
| strings    | functions and tests of texts                                                   |
| decimals   | functions of numbers                                                           |
| moments    | functions of moments                                                           |
| values     | operands as texts: constants, attributes, paths                                |
| changes    | the values that a route sets, and what differs then                            |
| sizes      | the size of the record that leaves                                             |
| placement  | its partition and its slot                                                     |
| emission   | its key and its bytes                                                          |
| run        | the loop over the records of a batch                                           |

One-sided: a record is kept or dropped only where that is certain. Anything else stops the loop at the record,
and somebody who knows everything decides; then the loop goes on behind it. `wire.routing_layout` says where
everything stands. Only `run`, `remember` and the slots of `boxes` are called from outside; all else is part
of them.
"""
