"""How far a source has come that reads Pulsar and writes nothing but Pulsar: marks in topics of Pulsar.

Pulsar has no transaction that would hold output and mark together. It is not needed: output has ids from the
position of its input, and what is stored already is left out (`pulsar_sink`). A mark only says from where on
that has to be looked at, and what holds for the records behind it (`placement`, `range_clock`): it is written
when everything before it is stored. What is needed is one owner of a partition at a time, and that its marks
are never lost:

- Each partition that is read has a topic of its own, without partitions: `ExclusiveWithFencing` gives a topic
  one producer, and shuts out the one before. A mark of who was shut out is refused, and it ends.
- Marks of who was shut out may still be on their way when the new owner opens the topic. So that one writes a
  fence, which comes behind them, and reads the last mark when the fence is stored. A fence names the mark
  that was the last when it was written: the end of the topic leads to the last mark in two reads.
- A durable subscription stands before the last mark, so no retention removes it and no broker deletes the
  topic for want of use. What is older is acknowledged, and removed by the broker.

    mark   {"offset": where to go on, and what `range_progress` keeps beside an offset}
    fence  {"fence": [ledger, entry] of the last mark, or null}

A loop has one more such topic, whose marks are what its program was made of (`PLAN`).

Why not a single compacted topic, as on Kafka: a topic has one exclusive producer, and compaction is off by
default. Why not the subscription on the topic that is read: its cursor is kept now and then only, holds no
text, and shuts nobody out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.brokers.pulsar import AccessMode, Delivery, Producer, SubscriptionType
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import (
    ClusterError,
    JobFailed,
    PenstockError,
    PipelineError,
    ProducerFenced,
    PulsarRefused,
    Unreachable,
)
from penstock.pipeline.delivery.progress import PLAN, ProgressKey, PulsarProgress, mark_value
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.pulsar import EARLIEST, LATEST, Entry, MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, ServerError

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.producer import BatchRefusal
    from penstock.brokers.pulsar.consumer import PeekingConsumer
    from penstock.pipeline.delivery.range_progress import RangeProgress
    from penstock.pipeline.evaluators.kernel.batch_builder import Output

__all__ = ["PulsarProgressSink", "locate", "read_marks", "require_topics"]

_log = logging.getLogger(__name__)

SUBSCRIPTION: Final = "penstock"
"""Keeps the last mark of each topic."""
_AT_ONCE: Final = 32
"""Topics that are opened or read at a time."""
_READ_SECONDS: Final = 30.0
_PROBE_SECONDS: Final = 1.0


class _Found(NamedTuple):
    """The last mark of a topic."""

    place: MessageId
    mark: GroupOffset


class _Record(NamedTuple):
    place: MessageId
    value: bytes
    published: int
    """In milliseconds; -1 for what is no entry of ours."""


# Reading


def read_marks(
    cluster: PulsarCluster, progress: PulsarProgress, key: ProgressKey, partitions: Iterable[int]
) -> dict[int, GroupOffset]:
    """Read the last mark of each partition that has one.

    Marks of somebody else who works under the same name may come behind; who has opened the sink before finds
    the last that there will be. Raises JobFailed if a mark cannot be read or was removed.
    """
    return cluster.call(_marks(cluster, progress, key, tuple(partitions)))


async def _marks(
    cluster: PulsarCluster, progress: PulsarProgress, key: ProgressKey, partitions: Collection[int]
) -> dict[int, GroupOffset]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(partition: int) -> _Found | None:
        async with turns:
            return await _last_mark(cluster, progress.topic(key, partition))

    found = await asyncio.gather(*map(one, partitions))
    return {part: each.mark for part, each in zip(partitions, found, strict=True) if each is not None}


async def _last_mark(cluster: PulsarCluster, topic: str) -> _Found | None:
    last = await _last_place(cluster, topic)
    if last is None:
        return None
    (record,) = await _read(cluster, topic, last, last)
    is_fence, at = _fence_of(record.value)
    if not is_fence:
        return _found(record, topic)
    # Marks of who was shut out may be between the one that the fence names and the fence.
    records = await _read(cluster, topic, EARLIEST if at is None else at, record.place)
    marks = [each for each in records if not _fence_of(each.value)[0]]
    if marks:
        return _found(marks[-1], topic)
    if at is None:
        return None
    raise JobFailed(
        "the last mark of this source was removed",
        where=topic,
        why=f"It was entry {at.ledger_id}:{at.entry_id}. The subscription {SUBSCRIPTION} was moved or "
        "deleted, or a time to live or a backlog quota of the namespace has taken it.",
        next="let the namespace keep what is not acknowledged; a new group or checkpoint has no marks",
    )


async def _last_place(cluster: PulsarCluster, topic: str) -> MessageId | None:
    """Return where the last entry is; None if the topic is empty, or not there."""
    try:
        reader = await cluster.client.reader(topic, start=LATEST, read_bytes=1)
    except PulsarRefused as exc:
        if exc.server_error == ServerError.TOPIC_NOT_FOUND:
            return None
        raise
    try:
        last = await reader.last_message_id()
    finally:
        await reader.close()
    return None if last.entry_id < 0 else last


async def _read(cluster: PulsarCluster, topic: str, start: MessageId, last: MessageId) -> list[_Record]:
    """Read the entries from one place to another, both included."""

    def record(delivery: Delivery) -> _Record:
        entry = delivery.entry
        if not isinstance(entry, Entry):
            return _Record(delivery.message_id, b"", -1)
        return _Record(delivery.message_id, bytes(entry.payload), entry.publish_time)

    found: list[_Record] = []
    reader = await cluster.client.reader(topic, start=start, convert=record)
    try:
        async with asyncio.timeout(_READ_SECONDS):
            while not found or found[-1].place[:2] < last[:2]:
                found.append(await reader.read())
    except TimeoutError as exc:
        raise Unreachable(f"{topic} gave no marks within {_READ_SECONDS:g} s", where=topic) from exc
    finally:
        await reader.close()
    return found


def _fence_of(value: bytes) -> tuple[bool, MessageId | None]:
    """Return whether a record is a fence, and the place of the mark that it names.

    >>> _fence_of(b'{"fence":[7,3]}')[1], _fence_of(b'{"fence":null}'), _fence_of(b'{"offset":1}')
    (MessageId(ledger_id=7, entry_id=3, batch_index=-1, partition=-1), (True, None), (False, None))
    """
    try:
        found: Any = json.loads(value)
        if "fence" not in found:
            return False, None
        return True, None if found["fence"] is None else MessageId(*map(int, found["fence"]))
    except (ValueError, TypeError, RecursionError):
        return False, None


def _fence(at: MessageId | None) -> bytes:
    return json.dumps({"fence": None if at is None else at[:2]}, separators=(",", ":")).encode()


def _found(record: _Record, topic: str) -> _Found:
    try:
        text = record.value.decode()
        found: Any = json.loads(text)
        offset = found["offset"]
        if type(offset) is not int or offset < 0:
            raise ValueError("no offset")
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise JobFailed(
            "a mark of this source cannot be read",
            where=f"{topic}, entry {record.place.ledger_id}:{record.place.entry_id}",
            why="Somebody else has written it.",
            next="only Penstock may write to this topic; a new group or checkpoint begins without marks",
        ) from exc
    return _Found(record.place, GroupOffset(offset, text))


# Before anything runs


def locate(
    clusters: Callable[[int], PulsarCluster], progress: PulsarProgress, key: ProgressKey
) -> PulsarProgress:
    """Return where the marks are: where the topic with the newest is, else where the first target is.

    An edit of the routes may have changed what is written first, and a run that began anew between two edits
    leaves marks at several places: whoever writes them begins with a fence, so the newest entry tells.
    """
    places = ((progress.sink, progress.namespace), *progress.others)
    found: list[tuple[PulsarProgress, list[str]]] = []
    for sink, namespace in places if len(places) > 1 else ():
        known = PulsarProgress(sink, namespace)
        cluster = clusters(sink)
        prefix = known.topic(key, 0).removesuffix("0")
        topics = [each for each in cluster.call(cluster.admin.topics(namespace)) if each.startswith(prefix)]
        if known.topic(key, 0) in topics:
            found.append((known, topics))
    if len(found) < 2:
        return found[0][0] if found else replace(progress, others=())

    def newest(place: tuple[PulsarProgress, list[str]]) -> int:
        known, topics = place
        cluster = clusters(known.sink)
        return max(cluster.call(_written(cluster, topic)) for topic in topics)

    return max(found, key=newest)[0]


async def _written(cluster: PulsarCluster, topic: str) -> int:
    """Return when the last entry of a topic was written, in milliseconds; -1 if there is none."""
    last = await _last_place(cluster, topic)
    if last is None:
        return -1
    (record,) = await _read(cluster, topic, last, last)
    return record.published


def require_topics(
    cluster: PulsarCluster, progress: PulsarProgress, key: ProgressKey, partitions: int
) -> None:
    """Make the topics that are not there, each with its subscription. Raises PipelineError if that fails."""
    cluster.call(_require_topics(cluster, progress, key, partitions))


async def _require_topics(
    cluster: PulsarCluster, progress: PulsarProgress, key: ProgressKey, partitions: int
) -> None:
    present = {*await cluster.admin.topics(progress.namespace)}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(topic: str) -> None:
        async with turns:
            consumer = await _subscribed(cluster, topic)
            await consumer.close()

    wanted = (progress.topic(key, part) for part in range(partitions))
    await asyncio.gather(*(one(topic) for topic in wanted if topic not in present))


async def _subscribed(cluster: PulsarCluster, topic: str) -> PeekingConsumer:
    """Open the subscription that keeps the last mark; topic and subscription are made if they are missing."""
    try:
        try:
            return await _consumer(cluster, topic)
        except PulsarRefused as exc:
            if exc.server_error != ServerError.TOPIC_NOT_FOUND:
                raise
        # The broker makes no topics by itself.
        await cluster.admin.create_topic(topic)
        return await _consumer(cluster, topic)
    except ClusterError as exc:
        if isinstance(exc, Unreachable) or (isinstance(exc, PulsarRefused) and exc.retriable):
            raise
        namespace = topic.removeprefix("persistent://").rpartition("/")[0]
        raise PipelineError(
            f"the marks of this source cannot be kept: {exc.what}",
            where=topic,
            why=exc.why or "Where no Kafka is written, they are in a topic of Pulsar for each partition.",
            next=f"let the role of this job produce and consume in {namespace}; where the broker makes no "
            "topics by itself (allowAutoTopicCreation), somebody who may makes it: "
            f"pulsar-admin topics create {topic}",
        ) from exc


async def _consumer(cluster: PulsarCluster, topic: str) -> PeekingConsumer:
    # Failover: who was shut out may still be there.
    return await cluster.client.peeking_consumer(
        topic, SUBSCRIPTION, kind=SubscriptionType.FAILOVER, start=EARLIEST
    )


# Writing


@dataclass(slots=True)
class _OpenLog:
    """The marks of one partition, owned by us."""

    producer: Producer
    consumer: PeekingConsumer
    last: MessageId | None = None
    """The last mark as far as we know: when the next one is stored, all up to this one may be removed."""


class PulsarProgressSink:
    """Writes the marks of some partitions, or of all; who did so before is shut out.

    It has the methods of a sink with transactions (`outlet.Exact`); records do not go through it. A commit is
    over when the broker has stored the marks.
    """

    expired = False
    was_refused = False

    def __init__(
        self,
        cluster: PulsarCluster,
        progress: PulsarProgress,
        key: ProgressKey,
        partitions: Iterable[int],
        *,
        plan: bytes | None = None,
    ) -> None:
        """`plan` is what the program was made of: it is stored before the first marks are."""
        self._plan = plan
        self.fenced: ProducerFenced | None = None
        """Set when it is known that another one has taken over: a broker says so to who writes next."""
        self._probed = time.monotonic()
        self._cluster = cluster
        self._progress = progress
        self._key = key
        self._logs: dict[int, _OpenLog] = {}
        try:
            cluster.call(self._open(tuple(partitions)))
        except BaseException:
            self.close()
            raise

    def put(self, output: Output) -> None:
        """Records have sinks of their own."""
        raise NotImplementedError

    def offer(self, output: Output) -> BatchRefusal | None:
        """Records have sinks of their own."""
        raise NotImplementedError

    def restart(self) -> None:
        """Nothing is open between two commits."""

    def flush(self) -> None:
        """Raise ProducerFenced if another one has taken over."""
        if self.fenced is not None:
            raise self.fenced

    def probe(self) -> None:
        """Raise as `flush`, and ask the broker once a second; any thread may call it, and nothing is awaited.

        Who waits for what the new owner has, such as the name of a producer, learns that it is shut out.
        """
        self.flush()
        now = time.monotonic()
        if now - self._probed > _PROBE_SECONDS:
            self._probed = now
            self._cluster.post(self._start_probe)

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Store marks; a partition that is new is opened. Raises ProducerFenced if it has another owner."""
        self.flush()
        if marks:
            if self._plan is not None:
                # Marks of an earlier plan leave nothing open by now.
                self._cluster.call(self._commit({PLAN: mark_value(0, self._plan.decode())}))
                self._plan = None
            rows = {part: mark_value(mark.offset, mark.text) for part, mark in marks.items()}
            self._cluster.call(self._commit(rows))

    def close(self) -> None:
        """Let go of the topics; their marks stay."""
        try:
            self._cluster.call(self._close())
        except PenstockError as exc:
            _log.warning("topics with marks were not closed in order: %s", exc)

    # On the cluster's thread

    async def _open(self, partitions: Collection[int]) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(partition: int) -> None:
            async with turns:
                await self._open_log(partition)

        await _all(one(part) for part in partitions if part not in self._logs)

    async def _open_log(self, partition: int) -> None:
        topic, client = self._progress.topic(self._key, partition), self._cluster.client
        # First: without it a broker may remove what is written.
        consumer = await _subscribed(self._cluster, topic)
        try:
            producer = await client.producer(topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
        except BaseException:
            await consumer.close()
            raise
        producer.on_failure = self._on_failure
        self._logs[partition] = _OpenLog(producer, consumer)
        found = await _last_mark(self._cluster, topic)
        last = None if found is None else found.place
        await self._send(partition, _fence(last))
        self._logs[partition].last = last

    async def _commit(self, rows: Mapping[int, bytes]) -> None:
        await self._open(rows.keys())
        await _all(self._write_mark(part, row) for part, row in rows.items())

    async def _write_mark(self, partition: int, row: bytes) -> None:
        log, place = self._logs[partition], await self._send(partition, row)
        if place.entry_id < 0:
            return  # sent again after a reconnect, and stored by then; nobody says where
        before, log.last = log.last, place
        if before is not None:
            try:
                await log.consumer.acknowledge_up_to(before)
            except PenstockError as exc:
                # The mark is stored. What is older is acknowledged with the next one.
                _log.debug("older marks of %s are kept for now: %s", log.producer.topic, exc)

    def _start_probe(self) -> None:
        for partition in [*self._logs][:1]:
            watched(asyncio.ensure_future(self._probe(partition)))

    async def _probe(self, partition: int) -> None:
        try:
            # A fence more is no harm.
            await self._send(partition, _fence(self._logs[partition].last))
        except ProducerFenced as exc:
            self.fenced = self.fenced or exc
        except PenstockError as exc:
            _log.debug("whether another one has taken over is not known: %s", exc)

    async def _send(self, partition: int, value: bytes) -> MessageId:
        producer = self._logs[partition].producer
        metadata = MessageMetadata(publish_time=time.time_ns() // 1_000_000)
        for name, text in (
            ("group", self._key.group),
            ("topic", self._key.topic),
            ("partition", str(partition)),
        ):
            metadata.properties.add(key=name, value=text)
        try:
            receipt = await (await producer.send_message(metadata, value))
        except PulsarRefused as exc:
            raise (self._as_fenced(exc) or exc) from exc
        return receipt.message_id

    def _on_failure(self, error: PenstockError) -> None:
        self.fenced = self.fenced or self._as_fenced(error)

    def _as_fenced(self, error: PenstockError) -> ProducerFenced | None:
        if not isinstance(error, PulsarRefused) or error.server_error != ServerError.PRODUCER_FENCED:
            return None
        return ProducerFenced(
            "another one writes the marks of this source",
            error_code=ErrorCode.PRODUCER_FENCED,
            where=error.where or self._progress.topic(self._key, 0),
            why=error.why,
        )

    async def _close(self) -> None:
        logs = [*self._logs.values()]
        self._logs.clear()
        for log in logs:
            log.producer.on_failure = None
        await asyncio.gather(*(each.close() for log in logs for each in (log.producer, log.consumer)))


async def _all(works: Iterable[Any]) -> None:
    """Wait for all; what the first one raises is raised when none is under way any more."""
    found = await asyncio.gather(*works, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
