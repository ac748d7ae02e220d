"""One partition's producers: batches go out in the order of the requests, and each learns its offset."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.brokers.pulsar import Admin, Producer, PulsarClient, Receipt
from penstock.errors import ApiError, ClusterError, PenstockError, PulsarRefused, RecordsError
from penstock.gateway.mapping import PulsarBatch, batch_to_entry
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.gateway.pulsar.retrace import Trace, find_trace
from penstock.gateway.pulsar.sequences import Sequences
from penstock.wire.kafka import ErrorCode, RecordBatch
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["Writer"]

_PRODUCERS: Final = 64
"""Pulsar producers kept open in one partition; the least used is closed first."""
_UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True, eq=False)
class _Job:
    """One batch on its way."""

    batch: RecordBatch
    offset: asyncio.Future[int]
    wanted: asyncio.Future[int]
    """What the request waits for; cancelled when nobody does any more."""
    sequence: int = -1
    """The first sequence, extended; -1 before the batch is sent."""
    producer: str = ""
    publish_time: int = -1

    @property
    def is_idempotent(self) -> bool:
        return self.batch.producer_id >= 0

    @property
    def producer_name(self) -> str | None:
        """The producer's name on Pulsar; None lets the broker choose one that nobody had."""
        batch = self.batch
        return f"penstock-{batch.producer_id}-{batch.producer_epoch}" if self.is_idempotent else None


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
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._counter = counter
        self._max_batch_bytes = max_batch_bytes
        self._check = check
        self._numbering = numbering
        self._stored = stored
        self._sequences = Sequences()
        self._producers: OrderedDict[str | None, Producer] = OrderedDict()
        self._open: set[_Job] = set()
        """What was not answered yet."""
        # Both are bounded by what the server lets connections have under way.
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._sent: asyncio.Queue[tuple[_Job, asyncio.Future[Receipt]]] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._send_all()), asyncio.create_task(self._settle_all())]

    async def close(self) -> None:
        """Stop; what is under way fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        gone = ApiError("the partition is closed here", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for job in list(self._open):
            self._answer_with(job, gone)
        await asyncio.gather(*(producer.close() for producer in self._producers.values()))

    def append(self, batch: RecordBatch) -> Awaitable[int]:
        """Take a batch now, in the order of the calls; await its offset, -1 if it is stored somewhere."""
        offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        job = _Job(batch, offset, asyncio.shield(offset))
        self._open.add(job)
        offset.add_done_callback(lambda _: self._open.discard(job))
        self._jobs.put_nowait(job)
        return job.wanted

    # Sending, in order

    async def _send_all(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                await self._send(job)
            except PenstockError as exc:
                self._fail(job, _translated(exc))

    async def _send(self, job: _Job) -> None:
        if job.wanted.cancelled():
            raise ApiError("nobody waits for it any more", error_code=ErrorCode.REQUEST_TIMED_OUT)
        entry = batch_to_entry(job.batch, now=int(time.time() * 1000), limit=self._max_batch_bytes)
        self._check(entry)
        producer = await self._producer(job)
        job.publish_time = entry.publish_time
        if job.is_idempotent and await self._is_known(job, producer):
            return
        sequence = self._sequences.next_of(job.batch) if job.is_idempotent else None
        receipt = await producer.send(
            entry.buffer,
            entry.start,
            entry.end,
            num_messages=entry.num_messages,
            publish_time=entry.publish_time,
            sequence_id=sequence,
            last_sequence_id=None if sequence is None else sequence + entry.num_messages - 1,
        )
        job.producer = producer.name
        if sequence is not None:
            self._sequences.begun(job.batch, job.offset, receipt)
            job.sequence = sequence
        self._sent.put_nowait((job, receipt))

    async def _is_known(self, job: _Job, producer: Producer) -> bool:
        """Answer a batch that came before, now or as soon as that one is answered."""
        try:
            known = self._sequences.find(job.batch)
        except ApiError as exc:
            if exc.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise
            known = await self._found_again(job, producer.name, self._sequences.next_of(job.batch))
            if known == _UNKNOWN_OFFSET:
                raise
        if isinstance(known, int):
            job.offset.set_result(known)
        elif known is not None:
            known.add_done_callback(lambda done: _copy(done, job.offset))
        return known is not None

    async def _found_again(self, job: _Job, producer: str, sequence: int) -> int:
        """Look for an entry that is stored somewhere; -1 if it is not found."""
        trace = Trace(producer.encode(), sequence, job.batch.record_count)
        found = await find_trace(
            self._client,
            self._admin,
            self._topic,
            trace,
            publish_time=job.publish_time,
            numbering=self._numbering,
        )
        return _UNKNOWN_OFFSET if found is None else found

    async def _producer(self, job: _Job) -> Producer:
        name = job.producer_name
        if job.is_idempotent:
            self._sequences.check_epoch(job.batch)
        producer = self._producers.get(name)
        if producer is None or producer.error is not None:
            producer = self._producers[name] = await self._client.producer(self._topic, name=name)
            if job.is_idempotent:
                batch = job.batch
                self._sequences.opened(batch.producer_id, batch.producer_epoch, producer.last_sequence_id)
        self._producers.move_to_end(name)
        if len(self._producers) > _PRODUCERS:
            _, oldest = self._producers.popitem(last=False)
            await oldest.flush()
            await oldest.close()
        return producer

    # Learning offsets, in order

    async def _settle_all(self) -> None:
        while True:
            job, receipt = await self._sent.get()
            try:
                offset = await self._offset(job, await receipt)
            except PenstockError as exc:
                self._fail(job, _translated(exc))
                continue
            if job.is_idempotent:
                self._sequences.stored(job.batch, job.sequence, offset)
                if offset == _UNKNOWN_OFFSET:
                    # Clients take this for success without an offset.
                    self._answer_with(job, ApiError("stored", error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
            if not job.offset.done():
                job.offset.set_result(offset)

    async def _offset(self, job: _Job, receipt: Receipt) -> int:
        if receipt.is_duplicate:
            self._check_stored_before(job, receipt)
            return await self._found_again(job, job.producer, receipt.sequence_id)
        place, count = receipt.message_id, job.batch.record_count
        counted = self._counter.count(place, count)
        if counted is not None:
            self._stored(counted, place)
            return counted
        found = await self._admin.entry_index(self._topic, place)
        if found is None:
            raise ClusterError(
                f"the broker keeps no index for {self._topic}",
                next="set brokerEntryMetadataInterceptors to AppendIndexMetadataInterceptor",
            )
        return self._counter.learn(place, count, last_index=found.last_index)

    def _check_stored_before(self, job: _Job, receipt: Receipt) -> None:
        """Judge a receipt of -1:-1: the entry was dropped as a duplicate, of which the place is not told."""
        if receipt.attempts == 1 and not (
            job.is_idempotent and self._sequences.may_be_stored(job.batch, job.sequence)
        ):
            raise ApiError(
                "Pulsar dropped it as a duplicate of something else",
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
            )

    def _fail(self, job: _Job, error: ApiError) -> None:
        if job.sequence >= 0:
            self._sequences.failed(job.batch, job.sequence)
        self._answer_with(job, error)

    def _answer_with(self, job: _Job, error: ApiError) -> None:
        if not job.offset.done():
            job.offset.set_exception(error)
            # Nobody may be waiting any more; then it is not an error that nobody asks.
            job.offset.exception()


def _copy(done: asyncio.Future[int], to: asyncio.Future[int]) -> None:
    if to.done():
        return
    error = done.exception()
    if error is None:
        to.set_result(done.result())
    else:
        to.set_exception(error)
        to.exception()


def _translated(exc: PenstockError) -> ApiError:
    if isinstance(exc, ApiError):
        return exc
    if isinstance(exc, RecordsError):
        return ApiError(exc.what, error_code=exc.error_code)
    if isinstance(exc, PulsarRefused) and not exc.retriable:
        return ApiError(str(exc), error_code=_REFUSALS.get(exc.server_error, ErrorCode.UNKNOWN_SERVER_ERROR))
    return ApiError(str(exc), error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


_REFUSALS: Final[Mapping[int, ErrorCode]] = {
    ServerError.AUTHORIZATION_ERROR: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ServerError.TOPIC_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ServerError.TOPIC_TERMINATED_ERROR: ErrorCode.POLICY_VIOLATION,
    # The broker's answer to a message that is larger than the policy of the topic.
    ServerError.NOT_ALLOWED_ERROR: ErrorCode.MESSAGE_TOO_LARGE,
    # One of our own former connections still has the name of the producer: the client shall try again.
    ServerError.PRODUCER_BUSY: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
