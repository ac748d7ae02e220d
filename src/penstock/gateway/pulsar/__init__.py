"""The gateway's ports served by Pulsar.

| module | knows |
|---|---|
| names | which Pulsar topic a Kafka name means, and back (spec 001, Topic) |
| topics | the topics and their settings, by Pulsar's admin API |
| counting | the offset of a produced batch: counted while nobody else writes, else learnt from the index |
| entry_indexes | the index of an entry: asked for, or read while another writer is busy |
| numbering | which offset an entry has: by the index, or by its place |
| packed | offsets made of message ids: the layouts of the numbers |
| packed_partition | one partition with packed offsets, for brokers without the index |
| writer | one partition's producers: batches in the order of the requests, each with its offset |
| sequences | what is remembered of idempotent producers |
| retrace | where an entry went of which Pulsar only says that it is stored |
| removed | what clients have removed inside of a ledger, as a property of the topic |
| tail | one reader of a partition, converting entries to batches as they come |
| read_ahead | the memory of all readers, one budget |
| offset_index | some offsets and their places, so that a reader begins without a question |
| newest | the largest timestamp, without reading everything |
| partition | one partition: writer, readers, its start and its end |
| storage | all of it as the ports of the gateway |
| membership | which gateways live, by what they say through a topic; the lease of this one |
| cluster | the live gateways as the nodes of a Kafka cluster |
| coordinators | which gateway coordinates which groups: takes, proves and lets go |
| offsets_log | one partition of the offsets topic, written by one gateway at a time |
| cursors | the cursor of a group at an offset, also inside a batch |
| cursor_sync | committed offsets become cursors, period by period, and what others do to them |
"""
