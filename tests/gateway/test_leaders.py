"""Who leads what: the choice itself, and that gateways which hear the same words make the same one."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.pulsar import Broker, Host
from penstock.gateway.apis import metadata
from penstock.gateway.handler import Request, Services
from penstock.gateway.ports import NewTopic, Topic
from penstock.gateway.pulsar.cluster import GatewayCluster
from penstock.gateway.pulsar.leaders import Leaders, View
from penstock.gateway.pulsar.membership import BALANCED_LEADERS, TOPIC_IDS, Membership, Peer, read_peer
from penstock.gateway.pulsar.ownership import Ownership
from penstock.gateway.pulsar.topics import Place
from penstock.gateway.told import Told
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode

NOBODY: Any = None
NODE: Any = MemoryStorage()
TOPIC = Topic(name="orders", topic_id=UUID(int=1), partitions=6)
BROKERS = [Host(f"broker-{number}", port) for number in range(3) for port in (6650, 6660)]
PLACES = st.lists(st.sampled_from([*BROKERS, *(Host(each.name, 0) for each in BROKERS)]), max_size=2)
PEERS = st.lists(
    st.builds(
        lambda node, beside: Peer(node_id=node, life="", beside=tuple(beside)),
        st.integers(0, 20),
        PLACES,
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda peer: peer.node_id,
)
OWNERS = st.none() | st.sampled_from([*BROKERS, Host("elsewhere", 6650)])
PARTITIONS = range(20)


def led(peers: Sequence[Peer], owner: Host | None) -> list[int]:
    view = View(peers)
    return [view.leader("orders", partition, owner) for partition in PARTITIONS]


def beside(peers: Sequence[Peer], owner: Host | None) -> set[int]:
    return {peer.node_id for peer in peers if owner is not None and peer.is_beside(owner)}


@given(PEERS, OWNERS, st.randoms(use_true_random=False))
def test_all_gateways_choose_the_same_whatever_they_heard_first(
    peers: list[Peer], owner: Host | None, chance: random.Random
) -> None:
    shuffled = peers.copy()
    chance.shuffle(shuffled)
    assert led(peers, owner) == led(shuffled, owner)


@given(PEERS, OWNERS)
def test_leaders_are_beside_the_owner_if_any_gateway_is(peers: list[Peer], owner: Host | None) -> None:
    assert set(led(peers, owner)) <= (beside(peers, owner) or {peer.node_id for peer in peers})


@given(PEERS, OWNERS)
def test_only_the_partitions_of_a_gateway_that_goes_move(peers: list[Peer], owner: Host | None) -> None:
    gone, rest = peers[0], peers[1:]
    if not rest or (beside(peers, owner) and not beside(rest, owner)):
        return
    before, after = led(peers, owner), led(rest, owner)
    assert [new for old, new in zip(before, after, strict=True) if old != gone.node_id] == [
        old for old in before if old != gone.node_id
    ]


@given(PEERS, OWNERS)
def test_one_old_gateway_makes_all_spread(peers: list[Peer], owner: Host | None) -> None:
    old = Peer(node_id=99, life="")
    assert not View([*peers, old]).follows
    assert led([*peers, old], owner) == led([*peers, old], None)


@given(PEERS)
def test_what_a_gateway_can_do_is_told(peers: list[Peer]) -> None:
    for peer in newer(peers):
        told = replace(peer, addresses=(Host("h", 1),))
        assert read_peer(told.to_bytes()) == told
        before = replace(told, features=frozenset())
        assert b"features" not in before.to_bytes() and read_peer(before.to_bytes()) == before


def newer(peers: Sequence[Peer]) -> list[Peer]:
    return [replace(peer, features=frozenset({BALANCED_LEADERS})) for peer in peers]


@given(PEERS, OWNERS, st.randoms(use_true_random=False))
def test_partitions_are_dealt_out_evenly_and_alike(
    peers: list[Peer], owner: Host | None, chance: random.Random
) -> None:
    shuffled = newer(peers)
    chance.shuffle(shuffled)
    found = led(newer(peers), owner)
    assert found == led(shuffled, owner)
    fitting = (beside(peers, owner) if View(peers).follows else set()) or {peer.node_id for peer in peers}
    for count in PARTITIONS:
        shares = Counter(dict.fromkeys(fitting, 0)) + Counter(found[:count])
        assert set(found[:count]) <= fitting
        assert max(shares.values(), default=0) <= -(-count // len(fitting))


def test_each_of_three_gateways_leads_two_of_six_partitions() -> None:
    three = newer([Peer(node_id=node, life="") for node in (173945173, 464549054, 9)])
    moved = 0
    for number in range(100):
        before, after = (
            [View(peers).leader(f"topic-{number}", partition, None) for partition in range(6)]
            for peers in (three, three[1:])
        )
        assert sorted(Counter(before).values()) == [2, 2, 2]
        assert sorted(Counter(after).values()) == [3, 3]
        moved += sum(old != new for old, new in zip(before, after, strict=True))
    # A third was led by the one that is gone; few others move with them.
    assert moved / 600 < 0.6


@given(PEERS, OWNERS)
def test_one_gateway_of_the_version_before_makes_all_go_by_the_hash(
    peers: list[Peer], owner: Host | None
) -> None:
    old = Peer(node_id=99, life="", beside=())
    assert led([*newer(peers), old], owner) == led([*peers, old], owner)


def test_leaders_are_spread_over_those_beside_the_same_broker() -> None:
    near, far = (Host("broker-1", 0),), (Host("broker-2", 0),)
    peers = [Peer(node_id=node, life="", beside=near if node < 4 else far) for node in range(1, 7)]
    view = View(peers)
    counts = Counter(view.leader("orders", partition, Host("broker-1", 6650)) for partition in range(300))
    assert set(counts) == {1, 2, 3}
    assert min(counts.values()) > 60


def test_on_one_machine_ownership_says_nothing() -> None:
    here = (Host("localhost", 0),)
    assert not View([Peer(node_id=node, life="", beside=here) for node in range(3)]).follows


class Gateways:
    """Nodes 1 and 2, beside brokers 1 and 2, which hear each other's words in one order."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.ownerships = [Ownership(self._tell), Ownership(self._tell)]
        self.leaders = [Leaders(lambda: 1, self.ownerships[0]), Leaders(lambda: 2, self.ownerships[1])]
        self.client: Any = self
        peers = [Peer(node_id=node, life="", beside=(Host(f"broker-{node}", 0),)) for node in (1, 2)]
        for each in self.leaders:
            each.look(peers)

    async def _tell(self, word: bytes) -> None:
        for each in self.ownerships:
            each.hear(word)

    async def broker_of(self, topic: str) -> Broker:
        self.asked[topic] += 1
        return Broker(Host(f"broker-{topic[-1]}", 6650))

    async def leads(self, topic: str) -> list[bool]:
        """Say which of the two leads partition 0 of a topic."""
        return [await each.is_ours("orders", 0, topic, self.client) for each in self.leaders]

    def leads_now(self, topic: str) -> list[bool]:
        return [each.is_still_ours("orders", 0, topic) for each in self.leaders]


def test_what_one_gateway_looks_up_all_know() -> None:
    async def work() -> None:
        gateways = Gateways()
        assert await gateways.leads("t-1") == [True, False]
        assert await gateways.leads("t-2") == [False, True]
        assert gateways.asked == {"t-1": 1, "t-2": 1}

    asyncio.run(work())


def test_a_topic_that_moves_gets_another_leader_everywhere() -> None:
    async def work() -> None:
        gateways = Gateways()
        assert await gateways.leads("t-1") == [True, False]
        gateways.ownerships[0].noticed("t-1", Broker(Host("proxy", 1), Host("broker-2", 6650)))
        gateways.ownerships[0].noticed("unused", Broker(Host("broker-2", 6650)))
        async with asyncio.timeout(5):
            while gateways.leads_now("t-1") != [False, True]:
                await asyncio.sleep(0.01)
        assert gateways.ownerships[0].owner("unused") is None

    asyncio.run(work())


class Members(list[Peer]):
    """Gateways of which one dies while a broker is asked, and the topics that they serve."""

    client: Any

    def peers(self) -> list[Peer]:
        return list(self)

    def found(self, name: str) -> Place:
        return Place(TOPIC, "persistent://public/default/orders", True)

    async def broker_of(self, topic: str) -> Broker:
        del self[1:]
        return Broker(Host("broker-2", 6650))


def test_who_dies_while_clients_wait_is_not_told_to_lead() -> None:
    async def work() -> None:
        gateways = Gateways()
        members: Any = Members(
            Peer(node_id=node, life="", addresses=(Host("h", node),), beside=(Host(f"broker-{node}", 0),))
            for node in (1, 2)
        )
        members.client = members
        cluster = GatewayCluster(NODE, members, lambda listener: 0, gateways.leaders[0], members)
        leaders = (await cluster.leaders([TOPIC]))["orders"]
        assert leaders == [1] * 6
        assert [node.id for node in cluster.nodes("kafka")] == [1]

    asyncio.run(work())


def nodes(*peers: Peer, listener: str = "sasl_ssl", position: int = 0) -> list[tuple[int, str, int]]:
    members: Any = Members(peers)
    cluster = GatewayCluster(NODE, members, lambda name: position, NOBODY, NOBODY)
    return [(node.id, node.host, node.port) for node in cluster.nodes(listener)]


def test_clients_are_told_the_listener_of_the_same_name() -> None:
    """Whatever the order and number of the listeners of the other gateways."""
    here = Peer(
        node_id=1, life="", addresses=(Host("a", 1), Host("a", 2)), listeners=("plaintext", "sasl_ssl")
    )
    other = Peer(
        node_id=2, life="", addresses=(Host("b", 2), Host("b", 1)), listeners=("sasl_ssl", "plaintext")
    )
    only = Peer(node_id=3, life="", addresses=(Host("c", 1),), listeners=("plaintext",))
    peers = (here, other, only)
    assert nodes(*peers, position=1) == [(1, "a", 2), (2, "b", 2)]
    assert nodes(*peers, listener="plaintext") == [(1, "a", 1), (2, "b", 1), (3, "c", 1)]


def test_gateways_of_the_version_before_go_by_position() -> None:
    record = b"""{"node": 2, "life": "x", "at": [["b", 1], ["b", 2]], "held": {"3": 4}, "beat": 9,
        "leaving": false, "beside": [["b", 0]]}"""
    former = read_peer(record)
    assert former is not None and former.listeners is None
    here = Peer(
        node_id=1, life="", addresses=(Host("a", 1), Host("a", 2)), listeners=("plaintext", "sasl_ssl")
    )
    assert nodes(here, former, position=1) == [(1, "a", 2), (2, "b", 2)]
    # It has no third one: nobody is sent to another instead.
    assert nodes(replace(here, listeners=("x", "sasl_ssl")), former, position=2) == [(1, "a", 2)]
    # And it reads what this version writes: all that it knows is where it was.
    assert json.loads(record).keys() <= json.loads(replace(here, beside=()).to_bytes()).keys()


@pytest.mark.parametrize(("version", "error"), [(5, 5), (6, 72), (12, 72)])
def test_a_leader_without_such_a_listener_is_told(version: int, error: int) -> None:
    class Elsewhere(MemoryStorage):
        async def leaders(self, topics: Any) -> dict[str, list[int]]:
            return {topic.name: [1, 7, -1] for topic in topics}

    async def work() -> None:
        storage = Elsewhere()
        await storage.create(NewTopic(name="t", partitions=3))
        services = Services(topics=storage, log=storage, producers=storage, cluster=storage)
        body: Any = SimpleNamespace(topics=None)
        with Told() as errors:
            assert await metadata.API.handle(Request(version, body, "kafka"), services)  # type: ignore[misc]
        assert errors == [error, ErrorCode.LEADER_NOT_AVAILABLE]

    asyncio.run(work())


def test_a_gateway_that_has_not_joined_leads_everything() -> None:
    assert Leaders(lambda: 1, NOBODY).is_still_ours("orders", 0, "t-1")


def test_it_says_when_leaders_begin_and_cease_to_follow(caplog: pytest.LogCaptureFixture) -> None:
    peers = [Peer(node_id=node, life="", beside=(Host(f"broker-{node}", 0),)) for node in (1, 2)]
    with caplog.at_level(logging.INFO, "penstock.gateway"):
        leaders = Leaders(lambda: 1, NOBODY)
        for seen in (peers[:1], peers, peers, peers[:1]):
            leaders.look(seen)
    assert [record.getMessage() for record in caplog.records] == [
        "leaders of partitions are the gateways beside the brokers that own them",
        "leaders of partitions are spread over all gateways",
    ]


def test_a_feature_is_used_when_every_gateway_that_lives_has_it() -> None:
    now = 100.0
    members = Membership(NOBODY, NOBODY, "topic", clock=lambda: now)
    assert members.all_have(TOPIC_IDS)
    old = Peer(node_id=1, life="a", addresses=(Host("h", 1),))
    members.hear(replace(old, node_id=2, features=frozenset({TOPIC_IDS})))
    assert members.all_have(TOPIC_IDS) and not members.all_have(BALANCED_LEADERS)
    members.hear(old)
    assert not members.all_have(TOPIC_IDS)
    members.hear(replace(old, leaving=True))
    assert members.all_have(TOPIC_IDS)
    members.hear(old)
    now += 4
    members.hear(replace(old, node_id=2, features=frozenset({TOPIC_IDS})))
    # The old one has been silent for too long.
    assert members.all_have(TOPIC_IDS)
