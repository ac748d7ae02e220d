"""One connection of the gateway: an ordered pipeline of answers, with bounds on all that is under way.

As in Kafka a request is served when those before it have been; only Produce requests are under way together,
begun in their order, straight out of the buffer of the socket if nothing has to be waited for. Reading stops
while a connection, its principal, or all of them together have too much under way, or while a client does not
read its answers. Of a request that has begun to come, the bytes that are here count; see `budget`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from penstock.errors import PenstockError, WireError
from penstock.gateway.apis.produce import Production
from penstock.gateway.connection import BARE, Connection, Slot
from penstock.gateway.dispatch import Unserved, check_names, is_served, read_request, serve
from penstock.gateway.frame_rate import FrameRate
from penstock.gateway.handler import Body, Request, Services
from penstock.gateway.output import Output
from penstock.gateway.productions import Productions
from penstock.gateway.security.session import Admission, NotAdmitted, Session
from penstock.gateway.told import Codes, Told, name_of
from penstock.wire.buffer import Buffer
from penstock.wire.framing import SIZE_BYTES
from penstock.wire.kafka import APIS, response_pieces
from penstock.wire.kafka.apis import FETCH, PRODUCE

if TYPE_CHECKING:
    from penstock.gateway.server import Server

__all__ = ["Client"]

log = logging.getLogger("penstock.gateway.clients")

_READ_SIZE = 64 * 1024
_SMALLEST_FETCH = 1024 * 1024
"""What a Fetch may collect while the budget of answers is full."""
_PRESSED = 10
"""While a budget is full, the rate of a request is judged so many times as often."""
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
        self.is_open = False
        """Whether it can be read and written: not before the end of a TLS handshake."""
        self._is_ended = False
        self._reading = True
        self._is_behind = False
        """Whether bytes in the buffer were not looked at, because as much is under way as may be."""
        self._next_take: asyncio.Handle | None = None
        """Looks at them, in another turn of the loop."""
        self._active = time.monotonic()
        self._idle: asyncio.TimerHandle | None = None
        self._believed: asyncio.TimerHandle | None = None
        """Ends the connection of one who does not say who it is, or not again."""
        self._productions = Productions(self, server.services, lambda work: self._start(work, server.tasks))
        self._partial = 0
        """The bytes that are here of a request that has begun to come."""
        self._rate = FrameRate(bytes_per_second=self._limits.frame_bytes_per_second)
        self._rate_timer: asyncio.TimerHandle | None = None
        self._turns: deque[asyncio.Future[None]] = deque()
        """Of the requests that wait for those before them, in their order; only the first can be next."""
        self.tasks: set[asyncio.Task[None]] = set()
        """What ends with the connection: everything but Produce, which is stored whether heard or not."""
        self.peer = "?"
        self.host = ""
        """The address of the client, as DescribeGroups tells it."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection, if there is room for it."""
        if self in self._server.clients or self.accept(transport.get_extra_info("peername")):
            return self._open(transport)
        # Nothing was written to it, so that it waits for nobody's reading.
        transport.close()

    def accept(self, address: object) -> bool:
        """Count a connection, of which the TLS handshake may be to come; False if there is no room for it."""
        self.peer = str(address)
        self.host = f"/{address[0]}" if isinstance(address, tuple) else ""
        if self._server.draining:
            # It was accepted before the listener closed.
            return False
        no_room = self._server.room.enter(self.host)
        if no_room is not None:
            log.warning("refused %s: %s", self.peer, no_room)
            self._server.observer.closed("refused")
            return False
        self._server.clients.add(self)
        budgets = self._server.budgets
        requests = budgets.requests
        if self._session is not None:
            self._session.address = self.host
            requests = budgets.unauthenticated
        self._share = requests.join(self.host)
        self._output = Output(self._limits, budgets, key=self.host, on_unread=self._note_unread)
        self._server.observer.connected()
        return True

    def _open(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of asyncio.Transport in every loop: uvloop has classes of its own.
        self._transport = cast(asyncio.Transport, transport)
        self._output.connected(self._transport)
        self.is_open = True
        if self._session is not None:
            self._believe_for(self._limits.stranger_seconds)
        self._end_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is under way for a client that is gone."""
        if self not in self._server.clients:
            return
        self._server.clients.remove(self)
        self._server.room.leave(self.host)
        self.is_open = False
        if self._session is not None:
            self._session.close()
        for timer in (self._idle, self._believed, self._rate_timer):
            if timer is not None:
                timer.cancel()
        self._share.retire(self)
        self._share.give_partial(self._partial)
        self._share.leave()
        for task in self.tasks:
            task.cancel()
        # We are part of cycles, which are looked for seldom; the memory is not kept until then.
        self._connection.input.release()
        self._output.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give room for what the socket has; no more than for the smallest read while a budget is full."""
        room = self._connection.input.writable(_READ_SIZE)
        return room[:_READ_SIZE] if self._share.is_full else room

    def buffer_updated(self, nbytes: int) -> None:
        """Begin the requests that are whole now."""
        frames = self._connection.input
        frames.wrote(nbytes)
        self._active = time.monotonic()
        if self._partial < SIZE_BYTES or self._is_behind or frames.missing <= 0:
            return self._take_requests()
        # More of a request whose size was checked: only the bytes that are held have changed.
        self._partial += nbytes
        self._share.take_partial(nbytes)
        if self._share.is_full:
            self.regulate()

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests."""
        self._output.pause()
        self.regulate()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._output.resume()
        self._wake()
        self.regulate()

    # What we do

    @property
    def under_way(self) -> tuple[int, int]:
        """The requests that were not answered yet, and their bytes."""
        return len(self._connection), self._connection.bytes_under_way

    def close(self) -> None:
        """End the connection, when the client has read its answers or does not for a while."""
        self._is_ended = True
        self._output.close()

    def abort(self) -> None:
        """End the connection without a word to the client."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str, why: str, level: int = logging.WARNING) -> None:
        log.log(level, "closed %s: %s", self.peer, why)
        self._server.observer.closed(reason)
        self.close()

    def _note_unread(self) -> None:
        log.warning("closed %s: its answers were not read, and others need the memory", self.peer)
        self._server.observer.closed("unread")

    # Requests that have begun to come

    def _follow_frame(self, partial: int, *, is_new: bool) -> None:
        """Count what has come of a request, and see to it that the rest comes."""
        share = self._share
        share.take_partial(partial - self._partial)
        self._partial = partial
        if is_new:
            if share.budget.waiting or share.finisher is self or share.budget.finisher is self:
                share.retire(self)
            self._rate.begin(self._active)
        if partial and self._rate_timer is None and self.is_open:
            self._rate_timer = self._loop.call_later(self._limits.frame_seconds / _PRESSED, self._judge_rate)

    def _judge_rate(self) -> None:
        # Not cancelled when a request is whole: the next one is usually there by then.
        self._rate_timer = None
        if not self._partial or self._output.is_closing:
            return
        window = self._limits.frame_seconds / (_PRESSED if self._share.is_full else 1)
        if self._rate.is_slow(time.monotonic(), self._partial, window):
            return self._end("slow", f"slow, {self._partial} bytes of a request have come")
        self._rate_timer = self._loop.call_later(self._limits.frame_seconds / _PRESSED, self._judge_rate)

    def _take_requests(self) -> None:
        """Begin the requests that are whole, as many as may be under way; the rest when answers have left."""
        connection, whole = self._connection, False
        # Counted apart: one that is answered at once is not under way.
        left = self._limits.small_requests_per_connection - len(connection)
        self._is_behind = self._is_at_limit()
        try:
            for slot in () if self._is_behind else connection.requests():
                if self._is_ended:
                    # What comes behind is not served: the client hears no more answers.
                    return
                whole = True
                self._begin(slot)
                left -= 1
                if not left or self._is_at_limit():
                    self._is_behind = len(connection.input) > 0
                    break
        except WireError as exc:
            self._end("malformed", str(exc))
        partial = len(connection.input)
        if partial or self._partial:
            self._follow_frame(partial, is_new=whole or not self._partial)
        self.regulate()

    def _take_rest(self) -> None:
        self._next_take = None
        if self.is_open and not self._is_ended and self._may_begin():
            self._take_requests()

    def _begin(self, slot: Slot) -> None:
        slot.share = self._share
        slot.share.take(slot.size)
        if slot.header.api_key == PRODUCE and is_served(slot.header) and self._may_produce():
            self._server.producing += 1
            return self._productions.begin(slot)
        slot.keep()
        task = self._start(self._serve(slot), self._server.tasks, self.tasks)
        task.add_done_callback(slot.free)

    def _start(
        self, work: Coroutine[None, None, None], *holders: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        # Not watched: the work of a connection tells its own failures, and there is a task for each request.
        task = self._loop.create_task(work)
        # Held, because the loop keeps only a weak reference to a task.
        for tasks in holders:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    # Produce: what `Productions` asks of us

    def read(self, slot: Slot) -> Request:
        """Decode the request of a slot."""
        request = read_request(slot.header, slot.frame, self._server.listener, self.host)
        limit = self._productions.services.settings.max_names_per_request
        if slot.size > limit:
            check_names(PRODUCE, slot.frame, request.body, limit)
        return request

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
        self._server.produced(slot)
        self._answer(slot, body, started, errors)

    def stop(self, slot: Slot, exc: Exception) -> None:
        """Give up a Produce request."""
        self._server.produced(slot)
        self._give_up(exc, slot)

    # Everything else: served when all before it are answered

    async def _its_turn(self, slot: Slot) -> None:
        """Wait until all before it are answered and read."""
        if self._may_be_served(slot):
            return
        turn = self._loop.create_future()
        self._turns.append(turn)
        await turn
        while not self._may_be_served(slot):
            turn = self._loop.create_future()
            self._turns.appendleft(turn)
            await turn

    def _may_be_served(self, slot: Slot) -> bool:
        return self._connection.is_first(slot) and self._output.is_writable

    def _wake(self) -> None:
        """An answer has gone, or the client reads again: the first that waits may have its turn now."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                return turn.set_result(None)

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
                    *(header, slot.frame, self._server.listener, self._services_for(header.api_key)),
                    *(self.host, self._session),
                )
            self._answer(slot, body, started, errors)
            if self._session is not None:
                self._follow(self._session)
        except Exception as exc:  # noqa: BLE001  told in _give_up
            self._give_up(exc, slot)

    def _services_for(self, api_key: int) -> Services:
        """Let a Fetch collect less while much of what was fetched is not read yet."""
        services = self._productions.services
        settings = services.settings
        if api_key != FETCH or self._output.unread_share.room >= 2 * settings.max_fetch_bytes:
            return services
        room = max(self._output.unread_share.room // 2, _SMALLEST_FETCH)
        least = min(room, settings.max_fetch_bytes)
        return replace(services, settings=replace(settings, max_fetch_bytes=least))

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
                return self._end("unauthenticated", f"unauthenticated, {session.reason}")
            return self.close()
        admission = session.admission
        if admission is None or admission is self._admission:
            return
        if self._admission is None:
            log.info("%s is %s, in %s", self.peer, admission.name or "unnamed", admission.namespace)
        self._admission = admission
        self._productions.services = admission.services
        self._connection.input.limit = admission.services.settings.max_request_bytes
        self._count_for(admission.principal)
        self._believe_for(None if admission.expires_at is None else admission.expires_at - time.time())

    def _believe_for(self, seconds: float | None) -> None:
        if self._believed is not None:
            self._believed.cancel()
        self._believed = None
        if seconds is not None:
            self._believed = self._loop.call_later(max(seconds, 0.0), self._end_belief)

    def _end_belief(self) -> None:
        self._end("unauthenticated", "unauthenticated, it did not say who it is in time", logging.INFO)

    def _count_for(self, principal: Hashable) -> None:
        """Count what the connection holds for a principal, no longer for the address that it came from."""
        former, self._share = self._share, self._server.budgets.requests.join(principal)
        former.retire(self)
        former.give_partial(self._partial)
        former.leave()
        self._share.take_partial(self._partial)
        self._output.move_to(principal)

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
        if errors:
            why = errors.why if isinstance(errors, Codes) else {}
            self._server.client_errors.note(header.client_id, header.api_key, errors, why)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "request peer=%s client=%s id=%d api=%s version=%d in=%d out=%d ms=%.2f errors=%s",
                *(self.peer, header.client_id, header.correlation_id, APIS[header.api_key].name),
                *(header.api_version, slot.size, given, seconds * 1000, _named(errors)),
            )

    def _write(self, pieces: Sequence[Buffer]) -> None:
        if pieces:
            self._output.write(pieces)
        if self._turns:
            self._wake()
        self._active = time.monotonic()
        if not self._reading:
            self.regulate()

    def regulate(self) -> None:
        """Read only while there is room for more."""
        if self._transport is None or not self.is_open or self._output.is_closing:
            return
        room = self._has_room()
        if room == self._reading:
            return
        self._reading = room
        if room:
            self._rate.resume(time.monotonic())
            self._transport.resume_reading()
        else:
            self._rate.pause(time.monotonic())
            self._transport.pause_reading()

    def _may_begin(self) -> bool:
        """Whether the connection itself, whatever others hold, may have more under way."""
        return self._output.is_writable and not self._is_at_limit() and not self._server.draining

    def _is_at_limit(self) -> bool:
        """Whether the connection has as much under way as it may have."""
        limits, count, size = self._limits, len(self._connection), self._connection.bytes_under_way
        if count >= limits.requests_per_connection:
            return size >= limits.small_requests_bytes or count >= limits.small_requests_per_connection
        return size >= limits.bytes_per_connection

    def _has_room(self) -> bool:
        if not self._may_begin():
            # It cannot go on for reasons of its own: nobody shall wait for it.
            self._share.retire(self)
            return False
        if self._is_behind:
            # First what is here, and not in this turn: one that is answered at once brings us back here.
            if self._next_take is None:
                self._next_take = self._loop.call_soon(self._take_rest)
            return False
        held = self._connection.bytes_under_way + self._partial
        return self._share.admits(self, held, in_frame=self._partial > 0)

    def _end_idle(self) -> None:
        """Close if nothing happened for too long, else look again when that could be: one timer each."""
        left = self._active + self._limits.idle_seconds - time.monotonic()
        is_writable = self._output.is_writable
        if left > 0 or (len(self._connection) and is_writable):
            wait = left if left > 0 else self._limits.idle_seconds
            self._idle = self._loop.call_later(wait, self._end_idle)
            return
        self._end("idle", "idle", logging.INFO)
        if not is_writable:
            # It has had its time to read.
            self.abort()


def _named(errors: Sequence[int]) -> str:
    return ",".join(sorted(set(map(name_of, errors)))) or "none"
