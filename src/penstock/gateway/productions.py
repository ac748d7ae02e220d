"""The Produce requests of one connection: begun in their order, answered when the storage is ready.

One that has to wait for nothing begins while it is in the buffer of the socket; no task is made for it. One
that must first ask for its topic waits in a task, and those behind it wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from penstock.gateway.apis.produce import Production, is_ready, prepare
from penstock.gateway.connection import Slot
from penstock.gateway.handler import Request, Services

__all__ = ["Productions"]

_SHORTEST_WAIT: Final = 0.01


class Owner(Protocol):
    """The connection as this module sees it."""

    def read(self, slot: Slot) -> Request:
        """Decode the request of a slot."""

    def produced(self, slot: Slot, production: Production, started: float) -> None:
        """Answer a request that has ended."""

    def stop(self, slot: Slot, exc: Exception) -> None:
        """Give up a request that could not begin."""


class Productions:
    """What one connection has under way."""

    def __init__(
        self,
        owner: Owner,
        services: Services,
        start: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._owner = owner
        self.services = services
        """Behind what comes from now on; another client's rights have services of their own."""
        self._start = start
        self._turn = asyncio.Lock()
        """Held, in their order, by requests that have to wait before they can begin."""
        self._unbegun = 0
        """How many of these there are: no other may overtake them."""
        self._ends: dict[Production, float] = {}
        """When the client stops waiting for each."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ends = 0.0
        """The end for which the timer was set: the earliest."""

    def begin(self, slot: Slot) -> None:
        """Begin a request, now or when those before it have begun."""
        try:
            request = None if self._unbegun else self._owner.read(slot)
            if request is not None and is_ready(request, self.services):
                return self._begin(slot, request)
        except Exception as exc:  # noqa: BLE001  told by the owner
            return self._owner.stop(slot, exc)
        slot.keep()
        self._unbegun += 1
        self._start(self._begin_later(slot))

    async def _begin_later(self, slot: Slot) -> None:
        try:
            async with self._turn:
                request = self._owner.read(slot)
                await prepare(request, self.services)
                self._begin(slot, request)
        except Exception as exc:  # noqa: BLE001  told by the owner
            self._owner.stop(slot, exc)
        finally:
            self._unbegun -= 1

    def _begin(self, slot: Slot, request: Request) -> None:
        started = time.perf_counter()

        def ended(production: Production) -> None:
            self._ends.pop(production, None)
            self._owner.produced(slot, production, started)

        production = Production(request, self.services, ended)
        if not production.is_done:
            now = time.monotonic()
            end = self._ends[production] = now + production.seconds
            if self._timer is None or end < self._timer_ends:
                self._expire_at(end, now)

    def _expire_at(self, end: float, now: float) -> None:
        """Look at what is late at a time, and not before; a later look is not needed then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ends = end
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(end - now, _SHORTEST_WAIT), self._expire)

    def _expire(self) -> None:
        """Answer what the client does not wait for any longer; one timer for all."""
        now, self._timer = time.monotonic(), None
        for production in [each for each, end in self._ends.items() if end <= now]:
            production.expire()
        ends = [end for end in self._ends.values() if end > now]
        if ends:
            self._expire_at(min(ends), now)
