"""Who coordinates what, without Pulsar: leases, proofs, claims and fights; and who is told to live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.pulsar import Host
from penstock.errors import AccessDenied, ApiError, ClusterError, ConfigError, PulsarRefused
from penstock.gateway.groups import pacing
from penstock.gateway.groups.placing import node_of, partition_of
from penstock.gateway.groups.schemas import Commit, OffsetKey, Record, offset_record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.pulsar import coordinators, membership
from penstock.gateway.pulsar.coordinators import PulsarGroups
from penstock.gateway.pulsar.membership import LEASE, SILENCE, Membership, Peer, read_peer
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar.pulsar_pb2 import ServerError

NOBODY: Any = None
HERE = (Host("h", 1),)


class Log:
    """A log that may be fenced."""

    max_group_bytes = 5_000_000

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.fenced = False
        self.closed = False
        self.records: list[Record] = []
        self.lost: Callable[[BaseException], None] = lambda error: None

    def watch(self, lost: Callable[[BaseException], None]) -> None:
        self.lost = lost

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.fenced:
            done.set_exception(ClusterError("fenced"))
        else:
            self.records += records
            done.set_result(None)
        return done

    async def close(self) -> None:
        self.closed = True


class Scene:
    """Node 1 among others, with a clock that stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.opened: list[Log] = []
        self.stored: list[Record] = []
        self.fenced_at_first = 0
        self.opening_seconds: list[float] = []
        """How long it takes to open logs, one after the other; after these it takes no time."""
        self.groups = PulsarGroups(NOBODY, NOBODY, partitions=4)
        member = self.groups.membership
        member.node_id = 1
        member._clock = lambda: self.now
        member._settled_at = self.now
        self.groups._closed = False

        async def opening(client: Any, topic: str, *, mark: Record) -> tuple[Log, list[Record]]:
            self.opened.append(Log(len(self.opened) + 1))
            opened = self.opened[-1]
            opened.fenced = len(self.opened) <= self.fenced_at_first
            if self.opening_seconds:
                await asyncio.sleep(self.opening_seconds.pop())
            return opened, self.stored

        monkeypatch.setattr(coordinators.OffsetsLog, "open", opening)

    async def beat(self, *others: Peer) -> None:
        """Hear the others, then ourselves."""
        for other in others:
            self.groups.membership.hear(other)
        member = self.groups.membership
        member._beats += 1
        member._sent[member._beats] = self.now
        member.hear(Peer(node_id=1, life=member._life, addresses=HERE, beat=member._beats))
        self.groups._look()
        for _ in range(5):
            await asyncio.sleep(0)

    def group_of(self, node: int, nodes: tuple[int, ...]) -> str:
        names = (f"group-{number}" for number in range(1000))
        return next(name for name in names if node_of(f"group {partition_of(name, 4)}", nodes) == node)


def run(monkeypatch: pytest.MonkeyPatch, work: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        scene = Scene(monkeypatch)
        await work(scene)
        for partition in list(scene.groups._led):
            scene.groups._let_go(partition)
        await asyncio.sleep(0)

    asyncio.run(play())


def refused(groups: PulsarGroups, group: str) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        groups.shard(group)
    return ErrorCode(caught.value.error_code)


def test_one_gateway_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        assert refused(scene.groups, "g") == ErrorCode.NOT_COORDINATOR
        await scene.beat()
        assert len(scene.groups.shards()) == 4
        assert isinstance(scene.groups.shard("g"), Shard)
        assert await scene.groups.coordinator("g") == 1

    run(monkeypatch, work)


def test_a_second_gateway_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await scene.beat()
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE))
        theirs, ours = scene.group_of(2, (1, 2)), scene.group_of(1, (1, 2))
        assert await scene.groups.coordinator(theirs) == 2
        assert refused(scene.groups, theirs) == ErrorCode.NOT_COORDINATOR
        assert isinstance(scene.groups.shard(ours), Shard)
        assert any(log.closed for log in scene.opened)
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE, leaving=True))
        assert isinstance(scene.groups.shard(theirs), Shard)

    run(monkeypatch, work)


def test_a_silent_gateway_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE))
        theirs = scene.group_of(2, (1, 2))
        scene.now += SILENCE - 0.1
        await scene.beat()
        assert await scene.groups.coordinator(theirs) == 2
        scene.now += 0.2
        await scene.beat()
        assert await scene.groups.coordinator(theirs) == 1
        assert isinstance(scene.groups.shard(theirs), Shard)

    run(monkeypatch, work)


def test_without_a_lease_nothing_is_answered_and_nothing_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await scene.beat()
        shard = scene.groups.shard("g")
        scene.now += LEASE
        assert refused(scene.groups, "g") == ErrorCode.NOT_COORDINATOR
        await scene.beat()
        assert scene.groups.shard("g") is shard, "nobody took it, so nothing is read again"
        assert len(scene.opened) == 4
        assert all(len(log.records) == 1 for log in scene.opened), "each was proven by a write"

    run(monkeypatch, work)


def test_what_was_taken_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await scene.beat()
        shard = scene.groups.shard("g")
        for log in scene.opened:
            log.fenced = True
        scene.now += LEASE
        await scene.beat()
        assert shard.closed
        assert refused(scene.groups, "g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(monkeypatch, work)


def test_what_another_has_taken_is_given_up_although_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else offsets are told that the other has moved since."""

    async def work(scene: Scene) -> None:
        await scene.beat()
        shard = scene.groups.shard("g")
        for log in scene.opened:
            log.lost(ClusterError("fenced"))
        assert shard.closed
        assert refused(scene.groups, "g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(monkeypatch, work)


def test_a_higher_epoch_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE))
        ours = scene.group_of(1, (1, 2))
        shard, partition = scene.groups.shard(ours), partition_of(ours, 4)
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE, held={partition: 0}))
        assert scene.groups.shard(ours) is shard
        await scene.beat(Peer(node_id=2, life="b", addresses=HERE, held={partition: 99}))
        assert shard.closed
        assert refused(scene.groups, ours) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(monkeypatch, work)


def test_an_old_life_of_ours_is_no_sign_of_life() -> None:
    member = Membership(NOBODY, NOBODY, "topic", clock=lambda: 100.0)
    member.node_id, member._settled_at = 1, 0.0
    member.hear(Peer(node_id=1, life="another", addresses=HERE, beat=1))
    assert not member.has_lease


def offsets(count: int) -> list[Record]:
    commit = Commit(offset=1, committed_at=1)
    return [offset_record(OffsetKey("g", "orders", number), commit) for number in range(count)]


def test_a_takeover_with_many_offsets_hears_heartbeats_and_keeps_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(scene: Scene) -> None:
        scene.stored = offsets(5000)
        monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)
        monkeypatch.setattr(pacing.Pace.__init__, "__defaults__", (0.0,))
        await scene.beat()
        beats = 0
        while refused_yet(scene.groups):
            # Nothing that is half read is served, and the others hear that this one lives.
            await scene.beat()
            beats += 1
        assert beats > 5
        assert scene.groups.membership.has_lease
        assert len(scene.groups.shard("g").committed("g")) == 5000
        assert len(scene.opened) == 4, "nothing was read twice"

    run(monkeypatch, work)


def refused_yet(groups: PulsarGroups) -> bool:
    try:
        groups.shard("g")
    except ApiError as exc:
        assert exc.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return True
    return False


def test_what_took_long_to_read_is_proven_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        monkeypatch.setattr(coordinators, "_PROVE_AFTER", -1.0)
        scene.fenced_at_first = 4
        await scene.beat()
        assert all(log.closed and log.fenced for log in scene.opened[:4])
        assert len(scene.opened) == 8
        assert [len(log.records) for log in scene.opened[4:]] == [1] * 4
        assert isinstance(scene.groups.shard("g"), Shard)

    run(monkeypatch, work)


def test_time_that_opening_a_log_takes_counts_as_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        monkeypatch.setattr(coordinators, "_PROVE_AFTER", 0.05)
        scene.fenced_at_first, scene.opening_seconds = 4, [0.1] * 4
        await scene.beat()
        async with asyncio.timeout(10):
            while len(scene.groups._led) < 4:
                await asyncio.sleep(0.01)
        assert all(log.closed for log in scene.opened[:4]), "fenced while they were read"
        assert len(scene.opened) == 8

    run(monkeypatch, work)


class Admin:
    """Creates topics and keeps policies; refuses from a number of changes on."""

    def __init__(self) -> None:
        self.left = 0
        self.made: dict[str, int] = {}
        self.policies: dict[tuple[str, str], Any] = {}
        self.denies_reading = False

    def _change(self) -> None:
        if not self.left:
            raise ClusterError("refused")
        self.left -= 1

    async def create_namespace(self, namespace: str) -> None:
        return

    async def partitioned_topics(self, namespace: str) -> tuple[str, ...]:
        return tuple(topic for topic, partitions in self.made.items() if partitions)

    async def topics(self, namespace: str) -> tuple[str, ...]:
        return tuple(self.made)

    async def create_topic(self, topic: str, partitions: int = 0) -> None:
        self._change()
        self.made[topic] = partitions

    async def policy(self, topic: str, name: str) -> Any:
        if self.denies_reading:
            raise AccessDenied("may not read policies")
        return self.policies.get((topic, name))

    async def set_policy(self, topic: str, name: str, value: Any) -> None:
        self._change()
        self.policies[topic, name] = value

    async def partitions(self, topic: str) -> int:
        return self.made[topic]


@pytest.mark.parametrize("changes", range(5))
def test_a_start_that_ended_in_the_middle_is_completed_by_the_next(changes: int) -> None:
    """Without its retention Pulsar removes what is in the offsets topic, and nobody would notice before."""

    async def work() -> None:
        admin: Any = Admin()
        admin.left = changes
        with pytest.raises(ClusterError):
            await PulsarGroups(admin, admin)._make_topics()
        admin.left = 100
        await PulsarGroups(admin, admin)._make_topics()
        offsets = "persistent://public/__kafka/__consumer_offsets"
        assert admin.policies[offsets, "retention"]["retentionTimeInMinutes"] == -1
        assert admin.policies[offsets, "compactionThreshold"] > 0

    asyncio.run(work())


def test_policies_that_an_operator_has_chosen_stay_and_a_role_that_may_not_read_them_starts() -> None:
    async def work() -> None:
        admin: Any = Admin()
        admin.left = 100
        await PulsarGroups(admin, admin)._make_topics()
        offsets = "persistent://public/__kafka/__consumer_offsets"
        admin.policies[offsets, "retention"] = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        admin.policies[offsets, "compactionThreshold"] = 0
        admin.left = 0
        await PulsarGroups(admin, admin)._make_topics()
        admin.denies_reading = True
        await PulsarGroups(admin, admin)._make_topics()

    asyncio.run(work())


def test_a_shard_that_failed_while_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose time was over may write before the last group is read."""

    async def work(scene: Scene) -> None:
        load, failures = Shard.load, [ClusterError("lost")]

        async def fails_once(self: Shard, records: Sequence[Record]) -> None:
            await load(self, records)
            if failures:
                self.fail(failures.pop())

        monkeypatch.setattr(Shard, "load", fails_once)
        monkeypatch.setattr(coordinators, "_RETRY", 0.0)
        await scene.beat()
        for _ in range(10):
            await asyncio.sleep(0)
            scene.now += 0.1
            await scene.beat()
        assert len(scene.groups._led) == 4
        assert not any(shard.closed for shard, _ in scene.groups._led.values())

    run(monkeypatch, work)


class Busy:
    """A client whose topic knows our name for a while, and a reader of what others say."""

    error = None

    def __init__(self, refusals: int, *said: Peer | bytes) -> None:
        self.refusals, self.said, self.names = refusals, list(said), []

    async def producer(self, topic: str, *, name: str) -> str:
        self.names.append(name)
        if len(self.names) <= self.refusals:
            raise PulsarRefused("busy", server_error=ServerError.PRODUCER_BUSY, retriable=False)
        return name

    async def read(self) -> Peer | bytes:
        if not self.said:
            await asyncio.Event().wait()
        return self.said.pop(0)


def test_a_former_life_that_is_silent_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "SILENCE", 0.01)
    client: Any = Busy(2, Peer(node_id=2, life="other", addresses=HERE))
    member = Membership(client, NOBODY, "topic")
    member.node_id = 1
    assert asyncio.run(member._claim(client)) == "penstock-gateway-1"
    assert client.names == ["penstock-gateway-1"] * 3


def test_a_namesake_that_speaks_is_another_gateway() -> None:
    client: Any = Busy(9, Peer(node_id=1, life="another", addresses=HERE))
    member = Membership(client, NOBODY, "topic")
    member.node_id = 1
    with pytest.raises(ConfigError, match="another gateway has the node id 1"):
        asyncio.run(member._claim(client))


class Broken:
    """A reader or producer that has ended for good."""

    error = ClusterError("ended")

    async def read(self) -> Peer:
        raise self.error


class Healing:
    """A client that opens what has ended once more."""

    def __init__(self, *said: Peer) -> None:
        self.said = list(said)
        self.opened = 0

    async def reader(self, topic: str, **_: Any) -> Any:
        self.opened += 1
        return Broken() if self.opened == 1 else Busy(0, *self.said)


def test_a_reader_that_has_ended_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "INTERVAL", 0.01)
    client: Any = Healing(Peer(node_id=2, life="other", addresses=HERE))

    async def work() -> None:
        member = Membership(client, NOBODY, "topic")
        listening = asyncio.create_task(member._listen())
        async with asyncio.timeout(5):
            while member.live() != (2,):
                await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(work())
    assert client.opened == 2


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"node": 1}', b'{"node": Infinity}', b"\xff", b"[" * 70_000]
)
def test_what_is_no_peer_is_left_out(data: bytes) -> None:
    assert read_peer(data) is None


def test_a_peer_comes_back() -> None:
    peer = Peer(node_id=7, life="x", addresses=(Host("a", 1), Host("b", 2)), held={3: 4}, beat=9)
    assert read_peer(peer.to_bytes()) == peer
    assert b"beside" not in peer.to_bytes()
    named = replace(peer, listeners=("plaintext", "sasl_ssl"))
    assert read_peer(named.to_bytes()) == named
    for beside in ((), (Host("c", 0), Host("d", 6650))):
        told = replace(peer, beside=beside)
        assert read_peer(told.to_bytes()) == told


def test_what_is_no_peer_is_heard_by_others() -> None:
    words: list[bytes] = []
    client: Any = Busy(0, b"owners", Peer(node_id=2, life="other", addresses=HERE))

    async def work() -> None:
        member = Membership(client, NOBODY, "topic")
        member._reader, member.on_word = client, words.append
        listening = asyncio.create_task(member._listen())
        async with asyncio.timeout(5):
            while member.live() != (2,):
                await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(work())
    assert words == [b"owners"]
