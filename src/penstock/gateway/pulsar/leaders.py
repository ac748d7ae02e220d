"""Who leads a partition: a live gateway beside the broker that owns it, else any; chosen by name.

So every gateway makes the same choice from the same knowledge. The first partitions of a topic are dealt out
evenly, so that few partitions keep all gateways busy. Of the others only those of a gateway that comes or
goes, or of a broker's topics that move, get another leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.brokers.pulsar import Host, PulsarClient
from penstock.gateway.groups.placing import node_of
from penstock.gateway.pulsar.membership import BALANCED_LEADERS, Peer
from penstock.gateway.pulsar.ownership import Ownership

__all__ = ["Leaders", "View"]

log = logging.getLogger("penstock.gateway")

_DEALT_OUT: Final = 24
"""So many partitions of a topic are dealt out evenly; when three gateways become two, half of them move and
not a third. Of more partitions the hash gives each gateway its share by itself."""
_PLACES: Final = {
    True: "are the gateways beside the brokers that own them",
    False: "are spread over all gateways",
}


def _dealt(topic: str, partition: int, nodes: Sequence[int]) -> int:
    """Deal out the partitions of a topic: of as many in a row as there are nodes each node leads one.

    >>> sorted(_dealt("orders", partition, (1, 2, 3)) for partition in range(6)), _dealt("orders", 0, ())
    ([1, 1, 2, 2, 3, 3], -1)
    """
    left = list(nodes)
    for before in range(partition - partition % max(1, len(nodes)), partition):
        left.remove(node_of(f"{topic} {before}", left))
    return node_of(f"{topic} {partition}", left)


class View:
    """The gateways that live at one moment.

    >>> peers = [Peer(node_id=n, life="", beside=(Host(f"broker-{n}", 0),)) for n in (1, 2, 3)]
    >>> view = View(peers)
    >>> view.leader("orders", 0, Host("broker-2", 6650)), view.follows
    (2, True)
    >>> view.leader("orders", 0, Host("elsewhere", 6650)) == view.leader("orders", 0, None)
    True
    """

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = peers
        self._nodes = tuple(peer.node_id for peer in peers)
        said = {peer.beside for peer in peers}
        self.follows = None not in said and len(said) > 1
        """Whether it matters who owns a topic: not if all are beside the same, or one does not know of it."""
        self._balances = all(BALANCED_LEADERS in peer.features for peer in peers)
        self._beside: dict[Host, tuple[int, ...]] = {}

    def leader(self, topic: str, partition: int, owner: Host | None) -> int:
        """Choose the gateway that leads a partition; -1 if none lives."""
        fitting = self._nodes if owner is None or not self.follows else self._beside_of(owner)
        if self._balances and partition < _DEALT_OUT:
            return _dealt(topic, partition, fitting)
        return node_of(f"{topic} {partition}", fitting)

    def _beside_of(self, owner: Host) -> tuple[int, ...]:
        if owner not in self._beside:
            found = tuple(peer.node_id for peer in self._peers if peer.is_beside(owner))
            self._beside[owner] = found or self._nodes
        return self._beside[owner]


class Leaders:
    """Which partitions are this gateway's, and which another's."""

    def __init__(self, node_id: Callable[[], int], ownership: Ownership) -> None:
        self._node_id = node_id
        self._ownership = ownership
        self._view: View | None = None

    def look(self, peers: Sequence[Peer]) -> None:
        """Take in who lives; it holds until the next time, also while this gateway hears nobody."""
        before, self._view = self._view, View(peers)
        if self._view.follows != (before is not None and before.follows):
            log.info("leaders of partitions %s", _PLACES[self._view.follows])

    def owner(self, topic: str) -> Host | None:
        """Give the broker that owns a Pulsar topic, as far as it is known."""
        return self._ownership.owner(topic)

    async def know(self, view: View, topics: Sequence[str], client: PulsarClient) -> None:
        """Learn who owns Pulsar topics, with the rights of a client, if it matters."""
        if view.follows:
            await self._ownership.know(topics, client.broker_of)

    async def is_ours(self, topic: str, partition: int, name: str, client: PulsarClient) -> bool:
        """Say whether this gateway leads a partition, whose name on Pulsar is given."""
        if self._view is not None:
            await self.know(self._view, [name], client)
        return self.is_still_ours(topic, partition, name)

    def is_still_ours(self, topic: str, partition: int, name: str) -> bool:
        """Say whether this gateway leads a partition, by what is known; until it has joined it leads all."""
        if self._view is None:
            return True
        return self._view.leader(topic, partition, self.owner(name)) == self._node_id()
