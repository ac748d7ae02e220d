"""The live gateways as the nodes of one Kafka cluster; the same on each of them.

Leaders of partitions are spread by name, so that only those of a gateway that comes or goes move. A gateway
lets go of what it does not lead any more and sends clients on: an idempotent producer has its name on Pulsar
only once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from penstock.brokers.pulsar import Host
from penstock.gateway.groups.placing import node_of
from penstock.gateway.ports import Cluster, Node
from penstock.gateway.pulsar.membership import Membership

__all__ = ["GatewayCluster", "derived_node_id", "leader_of"]

_POSITIVE = (1 << 31) - 1


def derived_node_id(address: Host) -> int:
    """Make a node id of the address that clients are told; a gateway keeps it when it is started again.

    >>> derived_node_id(Host("kafka-1.example.com", 9092))
    173945173
    """
    return zlib.crc32(f"{address}".encode()) & _POSITIVE


def leader_of(topic: str, partition: int, live: Sequence[int]) -> int:
    """Choose the gateway that leads a partition; -1 if none lives."""
    return node_of(f"{topic} {partition}", live)


class GatewayCluster:
    """This gateway alone until it knows the others."""

    def __init__(self, alone: Cluster, membership: Membership, listener: Callable[[str], int]) -> None:
        self._alone = alone
        self._membership = membership
        self._listener = listener

    @property
    def cluster_id(self) -> str:
        """The name of the cluster."""
        return self._alone.cluster_id

    @property
    def node_id(self) -> int:
        """This gateway."""
        return self._alone.node_id

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give the live gateways in the order of their ids, at the addresses of the same listener."""
        number = self._listener(listener)
        found = [_node(peer.node_id, peer.addresses, number) for peer in self._membership.peers()]
        if not any(node.id == self.node_id for node in found):
            found += self._alone.nodes(listener)
        return sorted(found, key=lambda node: node.id)

    async def leader(self, topic: str, partition: int) -> int:
        """Give the gateway that serves a partition."""
        return leader_of(topic, partition, self._membership.live() or (self.node_id,))


def _node(node_id: int, addresses: Sequence[Host], number: int) -> Node:
    host, port = addresses[min(number, len(addresses) - 1)]
    return Node(id=node_id, host=host, port=port)
