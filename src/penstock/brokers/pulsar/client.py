"""The client: a service URL, credentials, and what is opened with them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from penstock.brokers.outage import Outages
from penstock.brokers.pulsar.connection import Credentials
from penstock.brokers.pulsar.consumer import Consumer, PeekingConsumer, SubscriptionType
from penstock.brokers.pulsar.lookup import Lookup
from penstock.brokers.pulsar.options import Options
from penstock.brokers.pulsar.pool import Pool
from penstock.brokers.pulsar.producer import AccessMode, Producer
from penstock.brokers.pulsar.reader import Reader
from penstock.brokers.pulsar.service_url import Broker, ServiceUrl
from penstock.brokers.pulsar.session import Cluster, Session
from penstock.brokers.pulsar.subscription import Delivery
from penstock.config.secret import Secret
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["PulsarClient"]

_OPENING = 64
"""Shared producers that are being opened at a time, and single entries that are being read."""
_ONE_ENTRY = 1
"""Bytes to ask for ahead: the broker sends one entry, however large, and no other."""

T = TypeVar("T")
S = TypeVar("S", bound=Session)


class PulsarClient:
    """Opens producers, readers and consumers, and closes what it has opened; one event loop.

    >>> async def last(url: str, topic: str) -> None:
    ...     async with PulsarClient(url) as client:
    ...         reader = await client.reader(topic)
    ...         delivery = await reader.read()
    """

    def __init__(
        self,
        service_url: str,
        *,
        token: Secret | None = None,
        tls: ssl.SSLContext | None = None,
        by_certificate: bool = False,
        options: Options | None = None,
        on_owner: Callable[[str, Broker], None] = lambda topic, broker: None,
        outages: Outages | None = None,
    ) -> None:
        """With `by_certificate` and no token, the certificate in `tls` says who we are.

        `on_owner` hears of every lookup, also of those by which sessions find their way back.

        Clients that share `outages` log the outage of a broker once.
        """
        url = ServiceUrl.parse(service_url)
        self.options = options or Options()
        credentials = Credentials("tls", Secret("")) if by_certificate else None
        credentials = credentials if token is None else Credentials("token", token)
        self._pool = Pool(
            self.options,
            credentials=credentials,
            tls=(tls or ssl.create_default_context()) if url.tls else None,
            outages=outages,
        )
        self._lookup = Lookup(self._pool, url, on_owner=on_owner)
        self._cluster = Cluster(self._pool, self._lookup, self.options)
        self._opening = asyncio.Semaphore(_OPENING)
        self._reading = asyncio.Semaphore(_OPENING)
        self._producer_ids = count(1)
        self._consumer_ids = count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close everything that was opened, and the connections."""
        await asyncio.gather(*(session.close() for session in list(self._cluster.sessions)))
        await self._pool.close()

    # Asking

    @property
    def reconnects(self) -> int:
        """How often producers, readers and consumers were attached again, those closed since included."""
        return self._cluster.reconnects

    async def check(self) -> None:
        """Connect to the service and be greeted, or raise why not."""
        await self._lookup.service()

    async def max_message_bytes(self) -> int:
        """Ask what the largest message is that the service takes, head and properties included."""
        return (await self._lookup.service()).max_message_bytes

    async def broker_of(self, topic: str) -> Broker:
        """Find the broker that owns a topic."""
        return await self._lookup.broker_of(topic)

    async def partitions(self, topic: str, *, create: bool = False) -> int:
        """Count the partitions of a topic, 0 for one without; `create` lets the broker make it."""
        return await self._lookup.partitions(topic, create=create)

    async def topics(self, namespace: str) -> tuple[str, ...]:
        """Name the persistent topics of `tenant/namespace`, each partition by itself."""
        return await self._lookup.topics(namespace)

    # Opening

    async def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        access: AccessMode = AccessMode.SHARED,
        avro_schema: str | None = None,
        owns_name: bool = False,
    ) -> Producer:
        """Open a producer; with WAIT_FOR_EXCLUSIVE that takes until the others are gone.

        The broker refuses an Avro schema that does not agree with the topic's, and keeps one that is new.
        With `owns_name` the producer ends when somebody else has used its name while it was disconnected.

        Shared ones, of which a crowd may come at once, take turns: a broker that loads thousands of topics
        at a time answers none of them in time.
        """
        producer_id = next(self._producer_ids)
        producer = Producer(
            self._cluster,
            topic,
            producer_id=producer_id,
            name=name,
            access=access,
            avro_schema=avro_schema,
            owns_name=owns_name,
        )
        if access is not AccessMode.SHARED:
            return await self._open(producer)
        async with self._opening:
            return await self._open(producer)

    @overload
    async def reader(
        self,
        topic: str,
        *,
        start: MessageId = ...,
        read_compacted: bool = ...,
        read_bytes: int | None = ...,
        create: bool = ...,
    ) -> Reader[Delivery]: ...

    @overload
    async def reader(
        self,
        topic: str,
        *,
        start: MessageId = ...,
        read_compacted: bool = ...,
        convert: Callable[[Delivery], T],
        size_of: Callable[[T], int] | None = ...,
        read_bytes: int | None = ...,
        create: bool = ...,
    ) -> Reader[T]: ...

    async def reader(
        self,
        topic: str,
        *,
        start: MessageId = EARLIEST,
        read_compacted: bool = False,
        convert: Callable[[Delivery], Any] | None = None,
        size_of: Callable[[Any], int] | None = None,
        read_bytes: int | None = None,
        create: bool = True,
    ) -> Reader[Any]:
        """Open a reader at an entry; `convert` is called while the entry is in the buffer of the socket.

        `read_bytes` is what it asks for ahead, if not what the options say; `size_of` gives the bytes that
        the result of a conversion takes, else the entry counts as it came. `create` lets the broker make a
        topic that is not there, if it may; without it the reader ends when its topic is deleted.
        """
        return await self._open(
            Reader[Any](
                self._cluster,
                topic,
                ids=self._consumer_ids.__next__,
                start=start,
                read_compacted=read_compacted,
                convert=convert,
                size_of=size_of,
                read_bytes=read_bytes,
                create=create,
            )
        )

    async def read_entry(self, topic: str, place: MessageId, convert: Callable[[Delivery], T]) -> T:
        """Read the entry at a place, or the first behind it; wait for it if there is none.

        It costs a broker a fraction of the same question to its admin API. Some are read at a time.
        """
        async with self._reading:
            reader = await self.reader(
                topic, start=place, convert=convert, read_bytes=_ONE_ENTRY, create=False
            )
            try:
                return await reader.read()
            finally:
                await reader.close()

    @overload
    async def consumer(
        self, topic: str, subscription: str, *, kind: SubscriptionType = ..., start: MessageId = ...
    ) -> Consumer[Delivery]: ...

    @overload
    async def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        kind: SubscriptionType = ...,
        start: MessageId = ...,
        convert: Callable[[Delivery], T],
    ) -> Consumer[T]: ...

    async def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        start: MessageId = EARLIEST,
        convert: Callable[[Delivery], Any] | None = None,
    ) -> Consumer[Any]:
        """Open a consumer; a subscription that is new begins at EARLIEST or LATEST."""
        return await self._open(
            Consumer[Any](
                self._cluster,
                topic,
                ids=self._consumer_ids.__next__,
                subscription=subscription,
                kind=kind,
                start=start,
                convert=convert,
            )
        )

    async def peeking_consumer(
        self,
        topic: str,
        subscription: str,
        *,
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        start: MessageId = EARLIEST,
        repeats_acknowledgement: bool = False,
        create: bool = True,
    ) -> PeekingConsumer:
        """Open a consumer that says where a subscription stands, and may acknowledge.

        `create` is that of `reader`.
        """
        return await self._open(
            PeekingConsumer(
                self._cluster,
                topic,
                ids=self._consumer_ids.__next__,
                subscription=subscription,
                kind=kind,
                start=start,
                repeats_acknowledgement=repeats_acknowledgement,
                create=create,
            )
        )

    async def _open(self, session: S) -> S:
        await session.open()
        return session
