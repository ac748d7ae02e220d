"""One partition's producers: batches go out in the order of the requests, and each learns its offset."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from penstock.brokers.pulsar import Admin, Producer, PulsarClient, Receipt
from penstock.errors import ApiError, ClusterError, PenstockError, PulsarRefused
from penstock.gateway.mapping import PulsarBatch, batch_to_entry
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.sequences import Sequences
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["Writer"]

_PRODUCERS: Final = 64
"""Pulsar producers kept open in one partition; the least used is closed first."""
_QUEUE: Final = 1000


@dataclass(slots=True, eq=False)
class _Job:
    """One batch on its way."""

    entry: PulsarBatch
    name: str | None
    """The producer's name on Pulsar; None if deduplication has nothing to do."""
    done: asyncio.Future[int]
    producer_id: int
    epoch: int
    sequence: int | None


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
        on_append: Callable[[], None],
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._counter = counter
        self._max_batch_bytes = max_batch_bytes
        self._on_append = on_append
        self._sequences = Sequences()
        self._producers: OrderedDict[str | None, Producer] = OrderedDict()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(_QUEUE)
        self._sent: asyncio.Queue[tuple[_Job, asyncio.Future[Receipt]]] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._send_all()), asyncio.create_task(self._settle_all())]

    async def close(self) -> None:
        """Stop; what is under way fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(producer.close() for producer in self._producers.values()))

    def append(self, batch: RecordBatch) -> Awaitable[int]:
        """Take a batch now, in the order of the calls; await its offset."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry = batch_to_entry(batch, now=int(time.time() * 1000), limit=self._max_batch_bytes)
        name, sequence = None, None
        if batch.producer_id >= 0:
            known = self._sequences.check(batch)
            if known is not None:
                done.set_result(known)
                return done
            name, sequence = (
                f"penstock-{batch.producer_id}-{batch.producer_epoch}",
                self._sequences.begin(batch),
            )
        job = _Job(entry, name, done, batch.producer_id, batch.producer_epoch, sequence)
        try:
            self._jobs.put_nowait(job)
        except asyncio.QueueFull:
            self._fail(job, ApiError("Pulsar is slow", error_code=ErrorCode.REQUEST_TIMED_OUT))
        return done

    # Sending, in order

    async def _send_all(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                producer = await self._producer(job.name)
                receipt = await producer.send(
                    job.entry.buffer,
                    job.entry.start,
                    job.entry.end,
                    num_messages=job.entry.num_messages,
                    publish_time=job.entry.publish_time,
                    sequence_id=job.sequence,
                    last_sequence_id=None
                    if job.sequence is None
                    else job.sequence + job.entry.num_messages - 1,
                )
            except PenstockError as exc:
                await self._drop(job.name)
                self._fail(job, _translated(exc))
            else:
                self._sent.put_nowait((job, receipt))

    async def _producer(self, name: str | None) -> Producer:
        producer = self._producers.get(name)
        if producer is None or producer.error is not None:
            producer = self._producers[name] = await self._client.producer(self._topic, name=name)
        self._producers.move_to_end(name)
        if len(self._producers) > _PRODUCERS:
            _, oldest = self._producers.popitem(last=False)
            await oldest.flush()
            await oldest.close()
        return producer

    async def _drop(self, name: str | None) -> None:
        producer = self._producers.pop(name, None)
        if producer is not None and producer.error is None:
            await producer.close()

    # Learning offsets, in order

    async def _settle_all(self) -> None:
        while True:
            job, receipt = await self._sent.get()
            try:
                offset = await self._offset(job, await receipt)
            except PenstockError as exc:
                self._fail(job, _translated(exc))
                continue
            if job.sequence is not None:
                self._sequences.stored(
                    job.producer_id, job.epoch, job.sequence, job.entry.num_messages, offset
                )
            if not job.done.done():
                job.done.set_result(offset)
            self._on_append()

    async def _offset(self, job: _Job, receipt: Receipt) -> int:
        if receipt.is_duplicate:
            # Stored by an earlier attempt, so the place is not told: clients take this for success.
            raise ApiError("it was stored before", error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        place, count = receipt.message_id, job.entry.num_messages
        counted = self._counter.count(place, count)
        if counted is not None:
            return counted
        found = await self._admin.entry_index(self._topic, place)
        if found is None:
            raise ClusterError(
                f"the broker keeps no index for {self._topic}",
                next="set brokerEntryMetadataInterceptors to AppendIndexMetadataInterceptor",
            )
        return self._counter.learn(place, count, last_index=found.last_index)

    def _fail(self, job: _Job, error: ApiError) -> None:
        if job.sequence is not None and error.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._sequences.failed(job.producer_id, job.epoch, job.sequence)
        if not job.done.done():
            job.done.set_exception(error)
            # Nobody may be waiting any more; then it is not an error that nobody asks.
            job.done.exception()


def _translated(exc: PenstockError) -> ApiError:
    if isinstance(exc, ApiError):
        return exc
    retriable = not isinstance(exc, PulsarRefused) or exc.retriable
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if retriable else ErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(str(exc), error_code=code)
