"""How the records of a range are read and how output is delivered, whatever evaluates the routes.

In: a source's partition and a range of positions. Out: whole record batches as bytes for a router; batch
bodies from a router to the target's log, acknowledged. It knows nothing of routes, events and Spark.

| module | what is in it |
|---|---|
| offset_ranges, range_planner, spark_source | what of a topic a batch of Spark takes, and by which task |
| worker_spec, task, range_delivery | what a task is given, and how it delivers one range with its mark |
| loop, loop_run | the same without Spark, for as long as it is asked to |
| partition_reader, source_cluster | records of the cluster that is read, on their way to an evaluator |
| sink, progress_sinks, kafka_sink, task_sink | output and mark together, of one cluster or several |
| refused_records | ranges with records that a topic refuses |
| range_progress, cluster_marks, range_clock | what a mark holds; the marks of several clusters together |
| progress, progress_reader, progress_topic | marks as records of a compacted topic, and how they are read |
| same_topic, end_watch | whether a topic was made again; waiting for records of many topics |
| pulsar | entries of Pulsar, read and written |
"""
