"""Sinks whose commit writes marks that are no offsets of a group: records of a progress topic.

The first marks of a program carry what it was made of, if the topic takes a record of that size.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.pipeline.delivery.progress import PARTITION, TOPIC, ProgressKey, PulsarProgress, mark_value
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.delivery.sink import IdempotentSink, TransactionalSink
from penstock.pipeline.delivery.source_cluster import PulsarSourceCluster, SourceCluster
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.wire.kafka.batch_body import BatchBody

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.pipeline.delivery.pulsar.progress import PulsarProgressSink
    from penstock.pipeline.delivery.worker_spec import WorkerSpec

__all__ = ["ProgressSink", "RepeatableProgress", "SourceSink", "pulsar_progress_sink"]

_PLAN_OVERHEAD: Final = 1024
"""Bytes of a batch with one record beside its value, the key with its names included."""


class ProgressSink(TransactionalSink):
    """A cluster that is not the one that is read: its marks are records in its progress topic."""

    def __init__(self, work: WorkerSpec, cluster: Cluster, name: str) -> None:
        super().__init__(work, cluster, name)
        self._key = work.progress_key
        self._plan = _plan_to_keep(work, cluster)
        """What the program was made of, until it is committed: with the first marks, before any output."""

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Commit the marks with the output."""
        self._begin()
        if self._plan is not None:
            self._producer.send(TOPIC, PARTITION, _plan_body(self._key, self._plan))
        if marks:
            self._producer.send(TOPIC, PARTITION, _body(_mark_rows(self._key, marks)))
        self._producer.commit()
        self._plan = None
        self._begun = False


class SourceSink(TransactionalSink):
    """The cluster that is read, where it alone has marks of a loop: it also keeps what the program is."""

    def __init__(self, work: WorkerSpec, cluster: Cluster, name: str) -> None:
        super().__init__(work, cluster, name)
        self._key = work.progress_key
        self._plan = None if work.outputs else _plan_to_keep(work, cluster)
        """What the program was made of, until it is committed: with the first marks, before any output."""

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Commit the marks with the output."""
        self._begin()
        if self._plan is not None:
            self._producer.send(TOPIC, PARTITION, _plan_body(self._key, self._plan))
        super().commit(marks)
        self._plan = None


class RepeatableProgress(IdempotentSink):
    """Writes a source on Pulsar at least once: its marks are records, written when all output is there."""

    def __init__(self, work: WorkerSpec, cluster: Cluster, name: str, *, marks: bool = True) -> None:
        super().__init__(work, cluster, marks=False)
        self._key = work.progress_key
        self._has_marks = marks
        self._on_pulsar = None
        if marks and work.progress is not None:
            assert isinstance(cluster, SourceCluster)
            self._on_pulsar = pulsar_progress_sink(work, work.progress, cluster, name)

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Wait for all acknowledgments of all clusters, then write the marks to each that has some."""
        super().commit(marks)
        if self._on_pulsar is not None:
            self._on_pulsar.commit(marks)
        elif self._has_marks and marks:
            for producer in self._producers.values():
                producer.send(TOPIC, PARTITION, _body(_mark_rows(self._key, marks)))
            for producer in self._producers.values():
                producer.flush()

    def close(self) -> None:
        """Close the producers."""
        if self._on_pulsar is not None:
            self._on_pulsar.close()
        super().close()


def pulsar_progress_sink(
    work: WorkerSpec, progress: PulsarProgress, cluster: SourceCluster, name: str
) -> PulsarProgressSink:
    """Open the topics with the marks of the partition that is named so, or of all."""
    from penstock.pipeline.delivery.pulsar.progress import PulsarProgressSink

    assert isinstance(cluster, PulsarSourceCluster)
    partitions = [int(name)] if name.isdecimal() else range(cluster.partitions_read())
    return PulsarProgressSink(
        cluster.pulsar(progress.sink), progress, work.progress_key, partitions, plan=work.kept_plan
    )


def _mark_rows(key: ProgressKey, marks: Mapping[int, RangeProgress]) -> list[tuple[bytes, bytes]]:
    return [(key.of(part), mark_value(mark.offset, mark.text)) for part, mark in marks.items()]


def _plan_to_keep(work: WorkerSpec, cluster: Cluster) -> bytes | None:
    """Return what the program was made of, if the progress topic takes a record of that size."""
    if work.kept_plan is None:
        return None
    limit = cluster.max_message_bytes(TOPIC)
    return work.kept_plan if limit is None or len(work.kept_plan) + _PLAN_OVERHEAD <= limit else None


def _plan_body(key: ProgressKey, plan: bytes) -> BatchBody:
    return _body([(key.plan, plan)])


def _body(records: Iterable[tuple[bytes, bytes]]) -> BatchBody:
    now = time.time_ns() // 1_000_000
    rows = [numbered(record_bytes(key, value, ()), at) for at, (key, value) in enumerate(records)]
    return BatchBody(b"".join(rows), len(rows), now, now)
