"""Consumer groups: the classic protocol as a pure state machine, and the thin shell that runs it.

| module | knows |
|---|---|
| fields | fields of stored bytes, within bounds |
| states | the states of a group and the transitions between them: one literal table |
| group | a group and its members as frozen values |
| requests | what members ask and are answered |
| outcome | what a step of the machine gives: the next group, answers, whether to store |
| members | who a member is, and when it is not who it says: fencing |
| rebalance | how a generation ends and the next one begins |
| joining, syncing, leaving, beating | one request each |
| expiry | what time does to a group |
| offsets | committed offsets: who may commit, what is too large, what is too old |
| subscription | the topics a member reads, from its metadata (ConsumerProtocolSubscription) |
| listing | groups as administrators see them |
| schemas | groups and offsets as the bytes of Kafka's `__consumer_offsets` |
| placing | which partition, and which node, a group belongs to |
| pacing | how long work on the event loop is cut into slices |
| usage | how much memory each tenant takes, and who may take more |
| offset_table | offsets that are stored, and those on their way to the log |
| group_store | groups and offsets in memory and in the log, and what age does to them |
| ports | what keeps the log of groups, and who coordinates which |
| shard | the shell: groups of one partition with their waiting requests, timers and log |
| solo | all groups in one shard, for a single node |

Time is an argument everywhere but in `group_store` and `shard`.
"""
