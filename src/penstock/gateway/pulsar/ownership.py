"""Which broker owns a topic, as all gateways know it: what one has looked up it tells the others.

It is told through the one topic in which gateways say that they live, and counts for each gateway, the one
that tells it included, from where it stands there: all hear the same in the same order, and so agree. A
session that was closed looks its topic up again, so a topic that is in use and moves is told at once; what
nobody uses is looked up again when it is asked for and old.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Broker, Host
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import PenstockError

__all__ = ["Ownership", "read_owners", "write_owners"]

log = logging.getLogger("penstock.gateway")

_VALID_FOR: Final = 30.0
_FAILED_FOR: Final = 5.0
"""Seconds for which a topic that could not be looked up is left alone."""
_PATIENCE: Final = 2.0
"""Seconds that a client waits for what is not known; then leaders are spread as if nobody owned it."""
_AT_ONCE: Final = 64
_GATHER: Final = 0.01
"""What is learnt within so many seconds is told together."""
_MOST: Final = 100_000
_NAMES_TOLD_TOGETHER: Final = 100
"""With the longest names still far from the largest message."""

Find = Callable[[str], Awaitable[Broker]]


class _Owner(NamedTuple):
    address: Host
    told_at: float


def write_owners(owners: Mapping[str, Host]) -> Iterator[bytes]:
    """Write who owns what, in pieces.

    >>> [read_owners(piece) for piece in write_owners({"persistent://a/b/c": Host("broker-1", 6650)})]
    [{'persistent://a/b/c': Host(name='broker-1', port=6650)}]
    """
    rows = iter(owners.items())
    while piece := list(islice(rows, _NAMES_TOLD_TOGETHER)):
        topics: dict[Host, list[str]] = {}
        for topic, owner in piece:
            topics.setdefault(owner, []).append(topic)
        yield json.dumps({"owners": [[*owner, names] for owner, names in topics.items()]}).encode()


def read_owners(data: bytes) -> dict[str, Host]:
    """Read who owns what; nothing from anything else.

    >>> read_owners(b"{}"), read_owners(b'{"owners": [["broker-1", 6650]]}')
    ({}, {})
    """
    try:
        rows = json.loads(data)["owners"]
        return {str(topic): Host(str(name), int(port)) for name, port, topics in rows for topic in topics}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


class Ownership:
    """What the gateways have told each other; made in the running loop."""

    def __init__(
        self,
        tell: Callable[[bytes], Awaitable[None]],
        *,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._on_change = on_change
        self._clock = clock
        self._owners: dict[str, _Owner] = {}
        """In the order in which they were told, the oldest first."""
        self._failed: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._untold: dict[str, Host] = {}
        self._awaited: dict[str, asyncio.Event] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()
        self._closed = False

    def owner(self, topic: str) -> Host | None:
        """Give the broker that owns a topic; None if it is not known."""
        found = self._owners.get(topic)
        return None if found is None else found.address

    async def know(self, topics: Sequence[str], find: Find) -> None:
        """Wait a moment for what is not known; what is old is looked up again meanwhile."""
        for topic in topics:
            if not (self._is_recent(topic) or topic in self._asking or self._is_full):
                self._ask(topic, find)
        unknown = [self._asking[topic] for topic in topics if self._is_awaited(topic)]
        if unknown:
            await asyncio.wait(unknown, timeout=_PATIENCE)

    @property
    def _is_full(self) -> bool:
        return self._closed or len(self._asking) >= _MOST

    def _is_recent(self, topic: str) -> bool:
        known, now = self._owners.get(topic), self._clock()
        if known is not None and now - known.told_at < _VALID_FOR:
            return True
        return now - self._failed.get(topic, now - _FAILED_FOR) < _FAILED_FOR

    def _is_awaited(self, topic: str) -> bool:
        return topic in self._asking and topic not in self._owners

    def _ask(self, topic: str, find: Find) -> None:
        task = self._tasks.start(self._look_up(topic, find), name=f"owner of {topic}")
        self._asking[topic] = task
        task.add_done_callback(lambda _: self._asking.pop(topic, None))

    async def _look_up(self, topic: str, find: Find) -> None:
        try:
            async with self._turn:
                broker = await find(topic)
        except PenstockError as exc:
            log.debug("who owns %s is not known: %s", topic, exc)
            self._fail(topic)
            return
        heard = self._awaited[topic] = asyncio.Event()
        self._tell_later(topic, broker.address)
        try:
            async with asyncio.timeout(_PATIENCE):
                await heard.wait()
        except TimeoutError:
            self._fail(topic)
        finally:
            self._awaited.pop(topic, None)

    def _fail(self, topic: str) -> None:
        self._failed.pop(topic, None)
        self._failed[topic] = self._clock()
        _shorten(self._failed)

    # Telling and hearing

    def noticed(self, topic: str, broker: Broker) -> None:
        """Hear of a lookup that was made for another purpose: tell it if the topic has moved."""
        known = self._owners.get(topic)
        if known is not None and known.address != broker.address and not self._closed:
            self._tell_later(topic, broker.address)

    def _tell_later(self, topic: str, owner: Host) -> None:
        if not self._untold:
            self._tasks.start(self._tell_all(), name="tell owners")
        self._untold[topic] = owner

    async def _tell_all(self) -> None:
        await asyncio.sleep(_GATHER)
        untold, self._untold = self._untold, {}
        try:
            for piece in write_owners(untold):
                await self._tell(piece)
        except PenstockError as exc:
            log.debug("this gateway cannot tell the others who owns what: %s", exc)

    def hear(self, data: bytes) -> None:
        """Take in what a gateway tells, whichever it is."""
        changed = False
        for topic, address in read_owners(data).items():
            changed |= self.owner(topic) != address
            self._owners.pop(topic, None)
            self._owners[topic] = _Owner(address, self._clock())
            if topic in self._awaited:
                self._awaited[topic].set()
        _shorten(self._owners)
        if changed:
            self._on_change()

    async def close(self) -> None:
        """Stop asking and telling."""
        self._closed = True
        await self._tasks.close()


def _shorten(table: dict[str, _Owner] | dict[str, float]) -> None:
    for oldest in list(islice(table, max(0, len(table) - _MOST))):
        del table[oldest]
