"""Programs of Penstock run against brokers in memory, on a clock that does not wait, driven by a seed.

| module        | what is in it                                                                       |
|---------------|-------------------------------------------------------------------------------------|
| loop          | `VirtualLoop`: an asyncio loop with a virtual clock; nodes that can be stopped dead |
| network       | `Network`: connections with delays, that break, are cut or go silent               |
| pulsar        | `Pulsar`: brokers behind the bytes of the binary protocol                           |
| pulsar_topic  | `Topic`: ledgers, deduplication, exclusive producers, readers, compaction           |
| pulsar_admin  | the REST calls that the gateway makes                                               |
| history       | `History`: one seed, what happened, and how a failure is shown                      |
| threads       | `World`: the same for blocking programs, each in a thread, one of which runs        |
| kafka_link    | sockets and selectors of these programs: delays, cuts, silence, lost answers        |
| kafka         | `Kafka`: brokers behind the bytes of the protocol, leaders that move                |
| kafka_log     | `PartitionLog`: sequences, epochs, open and aborted transactions, replication       |
| kafka_transactions | the coordinator of transactions, and the offsets of groups                     |
| kafka_world   | `KafkaHistory`: a topic that fills, programs, and the laws of the delivery      |
| world_loop    | `WorldLoop`: asyncio loops that blocking programs run on a thread, turned by `World` |
| kafka_clusters, pulsar_clusters | output on several clusters, on Pulsar, or on both, with their laws |
| pulsar_to_pulsar, within_pulsar | everything on Pulsar, marks included; rows, or what is read from it |
| edits         | pipelines that are edited between two starts, and one edition for each record       |
| fusing_loops, fusing_ranges, troubles | loops and tasks, and what happens to them and to brokers    |

The products' own clients run on top of it, unchanged: sessions, windows, flow control and all.
"""
