"""Something that lives on the broker of its topic, and comes back when topic, connection or broker goes.

Producers, readers and consumers are sessions. One task keeps a session open: it waits until the session
is lost, then looks the topic up, connects and attaches again, with a growing delay between attempts.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from penstock.brokers.pulsar.backoff import BackOff
from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.lookup import Lookup
from penstock.brokers.pulsar.options import Options
from penstock.brokers.pulsar.pool import Pool
from penstock.brokers.pulsar.refusal import is_retriable
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import ClusterError, InternalError, PenstockError, PulsarRefused
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["Cluster", "Session"]

# The broker may not have seen yet that our own former connection is gone.
_OURSELVES: Final = frozenset({ServerError.PRODUCER_BUSY, ServerError.CONSUMER_BUSY})


class Cluster:
    """What sessions share: how to find brokers, the connections to them, the options; and who is open."""

    def __init__(self, pool: Pool, lookup: Lookup, options: Options) -> None:
        self.pool = pool
        self.lookup = lookup
        self.options = options
        # Strong references: between two connections nobody else holds a session and its task.
        self.sessions: set[Session] = set()
        self.reconnects = 0


class Session(ABC):
    """The life of a producer, reader or consumer."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.reconnects = 0
        """How often the session was attached again."""
        self.error: PenstockError | None = None
        """Why the session ended for good; None while it lives."""
        self._cluster = cluster
        self._options = cluster.options
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._opened = asyncio.Event()
        self._tasks = Tasks()
        self._backoff = BackOff(first=self._options.first_delay, longest=self._options.longest_delay)
        self._useful = False
        """Whether the present life has brought anything; one that has not is followed by a delay."""

    # What each kind adds

    @abstractmethod
    async def _attach(self, connection: Connection) -> None:
        """Come to life on a connection; called once for each attempt."""

    @abstractmethod
    def _resume(self) -> None:
        """Go on with the work: the session is open. Nothing else runs between the two."""

    @abstractmethod
    def _failed(self, error: PenstockError) -> None:
        """Tell everybody who waits that the session ended for good."""

    @abstractmethod
    async def _detach(self, connection: Connection) -> None:
        """Tell the broker that we go; errors do not matter any more."""

    # The life

    async def open(self) -> None:
        """Attach for the first time; failures that waiting can cure are tried again until open_timeout."""
        self._cluster.sessions.add(self)
        try:
            await self._attach_with_retries(first=True)
        except BaseException:
            await self.close()
            raise
        self._tasks.start(self._keep(), name=f"pulsar session {self.topic}")

    async def close(self) -> None:
        """End the session and tell the broker."""
        self._end(ClusterError(f"this session on topic {self.topic} was closed"))
        self._cluster.sessions.discard(self)
        await self._tasks.close()
        connection, self._connection = self._connection, None
        if connection is not None and connection.error is None:
            try:
                async with asyncio.timeout(self._options.barrier_timeout):
                    await self._detach(connection)
            except (PenstockError, TimeoutError):
                return

    def on_lost(self, connection: Connection, error: PenstockError) -> None:
        """Hear from a connection that the session is not attached to it any more."""
        if connection is self._connection and self.error is None:
            self._opened.clear()
            self._lost.set()

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        while self.error is None:
            opened = clock()
            await self._lost.wait()
            if self._useful or clock() - opened > self._options.longest_delay:
                self._backoff.reset()
            else:
                await asyncio.sleep(self._backoff.next())
            try:
                await self._attach_with_retries(first=False)
                self.reconnects += 1
                self._cluster.reconnects += 1
            except PenstockError as exc:
                self._end(exc)
            except Exception as exc:
                # A session that nobody keeps would wait for ever.
                self._end(InternalError(f"the session on topic {self.topic} has failed", why=repr(exc)))
                raise

    async def _attach_with_retries(self, *, first: bool) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._options.open_timeout
        while True:
            begun = clock()
            try:
                return await self._attach_once()
            except PenstockError as exc:
                delay = self._backoff.next()
                if clock() - begun > self._options.open_timeout:
                    # It waited for exclusive access, and begins to wait once more.
                    deadline = clock() + self._options.open_timeout
                if not (is_retriable(exc) or (not first and _is_ourselves(exc))):
                    raise
                if first and clock() + delay > deadline:
                    raise
            await asyncio.sleep(delay)

    async def _attach_once(self) -> None:
        broker = await self._cluster.lookup.broker_of(self.topic)
        connection = await self._cluster.pool.get(broker)
        self._lost.clear()
        self._useful = False
        try:
            await self._attach(connection)
        except PulsarRefused as exc:
            exc.where = f"{connection.where}, topic {self.topic}"
            raise
        if not self._lost.is_set():
            self._opened.set()
            self._resume()

    def _end(self, error: PenstockError) -> None:
        if self.error is None:
            self.error = error
            self._failed(error)
            # Wakes those who wait for a connection; they look at the error first.
            self._opened.set()


def _is_ourselves(error: PenstockError) -> bool:
    return isinstance(error, PulsarRefused) and error.server_error in _OURSELVES
