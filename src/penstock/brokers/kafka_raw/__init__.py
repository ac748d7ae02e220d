"""A small Kafka client in which record batches stay bytes, both ways: blocking, for one thread.

| module         | what is in it                                                                   |
|----------------|---------------------------------------------------------------------------------|
| settings       | `Settings.of(options)`: addresses, TLS, SASL, time-outs                         |
| cluster        | `Cluster`: brokers, leaders, connections; partitions of a topic                 |
| topic_offsets  | `earliest`, `latest`, `at_time`                                                 |
| group_offsets  | `GroupOffsets`: committed offsets as a bookmark                                 |
| connection     | requests and answers on a socket; `login` says the first words on it            |
| calls, answer  | the requests in their versions; how an answer is read                           |
| metadata, topic_config, coordinator | what the cluster says of itself                            |
| scram, tls     | how we prove who we are, and whom we trust                                      |
| refusal, retry | error codes as exceptions; which of them pass by                                |

None of these modules loads a kernel: the driver of a Spark query uses them. Only `penstock.errors` are
raised: KafkaRefused when a broker says no, Unreachable when it says nothing, WireError when it talks
nonsense.
"""
