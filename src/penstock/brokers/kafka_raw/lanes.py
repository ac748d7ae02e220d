"""Connections of one's own to the leaders of partitions, and waiting for whichever answers first."""

from __future__ import annotations

import selectors
from collections.abc import Iterator

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.connection import Connection

__all__ = ["Lanes"]


class Lanes:
    """At most one connection for each broker, opened when it is first used."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connections: dict[int, Connection] = {}

    def __iter__(self) -> Iterator[tuple[int, Connection]]:
        return iter(tuple(self._connections.items()))

    def to(self, node: int) -> Connection:
        """Give the connection to a broker, a new one if the last was lost."""
        connection = self._connections.get(node)
        if connection is None or connection.closed:
            connection = self._connections[node] = self._cluster.dial(node)
        return connection

    def get(self, node: int) -> Connection | None:
        """Give the connection to a broker if there is one."""
        return self._connections.get(node)

    def __getitem__(self, node: int) -> Connection:
        """Give the connection to a broker that has something under way."""
        return self._connections[node]

    def drop(self, node: int) -> None:
        """Close the connection to a broker; what was under way on it is lost."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close them all."""
        for node, _ in self:
            self.drop(node)

    def ready(self, timeout: float) -> list[int]:
        """Wait until brokers answer; give those that do, or that should have by now."""
        busy = {node: connection for node, connection in self if connection.under_way}
        at_once = [node for node, each in busy.items() if each.buffered or each.overdue]
        if at_once or not busy:
            return at_once
        # For a few sockets, once: an epoll would cost two system calls more than it saves.
        with selectors.PollSelector() as selector:
            for node, connection in busy.items():
                selector.register(connection, selectors.EVENT_READ, node)
            return [key.data for key, _ in selector.select(max(timeout, 0.0))]
