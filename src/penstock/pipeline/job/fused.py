"""The query of one source: Spark plans ranges and keeps the checkpoint, its tasks do the rest."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.contract.credentials import Client, options, reveal
from penstock.errors import PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.delivery.end_watch import EndWatch
from penstock.pipeline.delivery.offset_ranges import REFERENCE_COST, Share
from penstock.pipeline.delivery.progress import PulsarProgress, Snapshot
from penstock.pipeline.delivery.progress_topic import require_progress_topic
from penstock.pipeline.delivery.pulsar.planner import PulsarPlanner
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.pipeline.delivery.pulsar.source import PulsarSource
from penstock.pipeline.delivery.pulsar.targets import require_deduplication
from penstock.pipeline.delivery.range_planner import BatchLimits, Planner
from penstock.pipeline.delivery.range_progress import Belonging, Owner
from penstock.pipeline.delivery.source_cluster import SourceCluster
from penstock.pipeline.delivery.worker_spec import COUNTED, COUNTED_DDL, WorkerSpec
from penstock.pipeline.evaluators.kernel.program import (
    Program,
    plan_digest,
    program_of,
    reference_program_of,
    stops,
)
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.job.choice import why_unrepeatable
from penstock.pipeline.job.options import MAX_OFFSETS_PER_TRIGGER, JobOptions
from penstock.pipeline.job.survey import Clusters, Survey
from penstock.pipeline.ports import Invoker
from penstock.pipeline.spark.startup import is_local
from penstock.pipeline.spark.stream import OffsetPlanner, planned_stream
from penstock.pipeline.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "counted",
    "new_query",
    "planner_of",
    "why_whole",
    "with_progress",
    "with_slot_deadline",
    "with_stage",
    "work_of",
]

_PER_SLOT: Final = MAX_OFFSETS_PER_TRIGGER // 2
"""Offsets of a batch for each slot, by default."""
_MOST_EXECUTORS: Final = 100
"""Executors that a batch is divided for where dynamic allocation has no bound."""
_SLOT_SECONDS: Final = 15.0
"""How long a task on a cluster waits for a broker that is away; Spark tries it several times."""
_MARKER: Final = 78
"""The size of a batch with one control record (KIP-98): 61 for the batch, 17 for the record."""


def new_query(source: Source) -> str:
    """Name the marks and transactions of a new checkpoint."""
    return f"penstock.{source.name}.{uuid.uuid4().hex[:12]}"


def settings_of(source: Source, settings: JobOptions, server: str) -> Settings:
    """Give how the raw client reaches a cluster of a source, credentials included."""
    receive = source.receive
    is_read = server == receive.server
    own = {"client.id": receive.client_id} if receive.client_id and is_read else {}
    return Settings.of(
        {**reveal(options(source.connections[server], Client.CONFLUENT_KAFKA)), **own},
        deadline=settings.broker_timeout,
    )


def work_of(
    source: Source,
    stage: Stage,
    settings: JobOptions,
    clusters: Clusters,
    found: Survey,
    *,
    group: str,
    on_data_loss: str,
    owner: Owner | None = None,
) -> WorkerSpec:
    """Give what the workers of a source are told; where a cluster has no transactions, none are promised.

    A progress topic that is needed and not there is made. Raises Refused if a topic on Pulsar has to
    deduplicate and does not. Where Spark answers conditions in its own SQL, the reference alone routes.

    `owner` is whose the marks are, where they have no checkpoint beside them.
    """
    stage = _with_receipts_in_place(stage)
    reached = {server: settings_of(source, settings, server) for server in source.on_kafka}
    first = next((server for server in (*source.servers[:1], *source.written) if server in reached), None)
    pulsar = _pulsar_source(source, clusters, group) if source.is_on_pulsar else None
    # With nothing but Pulsar there is no Kafka to connect to, but clients have a patience all the same.
    nowhere = Settings(bootstrap=(), deadline=settings.broker_timeout)
    first_settings = nowhere if first is None else replace(reached[first], proven=True)
    transactional, topic_id, source_id = _facts(source, pulsar, first, reached)
    has_answers = source.asks_spark
    by_reference = has_answers or stops(stage)
    program = reference_program_of(stage, has_answers=has_answers) if by_reference else program_of(stage)
    exactly_once = settings.exactly_once and transactional
    is_indexed = pulsar is None or pulsar.is_indexed
    program = replace(program, has_ids=is_indexed)
    is_repeatable = why_unrepeatable(source, indexed=is_indexed) is None
    if exactly_once:
        _require_room_for_markers(program)
        if is_repeatable:
            _require_deduplication(program, found)
    only_written = _only_written(source, reached)
    if exactly_once or pulsar is not None:
        for server in only_written.values():
            require_progress_topic(clusters.client(server, source.connections[server]), server)
    return WorkerSpec(
        program=program,
        stage=stage,
        settings=first_settings,
        topic=source.topic,
        group=group,
        on_data_loss=on_data_loss,
        exactly_once=exactly_once,
        shadow=settings.shadow,
        belonging=Belonging(owner, topic_id),
        outputs={sink: replace(reached[server], proven=True) for sink, server in only_written.items()},
        pulsar_outputs=_pulsar_outputs(source),
        is_repeatable=is_repeatable,
        source_id=source_id,
        plan=plan_digest(program) if is_repeatable else None,
        pulsar=pulsar,
        progress=None if first is not None else _pulsar_progress(program),
    )


def _facts(
    source: Source, pulsar: PulsarSource | None, first: str | None, reached: Mapping[str, Settings]
) -> tuple[bool, str | None, str]:
    """Ask whether all clusters have transactions, and for the ids of the topic and cluster that are read."""
    if first is None:
        assert pulsar is not None
        return True, pulsar.incarnation or None, source.servers[0]
    with Cluster(reached[first]) as cluster:
        return _have_transactions(source, first, cluster, reached), *_identity(source, pulsar, cluster)


def _only_written(source: Source, reached: Mapping[str, Settings]) -> dict[int, str]:
    """Return the clusters on Kafka that are written and not read, by sink."""
    return {
        sink: server
        for sink, server in enumerate(source.servers)
        if sink and server in source.written and server in reached
    }


def _pulsar_progress(program: Program) -> PulsarProgress:
    """Return where marks are if all is on Pulsar: beside the first target."""
    places = dict.fromkeys(
        (target.sink, target.topic.removeprefix("persistent://").rpartition("/")[0])
        for number, target in enumerate(program.targets)
        if number not in program.receipts
    )
    (sink, namespace), *others = places
    return PulsarProgress(sink, namespace, tuple(others))


def _identity(source: Source, pulsar: PulsarSource | None, cluster: Cluster) -> tuple[str | None, str]:
    """Return the ids of the topic and of the cluster that are read, as far as they have any."""
    if pulsar is not None:
        return pulsar.incarnation or None, source.servers[0]
    topic_id = cluster.retrying(lambda: cluster.topic_id(source.topic))
    return topic_id, cluster.cluster_id or source.servers[0]


def _pulsar_outputs(source: Source) -> dict[int, PulsarSettings]:
    return {
        sink: PulsarSettings.of(source.connections[server])
        for sink, server in enumerate(source.servers)
        if server in source.native_pulsar
    }


def _require_deduplication(program: Program, found: Survey) -> None:
    """Raise Refused if a topic on Pulsar does not deduplicate; receipts need it not."""
    for number, target in enumerate(program.targets):
        known = found.on_pulsar.get((target.sink, target.topic))
        if known is not None and number not in program.receipts:
            require_deduplication(target.topic, known)


def with_stage(work: WorkerSpec, stage: Stage) -> WorkerSpec:
    """Return the work with a stage that knows more schemas; its routes and targets are the same."""
    return replace(work, stage=_with_receipts_in_place(stage))


def _with_receipts_in_place(stage: Stage) -> Stage:
    """Return a stage whose receipts go to the cluster of their channel like any other record.

    As they are compiled they have sinks of their own, behind those of the clusters.
    """

    def placed(invoker: Invoker | None) -> Invoker | None:
        if not isinstance(invoker, FunctionInvoker) or invoker.receipts is None:
            return invoker
        channels = {
            name: replace(target, sink=target.sink % len(stage.servers))
            for name, target in invoker.receipts.channels.items()
        }
        return replace(invoker, receipts=replace(invoker.receipts, channels=channels))

    return replace(
        stage, routes=tuple(replace(route, invoker=placed(route.invoker)) for route in stage.routes)
    )


def _pulsar_source(source: Source, clusters: Clusters, subscription: str) -> PulsarSource:
    client = clusters.pulsar(source.receive.server, source.receive.connection)
    return PulsarSource(
        settings=client.cluster.settings,
        topic=source.topic,
        partitions=client.partitions(source.topic),
        incarnation=client.incarnation(source.topic),
        numbering=client.numbering(source.topic),
        subscription=subscription,
    )


def _have_transactions(source: Source, known: str, first: Cluster, reached: Mapping[str, Settings]) -> bool:
    """Whether every Kafka cluster that is written has transactions, `first` being `known`.

    Our gateway has none. Where no Kafka is written, the mark is a transaction of its own on the one that is
    read. Where there is no Kafka at all, none is needed.
    """
    kafka = [server for server in source.written if server in reached]
    for server in kafka or (known,):
        if server == known:
            if not first.transactional:
                return False
            continue
        with Cluster(reached[server]) as cluster:
            if not cluster.transactional:
                return False
    return True


def with_progress(work: WorkerSpec) -> WorkerSpec:
    """Read the marks on other clusters once, so that tasks read only what comes behind them.

    Topics of Pulsar for marks are made if they are not there.
    """
    if work.progress is not None:
        return _with_pulsar_progress(work, work.progress)
    if not work.outputs or not (work.exactly_once or work.pulsar is not None):
        return work
    # The reader checks sums of batches with a kernel, which the driver loads only for this.
    from penstock.pipeline.delivery.progress_reader import read_progress

    found = {}
    for sink, settings in work.outputs.items():
        with Cluster(settings) as cluster:
            found[sink] = read_progress(cluster, work.progress_key, Snapshot())
    return replace(work, seen=found)


def _with_pulsar_progress(work: WorkerSpec, progress: PulsarProgress) -> WorkerSpec:
    # The client of Pulsar loads kernels, which a driver without Pulsar does not need.
    from penstock.pipeline.delivery.pulsar.progress import locate, read_marks, require_topics

    assert work.pulsar is not None
    key, partitions = work.progress_key, max(work.pulsar.partitions, 1)
    with SourceCluster(work) as clusters:
        found = locate(clusters.pulsar, progress, key)
        cluster = clusters.pulsar(found.sink)
        require_topics(cluster, found, key, partitions)
        marks = read_marks(cluster, found, key, range(partitions))
    return replace(work, progress=found, seen={found.sink: Snapshot(None, marks)})


def _require_room_for_markers(program: Program) -> None:
    """Refuse a topic that cannot take the end of a transaction: the broker would try to write it for ever."""
    for target in program.targets:
        if target.limit is not None and target.limit < _MARKER:
            raise PipelineError(
                f"{target.topic} takes {target.limit} bytes at a time, less than the end of a transaction",
                where=f"max.message.bytes of {target.topic}",
                why=f"A transaction ends with a marker of {_MARKER} bytes in every topic that it wrote to.",
                next="raise max.message.bytes of the topic, or write without transactions: --at-least-once",
            )


def why_whole(source: Source, work: WorkerSpec) -> str | None:
    """Say why no partition of a source may be cut between tasks; None if it may."""
    if work.exactly_once:
        return "exactly once, a partition has one transaction at a time; --at-least-once has none"
    ordered = [route.name for route in source.routes if route.document.ordering != "none"]
    if ordered:
        return f"route {', '.join(ordered)} keeps the order of its records; ordering: none does not"
    return None


def planner_of(
    spark: SparkSession,
    work: WorkerSpec,
    settings: JobOptions,
    begin: Offsets,
    *,
    watch: EndWatch,
    waits: bool,
    split: bool = False,
) -> Planner:
    """Give what plans the batches of a source; each is divided for the slots that the cluster has then."""
    slots = _slots(spark)
    limits = BatchLimits(
        offsets=lambda: settings.max_offsets or max(MAX_OFFSETS_PER_TRIGGER, _PER_SLOT * slots()),
        bytes=settings.max_bytes,
        slots=slots,
        tasks=settings.max_tasks,
        record_cost=1 if work.program.has_kernel else REFERENCE_COST,
        split=split,
    )
    planner = Planner if work.pulsar is None else partial(PulsarPlanner, source=work.pulsar)
    return planner(
        settings=work.settings,
        topic=work.topic,
        begin=begin,
        limits=limits,
        watch=watch,
        topic_id=work.belonging.topic_id,
        waits=waits,
    )


def _slots(spark: SparkSession) -> Callable[[], int]:
    """Give what tells how many tasks the cluster runs at the same time, by the executors that it has then.

    With dynamic allocation it is how many it may have: Spark asks for executors only when tasks wait.
    """
    context = spark.sparkContext
    # A copy of all settings, which Py4J fetches one by one: some hundred questions.
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return lambda: context.defaultParallelism
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(_MOST_EXECUTORS)) or _MOST_EXECUTORS)
    allowed = min(executors, _MOST_EXECUTORS) * int(conf.get("spark.executor.cores", "1") or 1)
    return lambda: max(context.defaultParallelism, allowed)


def with_slot_deadline(spark: SparkSession, work: WorkerSpec) -> WorkerSpec:
    """Return what tasks are told, with how long they wait for a broker that is away.

    A slot of a cluster is not only ours: a task gives it back, and the planner waits. On this machine each
    source has slots of its own.
    """
    if is_local(spark.sparkContext.master or ""):
        return work
    deadline = min(work.settings.deadline, _SLOT_SECONDS)
    return replace(work, settings=replace(work.settings, deadline=deadline))


def counted(
    spark: SparkSession, work: WorkerSpec, planner: OffsetPlanner, *, name: str, title: str
) -> DataStreamWriter:
    """Give the query whose rows are counts, observed under the name; nothing is left for a sink to write.

    The shares of the planner are those of `offset_ranges`. Jobs and stages of Spark are called `title`.
    """
    from pyspark.sql import functions as F

    packed = with_slot_deadline(spark, work).packed()
    counts = planned_stream(spark, title, COUNTED_DDL, planner, partial(_counts, packed))
    return counts.observe(name, *(F.sum(column).alias(column) for column in COUNTED)).writeStream.format(
        "noop"
    )


def _counts(packed: bytes, share: Share) -> Iterator[pa.RecordBatch]:
    # Only in a task are kernels needed.
    import pyarrow as pa

    from penstock.pipeline.delivery.task import counted

    arrays = [pa.array([count], pa.int64()) for count in counted(packed, share)]
    yield pa.RecordBatch.from_arrays(arrays, list(COUNTED))
