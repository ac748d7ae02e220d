"""Where the records of a machine go, and when they count as done.

| outlet | promise |
|---|---|
| Exact | output, dead letters and marks are one transaction: all of it is there, or nothing |
| Repeatable | marks are committed when all output is acknowledged: what comes between may be written again |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.producer import BatchRefusal, Producer
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.errors import PenstockError, ProducerFenced
from penstock.pipeline.delivery.pulsar.output import PulsarOutput
from penstock.pipeline.delivery.pulsar.placement import Placement, target_key
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.delivery.source_cluster import SourceCluster, output_cluster
from penstock.pipeline.delivery.worker_spec import TRANSACTION_SECONDS, WorkerSpec

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.pipeline.evaluators.kernel.batch_router import Output

__all__ = ["TransactionalSink", "Sink", "IdempotentSink", "kept", "log_lost", "offsets_of", "opened"]

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes what a machine makes."""

    every: float
    """Seconds between two commits of a loop that has nothing to do: readers wait for them, or only marks."""

    @property
    def expired(self) -> bool:
        """Whether it was shut out in a transaction that took too long: perhaps nobody else has its name."""

    @property
    def was_refused(self) -> bool:
        """Whether `put` or `commit` failed because a batch was refused for the sake of its records."""

    def put(self, output: Output) -> None:
        """Send records on their way."""

    def offer(self, output: Output) -> BatchRefusal | None:
        """Send records and wait for them; give why they were refused. Then only `restart` makes sense."""

    def restart(self) -> None:
        """Give up what was put since the last commit; what is put from now on begins anew."""

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Make everything that was put durable, and then or with it the marks, by partition."""

    def close(self) -> None:
        """Let go; what was put and not committed does not count."""


@contextmanager
def opened(work: WorkerSpec, cluster: Cluster, name: str, *, marks: bool = True) -> Iterator[Sink]:
    """Open the outlet that a source wants; who opened it before under the same name is shut out.

    Without `marks` a commit only waits for the output: of a partition that several work on no mark is true.
    """
    outlet: Sink = (
        TransactionalSink(work, cluster, name)
        if work.exactly_once
        else IdempotentSink(work, cluster, marks=marks)
    )
    try:
        yield outlet
    finally:
        outlet.close()


class TransactionalSink:
    """Writes in transactions under one transactional id, which has one owner at a time."""

    every = 0.0

    def __init__(self, work: WorkerSpec, cluster: Cluster, name: str) -> None:
        self._work = work
        self._topics = [target.topic for target in work.program.targets]
        # KIP-98: InitProducerId raises the epoch, so an orphan that still writes is fenced, and what it left
        # open is aborted before its marks are read.
        self._producer = TransactionalProducer(
            cluster, transactional_id(work, name), timeout=TRANSACTION_SECONDS
        )
        self._begun = False

    @property
    def expired(self) -> bool:
        """Whether the broker may have ended the transaction because of its time."""
        return self._producer.expired

    def put(self, output: Output) -> None:
        """Write inside the transaction."""
        self._begin()
        self._producer.send(self._topics[output.target], output.partition, output.body)

    @property
    def was_refused(self) -> bool:
        """Whether the transaction has a batch that was refused for the sake of its records."""
        return self._producer.was_refused

    def offer(self, output: Output) -> BatchRefusal | None:
        """Write inside the transaction, and wait."""
        self._begin()
        return self._producer.offer(self._topics[output.target], output.partition, output.body)

    def restart(self) -> None:
        """Abort the transaction; the next one has a new epoch, so that sequences begin anew (KIP-360)."""
        if self._begun:
            self._producer.abort()
            self._begun = False

    def flush(self) -> None:
        """Wait until everything that was put is in the log."""
        if self._begun:
            self._producer.flush()

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Commit the marks with the output."""
        self._begin()
        self._producer.commit(group=self._work.group, offsets=offsets_of(self._work.topic, marks))
        self._begun = False

    def close(self) -> None:
        """Abort what is open: the broker would do it only after the time-out of the transaction.

        Raises ProducerFenced if somebody else has the id: a broker may have told that in other words before.
        """
        try:
            if self._begun:
                self._producer.abort()
        except ProducerFenced:
            raise
        except PenstockError as exc:
            # Who takes the id over aborts it too; what went wrong before is the better story.
            _log.warning("a transaction of group %s is left to its time-out: %s", self._work.group, exc)
        finally:
            self._producer.close()

    def _begin(self) -> None:
        if not self._begun:
            self._producer.begin()
            self._begun = True


class IdempotentSink:
    """Writes by an idempotent producer, and commits marks behind it."""

    every = 1.0
    expired = False

    def __init__(self, work: WorkerSpec, cluster: Cluster, *, marks: bool = True) -> None:
        self._topic = work.topic
        self._targets = [(target.sink, target.topic) for target in work.program.targets]
        self._marks = GroupOffsets(cluster, work.group) if marks else None
        sinks = {sink for sink, _ in self._targets} - {*work.pulsar_outputs}
        self._clusters = {sink: output_cluster(cluster, sink) for sink in sinks}
        self._producers = {sink: Producer(each) for sink, each in self._clusters.items()}
        self._receipts = work.program.receipts
        self._kept: list[Output] = []
        self._pulsar = _pulsar_outputs(work, cluster)

    def put(self, output: Output) -> None:
        """Write at once; receipts when everything else is acknowledged."""
        if output.target in self._receipts:
            self._kept.append(kept(output))
            return
        sink, topic = self._targets[output.target]
        if sink in self._pulsar:
            self._pulsar[sink].put(output)
            return
        self._producers[sink].send(topic, output.partition, output.body)

    @property
    def was_refused(self) -> bool:
        """Whether a batch was refused for the sake of its records."""
        pulsar = any(each.was_refused for each in self._pulsar.values())
        return pulsar or any(producer.was_refused for producer in self._producers.values())

    def check(self, output: Output) -> BatchRefusal | None:
        """Return why Pulsar would refuse records; nothing is sent. What becomes of receipts stops nothing."""
        if output.target in self._receipts:
            return None
        return self._pulsar[self._targets[output.target][0]].check(output)

    def offer(self, output: Output) -> BatchRefusal | None:
        """Write, and wait; receipts are only kept for the commit."""
        if output.target in self._receipts:
            self._kept.append(kept(output))
            return None
        sink, topic = self._targets[output.target]
        if sink in self._pulsar:
            return self._pulsar[sink].offer(output)
        return self._producers[sink].offer(topic, output.partition, output.body)

    def restart(self) -> None:
        """Go on with new producers: what the old ones wrote stays, and is written again."""
        self._kept.clear()
        for sink, producer in self._producers.items():
            producer.settle()
            self._producers[sink] = Producer(self._clusters[sink])
        for pulsar in self._pulsar.values():
            pulsar.restart()

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Wait for all acknowledgments of all clusters, then commit the marks."""
        for producer in self._producers.values():
            producer.flush()
        for pulsar in self._pulsar.values():
            pulsar.flush()
        receipts, self._kept = self._kept, []
        for output in receipts:
            sink, topic = self._targets[output.target]
            if sink in self._pulsar:
                log_lost(topic, output, self._pulsar[sink].offer(output))
            else:
                producer = self._producers[sink]
                log_lost(topic, output, producer.offer(topic, output.partition, output.body))
        if self._marks is not None:
            self._marks.commit(offsets_of(self._topic, marks))

    def close(self) -> None:
        """Close the producers."""
        for pulsar in self._pulsar.values():
            pulsar.close()
        for producer in self._producers.values():
            producer.close()


def kept(output: Output) -> Output:
    """Return a batch with its own bytes: those that `put` is given lie in memory that is used again."""
    ids = None if output.ids is None else output.ids.copy()
    return replace(output, body=replace(output.body, records=bytes(output.body.records)), ids=ids)


def log_lost(topic: str, output: Output, refusal: BatchRefusal | None) -> None:
    """Log receipts that a topic has refused, if there are any; they are lost."""
    if refusal is not None:
        _log.warning("%s refuses %d receipts: %s", topic, output.body.count, refusal.error)


def _pulsar_outputs(work: WorkerSpec, cluster: Cluster) -> dict[int, PulsarOutput]:
    """Open the Pulsar clusters of a source that delivers at least once: records have no names and ids."""
    if not work.pulsar_outputs:
        return {}
    assert isinstance(cluster, SourceCluster)
    targets = [target for target in work.program.targets if target.sink in work.pulsar_outputs]
    counts = {target_key(target): cluster.pulsar_partitions(target) for target in targets}
    cluster.fixed_partitions = counts
    found = {}
    for sink in work.pulsar_outputs:
        found[sink] = PulsarOutput(work, cluster.pulsar(sink), sink, exactly_once=False)
        found[sink].place(0, Placement(counts), 0, begun=False)
    return found


def transactional_id(work: WorkerSpec, name: str) -> str:
    """Name the transactions of a source: two sources, or two names of one source, never have the same id.

    The last three parts hold no slash, so a group may hold one. Groups of two clusters may have one name, so
    the cluster that is read is a part.

    >>> from types import SimpleNamespace
    >>> work = SimpleNamespace(group="shop.eu", source_id="c1", topic="persistent://t/n/in")
    >>> transactional_id(work, "loop")
    'shop.eu/c1/persistent%3A%2F%2Ft%2Fn%2Fin/loop'
    """
    return "/".join((work.group, *(quote(part, safe="") for part in (work.source_id, work.topic, name))))


def offsets_of(topic: str, marks: Mapping[int, RangeProgress]) -> dict[tuple[str, int], GroupOffset]:
    """Give marks as a group commits them."""
    return {(topic, part): GroupOffset(mark.offset, mark.text) for part, mark in marks.items()}
