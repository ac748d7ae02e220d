"""One partition's producers: batches go out in the order of the requests, and each learns its offset.

A batch that need not wait is converted and sent while it is still in the buffer of the socket, and counted
when its receipt comes; tasks take over what has to wait: a producer to be opened, room, the broker's index.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.brokers.pulsar import Admin, Producer, PulsarClient, Receipt, is_denied
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ApiError, ClusterError, PenstockError, PulsarRefused
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.entry_indexes import EntryIndexes
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.gateway.pulsar.refusals import translated
from penstock.gateway.pulsar.retrace import Ending, Trace, find_trace
from penstock.gateway.pulsar.sequences import Sequences, Standing
from penstock.mapping import PulsarBatch, batch_to_entry
from penstock.wire.kafka import ErrorCode, RecordBatch
from penstock.wire.pulsar import MessageId

__all__ = ["Writer"]

log = logging.getLogger("penstock.gateway")

_PRODUCERS: Final = 64
"""Pulsar producers kept open in one partition; the least used is closed first."""
_CLOSING: Final = 64
"""Producers that are being closed at a time, each after what it has under way."""
_SEARCHES: Final = 2
"""Batches of which it is not known whether they are stored that are looked for in the log at a time."""
_UNKNOWN_OFFSET: Final = -1
_BLIND_SECONDS: Final = 30.0
"""How long it is believed that we may not read what we write."""
_NO_BYTES: Final = memoryview(b"")


class _Job:
    """One batch on its way."""

    __slots__ = (
        "batch",
        "entry",
        "is_idempotent",
        "offset",
        "producer",
        "producer_name",
        "publish_time",
        "receipt",
        "sender",
        "sequence",
        "wanted",
    )

    def __init__(self, batch: RecordBatch, wanted: asyncio.Future[Any]) -> None:
        self.batch = batch
        self.wanted = wanted
        """What the request waits for; cancelled when nobody does any more."""
        self.offset: asyncio.Future[int] | None = None
        """Of an idempotent batch, also when nobody waits any more: a repetition is answered with it."""
        self.entry: PulsarBatch | None = None
        """The converted batch, until it is sent."""
        self.receipt: asyncio.Future[Receipt] | None = None
        self.sequence = -1
        """The first sequence, extended; -1 before the batch is sent."""
        self.producer = ""
        self.sender: Producer | None = None
        """The Pulsar producer that has sent the batch."""
        self.publish_time = -1
        self.is_idempotent = batch.producer_id >= 0
        self.producer_name: str | None = None
        """The producer's name on Pulsar; None lets the broker choose one that nobody had."""
        if self.is_idempotent:
            self.producer_name = f"penstock-{batch.producer_id}-{batch.producer_epoch}"


class Writer:
    """Appends to one Pulsar topic."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        topic: str,
        *,
        counter: OffsetCounter,
        max_batch_bytes: int,
        check: Callable[[PulsarBatch], None] = lambda entry: None,
        numbering: Numbering = BY_INDEX,
        stored: Callable[[int, MessageId], None] = lambda offset, place: None,
        answer: Callable[[int], Any] = lambda offset: offset,
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._counter = counter
        self._max_batch_bytes = max_batch_bytes
        self._check = check
        self._numbering = numbering
        self._stored = stored
        self._answer = answer
        self._indexes = EntryIndexes(client, admin, topic)
        self._loop = asyncio.get_running_loop()
        self._sequences = Sequences(self._loop.time)
        self._producers: OrderedDict[str | None, Producer] = OrderedDict()
        self._closing: dict[str | None, asyncio.Task[None]] = {}
        self._searches: set[asyncio.Task[None]] = set()
        self._searching = asyncio.Semaphore(_SEARCHES)
        self._open: set[_Job] = set()
        """What was not answered yet."""
        # Both are bounded by what the server lets connections have under way.
        self._jobs: deque[_Job] = deque()
        self._sent: deque[_Job] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._settler: asyncio.Task[None] | None = None
        self._closed = False
        self._blind_until = 0.0

    async def close(self) -> None:
        """Stop; what is under way fails."""
        self._closed = True
        tasks = [task for task in (self._sender, self._settler) if task is not None]
        tasks += [*self._searches, *self._closing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._indexes.close(), return_exceptions=True)
        for job in list(self._open):
            self._refuse(job, _gone())
        await asyncio.gather(*(producer.close() for producer in self._producers.values()))

    def append(self, batch: RecordBatch) -> asyncio.Future[Any]:
        """Take a batch now, in the order of the calls; await its offset, -1 if it is stored somewhere.

        The bytes of the batch are not looked at any more when this returns.
        """
        job = _Job(batch, self._loop.create_future())
        self._open.add(job)
        if self._closed:
            self._refuse(job, _gone())
        elif self._sender is not None or not self._send_now(job):
            # What was converted is not read again.
            job.batch = batch.kept() if job.entry is None else batch._replace(data=_NO_BYTES)
            self._jobs.append(job)
            if self._sender is None:
                self._sender = watched(asyncio.create_task(self._send_all()))
        return job.wanted

    def refused(self, batch: RecordBatch) -> None:
        """Note a batch that was refused before it came here: what follows it waits for it."""
        if batch.producer_id >= 0:
            self._sequences.refused(batch)

    def unanswered(self) -> list[RecordBatch]:
        """Give the heads of the idempotent batches that were not answered yet, without their records."""
        return [job.batch._replace(data=_NO_BYTES) for job in self._open if job.is_idempotent]

    async def sweep(self) -> None:
        """End what is not needed any more."""
        await self._indexes.sweep()

    # Sending, in order

    def _send_now(self, job: _Job) -> bool:
        """Send a batch if nothing has to be waited for; False if the sender has to."""
        producer = self._producers.get(job.producer_name)
        if producer is None or producer.error is not None:
            return False
        try:
            if job.is_idempotent and not self._sequences.is_next(job.batch):
                return False
            entry, numbers = self._entry(job), self._numbers(job)
            receipt = producer.send_nowait(
                entry.buffer, entry.start, entry.end, entry.num_messages, entry.publish_time, *numbers
            )
        except PenstockError as exc:
            self._fail(job, translated(exc))
            return True
        if receipt is None:
            return False
        self._producers.move_to_end(job.producer_name)
        self._is_sent(job, producer, receipt, numbers[0])
        return True

    async def _send_all(self) -> None:
        try:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    await self._send(job)
                except PenstockError as exc:
                    self._fail(job, translated(exc))
                except Exception:
                    log.exception("a bug while sending to %s", self._topic)
                    self._fail(job, ApiError("a bug", error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        finally:
            self._sender = None

    async def _send(self, job: _Job) -> None:
        _check_wanted(job)
        entry = self._entry(job)
        producer = await self._producer(job)
        # That may have taken so long that what was refused before this batch is not remembered any more.
        _check_wanted(job)
        while not (job.is_idempotent and self._is_known(job, producer)):
            first, last = self._numbers(job)
            receipt = producer.send_nowait(
                entry.buffer, entry.start, entry.end, entry.num_messages, entry.publish_time, first, last
            )
            if receipt is not None:
                return self._is_sent(job, producer, receipt, first)
            # While it waits for room what was sent before it may fail, so it is judged once more.
            await producer.room(entry.end - entry.start)

    def _entry(self, job: _Job) -> PulsarBatch:
        if job.entry is None:
            entry = batch_to_entry(job.batch, now=int(time.time() * 1000), limit=self._max_batch_bytes)
            self._check(entry)
            job.entry, job.publish_time = entry, entry.publish_time
        return job.entry

    def _numbers(self, job: _Job) -> tuple[int | None, int | None]:
        """Give the first and the last sequence of a batch, if it has any."""
        if not job.is_idempotent:
            return None, None
        first = self._sequences.next_of(job.batch)
        return first, first + job.batch.record_count - 1

    def _is_sent(
        self, job: _Job, producer: Producer, receipt: asyncio.Future[Receipt], first: int | None
    ) -> None:
        job.entry, job.receipt, job.producer, job.sender = None, receipt, producer.name, producer
        if first is not None:
            job.offset = self._loop.create_future()
            self._sequences.begun(job.batch, job.offset, receipt)
            job.sequence = first
        self._sent.append(job)
        receipt.add_done_callback(self._settle)

    def _is_known(self, job: _Job, producer: Producer) -> bool:
        """Answer a batch that came before, now or as soon as more is known; False if it is to be sent."""
        known = self._sequences.find(job.batch)
        if known is Standing.OUT_OF_ORDER:
            raise _out_of_order(job)
        if known is Standing.HELD:
            raise _being_stored(job)
        if isinstance(known, int):
            self._finish(job, known)
        elif isinstance(known, asyncio.Future):
            known.add_done_callback(lambda done: self._repeat(job, done))
        elif known is not Standing.NEXT:
            # Nothing is sent for it, so what comes behind it need not wait.
            sequence = self._sequences.next_of(job.batch)
            search = watched(asyncio.create_task(self._search(job, producer, sequence, known)))
            self._searches.add(search)
            search.add_done_callback(self._searches.discard)
        return known is not Standing.NEXT

    async def _search(self, job: _Job, producer: Producer, sequence: int, standing: Standing) -> None:
        """Answer a batch before the expected one with its offset; without one, by what is known of it."""
        trace = Trace(producer.name.encode(), sequence, job.batch.record_count)
        last = sequence + job.batch.record_count - 1
        try:
            async with self._searching:
                if standing is Standing.PENDING and await self._settles(job, producer):
                    # Now it is in the log or never will be.
                    standing = Standing.BEHIND
                found = await self._found_again(job, trace)
        except PenstockError as exc:
            if is_denied(exc):
                self._sequences.settled(job.batch)
            return self._refuse(job, _unsought(job, standing, exc))
        if found is not None:
            if last == self._sequences.unsettled(job.batch):
                self._sequences.settled(job.batch)
            return self._finish(job, found)
        if self._sequences.is_stale(job.batch) and self._producers.get(job.producer_name) is producer:
            del self._producers[job.producer_name]
            self._close_later(job.producer_name, producer)
        self._refuse(job, _MISSING[standing](job))

    async def _settles(self, job: _Job, producer: Producer) -> bool:
        """Look for the last entry that Pulsar had when the producer was opened; say whether it is there."""
        last = self._sequences.unsettled(job.batch)
        if last < 0 or await self._found_again(job, Ending(producer.name.encode(), last)) is None:
            return False
        if last != self._sequences.unsettled(job.batch):
            # Somebody else was quicker, or Pulsar was asked anew.
            return False
        self._sequences.settled(job.batch)
        return True

    def _repeat(self, job: _Job, first: asyncio.Future[int]) -> None:
        """Answer a repetition as the first was."""
        error = first.exception()
        if error is None:
            self._finish(job, first.result())
        else:
            self._refuse(job, error)

    async def _found_again(self, job: _Job, trace: Trace | Ending) -> int | None:
        """Look for an entry in the log: its offset, or None if it is not there.

        Raises PenstockError if the log could not be looked through, or by this role may not be.
        """
        return await find_trace(
            self._client,
            self._admin,
            self._topic,
            trace,
            publish_time=job.publish_time,
            numbering=self._numbering,
        )

    async def _producer(self, job: _Job) -> Producer:
        name = job.producer_name
        if job.is_idempotent:
            self._sequences.check_epoch(job.batch)
        producer = self._producers.get(name)
        if producer is None or producer.error is not None:
            if name in self._closing:
                # The name is free, and what was sent under it in order, only then.
                await asyncio.wait([self._closing[name]])
            producer = self._producers[name] = await self._client.producer(self._topic, name=name)
            if job.is_idempotent:
                batch = job.batch
                self._sequences.opened(batch.producer_id, batch.producer_epoch, producer.last_sequence_id)
        self._producers.move_to_end(name)
        if len(self._producers) > _PRODUCERS:
            await self._evict()
        return producer

    async def _evict(self) -> None:
        """Close the producer that was used least recently, behind what it has under way."""
        if len(self._closing) >= _CLOSING:
            await asyncio.wait(self._closing.values(), return_when=asyncio.FIRST_COMPLETED)
        self._close_later(*self._producers.popitem(last=False))

    def _close_later(self, name: str | None, producer: Producer) -> None:
        task = self._closing[name] = watched(asyncio.create_task(_flush_and_close(producer)))
        task.add_done_callback(lambda _: self._closing.pop(name, None))

    # Learning offsets, in order

    def _settle(self, _: object = None) -> None:
        """Answer what has its receipt, in the order of sending; what must be looked up holds the rest up."""
        while self._sent and self._settler is None:
            job = self._sent[0]
            assert job.receipt is not None
            if not job.receipt.done():
                return
            self._sent.popleft()
            if not self._settle_now(job, job.receipt):
                self._settler = watched(asyncio.create_task(self._settle_later(job, job.receipt)))

    def _settle_now(self, job: _Job, receipt: asyncio.Future[Receipt]) -> bool:
        error = receipt.exception()
        if isinstance(error, PenstockError):
            if isinstance(error, PulsarRefused) and job.sender is not None and job.sender.error is None:
                self._reject(job, translated(error))
            else:
                self._fail(job, translated(error))
            return True
        stored = receipt.result()
        if stored.is_duplicate:
            return False
        try:
            counted = self._counter.count(stored.message_id, job.batch.record_count)
        except ApiError as exc:
            self._fail(job, exc)
            return True
        if counted is None:
            return False
        self._stored(counted, stored.message_id)
        self._succeed(job, counted)
        return True

    async def _settle_later(self, job: _Job, receipt: asyncio.Future[Receipt]) -> None:
        stored = receipt.result()
        try:
            if stored.is_duplicate:
                await self._settle_duplicate(job, stored)
            else:
                self._succeed(job, await self._offset(job, stored.message_id))
        except _NotTold:
            self._finish_blind(job)
        except PenstockError as exc:
            # It is stored: a repetition must not be sent once more.
            self._note_stored(job, _UNKNOWN_OFFSET)
            self._refuse(job, translated(exc))
        finally:
            self._settler = None
        self._settle()

    def _succeed(self, job: _Job, offset: int) -> None:
        self._note_stored(job, offset)
        if job.is_idempotent and offset == _UNKNOWN_OFFSET:
            return self._refuse(job, _stored_somewhere())
        self._finish(job, offset)

    def _finish_blind(self, job: _Job) -> None:
        """Answer what is stored, and where is not told to one who may write and not read."""
        self._note_stored(job, _UNKNOWN_OFFSET)
        self._finish(job, _UNKNOWN_OFFSET)

    def _note_stored(self, job: _Job, offset: int) -> None:
        if job.is_idempotent:
            self._sequences.stored(job.batch, job.sequence, offset)

    async def _offset(self, job: _Job, place: MessageId) -> int:
        last = await self._last_index(place)
        offset = self._counter.learn(place, job.batch.record_count, last_index=last)
        self._stored(offset, place)
        return offset

    async def _settle_duplicate(self, job: _Job, receipt: Receipt) -> None:
        """Answer a batch that Pulsar dropped because it has its sequence or a higher one.

        An attempt of ours may be what it has. It need not be: a broker that refuses an entry stores what was
        sent behind it, and the refusal may be lost with the connection. So it is looked for.
        """
        if not self._may_be_stored(job, receipt):
            return self._reject(job, _dropped())
        trace = Trace(job.producer.encode(), receipt.sequence_id, job.batch.record_count)
        try:
            found = await self._found_again(job, trace)
        except PenstockError as exc:
            if is_denied(exc):
                # One who may write and not read: all there is to go by is what Pulsar says.
                return self._succeed(job, _UNKNOWN_OFFSET)
            if job.sequence >= 0:
                self._sequences.dropped(job.batch, job.sequence)
            return self._refuse(job, translated(exc))
        if found is None:
            return self._reject(job, _dropped())
        self._succeed(job, found)

    async def _last_index(self, place: MessageId) -> int:
        if time.monotonic() < self._blind_until:
            raise _NotTold("this role may not read")
        try:
            return await self._indexes.last_index(place)
        except ClusterError as exc:
            if not is_denied(exc):
                raise
            self._blind_until = time.monotonic() + _BLIND_SECONDS
            raise _NotTold("this role may not read") from exc

    def _may_be_stored(self, job: _Job, receipt: Receipt) -> bool:
        """Say whether a receipt of -1:-1 may be about an attempt of ours of which no receipt came."""
        return receipt.attempts > 1 or (
            job.is_idempotent and self._sequences.may_be_stored(job.batch, job.sequence)
        )

    def _fail(self, job: _Job, error: ApiError) -> None:
        """Give up a batch: one that was sent may be stored, any other is not."""
        if job.sequence >= 0:
            self._sequences.failed(job.batch, job.sequence)
        elif job.is_idempotent:
            self._sequences.refused(job.batch)
        self._refuse(job, error)

    def _reject(self, job: _Job, error: ApiError) -> None:
        """Give up a batch that Pulsar did not take, although it may have taken what was sent behind it."""
        if job.sequence >= 0:
            self._sequences.rejected(job.batch, job.sequence)
        self._refuse(job, error)

    def _finish(self, job: _Job, offset: int) -> None:
        self._open.discard(job)
        if job.offset is not None and not job.offset.done():
            job.offset.set_result(offset)
        if not job.wanted.done():
            job.wanted.set_result(self._answer(offset))

    def _refuse(self, job: _Job, error: BaseException) -> None:
        self._open.discard(job)
        for future in (job.offset, job.wanted):
            if future is not None and not future.done():
                future.set_exception(error)
                # Nobody may be waiting any more; then it is not an error that nobody asks.
                future.exception()


class _NotTold(ClusterError):
    """The entry is stored, and its index is not for this role."""


def _gone() -> ApiError:
    return ApiError("the partition is closed here", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _check_wanted(job: _Job) -> None:
    if job.wanted.cancelled():
        raise ApiError("nobody waits for it any more", error_code=ErrorCode.REQUEST_TIMED_OUT)


def _out_of_order(job: _Job) -> ApiError:
    return ApiError(
        f"sequence {job.batch.base_sequence} does not follow the last one",
        error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )


def _stored_somewhere(_: _Job | None = None) -> ApiError:
    """Clients take this code for success without an offset: only for what is known to be stored."""
    return ApiError("stored before", error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def _being_stored(_: _Job) -> ApiError:
    """The client tries again, and then it is in the log or will never be."""
    return ApiError("Pulsar has not stored it yet", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


_MISSING: Final[Mapping[Standing, Callable[[_Job], ApiError]]] = {
    Standing.STORED: _stored_somewhere,
    Standing.TAKEN: _being_stored,
    Standing.PENDING: _being_stored,
    Standing.BEHIND: _out_of_order,
}
"""The answer to a batch that was looked for and is not in the log."""


def _unsought(job: _Job, standing: Standing, why: PenstockError) -> ApiError:
    """Answer a batch for which the log could not be looked through."""
    if standing is Standing.STORED:
        return _stored_somewhere()
    if not is_denied(why):
        return translated(why)
    # One who may write and not read: all there is to go by is what Pulsar says.
    return _stored_somewhere() if standing is Standing.TAKEN else _out_of_order(job)


def _dropped() -> ApiError:
    return ApiError(
        "Pulsar dropped it as a duplicate of something else", error_code=ErrorCode.UNKNOWN_SERVER_ERROR
    )


async def _flush_and_close(producer: Producer) -> None:
    try:
        await producer.flush()
    finally:
        await producer.close()
