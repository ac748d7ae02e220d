"""The live gateways as the nodes of one Kafka cluster; the same on each of them.

A gateway lets go of what it does not lead any more and sends clients on: an idempotent producer has its name
on Pulsar only once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest

from penstock.brokers.pulsar import Host
from penstock.gateway.ports import Cluster, Node, Topic
from penstock.gateway.pulsar.leaders import Leaders, View
from penstock.gateway.pulsar.membership import Membership
from penstock.gateway.pulsar.topics import PulsarTopics

__all__ = ["GatewayCluster", "derived_node_id"]

_POSITIVE = (1 << 31) - 1


def derived_node_id(address: Host) -> int:
    """Make a node id of the address that clients are told; a gateway keeps it when it is started again.

    >>> derived_node_id(Host("kafka-1.example.com", 9092))
    173945173
    """
    return zlib.crc32(f"{address}".encode()) & _POSITIVE


class GatewayCluster:
    """This gateway alone until it knows the others; topics are those of one principal."""

    def __init__(
        self,
        alone: Cluster,
        membership: Membership,
        position: Callable[[str], int],
        leaders: Leaders,
        topics: PulsarTopics,
    ) -> None:
        self._alone = alone
        self._membership = membership
        self._position = position
        """Of a listener here: for gateways that do not tell the names of theirs."""
        self._leaders = leaders
        self._topics = topics

    @property
    def cluster_id(self) -> str:
        """The name of the cluster."""
        return self._alone.cluster_id

    @property
    def node_id(self) -> int:
        """This gateway."""
        return self._alone.node_id

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give the live gateways in the order of their ids, at their addresses of the listener of this name.

        A gateway without such a listener is left out, as in Kafka: its other listeners may have another
        protocol or network.
        """
        position = self._position(listener)
        peers = [(peer.node_id, peer.address_of(listener, position)) for peer in self._membership.peers()]
        found = [Node(id=number, host=at.name, port=at.port) for number, at in peers if at is not None]
        if not any(node.id == self.node_id for node in found):
            found += self._alone.nodes(listener)
        return sorted(found, key=lambda node: node.id)

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[str, Sequence[int]]:
        """Give the gateways that serve the partitions of topics that were just found."""
        names = await self._known(topics)
        # Who lives may have changed meanwhile: clients are told of leaders and nodes of the same moment.
        peers = self._membership.peers()
        if not peers:
            return await self._alone.leaders(topics)
        view = View(peers)
        return {topic.name: self._leaders_of(topic, view, names.get(topic.name, ())) for topic in topics}

    async def _known(self, topics: Sequence[Topic]) -> Mapping[str, Sequence[str]]:
        """Give the Pulsar names of partitions once their owners are known; none if ownership says nothing."""
        view = View(self._membership.peers())
        names = {topic.name: self._pulsar_names(topic) for topic in topics} if view.follows else {}
        await self._leaders.know(view, list(chain.from_iterable(names.values())), self._topics.client)
        return names

    def _pulsar_names(self, topic: Topic) -> list[str]:
        place = self._topics.found(topic.name)
        return [] if place is None else [place.partition(index) for index in range(topic.partitions)]

    def _leaders_of(self, topic: Topic, view: View, names: Sequence[str]) -> list[int]:
        owners = zip_longest(range(topic.partitions), map(self._leaders.owner, names))
        return [view.leader(topic.name, index, owner) for index, owner in owners]
