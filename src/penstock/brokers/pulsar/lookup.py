"""Which broker owns a topic, how many partitions it has, which topics there are (LOOKUP and friends).

A lookup comes before everything else: it is what makes a broker load the topic's bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.pool import Pool
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.pulsar.service_url import Broker, ServiceUrl
from penstock.errors import ClusterError, ConfigError, PulsarRefused, Unreachable
from penstock.wire.pulsar.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

__all__ = ["Lookup"]

MAX_REDIRECTS: Final = 20


class Lookup:
    """Questions that any broker answers; hosts of the service URL are asked in turn until one does."""

    def __init__(
        self,
        pool: Pool,
        url: ServiceUrl,
        *,
        on_owner: Callable[[str, Broker], None] = lambda topic, broker: None,
    ) -> None:
        self._on_owner = on_owner
        self._pool = pool
        self._url = url
        self._next = 0

    async def service(self) -> Connection:
        """Give a connection to any broker of the service URL."""
        last: Unreachable | None = None
        for _ in self._url.hosts:
            host = self._url.hosts[self._next % len(self._url.hosts)]
            try:
                return await self._pool.get(Broker(host))
            except Unreachable as exc:
                self._next += 1
                last = exc
        try:
            raise last or Unreachable("the service URL names no host")
        finally:
            # Its traceback holds this frame.
            del last

    async def broker_of(self, topic: str) -> Broker:
        """Find the broker that owns a topic, following redirects."""
        connection, authoritative = await self.service(), False
        for _ in range(MAX_REDIRECTS):
            answer = await connection.request(CommandLookupTopic(topic=topic, authoritative=authoritative))
            if answer.response == CommandLookupTopicResponse.FAILED:
                raise _failed(answer, f"topic {topic} cannot be looked up", connection)
            broker = self._broker(answer, connection)
            if answer.response == CommandLookupTopicResponse.CONNECT:
                self._on_owner(topic, broker)
                return broker
            connection, authoritative = await self._pool.get(broker), answer.authoritative
        raise ClusterError(f"the brokers send us in a circle for topic {topic}", where=connection.where)

    async def partitions(self, topic: str, *, create: bool = False) -> int:
        """Count the partitions of a topic, 0 for one without; `create` lets the broker make it."""
        connection = await self.service()
        answer = await connection.request(
            CommandPartitionedTopicMetadata(topic=topic, metadata_auto_creation_enabled=create)
        )
        if answer.response == CommandPartitionedTopicMetadataResponse.FAILED:
            raise _failed(answer, f"the partitions of topic {topic} cannot be counted", connection)
        return int(answer.partitions)

    async def topics(self, namespace: str) -> tuple[str, ...]:
        """Name the persistent topics of `tenant/namespace`, each partition by itself, sorted."""
        connection = await self.service()
        answer = await connection.request(CommandGetTopicsOfNamespace(namespace=namespace))
        return tuple(sorted(answer.topics))

    def _broker(self, answer: Any, connection: Connection) -> Broker:
        text = answer.broker_service_url_tls if self._url.tls else answer.broker_service_url
        try:
            owner = ServiceUrl.parse(text).hosts[0]
        except ConfigError as exc:
            raise ClusterError(
                f"the broker gave '{text[:200]}' as the address of a topic's owner",
                where=connection.where,
                why=exc.why,
                next="give the brokers an advertised address for "
                + ("TLS" if self._url.tls else "plain TCP"),
            ) from exc
        proxy = connection.broker.host
        # A proxy wants to be asked itself, with the owner's name in CONNECT; a standalone broker says
        # that it is one.
        is_behind = answer.proxy_through_service_url and proxy != owner
        return Broker(proxy, owner) if is_behind else Broker(owner)


def _failed(answer: Any, what: str, connection: Connection) -> PulsarRefused:
    return refusal(answer.error, answer.message, what=what, where=connection.where)
