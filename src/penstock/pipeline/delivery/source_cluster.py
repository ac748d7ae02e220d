"""The clusters of one source: the one that it reads, which is sink 0, and the others that it writes to.

A source on Pulsar has no Kafka on sink 0: its marks are on the Kafka clusters that are written, or in topics
of Pulsar if none is (`pulsar_progress`). What a loop and a task ask of the side that is read, whichever it
is, goes through here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from operator import itemgetter
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetcher, Wanted
from penstock.brokers.kafka_raw.retry import is_retriable, pauses
from penstock.brokers.kafka_raw.topic_offsets import earliest, latest
from penstock.brokers.outage import OutageLog
from penstock.errors import PenstockError, PulsarRefused, Unreachable
from penstock.pipeline.delivery.progress import Snapshot
from penstock.pipeline.delivery.pulsar.placement import target_key
from penstock.pipeline.delivery.same_topic import refuse_other_incarnation, refuse_other_topic

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.fetched import Fetched
    from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
    from penstock.pipeline.delivery.pulsar.reader import FetchedEntries, PulsarFetcher
    from penstock.pipeline.delivery.worker_spec import WorkerSpec
    from penstock.pipeline.ports import Target
    from penstock.wire.buffer import Buffer

__all__ = [
    "PatientFetcher",
    "PulsarSourceCluster",
    "SourceCluster",
    "SourceFetcher",
    "output_cluster",
    "source_cluster",
    "source_earliest",
    "source_fetcher",
    "source_latest",
    "source_partitions",
    "target_partitions",
]

_DETACHED_SECONDS: Final = 3.0
"""So long a reader may be without its broker before it counts as an outage: topics move."""
_GROWTH_SECONDS: Final = 5.0
"""For the answer to how many partitions there are, for which a loop stops."""


class SourceFetcher(Protocol):
    """What gives the batches of several partitions, from Kafka or from Pulsar."""

    def poll(self, timeout: float) -> Sequence[Fetched]:
        """Return what has come of each partition, after `timeout` seconds nothing."""

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an offset; a partition that was not read yet is added, without an end."""

    def close(self) -> None:
        """Stop reading."""


class SourceCluster(Cluster):
    """The cluster that is read; with it, clients of the clusters that are only written."""

    def __init__(
        self,
        work: WorkerSpec,
        *,
        stop: Event | None = None,
        outage: OutageLog | None = None,
        seen: dict[int, Snapshot] | None = None,
    ) -> None:
        """`seen` is what was read of the progress topics, by sink; it is kept up to date.

        `outage` is told whether the cluster that is read answers.
        """
        super().__init__(work.settings, stop=stop, outage=outage)
        self.outputs: Mapping[int, Cluster] = {
            sink: Cluster(settings, stop=stop) for sink, settings in work.outputs.items()
        }
        self.seen = dict(work.seen) if seen is None else seen
        for sink, snapshot in work.seen.items():
            self.seen.setdefault(sink, snapshot)
        self.fixed_partitions: Mapping[str, int] = {}
        """How many partitions targets on Pulsar had when the range was begun, by `target_key`."""
        self._pulsar_settings = work.pulsar_outputs
        self._pulsar: dict[int, PulsarCluster] = {}

    def pulsar(self, sink: int) -> PulsarCluster:
        """Return the client of a Pulsar cluster; it is made when it is first asked for."""
        if sink not in self._pulsar:
            # It parses frames with kernels, which only who writes Pulsar needs.
            from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster

            self._pulsar[sink] = PulsarCluster(self._pulsar_settings[sink])
        return self._pulsar[sink]

    def is_on_pulsar(self, sink: int) -> bool:
        """Whether a sink is a Pulsar cluster."""
        return sink in self._pulsar_settings

    def pulsar_partitions(self, target: Target) -> int:
        """Ask how many partitions a target on Pulsar has now, 0 for a topic without."""
        pulsar = self.pulsar(target.sink)
        return pulsar.call(pulsar.client.partitions(target.topic))

    def close(self) -> None:
        """Close the connections to all of them."""
        for pulsar in self._pulsar.values():
            pulsar.close()
        for output in self.outputs.values():
            output.close()
        super().close()


class PulsarSourceCluster(SourceCluster):
    """A Pulsar that is read, and the clusters that are written.

    As a `Cluster` it is the one of `work.settings`; nothing asks it, and so nothing is connected.
    """

    def __init__(
        self,
        work: WorkerSpec,
        *,
        stop: Event | None = None,
        outage: OutageLog | None = None,
        seen: dict[int, Snapshot] | None = None,
    ) -> None:
        """`outage` is told whether Pulsar gives what is read."""
        from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets

        super().__init__(work, stop=stop, seen=seen)
        assert work.pulsar is not None
        self.source = work.pulsar
        self.offsets = PulsarOffsets(work.pulsar.settings, timeout=work.settings.deadline, stop=stop)
        self._stop_reading = stop
        self._pulsar_outage = outage

    def partitions_read(self) -> int:
        """Count the partitions of the topic that is read, 1 for a topic without. Raises if nobody answers."""
        return max(self.offsets.partitions(self.source.topic), 1)

    def fetcher(self, wanted: Iterable[Wanted]) -> PatientFetcher:
        """Return what reads ranges of partitions."""
        from penstock.pipeline.delivery.pulsar.reader import PulsarFetcher

        source = self.source
        fetcher = PulsarFetcher(
            self.offsets.cluster, wanted, {source.topic: source.partitions}, numbering=source.numbering
        )
        return PatientFetcher(
            fetcher, seconds=self.settings.deadline, stop=self._stop_reading, outage=self._pulsar_outage
        )

    def close(self) -> None:
        """Close the connections to all of them."""
        self.offsets.close()
        super().close()


class PatientFetcher:
    """A fetcher of Pulsar that outlasts its brokers for a while: as long as they are away nothing comes."""

    def __init__(
        self,
        fetcher: PulsarFetcher,
        *,
        seconds: float,
        stop: Event | None = None,
        outage: OutageLog | None = None,
    ) -> None:
        """After so many seconds without a broker `poll` raises why; `stop` ends its pauses."""
        self._fetcher = fetcher
        self._seconds = seconds
        self._stop = stop or Event()
        self._outage = outage
        self._since: float | None = None
        self._pauses = pauses()

    @property
    def is_attached(self) -> bool:
        """Whether every partition that is read has its broker."""
        return self._fetcher.is_attached

    def poll(self, timeout: float) -> Sequence[Fetched]:
        """Return what has come of each partition; raises as the fetcher does, but for outages."""
        try:
            found = self._fetcher.poll(timeout)
        except PenstockError as exc:
            if not is_retriable(exc):
                raise
            self._failed(exc, now=time.monotonic())
            self._stop.wait(min(next(self._pauses), timeout))
            return ()
        if found or self._fetcher.is_attached:
            self._worked()
        else:
            self._failed(
                Unreachable(
                    "the broker of a topic on Pulsar is away",
                    where=self._fetcher.service_url,
                    next="start it; reading goes on where it was",
                ),
                now=time.monotonic(),
                quiet=_DETACHED_SECONDS,
            )
        return [_with_rejected(each) if each.rejected else each for each in found]

    @property
    def waiting(self) -> bool:
        """Whether a partition has not reached its end."""
        return self._fetcher.waiting

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an index."""
        self._fetcher.seek(topic, partition, offset)

    def close(self) -> None:
        """Stop reading."""
        self._fetcher.close()

    def _worked(self) -> None:
        self._since, self._pauses = None, pauses()
        if self._outage is not None:
            self._outage.worked()

    def _failed(self, error: PenstockError, *, now: float, quiet: float = 0.0) -> None:
        self._since = now if self._since is None else self._since
        if self._outage is not None and now - self._since >= quiet:
            self._outage.failed(error)
        if now - self._since > self._seconds:
            raise error


def _with_rejected(fetched: FetchedEntries) -> Fetched:
    """Return the batches with one more for each entry that could not become one, all in their order.

    A router that collects stands where the first record is that it holds: what came late would be passed by.
    """
    from penstock.wire.kafka.record_batch import read_batches

    batches: Iterable[tuple[int, Buffer]] = (
        (each.base_offset, each.data) for each in read_batches(fetched.data)
    )
    rejected: Iterable[tuple[int, Buffer]] = ((each.base_offset, each.batch()) for each in fetched.rejected)
    ordered = merge(rejected, batches, key=itemgetter(0))
    return replace(fetched, data=memoryview(b"".join(data for _, data in ordered)))


def source_cluster(
    work: WorkerSpec,
    *,
    stop: Event | None = None,
    outage: OutageLog | None = None,
    seen: dict[int, Snapshot] | None = None,
) -> Cluster:
    """Return the clients that a source needs."""
    if work.pulsar is not None:
        return PulsarSourceCluster(work, stop=stop, outage=outage, seen=seen)
    if work.has_outputs:
        return SourceCluster(work, stop=stop, outage=outage, seen=seen)
    return Cluster(work.settings, stop=stop, outage=outage)


def output_cluster(cluster: Cluster, sink: int) -> Cluster:
    """Return the client of the cluster that a target's sink is."""
    return cluster.outputs[sink] if sink and isinstance(cluster, SourceCluster) else cluster


def target_partitions(cluster: Cluster, target: Target) -> int:
    """Return among how many partitions the records for a target are divided: on Pulsar as it was fixed."""
    if isinstance(cluster, SourceCluster) and cluster.is_on_pulsar(target.sink):
        return max(1, cluster.fixed_partitions[target_key(target)])
    return output_cluster(cluster, target.sink).partitions(target.topic)


# What is asked of the side that is read


def source_earliest(work: WorkerSpec, cluster: Cluster) -> Offsets:
    """Return where each partition of the topic that is read begins."""
    if isinstance(cluster, PulsarSourceCluster):
        return cluster.offsets.earliest(work.topic)
    return earliest(cluster, work.topic)


def source_latest(work: WorkerSpec, cluster: Cluster) -> Offsets:
    """Return where each partition ends for those who read only what is committed."""
    if isinstance(cluster, PulsarSourceCluster):
        return cluster.offsets.latest(work.topic)
    return latest(cluster, work.topic, read_committed=True)


def source_partitions(work: WorkerSpec, cluster: Cluster) -> int:
    """Count the partitions anew; 0 if nobody answers now. Raises JobFailed if the topic was made again."""
    if isinstance(cluster, PulsarSourceCluster):
        # Loads a kernel, which a source on Kafka does not need.
        from penstock.wire.pulsar.pulsar_pb2 import ServerError

        offsets, known = cluster.offsets, cluster.source.incarnation
        try:
            refuse_other_incarnation(work.topic, known, offsets.incarnation(work.topic))
            return max(offsets.partitions(work.topic), 1)
        except PenstockError as exc:
            # A topic that is gone, or is being made again, is noticed by who reads it.
            is_gone = isinstance(exc, PulsarRefused) and exc.server_error == ServerError.TOPIC_NOT_FOUND
            if not is_gone and not is_retriable(exc):
                raise
            return 0
    cluster.try_refresh([work.topic])
    refuse_other_topic(cluster, work.topic, work.belonging.topic_id)
    return cluster.partitions(work.topic)


def source_fetcher(
    work: WorkerSpec, cluster: Cluster, wanted: Iterable[Wanted], *, max_wait: float
) -> SourceFetcher:
    """Return what reads ranges of partitions of the topic that is read."""
    if isinstance(cluster, PulsarSourceCluster):
        return cluster.fetcher(wanted)
    return Fetcher(cluster, wanted, max_wait=max_wait)
