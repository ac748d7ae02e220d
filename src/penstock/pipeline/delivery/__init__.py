"""How the records of a range are read and how output is delivered, whatever evaluates the routes.

In: a source's partition and a range of positions. Out: whole record batches as bytes for a router; batch
bodies from a router to the target's log, acknowledged. It knows nothing of routes, events and Spark.

| module | what is in it |
|---|---|
| source_cluster | the clusters of a source: the one that is read, and those that are written to |
| kafka_sink | a transaction on each Kafka cluster, with its own mark in it, when Pulsar has everything |
| cluster_marks | what the marks of several clusters say together |
| progress, progress_reader, progress_topic | marks as records of a compacted topic, and how they are read |
| pulsar_cluster | `PulsarCluster`: client and admin API for callers that block |
| pulsar_settings | `PulsarSettings`: how a cluster is reached |
| pulsar_log | where a Pulsar log begins and ends, positions, incarnation |
| pulsar_entries | a delivered entry as a record batch, or as what is rejected |
| partition_tail | the asyncio side of reading one partition |
| pulsar_reader | `PulsarPartitionReader`, `PulsarFetcher`: ranges of partitions as record batches |
| pulsar_subscription | `PulsarSubscription`: the cursor that keeps unread data and shows the backlog |
| pulsar_sink | `PulsarSink`: batch bodies as entries, each record once by deduplication |
| pulsar_output | the sinks of one Pulsar cluster, one for each partition that is read |
| pulsar_targets | what topics are like that are written, asked before anything runs |
| placement | what a mark keeps of how records were divided among partitions |
| producer_names | the names and ids under which output is written |
| producer_tail | what a named producer has stored, read back from the end of a topic |
"""
