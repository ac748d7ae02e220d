"""A Kafka consumer without a group: it reads one partition from its start, whoever leads it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiokafka.record.default_records import DefaultRecordBatch

from penstock.errors import ApiError, PenstockError
from penstock.gateway.ports import EARLIEST, Slice
from penstock.wire.kafka import ErrorCode
from simulator.gateway import Gateway, Leadership
from simulator.history import History

__all__ = ["Consumer"]

T = TypeVar("T")
_REQUEST_SECONDS: Final = 40.0


@dataclass(eq=False)
class Consumer:
    """Reads until it is told to stop."""

    history: History
    leadership: Leadership
    topic: str
    offset: int = 0
    read: dict[int, bytes] = field(default_factory=dict)
    """What was read, by offset."""
    jumps: int = 0
    """How often what it wanted to read was gone."""

    async def run(self) -> None:
        """Read on and on."""
        while True:
            await self.history.pause(self.history.random.choice((0.01, 1.0)))
            gateway = self.leadership.gateways[self.leadership.leader]
            try:
                found = await self._ask(gateway, gateway.storage.read(self.topic, 0, self.offset, 1 << 16))
            except ApiError as exc:
                if exc.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._start_over(gateway)
                continue
            except (PenstockError, TimeoutError):
                continue
            self._take(found)

    async def _start_over(self, gateway: Gateway) -> None:
        try:
            found = await self._ask(gateway, gateway.storage.find(self.topic, 0, EARLIEST))
        except (PenstockError, TimeoutError):
            return
        if found.offset > self.offset:
            self.history.note("consumer", f"goes on at {found.offset}, what is at {self.offset} is gone")
            self.jumps += 1
            self.offset = found.offset

    async def _ask(self, gateway: Gateway, work: Coroutine[Any, Any, T]) -> T:
        """Let a gateway do something; TimeoutError if it is dead or slow."""
        task = self.history.loop.start(gateway.name, work)
        done, _ = await asyncio.wait([task], timeout=_REQUEST_SECONDS)
        if not done:
            task.cancel()
            raise TimeoutError
        return task.result()

    def _take(self, found: Slice) -> None:
        for data in found.batches:
            batch = DefaultRecordBatch(bytes(data))
            for record in batch:
                if record.offset >= self.offset:
                    self.history.check(
                        record.offset not in self.read, f"offset {record.offset} was read twice"
                    )
                    self.read[record.offset] = bytes(record.value or b"")
            self.offset = max(self.offset, batch.next_offset)
