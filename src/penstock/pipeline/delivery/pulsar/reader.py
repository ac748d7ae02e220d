"""Ranges of Pulsar partitions as Kafka record batches whose offsets are the broker's index; callers block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import PenstockError
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.pipeline.delivery.pulsar.log import Numbering, PulsarLog, PulsarPosition
from penstock.pipeline.delivery.pulsar.partition_tail import SILENCE_SECONDS, FetchedEntries, PartitionTail

__all__ = ["FetchedEntries", "PulsarFetcher", "PulsarPartitionReader"]

_MIB: Final = 1024 * 1024


class Wanted(Protocol):
    """A partition and a range, as the Kafka fetcher takes them."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def end(self) -> int | None: ...


class PulsarPartitionReader:
    """Reads one partition from a position up to `end`, without one for ever.

    Use: `poll` until `done`. Memory: about `read_bytes` of entries as they were inflated, and one answer.
    """

    def __init__(
        self,
        log: PulsarLog,
        first: int | PulsarPosition,
        end: int | None = None,
        *,
        numbering: Numbering = Numbering.INDEX,
        max_bytes: int = 2 * _MIB,
        read_bytes: int = 8 * _MIB,
        inflated: int = 64 * _MIB,
    ) -> None:
        """`first` with the entry before it (a position that was given here) needs no call of the admin API.

        `max_bytes` of batches are given at once, and at least one; `inflated` bounds one compressed entry.
        """
        self.numbering = numbering
        position = PulsarPosition(first) if isinstance(first, int) else first
        self._cluster = log.cluster
        self._tail = PartitionTail(
            log,
            position,
            end,
            numbering=numbering,
            max_bytes=max_bytes,
            read_bytes=read_bytes,
            inflated=inflated,
        )

    @property
    def is_indexed(self) -> bool:
        """Whether positions are the broker's index: without it a sink cannot deliver exactly once.

        Nor are removed records noticed then.
        """
        return self.numbering is Numbering.INDEX

    @property
    def position(self) -> PulsarPosition:
        """Where reading goes on."""
        return self._tail.position

    @property
    def done(self) -> bool:
        """Whether the end is reached."""
        return self._tail.position.index >= self._tail.end

    def poll(self, timeout: float) -> FetchedEntries | None:
        """Return what has come within a time; None if nothing has, and the end is where it was.

        Raises OffsetOutOfRange if the position was removed, or the log ends before `end`: then `seek`. Raises
        JobFailed if the topic is another one than before, and what a broker refuses.
        """
        return self._cluster.call(self._tail.poll(timeout))

    def seek(self, index: int) -> None:
        """Go on at another index."""
        self._cluster.call(self._tail.seek(index))

    def close(self) -> None:
        """Stop reading."""
        self._cluster.call(self._tail.close())


class PulsarFetcher:
    """Several partitions, with the methods of the Kafka fetcher: `poll`, `seek`, `waiting`, `close`."""

    def __init__(
        self,
        cluster: PulsarCluster,
        wanted: Iterable[Wanted],
        partitions: Mapping[str, int],
        *,
        numbering: Numbering = Numbering.INDEX,
        max_bytes: int = 2 * _MIB,
        budget: int = 64 * _MIB,
    ) -> None:
        """`partitions` is how many each topic has, 0 for one without; all tails hold about `budget`."""
        rows = list(wanted)
        self._cluster = cluster
        self._partitions = dict(partitions)
        self._numbering = numbering
        self._max_bytes = max_bytes
        self._share = max(min(8 * _MIB, budget // max(len(rows), 1)), 256 * 1024)
        self._refused: list[PenstockError] = []
        self._tails = {(each.topic, each.partition): self._tail(each) for each in rows}

    def close(self) -> None:
        """Stop reading."""
        self._cluster.call(self._close())

    @property
    def waiting(self) -> bool:
        """Whether a partition has not reached its end; always, if one has none."""
        return any(tail.position.index < tail.end for tail in self._tails.values())

    @property
    def is_attached(self) -> bool:
        """Whether every partition that is read has its broker; one that is not opened yet has none."""
        return all(tail.done or tail.is_attached for tail in self._tails.values())

    @property
    def service_url(self) -> str:
        """Where the cluster is."""
        return self._cluster.settings.service_url

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an index; a partition that was not read yet is added, without an end."""
        tail = self._tails.get((topic, partition))
        if tail is not None:
            self._cluster.call(tail.seek(offset))
            return
        self._tails[topic, partition] = self._new_tail(topic, partition, PulsarPosition(offset), None)

    def poll(self, timeout: float) -> list[FetchedEntries]:
        """Return what has come of each partition, after `timeout` nothing. Raises as one reader does."""
        return self._cluster.call(self._poll(timeout))

    def _tail(self, wanted: Wanted) -> PartitionTail:
        return self._new_tail(wanted.topic, wanted.partition, PulsarPosition(wanted.offset), wanted.end)

    def _new_tail(self, topic: str, partition: int, first: PulsarPosition, end: int | None) -> PartitionTail:
        return PartitionTail(
            PulsarLog(self._cluster, topic, partition, self._partitions.get(topic, 0)),
            first,
            end,
            numbering=self._numbering,
            max_bytes=self._max_bytes,
            read_bytes=self._share,
            inflated=64 * _MIB,
        )

    async def _poll(self, timeout: float) -> list[FetchedEntries]:
        """Ask every tail; who has something ends the wait of the others, which lose nothing by it."""
        until = time.monotonic() + timeout
        self._raise_refused()
        while True:
            tails = [tail for tail in self._tails.values() if not tail.done]
            found = [each for tail in tails if (each := await self._polled(tail)) is not None]
            if found or not tails or time.monotonic() >= until:
                return found
            self._raise_refused()
            await self._news(tails, min(until - time.monotonic(), SILENCE_SECONDS))

    def _raise_refused(self) -> None:
        """Raise the first error; others that pass are forgotten: those that have not passed come again."""
        if self._refused:
            first, *others = self._refused
            self._refused = [each for each in others if not is_retriable(each)]
            raise first

    async def _polled(self, tail: PartitionTail) -> FetchedEntries | None:
        try:
            return await tail.poll(0.0)
        except PenstockError as exc:
            # Raised when what came of the others is given: their positions are behind it.
            self._refused.append(exc)
            return None

    async def _news(self, tails: list[PartitionTail], seconds: float) -> None:
        waits = [asyncio.ensure_future(tail.arrival(max(seconds, 0.0))) for tail in tails]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _close(self) -> None:
        await asyncio.gather(*(tail.close() for tail in self._tails.values()))
