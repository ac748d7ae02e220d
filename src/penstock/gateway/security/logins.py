"""Tokens shown to Pulsar: few at the same time, few from one address, none that was judged a moment ago.

Each question takes a connection to Pulsar, and a Pulsar that is slow answers late. So that clients with bad
tokens cannot keep everybody else out:

- a token that was taken, or denied, a moment ago is not shown again;
- logins with the same token share one question;
- one address has only some of the places, and those behind wait for that address alone, not too many of them;
- a question that nobody waits for any longer is given up;
- a token that Pulsar has taken before has places of its own, which no other can fill.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from penstock.brokers.pulsar import is_denied
from penstock.brokers.pulsar.tasks import watched
from penstock.config.secret import Secret
from penstock.errors import ApiError, ClusterError, Unreachable
from penstock.wire.kafka import ErrorCode

__all__ = ["Crowded", "Logins"]

_REMEMBERED: Final = 10_000
"""Tokens of which it is known that they were taken, and as many that were denied."""


class Crowded(ClusterError):
    """There is no room for a login now: its connection is closed, and its client comes again."""


@dataclass(slots=True, eq=False)
class _Question:
    """What Pulsar is asked about one token, for all who wait for the answer."""

    task: asyncio.Task[None]
    waiters: int = 0


class Logins:
    """Asks `show` about tokens; it returns if Pulsar takes one, and raises if not. All times are seconds."""

    def __init__(
        self,
        show: Callable[[Secret], Awaitable[None]],
        *,
        at_once: int = 32,
        per_address: int = 8,
        waiting_per_address: int = 200,
        taken_for: float = 30.0,
        known_for: float = 3600.0,
        denied_for: float = 10.0,
        patience: float = 10.0,
    ) -> None:
        self._show = show
        self._taken_for = taken_for
        self._known_for = known_for
        self._denied_for = denied_for
        self._patience = patience
        self._key = secrets.token_bytes(32)
        self._taken: dict[bytes, float] = {}
        """When Pulsar took which token, by the digest of the token, the oldest first."""
        self._denied: dict[bytes, float] = {}
        self._asking: dict[bytes, _Question] = {}
        self._of_known = asyncio.Semaphore(at_once)
        self._of_unknown = asyncio.Semaphore(at_once)
        self._per_address = per_address
        self._waiting_per_address = waiting_per_address
        self._addresses: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """The places of an address, and how many logins of it there are: forgotten with the last of them."""

    async def verify(self, token: Secret, address: str = "") -> None:
        """Return if Pulsar takes the token; ApiError if it denies it, another error if it does not say."""
        digest, now = self._digest(token), time.monotonic()
        if now - self._taken.get(digest, -self._taken_for) < self._taken_for:
            return
        if now - self._denied.get(digest, -self._denied_for) < self._denied_for:
            raise _denial()
        question = self._asking.get(digest)
        if question is None:
            task = watched(asyncio.create_task(self._ask(token, digest, address), name="login"))
            question = self._asking[digest] = _Question(task)
        question.waiters += 1
        try:
            # A client that leaves does not take the answer away from the others.
            await asyncio.shield(question.task)
        finally:
            question.waiters -= 1
            if not question.waiters:
                # Nobody joins it any more: it has its answer, or is given up.
                self._forget(digest, question)

    def _forget(self, digest: bytes, question: _Question) -> None:
        question.task.cancel()
        if self._asking.get(digest) is question:
            del self._asking[digest]

    async def close(self) -> None:
        """Give up what is being asked."""
        asking = [question.task for question in self._asking.values()]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, token: Secret, digest: bytes, address: str) -> None:
        try:
            async with asyncio.timeout(self._patience), self._place(digest, address):
                await self._show(token)
        except TimeoutError as exc:
            raise Unreachable(f"Pulsar did not judge a token within {self._patience:g} s") from exc
        except ClusterError as exc:
            if not is_denied(exc):
                raise
            self._taken.pop(digest, None)
            _remember(self._denied, digest)
            # Pulsar's words may hold parts of the token: they are not repeated.
            raise _denial() from None
        _remember(self._taken, digest)

    @asynccontextmanager
    async def _place(self, digest: bytes, address: str) -> AsyncIterator[None]:
        if time.monotonic() - self._taken.get(digest, -self._known_for) < self._known_for:
            async with self._of_known:
                yield
            return
        places, logins = self._addresses.get(address) or (asyncio.Semaphore(self._per_address), 0)
        if logins >= self._waiting_per_address:
            raise Crowded(f"{logins} logins of one address wait for Pulsar")
        self._addresses[address] = places, logins + 1
        try:
            async with places, self._of_unknown:
                yield
        finally:
            logins = self._addresses[address][1] - 1
            self._addresses[address] = places, logins
            if not logins:
                del self._addresses[address]

    def _digest(self, token: Secret) -> bytes:
        return hashlib.blake2b(token.reveal().encode(), key=self._key, digest_size=32).digest()


def _remember(table: dict[bytes, float], digest: bytes) -> None:
    table.pop(digest, None)
    table[digest] = time.monotonic()
    if len(table) > _REMEMBERED:
        del table[next(iter(table))]


def _denial() -> ApiError:
    return ApiError("Pulsar does not take this token", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
