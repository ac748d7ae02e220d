"""A topic as a stream of ranges, for Spark: it plans and remembers offsets, and sees no record.

Offsets look as those of Spark's Kafka source, `{topic: {partition: offset}}`, so both can go on from one
checkpoint. Planning runs in small processes beside the driver, which must not import a kernel. A task that
reads its ranges does them: the rows that come out are counts, and no second worker waits behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.topic_offsets import latest
from penstock.errors import JobFailed
from penstock.pipeline.fused.same_topic import refuse_other_topic
from penstock.pipeline.fused.spans import Span, admitted, grouped, spans_of
from penstock.pipeline.fused.work import COUNTED_DDL

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

__all__ = ["Planner", "source_class"]

_GROWTH: Final = 10.0
"""How often it is asked whether the topic has more partitions."""

SHRUNK_SECONDS: Final = 60.0
"""How long a topic may end before what was to be read, until a job takes it for lost."""

_Json = dict[str, dict[str, int]]


@dataclass(slots=True)
class Planner:
    """Says where a topic ends, over a connection that stays open."""

    settings: Settings
    topic: str
    begin: Offsets
    """Where the query began: Spark does not note it before its first batch is done."""
    limit: int
    """Offsets of one batch at most, if Spark does not say otherwise."""
    workers: int
    """Into how many parts a batch is shared out."""
    topic_id: str | None = None
    """The id of the topic that the offsets are of; None if the cluster has no ids."""
    _target: Offsets | None = None
    _cluster: Cluster | None = None
    _looked: float = 0.0
    _short_since: float | None = None
    _short_looked: float = 0.0

    def start(self) -> _Json:
        """Give where the first batch begins."""
        return self._json(self.begin)

    def end(self) -> _Json:
        """Give its end, for who reads what is committed."""
        return self._json(self._latest())

    def freeze(self) -> None:
        """Take the end of now for the end of all."""
        self._target = self._latest()

    def plan(self, start: _Json, limit: int | None) -> _Json:
        """Say where the next batch ends."""
        begin, latest = self._read(start), self._latest()
        has_more = any(last > begin.get(part, 0) for part, last in latest.items())
        if has_more or self._has_shrunk(begin, latest):
            # A batch that is planned on the offsets of another topic would skip records. An idle query, which
            # plans many times a second, asks nobody.
            refuse_other_topic(self._open(), self.topic, self.topic_id)
        return self._json(admitted(begin, latest, limit))

    def _has_shrunk(self, begin: Offsets, latest: Offsets) -> bool:
        """Tell whether the topic ends before the next batch begins, at most once a second.

        A new leader may tell an end that lags behind for a moment. If it stays so, records that come between
        its end and the start of the batch would never be read: JobFailed.
        """
        short = {part: latest.get(part, 0) for part, at in begin.items() if latest.get(part, 0) < at}
        now = monotonic()
        if not short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = self._short_looked = now
            return True
        elif now - self._short_since > SHRUNK_SECONDS:
            part, end = min(short.items())
            raise JobFailed(
                f"the topic ends at {end}, before what was to be read",
                where=f"{self.topic}, partition {part}, offset {begin[part]}",
                why="It lost its end, or is another one of the same name.",
                next="--fresh-checkpoint reads it from its beginning",
            )
        elif now - self._short_looked > 1.0:
            self._short_looked = now
            return True
        return False

    def shares(self, start: _Json, end: _Json) -> list[Sequence[Span]]:
        """Share a batch out."""
        return grouped(spans_of(self._read(start), self._read(end)), self.workers)

    def close(self) -> None:
        """Close the connection."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self) -> Offsets:
        if self._target is not None:
            return self._target
        cluster, now = self._open(), monotonic()
        if now - self._looked > _GROWTH:
            self._looked = now
            cluster.partitions(self.topic, refresh=True)
        return latest(cluster, self.topic, read_committed=True)

    def _open(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.settings)
        return self._cluster

    def _json(self, offsets: Offsets) -> _Json:
        return {self.topic: {str(part): offset for part, offset in sorted(offsets.items())}}

    def _read(self, found: Mapping[str, Any]) -> Offsets:
        return {int(part): int(offset) for part, offset in found.get(self.topic, {}).items()}


def source_class(name: str, planner: Planner, packed: bytes) -> type[DataSource]:
    """Make the class that Spark asks for under a name; it travels by value, planner and packed work inside.

    Options would be shown in plans, so nothing is given by options.
    """
    from pyspark.sql.datasource import DataSource

    reader = _reader_class(planner, packed)

    class Ranges(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return COUNTED_DDL

        def streamReader(self, schema: object) -> DataSourceStreamReader:
            return reader()

    return Ranges


def _reader_class(planner: Planner, packed: bytes) -> type[DataSourceStreamReader]:
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def initialOffset(self) -> _Json:
            return planner.start()

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadMaxRows(planner.limit)

        def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:
            return planner.plan(start, getattr(limit, "max_rows", None))

        def reportLatestOffset(self) -> _Json:
            return planner.end()

        def prepareForTriggerAvailableNow(self) -> None:
            planner.freeze()

        def partitions(self, start: _Json, end: _Json) -> Sequence[InputPartition]:
            return [InputPartition(tuple(share)) for share in planner.shares(start, end)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
            # Only here are kernels needed.
            from penstock.pipeline.fused.task import counted

            yield counted(packed, partition.value)

        def stop(self) -> None:
            planner.close()

    return Reader
