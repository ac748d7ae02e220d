"""Sockets between blocking programs and brokers in memory: delays, cuts, silence, answers that are lost.

A broker reads the requests of a connection one after the other, and answers each before it reads the next.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, Protocol
from unittest.mock import patch

from penstock.brokers.kafka_raw import connection as connection_module
from penstock.brokers.kafka_raw import lanes
from penstock.pipeline.delivery import loop_run, range_delivery
from simulator.threads import Program, World

__all__ = ["Link", "Links", "Serves"]

_SIZE: Final = struct.Struct(">i")
_DELAYS: Final = (0.0001, 0.0005, 0.002, 0.01, 0.1)


class Serves(Protocol):
    """Who is at the other end: brokers by port."""

    def is_up(self, node: int) -> bool:
        """Say whether a broker takes connections."""

    def serve(self, node: int, frame: bytes, answer: Callable[[bytes], None]) -> None:
        """Do a request, and answer now or later."""


class Link:
    """A connection of a program to a broker; for the program it looks as a socket."""

    def __init__(self, links: Links, node: int, program: Program) -> None:
        self.node = node
        self.program = program
        self.is_cut = False
        self._links = links
        self._world = links.world
        self._timeout: float | None = None
        self._out = bytearray()
        self._requests: deque[bytes] = deque()
        self._busy = False
        self._in = bytearray()
        self._silent = False
        self._lost = False
        self._delay = links.world.random.choice(_DELAYS)
        self._last_arrival = 0.0

    # What a program calls

    def setsockopt(self, *_: int) -> None:
        """Options make no difference."""

    def settimeout(self, seconds: float) -> None:
        """Bound the next steps."""
        self._timeout = seconds

    def fileno(self) -> int:
        """Give a number of its own."""
        return id(self)

    def close(self) -> None:
        """Close it; what was sent arrives all the same."""
        self.is_cut = True

    def sendall(self, data: bytes, flags: int = 0) -> None:
        """Send bytes; whole requests go on their way."""
        self.program.step()
        if self.is_cut:
            raise BrokenPipeError("the connection is cut")
        self._out += data
        while len(self._out) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._out)[0]
            if len(self._out) < end:
                break
            frame = bytes(self._out[_SIZE.size : end])
            del self._out[:end]
            self._links.on_request(self)
            if self.is_cut:
                return  # written, and lost on the way
            self._world.after(self._travel(), lambda frame=frame: self._arrived(frame))

    def recv_into(self, view: memoryview) -> int:
        """Take what has come, or wait for it."""
        self.program.step()
        until = self._world.now + (self._timeout or 0.0)
        while not self._in:
            if self.is_cut:
                raise ConnectionResetError("the connection is cut")
            if self._world.now >= until:
                raise TimeoutError("timed out")
            self.program.park(until - self._world.now)
        size = min(len(view), len(self._in))
        view[:size] = self._in[:size]
        del self._in[:size]
        return size

    @property
    def readable(self) -> bool:
        """Whether a selector reports it."""
        return bool(self._in) or self.is_cut

    # What the broker sees

    def cut(self) -> None:
        """Break it for both sides; what is under way is lost."""
        self.is_cut = self._lost = True
        self._requests.clear()
        self._in.clear()
        self.program.wake()

    def go_silent(self) -> None:
        """Let nothing come through any more, without telling."""
        self._silent = True

    def _travel(self) -> float:
        """Give a delay after which the next piece arrives, behind the last one."""
        delay = self._delay * self._world.random.uniform(0.5, 1.5)
        self._last_arrival = max(self._last_arrival, self._world.now + delay)
        return self._last_arrival - self._world.now

    def _arrived(self, frame: bytes) -> None:
        # What a program has sent before it closed the connection, or was killed, arrives.
        if self._silent or self._lost or not self._links.brokers.is_up(self.node):
            return
        self._requests.append(frame)
        self._next()

    def _next(self) -> None:
        if not self._busy and self._requests and not self._lost:
            self._busy = True
            self._links.brokers.serve(self.node, self._requests.popleft(), self._answered)

    def _answered(self, answer: bytes) -> None:
        self._busy = False
        if not self.is_cut and not self._silent:
            self._links.on_answer(self)
        if not self.is_cut and not self._silent:
            self._world.after(self._travel(), lambda: self._delivered(answer))
        if self._links.brokers.is_up(self.node):
            self._next()

    def _delivered(self, answer: bytes) -> None:
        if not self.is_cut and not self._silent:
            self._in += _SIZE.pack(len(answer)) + answer
            self.program.wake()


class _Selector:
    """Waits for links."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._found: dict[Any, SimpleNamespace] = {}

    def __enter__(self) -> _Selector:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.clear()

    def register(self, who: Any, _: int, data: object) -> None:
        self._found[who._sock] = SimpleNamespace(data=data)

    def select(self, timeout: float) -> list[tuple[Any, int]]:
        program, until = self._world.running(), self._world.now + timeout
        program.step()
        while True:
            ready = [(key, selectors.EVENT_READ) for link, key in self._found.items() if link.readable]
            if ready or self._world.now >= until:
                return ready
            program.park(until - self._world.now)


class Links:
    """All connections, and what goes wrong with them: `trouble` is the chance that a message meets it."""

    def __init__(self, world: World, brokers: Serves, note: Callable[[str, str], None], host: str) -> None:
        self.world = world
        self.host = host
        self.brokers = brokers
        self.trouble = 0.0
        self._note = note
        self._all: list[Link] = []

    def connect(self, address: tuple[str, int], timeout: float) -> Link:
        """Open a connection; brokers are told apart by their ports."""
        program, node = self.world.running(), address[1] - 9000
        program.step()
        if not self.brokers.is_up(node):
            raise ConnectionRefusedError("nobody listens")
        link = Link(self, node, program)
        self._all.append(link)
        return link

    def of(self, node: int | None = None) -> list[Link]:
        """Give the connections that are open, of a broker or of all."""
        self._all = [link for link in self._all if not link.is_cut and not link.program.ended]
        return [link for link in self._all if node is None or link.node == node]

    def on_request(self, link: Link) -> None:
        """Lose a request now and then."""
        if self.world.random.random() < self.trouble:
            self._note(link.program.name, f"a request to {link.node} is lost, and the connection cut")
            link.cut()

    def on_answer(self, link: Link) -> None:
        """Lose an answer now and then: what was asked for is done."""
        dice = self.world.random.random()
        if dice < self.trouble:
            self._note(link.program.name, f"an answer of {link.node} is lost, and the connection cut")
            link.cut()
        elif dice < 1.2 * self.trouble:
            self._note(link.program.name, f"{link.node} is silent from an answer on")
            link.go_silent()

    @contextmanager
    def installed(self, *others: Links) -> Iterator[None]:
        """Let programs of this process use these connections and the clock of the world.

        `others` lead to other clusters, which are told apart by their hosts.
        """
        world = self.world
        by_host = {each.host: each for each in (self, *others)}
        sockets = SimpleNamespace(
            create_connection=lambda address, timeout: by_host[address[0]].connect(address, timeout),
            socket=socket.socket,
            IPPROTO_TCP=socket.IPPROTO_TCP,
            TCP_NODELAY=socket.TCP_NODELAY,
            SOL_SOCKET=socket.SOL_SOCKET,
            SO_RCVBUF=socket.SO_RCVBUF,
        )
        polling = SimpleNamespace(PollSelector=lambda: _Selector(world), EVENT_READ=selectors.EVENT_READ)
        since = loop_run._Since
        with (
            patch.object(connection_module, "socket", sockets),
            patch.object(lanes, "selectors", polling),
            patch.object(time, "monotonic", world.monotonic),
            patch.object(time, "clock_gettime", lambda clock: world.monotonic()),
            patch.object(time, "time_ns", world.time_ns),
            patch.object(time, "sleep", world.sleep),
            patch.object(loop_run, "monotonic", world.monotonic),
            patch.object(range_delivery, "monotonic", world.monotonic),
            patch.object(loop_run, "_Since", lambda start: since(start, began=world.now)),
        ):
            yield
