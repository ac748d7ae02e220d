"""Connections, one for each broker, made when first needed and shared by all that live on that broker."""

from __future__ import annotations

import asyncio
import logging
import ssl

from penstock.brokers.conditions import tls_error
from penstock.brokers.outage import Outages
from penstock.brokers.pulsar.connection import Connection, Credentials
from penstock.brokers.pulsar.options import Options
from penstock.brokers.pulsar.service_url import Broker
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import Unreachable

__all__ = ["Pool"]

log = logging.getLogger("penstock.pulsar")


class Pool:
    """The connections of a client."""

    def __init__(
        self,
        options: Options,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        outages: Outages | None = None,
    ) -> None:
        self._options = options
        self._credentials = credentials
        self._tls = tls
        self._outages = outages or Outages(log)
        self._tasks = Tasks()
        self._pending: dict[Broker, asyncio.Task[Connection]] = {}
        self._open: dict[Broker, Connection] = {}
        self._closed = False

    async def get(self, broker: Broker) -> Connection:
        """Give the connection to a broker; several who ask at once share one attempt."""
        found = self._open.get(broker)
        if found is not None and found.error is None:
            return found
        if self._closed:
            raise Unreachable("the client was closed", where=str(broker.host))
        task = self._pending.get(broker)
        if task is None:
            task = self._tasks.start(self._connect(broker), name=f"pulsar connect {broker.host}")
            self._pending[broker] = task
            task.add_done_callback(lambda _: self._pending.pop(broker, None))
        try:
            # One who is cancelled must not take the connection away from the others.
            return await asyncio.shield(task)
        finally:
            # The task holds its exception, whose traceback holds this frame: a cycle per refused connect.
            del task

    async def close(self) -> None:
        """Close every connection, and make no other."""
        self._closed = True
        await self._tasks.close()
        await asyncio.gather(*(connection.close() for connection in self._open.values()))
        self._open.clear()

    async def _connect(self, broker: Broker) -> Connection:
        subject = f"Pulsar broker {broker.host}"
        try:
            connection = await self._connected(broker)
        except Unreachable as exc:
            self._outages.failed(subject, exc.why or exc.what)
            raise
        self._outages.worked(subject)
        return connection

    async def _connected(self, broker: Broker) -> Connection:
        connection = Connection(broker, self._options, self._credentials)
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._dial(connection)
                await connection.shake_hands()
        except TimeoutError as exc:
            await connection.close()
            raise self._silent(connection) from exc
        except BaseException:
            await connection.close()
            raise
        self._open = {key: other for key, other in self._open.items() if other.error is None}
        self._open[broker] = connection
        return connection

    async def _dial(self, connection: Connection) -> None:
        host = connection.broker.host
        name = host.name if self._tls is not None else None
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, host.name, host.port, ssl=self._tls, server_hostname=name
            )
        except ssl.SSLError as exc:
            raise tls_error(exc, where=connection.where) from exc
        # A name that cannot be one is a UnicodeError.
        except (OSError, UnicodeError) as exc:
            raise Unreachable(
                "cannot reach the broker",
                where=connection.where,
                why=getattr(exc, "strerror", None) or str(exc),
                next="start Pulsar, or correct its address",
            ) from exc

    def _silent(self, connection: Connection) -> Unreachable:
        return Unreachable(
            f"the broker did not greet within {self._options.connect_timeout:g} s",
            where=connection.where,
            next="look what listens at this address; a broker with TLS needs pulsar+ssl://",
        )
