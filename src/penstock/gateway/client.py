"""One connection of the gateway: an ordered pipeline of answers, with bounds on all that is under way.

As in Kafka a request is served when those before it have been; only Produce requests are under way together,
begun in their order, straight out of the buffer of the socket if nothing has to be waited for. Reading stops
while a connection, or all of them together, have too much under way, or while a client does not read its
answers; a large request is under way as soon as it begins to come.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, cast

from penstock.errors import PenstockError, WireError
from penstock.gateway.apis.produce import Production
from penstock.gateway.connection import BARE, Connection, Slot
from penstock.gateway.dispatch import Unserved, is_served, read_request, serve
from penstock.gateway.handler import Body, Request
from penstock.gateway.productions import Productions
from penstock.gateway.security.session import Admission, NotAdmitted, Session
from penstock.gateway.told import Told, name_of
from penstock.wire.buffer import Buffer
from penstock.wire.kafka import APIS, response_pieces
from penstock.wire.kafka.apis import PRODUCE

if TYPE_CHECKING:
    from penstock.gateway.server import Server

__all__ = ["Client"]

log = logging.getLogger("penstock.gateway")

_READ_SIZE = 64 * 1024
_LARGE = 256 * 1024
"""A request from this size on is counted before it has come."""
_EMPTY_FRAME = bytes(4)


class Client(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        self._session = None if server.door is None else Session(server.door)
        self._admission: Admission | None = None
        largest = server.services.settings.max_request_bytes
        self._connection = Connection(
            max_request_bytes=largest if self._session is None else self._limits.stranger_bytes
        )
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._reading = True
        self._writable = True
        self._active = time.monotonic()
        self._idle: asyncio.TimerHandle | None = None
        self._believed: asyncio.TimerHandle | None = None
        """Ends the connection of one who does not say who it is, or not again."""
        self._productions = Productions(self, server.services, lambda work: self._start(work, server.tasks))
        self._awaited = 0
        """The size of a large request that has begun to come."""
        self._reserved = 0
        """The same, once there is room for it: counted before its bytes are there."""
        self._too_slow: asyncio.TimerHandle | None = None
        self._out: list[Buffer] = []
        """Answers that go out together when the loop comes round."""
        self._out_bytes = 0
        self._moved = asyncio.Event()
        """Set when an answer has gone or the client reads again: a request may have its turn now."""
        self.tasks: set[asyncio.Task[None]] = set()
        """What ends with the connection: everything but Produce, which is stored whether heard or not."""
        self.peer = "?"
        self.host = ""
        """The address of the client, as DescribeGroups tells it."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection, if there is room for it."""
        # Not an instance of asyncio.Transport in every loop: uvloop has classes of its own.
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address)
        self.host = f"/{address[0]}" if isinstance(address, tuple) else ""
        if self._server.draining:
            # It was accepted before the listener closed.
            return transport.close()
        no_room = self._server.room.enter(self.host)
        if no_room is not None:
            log.warning("refused %s: %s", self.peer, no_room)
            self._server.observer.closed("refused")
            transport.close()
            return
        self._server.clients.add(self)
        if self._session is not None:
            self._believe_for(self._limits.stranger_seconds)
        self._server.observer.connected()
        self._end_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is under way for a client that is gone."""
        if self in self._server.clients:
            self._server.clients.remove(self)
            self._server.room.leave(self.host)
        if self._session is not None:
            self._session.close()
        for timer in (self._idle, self._believed):
            if timer is not None:
                timer.cancel()
        self._await(0)
        for task in self.tasks:
            task.cancel()
        # We are part of cycles, which are looked for seldom; the memory is not kept until then.
        self._connection.input.release()
        self._out.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give room for what the socket has."""
        return self._connection.input.writable(_READ_SIZE)

    def buffer_updated(self, nbytes: int) -> None:
        """Begin every request that is whole now."""
        self._connection.input.wrote(nbytes)
        self._active = time.monotonic()
        try:
            for slot in self._connection.requests():
                if self._reserved:
                    # It is there: what comes next, also one of the same size, needs room of its own.
                    self._await(0)
                self._begin(slot)
            awaited = self._connection.input.awaited
            if awaited or self._awaited:
                self._await(awaited)
        except WireError as exc:
            log.warning("closed %s: %s", self.peer, exc)
            self._server.observer.closed("malformed")
            self.close()
        self.regulate()

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests."""
        self._writable = False
        self.regulate()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writable = True
        self._moved.set()
        self.regulate()

    # What we do

    @property
    def under_way(self) -> tuple[int, int]:
        """The requests that were not answered yet, and their bytes."""
        return len(self._connection), self._connection.bytes_under_way

    def close(self) -> None:
        """End the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection without a word to the client."""
        if self._transport is not None:
            self._transport.abort()

    def _await(self, size: int) -> None:
        """Note that a large request has begun to come; 0 when it is there."""
        self._awaited = size if size > _LARGE else 0
        if self._reserved and self._reserved != self._awaited:
            if self._too_slow is not None:
                self._too_slow.cancel()
            reserved, self._reserved = self._reserved, 0
            self._server.count(-reserved)

    def _reserve(self) -> None:
        """Make room for a large request before it is read, so that one which is let in can be finished.

        Else many requests that never end would take memory without limit, or each other's room.
        """
        self._reserved = self._awaited
        self._server.count(self._reserved)
        patience = self._limits.frame_seconds + self._reserved / self._limits.frame_bytes_per_second
        self._too_slow = self._loop.call_later(patience, self._end_slow)

    def _end_slow(self) -> None:
        log.warning("closed %s: slow, a request of %d bytes did not come", self.peer, self._reserved)
        self._server.observer.closed("slow")
        self.close()

    def _begin(self, slot: Slot) -> None:
        self._server.bytes_under_way += slot.size
        if slot.header.api_key == PRODUCE and is_served(slot.header) and self._may_produce():
            self._server.producing += 1
            return self._productions.begin(slot)
        slot.keep()
        task = self._start(self._serve(slot), self._server.tasks, self.tasks)
        task.add_done_callback(lambda _: self._server.count(-slot.size))

    def _start(
        self, work: Coroutine[None, None, None], *holders: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        # Held, because the loop keeps only a weak reference to a task.
        for tasks in holders:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    # Produce: what `Productions` asks of us

    def read(self, slot: Slot) -> Request:
        """Decode the request of a slot."""
        return read_request(slot.header, slot.frame, self._server.listener, self.host)

    def produced(self, slot: Slot, production: Production, started: float) -> None:
        """Answer a Produce request that has ended."""
        errors: Sequence[int] = ()
        try:
            body = production.stored()
            if body is None:
                with Told() as errors:
                    body = production.answer()
        except Exception as exc:  # noqa: BLE001  told in stop
            return self.stop(slot, exc)
        self._server.produced(slot.size)
        self._answer(slot, body, started, errors)

    def stop(self, slot: Slot, exc: Exception) -> None:
        """Give up a Produce request."""
        self._server.produced(slot.size)
        self._give_up(exc, slot)

    # Everything else: served when all before it are answered

    async def _its_turn(self, slot: Slot) -> None:
        """Wait until all before it are answered and read."""
        while not (self._connection.is_first(slot) and self._writable):
            self._moved.clear()
            await self._moved.wait()

    async def _serve(self, slot: Slot) -> None:
        header, started = slot.header, time.perf_counter()
        try:
            await self._its_turn(slot)
            if self._session is not None:
                self._session.check(header.api_key)
                if header is BARE:
                    return await self._serve_bare(slot, self._session)
            with Told() as errors:
                body = await serve(
                    *(header, slot.frame, self._server.listener, self._productions.services),
                    *(self.host, self._session),
                )
        except Exception as exc:  # noqa: BLE001  told in _give_up
            return self._give_up(exc, slot)
        self._answer(slot, body, started, errors)
        if self._session is not None:
            self._follow(self._session)

    async def _serve_bare(self, slot: Slot, session: Session) -> None:
        proof = await session.prove(bytes(slot.frame), time.time)
        # KIP-43: the mechanism answers nothing, in a frame of its own; a failure is told by the end.
        self._write(self._connection.answer(slot, () if proof.error else (_EMPTY_FRAME,)))
        self._follow(session)

    # Who the client is

    def _may_produce(self) -> bool:
        """Whether a Produce request may begin; one that may not is refused in its turn."""
        return self._session is None or self._session.admits(PRODUCE)

    def _follow(self, session: Session) -> None:
        """Serve with the rights that the client has now."""
        self._connection.bare = session.is_bare
        if session.is_over:
            if session.reason:
                log.warning("closed %s: unauthenticated, %s", self.peer, session.reason)
                self._server.observer.closed("unauthenticated")
            return self.close()
        admission = session.admission
        if admission is None or admission is self._admission:
            return
        if self._admission is None:
            log.info("%s is %s, in %s", self.peer, admission.name, admission.namespace)
        self._admission = admission
        self._productions.services = admission.services
        self._connection.input.limit = admission.services.settings.max_request_bytes
        self._believe_for(None if admission.expires_at is None else admission.expires_at - time.time())

    def _believe_for(self, seconds: float | None) -> None:
        if self._believed is not None:
            self._believed.cancel()
        self._believed = None
        if seconds is not None:
            self._believed = self._loop.call_later(max(seconds, 0.0), self._end_belief)

    def _end_belief(self) -> None:
        log.info("closed %s: unauthenticated, it did not say who it is in time", self.peer)
        self._server.observer.closed("unauthenticated")
        self.close()

    def _answer(self, slot: Slot, body: Body, started: float, errors: Sequence[int]) -> None:
        header = slot.header
        version = header.api_version if header.supported else 0
        pieces: Sequence[Buffer] = ()
        if body is not None:
            pieces = response_pieces(header.api_key, version, header.correlation_id, body)
        self._write(self._connection.answer(slot, pieces))
        self._tell(slot, sum(map(len, pieces)), time.perf_counter() - started, errors)

    def _give_up(self, exc: Exception, slot: Slot) -> None:
        """Close, because Kafka has no answer for this."""
        kinds = (
            *((Unserved, "unserved"), (WireError, "malformed"), (NotAdmitted, "unauthenticated")),
            (PenstockError, "failed"),
        )
        reason = next((name for kind, name in kinds if isinstance(exc, kind)), "bug")
        trace = exc if reason == "bug" else None
        where = f"API {slot.header.api_key}"
        log.warning("closed %s: %s, %s: %s", self.peer, where, reason, exc, exc_info=trace)
        self._server.observer.closed(reason)
        self.close()

    def _tell(self, slot: Slot, given: int, seconds: float, errors: Sequence[int]) -> None:
        header = slot.header
        self._server.observer.served(
            header.api_key, header.api_version, taken=slot.size, given=given, seconds=seconds, errors=errors
        )
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "request peer=%s client=%s id=%d api=%s version=%d in=%d out=%d ms=%.2f errors=%s",
                *(self.peer, header.client_id, header.correlation_id, APIS[header.api_key].name),
                *(header.api_version, slot.size, given, seconds * 1000, _named(errors)),
            )

    def _write(self, pieces: Sequence[Buffer]) -> None:
        if pieces:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out.extend(pieces)
            self._out_bytes += sum(map(len, pieces))
            if self._out_bytes >= _READ_SIZE:
                # Now, so that a client that does not read stops us before the next answer is made.
                self._flush()
        self._moved.set()
        self._active = time.monotonic()
        if not self._reading:
            self.regulate()

    def _flush(self) -> None:
        """Write all answers of this turn of the loop with one system call."""
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)

    def regulate(self) -> None:
        """Read only while there is room for more."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._awaited and not self._reserved and not self._server.is_full:
            self._reserve()
        room = self._has_room()
        if room != self._reading:
            self._reading = room
            (transport.resume_reading if room else transport.pause_reading)()

    def _has_room(self) -> bool:
        server, connection, limits = self._server, self._connection, self._limits
        return (
            self._writable
            and len(connection) < limits.requests_per_connection
            and connection.bytes_under_way < limits.bytes_per_connection
            and not server.draining
            and (self._reserved > 0 or not server.is_full)
        )

    def _end_idle(self) -> None:
        """Close if nothing happened for too long, else look again when that could be: one timer each."""
        left = self._active + self._limits.idle_seconds - time.monotonic()
        if left > 0 or (len(self._connection) and self._writable):
            wait = left if left > 0 else self._limits.idle_seconds
            self._idle = self._loop.call_later(wait, self._end_idle)
            return
        log.info("closed %s: idle", self.peer)
        self._server.observer.closed("idle")
        # What the client does not read would hold the connection open for ever.
        (self.close if self._writable or self._transport is None else self._transport.abort)()


def _named(errors: Sequence[int]) -> str:
    return ",".join(sorted(set(map(name_of, errors)))) or "none"
