"""Programs of Penstock run against brokers in memory, on a clock that does not wait, driven by a seed.

| module        | what is in it                                                                       |
|---------------|-------------------------------------------------------------------------------------|
| loop          | `VirtualLoop`: an asyncio loop with a virtual clock; nodes that can be stopped dead |
| network       | `Network`: connections with delays, that break, are cut or go silent               |
| pulsar        | `Pulsar`: brokers behind the bytes of the binary protocol                           |
| pulsar_topic  | `Topic`: ledgers, deduplication, exclusive producers, readers, compaction           |
| pulsar_admin  | the REST calls that the gateway makes                                               |
| history       | `History`: one seed, what happened, and how a failure is shown                      |

The products' own clients run on top of it, unchanged: sessions, windows, flow control and all.
"""
