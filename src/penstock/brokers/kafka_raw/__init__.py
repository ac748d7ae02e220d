"""A small Kafka client in which record batches stay bytes, both ways: blocking, for one thread.

| module         | what is in it                                                                   |
|----------------|---------------------------------------------------------------------------------|
| settings       | `Settings.of(options)`: addresses, TLS, SASL, time-outs                         |
| cluster        | `Cluster`: brokers, leaders, connections; partitions of a topic                 |
| topic_offsets  | `earliest`, `latest`, `at_time`                                                 |
| group_offsets  | `GroupOffsets`: committed offsets as a bookmark                                 |
| fetcher        | `Fetcher`: batches of partitions as bytes; `visible` leaves out what was aborted |
| producer       | `Producer`: framed batches, idempotent                                          |
| transaction    | `TransactionalProducer`: output and offsets, all or nothing                     |
| connection     | requests and answers on a socket; `login` says the first words on it            |
| answer_memory  | where large answers are put: in memory that is used again                       |
| calls, answer  | the requests in their versions; how an answer is read                           |
| metadata, topic_config, coordinator | what the cluster says of itself                            |
| scram, access_token, tls | how we prove who we are, and whom we trust                            |
| lanes          | connections of a fetcher or a producer to the leaders                           |
| fetch_call, fetched, produce_call, partition_queue, identity | what these three are made of      |
| refusal, retry | error codes as exceptions; which of them pass by                                |

Only `visible`, `producer` and `transaction` load kernels: the driver of a Spark query uses the others. Only
`penstock.errors` are raised: KafkaRefused when a broker says no, Unreachable when it says nothing, WireError
when it talks nonsense.
"""
