"""Pulsar as the ports of the gateway: topics, logs, producers and the cluster of one gateway."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from penstock.brokers.pulsar import Admin, PulsarClient, is_denied
from penstock.brokers.pulsar.tasks import Tasks, watched
from penstock.errors import ApiError, ClusterError, PenstockError, RecordsError, WireError
from penstock.gateway.ports import Appended, Found, Node, Slice, Topic
from penstock.gateway.pulsar.leaders import Leaders
from penstock.gateway.pulsar.names import Names, refuse_own
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.read_ahead import ReadAhead
from penstock.gateway.pulsar.sequences import Refusals
from penstock.gateway.pulsar.topic_ids import TopicIds
from penstock.gateway.pulsar.topics import Place, PulsarTopics, denied
from penstock.mapping import OnUndecodable
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["PulsarStorage"]

log = logging.getLogger("penstock.gateway")

_SWEEP_SECONDS: Final = 5.0
_FACTS_SECONDS: Final = 5.0
"""How long it is believed what was asked about a topic for a partition that opened."""
_GROWTH_SECONDS: Final = 1.0
"""A topic is asked at most this often whether it has grown, however many partitions are missing."""
_Key = tuple[str, int]
_Waiting = list[tuple[RecordBatch, "asyncio.Future[Awaitable[Appended]]"]]


@contextmanager
def _told_as(code: ErrorCode) -> Iterator[None]:
    """Tell a client to ask again when Pulsar does not answer, and not to when it may not."""
    try:
        yield
    except ClusterError as exc:
        if is_denied(exc):
            raise denied(exc) from exc
        raise ApiError(str(exc), error_code=code) from exc
    except RecordsError:
        raise
    except WireError as exc:
        # Of the broker: it ended our connection to it, and not the client's to us.
        raise ApiError(str(exc), error_code=code) from exc


class PulsarStorage:
    """Everything that the handlers ask for, served by one Pulsar cluster."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        *,
        names: Names,
        node_id: int = 1,
        advertised: Mapping[str, tuple[str, int]] | None = None,
        max_batch_bytes: int = 5 * 1024 * 1024,
        on_undecodable: OnUndecodable = OnUndecodable.FAIL,
        partitions: type[Partition] = Partition,
        read_ahead: ReadAhead | None = None,
        undecodable: Counter[str] | None = None,
        leaders: Leaders | None = None,
        topic_ids: TopicIds | None = None,
        retention_hours: int = 0,
    ) -> None:
        self.topics = PulsarTopics(
            client, admin, names, on_change=self._gone, ids=topic_ids, retention_hours=retention_hours
        )
        self.undecodable: Counter[str] = Counter() if undecodable is None else undecodable
        """Entries that could not be read, by reason."""
        self.read_ahead = read_ahead or ReadAhead()
        """The memory of all readers; only the budget is shared with other storages, not what is read."""
        self.advertised = dict(advertised or {})
        self.node_id = node_id
        self.cluster_id = names.cluster
        self._client = client
        self._admin = admin
        self._max_batch_bytes = max_batch_bytes
        self._on_undecodable = on_undecodable
        self._kind = partitions
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._leaders = leaders
        self._waiting: dict[_Key, _Waiting] = {}
        self._refusals = Refusals()
        self._asking: dict[str, asyncio.Task[tuple[Place, bool]]] = {}
        self._known: dict[str, tuple[float, tuple[Place, bool]]] = {}
        self._growth: dict[str, tuple[float, asyncio.Task[Place]]] = {}
        """When it was last asked whether a topic has grown, the oldest first, and the answer."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor = Tasks()
        self._sweeper: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close every partition."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))
        self._partitions.clear()

    def offsets(self) -> tuple[int, int]:
        """Tell how many offsets of produced batches were counted, and how many learnt from the index."""
        counters = [partition.counter for partition in self._partitions.values()]
        return sum(each.counted for each in counters), sum(each.learnt for each in counters)

    # Log

    def append(self, topic: str, partition: int, batch: RecordBatch) -> Awaitable[Appended]:
        """Take a batch; a partition that is not open yet takes it, in order, as soon as it is.

        While batches wait for the partition, later ones wait behind them, whoever has opened it meanwhile.
        """
        key = (topic, partition)
        waiting = self._waiting.get(key)
        if waiting is None:
            found = self._partitions.get(key)
            if found is not None:
                return found.append(batch)
            waiting = self._waiting[key] = []
            self._start(self._open_for(topic, partition, waiting))
        place: asyncio.Future[Awaitable[Appended]] = asyncio.get_running_loop().create_future()
        waiting.append((batch.kept(), place))
        return self._append_later(place)

    def refused(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Note a batch that was refused before it could be appended.

        What its producer has in flight behind it must not be stored as if it were the first.
        """
        if batch.producer_id < 0:
            return
        found = self._partitions.get((topic, partition))
        if found is not None:
            return found.writer.refused(batch)
        self._refusals.note(topic, partition, batch)

    async def _append_later(self, place: asyncio.Future[Awaitable[Appended]]) -> Appended:
        with _told_as(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return await (await place)

    async def _open_for(self, topic: str, index: int, waiting: _Waiting) -> None:
        """Open a partition and hand it what came meanwhile, without a pause in which more could come."""
        try:
            found = await self._partition(topic, index)
        except PenstockError as exc:
            self._refuse_all(topic, index, waiting, exc)
        except Exception:
            log.exception("a bug while opening partition %d of %s", index, topic)
            self._refuse_all(
                topic, index, waiting, ApiError("a bug", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            )
        else:
            for batch, place in waiting:
                if place.done():
                    # The client has stopped to wait for it.
                    found.writer.refused(batch)
                else:
                    place.set_result(found.append(batch))
        finally:
            del self._waiting[topic, index]

    def _refuse_all(self, topic: str, index: int, waiting: _Waiting, error: PenstockError) -> None:
        for batch, place in waiting:
            self.refused(topic, index, batch)
            if not place.done():
                place.set_exception(error)

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on."""
        with _told_as(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return await (await self._partition(topic, partition)).read(offset, max_bytes)

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        """Find an offset by place or time."""
        with _told_as(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return await (await self._partition(topic, partition)).find(timestamp)

    async def arrival(self, topic: str, partition: int, offset: int) -> None:
        """Wait for a record."""
        with _told_as(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            await (await self._partition(topic, partition)).arrival(offset)

    async def trim(self, topic: str, partition: int, offset: int) -> int:
        """Remove what a partition holds."""
        with _told_as(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            found = await self._partition(topic, partition)
            refuse_own(found.is_own)
            return await found.trim(offset)

    async def _partition(self, topic: str, index: int) -> Partition:
        found = self._partitions.get((topic, index))
        if found is not None:
            return found
        place, compacted = await self._facts(topic)
        if index >= place.topic.partitions:
            place = self.topics.found(topic) or place
        if index >= place.topic.partitions:
            place = await self._grown(topic)
        if not 0 <= index < place.topic.partitions:
            raise ApiError("there is no such partition", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not await self._leads(topic, index, place.partition(index)):
            raise ApiError("another gateway leads it", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partitions.get((topic, index)) or self._new_partition(topic, index, place, compacted)

    async def _facts(self, topic: str) -> tuple[Place, bool]:
        """Give the place of a topic and whether it is compacted; asked once for all partitions that open."""
        asked_at, known = self._known.get(topic, (0.0, None))
        if known is not None and time.monotonic() - asked_at < _FACTS_SECONDS:
            return known
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = watched(asyncio.create_task(self._ask(topic)))
            asking.add_done_callback(lambda done: self._asked(topic, done))
        # One who is cancelled must not take the answer away from the others.
        return await asyncio.shield(asking)

    async def _grown(self, topic: str) -> Place:
        """Ask anew for a topic, which may have grown by other hands: once for all who miss partitions."""
        now = time.monotonic()
        asked_at, asking = self._growth.get(topic, (0.0, None))
        if asking is None or (asking.done() and now - asked_at >= _GROWTH_SECONDS):
            self._growth.pop(topic, None)
            asking = watched(asyncio.create_task(self.topics.refreshed(topic), name="refresh topic"))
            self._growth[topic] = now, asking
            while now - next(iter(self._growth.values()))[0] >= _GROWTH_SECONDS:
                del self._growth[next(iter(self._growth))]
        return await asyncio.shield(asking)

    async def _ask(self, topic: str) -> tuple[Place, bool]:
        return await self.topics.place(topic), await self.topics.is_compacted(topic)

    def _asked(self, topic: str, done: asyncio.Task[tuple[Place, bool]]) -> None:
        # Looked at in any case: nobody may be waiting any more.
        is_known = not done.cancelled() and done.exception() is None
        if self._asking.get(topic) is done:
            del self._asking[topic]
            now = time.monotonic()
            self._known.pop(topic, None)
            if is_known:
                self._known[topic] = (now, done.result())
            # The oldest come first: each is looked at once, however many topics there are.
            while self._known and now - next(iter(self._known.values()))[0] >= _FACTS_SECONDS:
                del self._known[next(iter(self._known))]

    async def _leads(self, topic: str, index: int, name: str) -> bool:
        return self._leaders is None or await self._leaders.is_ours(topic, index, name, self._client)

    def _new_partition(self, topic: str, index: int, place: Place, compacted: bool) -> Partition:
        found = self._partitions[topic, index] = self._kind(
            self._client,
            self._admin,
            place.partition(index),
            max_batch_bytes=self._max_batch_bytes,
            on_undecodable=self._on_undecodable,
            undecodable=self.undecodable,
            read_ahead=self.read_ahead,
        )
        found.compacted = compacted
        found.is_own = place.topic.internal
        for batch in self._refusals.take(topic, index):
            found.writer.refused(batch)
        if self._sweeper is None:
            self._sweeper = self._supervisor.forever(self._sweep, name="sweep partitions")
        return found

    def let_go(self) -> None:
        """Close what another gateway leads now: it needs the names of our producers."""
        for key in [key for key in self._partitions if not self._still_leads(*key)]:
            self._close(key)

    def _still_leads(self, topic: str, index: int) -> bool:
        place = self.topics.found(topic)
        if self._leaders is None or place is None:
            return True
        return self._leaders.is_still_ours(topic, index, place.partition(index))

    def _gone(self, topic: str) -> None:
        """Close what we hold of a topic that is gone, or of which a setting changed."""
        self._known.pop(topic, None)
        self._asking.pop(topic, None)
        self._growth.pop(topic, None)
        for key in [key for key in self._partitions if key[0] == topic]:
            self._close(key)

    def _close(self, key: _Key) -> None:
        """Close a partition; what is under way is refused, and what follows it waits for it."""
        closed = self._partitions.pop(key)
        for batch in closed.writer.unanswered():
            self.refused(*key, batch)
        self._start(closed.close())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for partition in self._partitions.values():
                partition.sweep()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = watched(asyncio.create_task(work))
        # Held, because the loop keeps only a weak reference to a task.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Producers

    async def new_producer(self) -> tuple[int, int]:
        """Give an id that no gateway gave before, by chance large enough."""
        return secrets.randbits(62), 0

    # Cluster

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give this gateway at the address that the listener advertises."""
        host, port = self.advertised[listener]
        return [Node(id=self.node_id, host=host, port=port)]

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[str, Sequence[int]]:
        """Lead every partition: there is one gateway."""
        return {topic.name: [self.node_id] * topic.partitions for topic in topics}
