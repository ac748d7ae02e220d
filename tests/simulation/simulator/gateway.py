"""Gateways as nodes: the real storage over the real Pulsar client, and connections of Kafka clients to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock.brokers.pulsar import Options, PulsarClient
from penstock.errors import ApiError, RecordsError
from penstock.gateway.ports import Appended
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.sequences import Refusals
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.wire.kafka import ErrorCode, RecordBatch
from simulator.history import History
from simulator.pulsar import Pulsar
from simulator.pulsar_admin import admin_of

__all__ = ["DISCONNECTED", "MAX_BATCH_BYTES", "Connection", "Gateway", "Leadership"]

MAX_BATCH_BYTES: Final = 3_000
DISCONNECTED: Final = -100
"""The code of a request of which no answer came."""
_REQUEST_SECONDS: Final = 30.0


class Leadership:
    """Which gateway leads the partition, and which one each gateway believes to lead it."""

    def __init__(self, history: History) -> None:
        self.leader = ""
        self.gateways: dict[str, Gateway] = {}
        self._history = history

    def elect(self, name: str) -> None:
        """Let a gateway lead; the others hear of it in their own time."""
        self.leader = name
        for gateway in self.gateways.values():
            delay = self._history.random.uniform(0, 3)
            context = self._history.loop.context_of(gateway.name)
            self._history.loop.call_later(delay, gateway.hear, self, context=context)


class _View:
    """What one gateway believes about leadership; the interface of `Leaders`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def is_ours(self, *_: Any) -> bool:
        return self.is_still_ours()

    def is_still_ours(self, *_: Any) -> bool:
        return self._gateway.believes == self._gateway.name


class Gateway:
    """One process of the gateway."""

    def __init__(self, history: History, pulsar: Pulsar, leadership: Leadership, name: str) -> None:
        self.name, self.believes = name, leadership.leader
        self.history = history
        leadership.gateways[name] = self
        chance = history.random
        options = Options(
            window_entries=chance.choice((2, 5, 1000)),
            send_timeout=chance.choice((2.0, 10.0, 30.0)),
            stall_timeout=chance.choice((1.0, 10.0)),
            open_timeout=chance.choice((3.0, 30.0)),
        )
        history.loop.context_of(name).run(self._build, pulsar, options)

    def _build(self, pulsar: Pulsar, options: Options) -> None:
        self.client = PulsarClient(pulsar.url, options=options)
        self.storage = PulsarStorage(
            self.client,
            admin_of(pulsar),
            names=Names(),
            max_batch_bytes=MAX_BATCH_BYTES,
            leaders=_View(self),  # type: ignore[arg-type]
        )
        # The default clock was bound when the module was imported.
        self.storage._refusals = Refusals(self.history.loop.time)

    @property
    def is_stopped(self) -> bool:
        """Whether its process was killed."""
        return self.history.loop.is_stopped(self.name)

    def hear(self, leadership: Leadership) -> None:
        """Learn who leads now."""
        self.believes = leadership.leader
        self.storage.let_go()

    def produce(self, topic: str, batch: RecordBatch, answer: Callable[[int, int], None]) -> None:
        """Handle a Produce request as the handler of the API does; `answer` is given offset and code."""
        try:
            if len(batch.data) > MAX_BATCH_BYTES:
                raise RecordsError("too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)
            begun = asyncio.ensure_future(self.storage.append(topic, 0, batch))
        except (ApiError, RecordsError) as exc:
            self.storage.refused(topic, 0, batch)
            return answer(-1, exc.error_code)
        timer = self.history.loop.call_later(_REQUEST_SECONDS, begun.cancel)

        def done(future: asyncio.Future[Appended]) -> None:
            timer.cancel()
            if future.cancelled():
                return answer(-1, ErrorCode.REQUEST_TIMED_OUT)
            error = future.exception()
            if isinstance(error, ApiError | RecordsError):
                self.history.note(self.name, f"refuses {batch.base_sequence}: {error}")
                return answer(-1, error.error_code)
            answer(future.result().base_offset, 0)

        begun.add_done_callback(done)


class Connection:
    """A Kafka client's connection to a gateway: requests and answers keep their order."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.is_open = True
        self.is_lost = False
        """Whether the client has noticed that it is not open."""
        self._history = gateway.history
        self._loop = self._history.loop
        self._arrival = self._return = 0.0
        self._context = self._loop.context_of(gateway.name)
        self._waiting: list[asyncio.Future[tuple[int, int]]] = []
        """Answers that the client waits for, in the order of the requests."""
        self._ready: dict[asyncio.Future[tuple[int, int]], tuple[int, int]] = {}

    def send(self, topic: str, batch: RecordBatch) -> asyncio.Future[tuple[int, int]]:
        """Send a batch; the future is the offset and the error code."""
        answer: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        self._waiting.append(answer)
        if self.gateway.is_stopped:
            self.cut()
        if not self.is_open:
            self._lose()
            return answer
        self._arrival = max(self._loop.time() + self._history.network.delays.next(), self._arrival + 1e-7)
        self._loop.call_at(self._arrival, self._arrive, topic, batch, answer, context=self._context)
        self._loop.call_later(_REQUEST_SECONDS + 5, self._expire, answer)
        return answer

    def _arrive(self, topic: str, batch: RecordBatch, answer: asyncio.Future[tuple[int, int]]) -> None:
        if self.is_open:
            self.gateway.produce(topic, batch, lambda offset, code: self._answered(answer, (offset, code)))

    def _answered(self, answer: asyncio.Future[tuple[int, int]], result: tuple[int, int]) -> None:
        self._ready[answer] = result
        while self._waiting and self._waiting[0] in self._ready:
            first = self._waiting.pop(0)
            self._return = max(self._loop.time() + self._history.network.delays.next(), self._return + 1e-7)
            context = self._history.network.context
            self._loop.call_at(self._return, self._back, first, self._ready.pop(first), context=context)

    def _back(self, answer: asyncio.Future[tuple[int, int]], result: tuple[int, int]) -> None:
        if not answer.done():
            answer.set_result(result if self.is_open else (-1, DISCONNECTED))

    def _expire(self, answer: asyncio.Future[tuple[int, int]]) -> None:
        if not answer.done():
            self.cut()
            self._lose()

    def cut(self) -> None:
        """Break it: the client hears nothing more of what it has sent."""
        if self.is_open:
            self.is_open = False
            self._loop.call_later(
                self._history.random.uniform(0, 1), self._lose, context=self._history.network.context
            )

    def _lose(self) -> None:
        self.is_lost = True
        for answer in self._waiting:
            if not answer.done():
                answer.set_result((-1, DISCONNECTED))
        self._waiting.clear()
