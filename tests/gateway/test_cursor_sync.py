"""Cursors of groups over a Pulsar in memory: placed, moved by others, refused, deleted; and their cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote_plus

import pytest

from penstock.brokers.pulsar.admin import EntryIndex
from penstock.brokers.pulsar.consumer import FirstUnread
from penstock.errors import ApiError, ClusterError, InternalError, PenstockError, Unreachable, WireError
from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.requests import Identity, JoinRequest
from penstock.gateway.groups.schemas import Commit, Record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.pulsar.cursor_sync import CursorSync, Home, _Allowance
from penstock.gateway.pulsar.cursors import Cursors
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import MessageId

GROUP, PLACE = "g rp/1", ("orders", 0)
TOPIC = "persistent://public/default/orders-partition-0"
ENTRIES, SIZE, LEDGER = 4, 10, 7


@dataclass
class Cursor:
    """A subscription: the first entry that is not read whole, and how many of its records are done."""

    entry: int = 0
    inside: int = 0
    version: int = 0
    flow: int = 0
    consumers: int = 0
    ledger: int = LEDGER

    def mark(self) -> str:
        return f"{self.ledger}:{self.entry - 1}"


@dataclass
class FakePulsar:
    """One topic of four entries of ten records; counts requests, refuses when told to, and answers late."""

    cursors: dict[str, Cursor] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    away: bool = False
    exists: bool = True
    acknowledges_inside: bool = True
    clock: int = 0
    entries: int = ENTRIES
    grows_at: list[str] = field(default_factory=list)
    """Requests at which somebody produces an entry, in their order."""
    finds_nothing: int = 0
    """How often no entry is found for an index."""

    async def _asked(self, what: str, topic: str) -> None:
        self.requests.append(what)
        await asyncio.sleep(0)
        if what in self.grows_at[:1]:
            self.entries += 1
            del self.grows_at[0]
        if self.away:
            raise Unreachable("pulsar is not serving")
        if not self.exists:
            raise ClusterError("there is no such topic")

    # What Admin asks

    async def stats(self, topic: str, *, internal: bool = False) -> Mapping[str, Any]:
        await self._asked("internal" if internal else "stats", topic)
        if internal:
            rows = {
                quote_plus(name): {
                    "markDeletePosition": each.mark(),
                    "cursorLedger": 99,
                    "cursorLedgerLastEntry": each.version,
                }
                for name, each in self.cursors.items()
            }
            return {"cursors": rows, "ledgers": [{"ledgerId": LEDGER, "entries": 0}]}
        return {
            "subscriptions": {
                name: {
                    "consumers": [{}] * each.consumers,
                    "msgBacklog": max(self.entries - each.entry, 0),
                    "lastConsumedFlowTimestamp": each.flow,
                }
                for name, each in self.cursors.items()
            }
        }

    async def message_id_by_index(self, topic: str, index: int) -> MessageId | None:
        await self._asked("by index", topic)
        if index >= self.entries * SIZE or self.finds_nothing > 0:
            self.finds_nothing -= 1
            return None
        return MessageId(-1, -1) if index < SIZE else MessageId(LEDGER, index // SIZE)

    async def last_message_id(self, topic: str) -> MessageId:
        await self._asked("last", topic)
        return MessageId(LEDGER, self.entries - 1)

    async def entry_index(self, topic: str, message_id: MessageId) -> EntryIndex:
        await self._asked("entry", topic)
        if message_id.ledger_id != LEDGER or not 0 <= message_id.entry_id < self.entries:
            raise ClusterError("no such entry")
        return EntryIndex(message_id.entry_id * SIZE + SIZE - 1, SIZE)

    async def create_subscription(self, topic: str, name: str, place: MessageId) -> None:
        await self._asked("create", topic)
        self.cursors[name] = Cursor(entry=min(max(place.entry_id, 0) + 1, self.entries))

    async def reset_cursor(self, topic: str, name: str, place: MessageId) -> None:
        await self._asked("reset", topic)
        self.reset(name, max(place.entry_id, 0))

    async def delete_subscription(self, topic: str, name: str) -> None:
        await self._asked("delete", topic)
        if self.cursors[name].consumers:
            raise ClusterError("subscription has active consumers")
        del self.cursors[name]

    # What PulsarClient opens

    async def peeking_consumer(self, topic: str, name: str, *, create: bool) -> FakeConsumer:
        await self._asked("subscribe", topic)
        if self.cursors[name].consumers:
            raise ClusterError("consumer busy")
        self.cursors[name].consumers += 1
        return FakeConsumer(self, self.cursors[name])

    # What others do

    def reset(self, name: str, entry: int) -> None:
        cursor = self.cursors[name]
        assert not cursor.consumers
        cursor.entry, cursor.inside, cursor.version = entry, 0, cursor.version + 1

    def asks_for_entries(self, name: str) -> Cursor:
        self.clock += 1
        self.cursors[name].flow = self.clock
        return self.cursors[name]


@dataclass
class FakeConsumer:
    """A consumer as the gateway opens it: acknowledgements within an entry are in no statistics."""

    pulsar: FakePulsar
    cursor: Cursor

    async def acknowledge_up_to(self, message_id: MessageId, *, batch_size: int) -> None:
        assert message_id.entry_id == self.cursor.entry
        if self.pulsar.acknowledges_inside:
            self.cursor.inside = message_id.batch_index + 1

    async def first_unread(self, *, within: float) -> FirstUnread:
        name = next(name for name, each in self.pulsar.cursors.items() if each is self.cursor)
        self.pulsar.asks_for_entries(name)
        if self.cursor.entry >= self.pulsar.entries:
            raise ClusterError("was given nothing")
        return FirstUnread(MessageId(LEDGER, self.cursor.entry, self.cursor.inside), SIZE)

    async def close(self) -> None:
        self.cursor.consumers -= 1


class Log:
    """A log that stores at once, or when it is told to."""

    max_group_bytes = 5_000_000

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.waits = False
        self.waiting: list[tuple[Sequence[Record], asyncio.Future[None]]] = []

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((records, done))
        if not self.waits:
            self.store()
        return done

    def store(self) -> None:
        for records, done in self.waiting:
            self.records += records
            done.set_result(None)
        self.waiting.clear()


class Scene:
    """A group, a gateway that may be killed and started again, and Pulsar."""

    def __init__(self, **options: Any) -> None:
        self.pulsar, self.log, self.options = FakePulsar(), Log(), options
        self.namespace_is_known = True
        self.unknown: set[str] = set()
        """Groups whose people are not here."""
        self.shard = Shard(self.log, Limits(initial_delay=0.0), keeps_cursors=True)
        fake: Any = self.pulsar
        self.home = Home(Cursors(fake, fake), self._name, self._is_gone)
        self.sync_on = self._sync()

    def _sync(self) -> CursorSync:
        return CursorSync(
            self._home_of,
            lambda: [self.shard],
            **self.options,
        )

    def _home_of(self, group_id: str) -> tuple[Home, str] | None:
        known = self.namespace_is_known and group_id not in self.unknown
        return (self.home, group_id) if known else None

    async def _name(self, topic: str, partition: int) -> str:
        if not self.pulsar.exists:
            raise ApiError("there is no such topic", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TOPIC

    async def _is_gone(self, topic: str, partition: int) -> bool:
        if self.pulsar.away:
            raise ApiError("away", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        return not self.pulsar.exists

    async def killed_and_started(self) -> None:
        self.shard.close()
        self.shard = Shard(self.log, Limits(initial_delay=0.0), keeps_cursors=True)
        await self.shard.load(self.log.records)
        self.sync_on = self._sync()

    async def commit(self, offset: int, group: str = GROUP) -> None:
        errors = await self.shard.commit(group, Identity(), {PLACE: Commit(offset=offset, committed_at=1)})
        assert errors == {PLACE: ErrorCode.NONE}
        await asyncio.sleep(0)

    async def delete(self) -> None:
        assert await self.shard.delete(GROUP) == ErrorCode.NONE
        await asyncio.sleep(0)

    async def sync(self) -> None:
        await self.sync_on.sync()
        await asyncio.sleep(0)

    def committed(self) -> int | None:
        found = self.shard.committed(GROUP).get(PLACE)
        return None if found is None else found.offset

    @property
    def cursor(self) -> Cursor:
        return self.pulsar.cursors[GROUP]


def run(work: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def life() -> None:
        scene = Scene(**options)
        await asyncio.wait_for(work(scene), 30)
        scene.shard.close()

    asyncio.run(life())


@pytest.mark.parametrize("offset", [0, 3, 9, 10, 15, 39, 40])
def test_a_cursor_stands_where_the_group_is(offset: int) -> None:
    async def work(scene: Scene) -> None:
        for wanted in (offset, 20, offset):
            await scene.commit(wanted)
            await scene.sync()
            assert (scene.cursor.entry, scene.cursor.inside) == divmod(wanted, SIZE)

    run(work)


def test_a_cursor_is_not_put_behind_what_is_produced_meanwhile() -> None:
    async def work(scene: Scene) -> None:
        scene.pulsar.grows_at = ["last"]
        await scene.commit(40)
        await scene.sync()
        assert (scene.pulsar.entries, scene.cursor.entry) == (5, 4)

    run(work)


@pytest.mark.parametrize(("finds_nothing", "entry"), [(2, 4), (1000, 5)])
def test_a_cursor_behind_its_group_is_placed_once_more(
    finds_nothing: int, entry: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once only: where a log ends with what has no records, the cursor stays behind them."""

    async def work(scene: Scene) -> None:
        scene.pulsar.entries, scene.pulsar.finds_nothing = 5, finds_nothing
        await scene.commit(40)
        for _ in range(5):
            await scene.sync()
            await scene.commit(40)
        assert scene.cursor.entry == entry
        assert scene.pulsar.requests.count("reset") == 2
        assert (caplog.text, scene.committed()) == ("", 40)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=True)


def test_a_pulsar_that_is_away_is_tried_again() -> None:
    async def work(scene: Scene) -> None:
        scene.pulsar.away = True
        await scene.commit(15)
        await scene.sync()
        scene.pulsar.away = False
        await scene.sync()
        assert (scene.cursor.entry, scene.cursor.inside) == (1, 5)
        scene.namespace_is_known = False
        await scene.commit(30)
        await scene.sync()
        assert scene.cursor.entry == 1
        scene.namespace_is_known = True
        await scene.sync()
        await scene.sync()
        assert scene.cursor.entry == 3

    run(work)


@pytest.mark.parametrize("error", [WireError("no entry"), InternalError("a conversion failed")])
def test_a_partition_that_cannot_be_read_holds_up_no_other(error: PenstockError) -> None:
    async def work(scene: Scene) -> None:
        async def name(topic: str, partition: int) -> str:
            if topic == "bad":
                raise error
            return TOPIC

        scene.home = replace(scene.home, pulsar_name=name)
        for offset in (15, 30):
            # As many partitions as are done together come before the good one.
            for partition in range(10):
                bad = {("bad", partition): Commit(offset=offset, committed_at=1)}
                await scene.shard.commit(GROUP, Identity(), bad)
            await scene.commit(offset)
            await scene.sync()
            assert (scene.cursor.entry, scene.cursor.inside) == divmod(offset, SIZE)

    run(work, moves=100.0)


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize(
    ("begin", "entry", "inside", "offset"), [(15, 1, 8, 18), (15, 2, 3, 23), (10, 1, 1, 11), (0, 4, 0, 40)]
)
def test_what_a_pulsar_consumer_acknowledges_is_seen(
    begin: int, entry: int, inside: int, offset: int, adopt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Within an entry too, and although it was attached when the gateway looked, and gone the next time."""

    async def work(scene: Scene) -> None:
        await scene.commit(begin)
        await scene.sync()
        cursor = scene.pulsar.asks_for_entries(GROUP)
        cursor.consumers, cursor.entry, cursor.inside = 1, entry, inside
        await scene.sync()
        assert (scene.committed(), caplog.text) == (begin, "")
        cursor.consumers = 0
        for _ in range(3):
            await scene.sync()
        assert caplog.text.count(f"moved to offset {offset} by others") == 1
        assert scene.committed() == (offset if adopt else begin)
        assert (cursor.entry, cursor.inside) == (entry, inside)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=adopt)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_reset_within_one_entry_is_seen(adopt: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(5)
        await scene.sync()
        scene.pulsar.reset(GROUP, 0)
        await scene.sync()
        assert "moved to offset 0 by others" in caplog.text
        assert scene.committed() == (0 if adopt else 5)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=adopt)


def test_the_same_place_under_another_name_is_no_move(caplog: pytest.LogCaptureFixture) -> None:
    """A new ledger, a broker that was started again, and a consumer that read nothing."""

    async def work(scene: Scene) -> None:
        await scene.commit(40)
        await scene.sync()
        scene.cursor.ledger, scene.cursor.entry = LEDGER + 1, 0
        scene.pulsar.cursors[GROUP] = moved = Cursor(entry=ENTRIES, ledger=LEDGER + 1, version=1)
        await scene.sync()
        moved.version, moved.flow = 0, 0
        await scene.sync()
        scene.pulsar.asks_for_entries(GROUP)
        await scene.sync()
        assert (caplog.text, scene.committed()) == ("", 40)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=True)


@pytest.mark.parametrize("ledger", [LEDGER, LEDGER + 1])
def test_what_is_produced_while_it_is_looked_is_not_passed_by(
    ledger: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A cursor that has read everything is stored anew, its mark maybe in a ledger that is empty yet."""

    async def work(scene: Scene) -> None:
        await scene.commit(40)
        await scene.sync()
        scene.cursor.version, scene.cursor.ledger = scene.cursor.version + 1, ledger
        # Between the statistics and everything that is asked for then.
        scene.pulsar.grows_at = ["internal"]
        for _ in range(3):
            await scene.sync()
        assert scene.pulsar.entries == 5
        assert (caplog.text, scene.committed()) == ("", 40)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=True)


def test_a_move_is_seen_while_others_produce() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(20)
        await scene.sync()
        scene.pulsar.reset(GROUP, 1)
        scene.pulsar.grows_at = ["entry"] * 10
        await scene.sync()
        assert scene.pulsar.entries == 5
        assert scene.committed() == 10

    run(work, adopt=True)


def test_a_broker_that_does_not_acknowledge_within_entries_moves_no_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(scene: Scene) -> None:
        scene.pulsar.acknowledges_inside = False
        await scene.commit(15)
        await scene.sync()
        scene.pulsar.asks_for_entries(GROUP)
        await scene.sync()
        assert (caplog.text, scene.committed()) == ("", 15)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=True)


def test_a_commit_that_comes_meanwhile_is_not_overwritten() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(30)
        await scene.sync()
        scene.pulsar.reset(GROUP, 0)
        looking = asyncio.create_task(scene.sync())
        while "entry" not in scene.pulsar.requests[-2:]:
            await asyncio.sleep(0)
        await scene.commit(35)
        await looking
        assert scene.committed() == 35
        await scene.sync()
        assert (scene.cursor.entry, scene.cursor.inside) == (3, 5)

    run(work, adopt=True)


def test_a_commit_that_is_on_its_way_is_not_overwritten() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(30)
        await scene.sync()
        scene.pulsar.reset(GROUP, 0)
        scene.log.waits = True
        commit = asyncio.create_task(scene.shard.commit(GROUP, Identity(), {PLACE: Commit(offset=35)}))
        await asyncio.sleep(0)
        looking = asyncio.create_task(scene.sync())
        while not looking.done() and len(scene.log.waiting) < 2:
            await asyncio.sleep(0)
        scene.log.store()
        await asyncio.gather(commit, looking)
        scene.log.store()
        await asyncio.sleep(0)
        assert scene.committed() == 35

    run(work, adopt=True)


def test_what_cannot_be_deleted_now_keeps_nothing_else_waiting() -> None:
    async def work(scene: Scene) -> None:
        for name in ("away", GROUP):
            await scene.commit(10, name)
        while len(scene.pulsar.cursors) < 2:
            await asyncio.sleep(0.01)
            await scene.sync()
        scene.unknown = {"away"}
        assert await scene.shard.delete("away") == ErrorCode.NONE
        await scene.delete()
        # One at a time.
        scene.sync_on._moves = _Allowance(20.0, 0.0)
        async with asyncio.timeout(10):
            while GROUP in scene.pulsar.cursors:
                await asyncio.sleep(0.01)
                await scene.sync()
        assert list(scene.pulsar.cursors) == ["away"]
        scene.unknown = set()
        async with asyncio.timeout(10):
            while scene.pulsar.cursors:
                await asyncio.sleep(0.01)
                await scene.sync()

    run(work)


def test_a_subscription_with_a_consumer_is_looked_at_each_period() -> None:
    async def work(scene: Scene) -> None:
        for number in range(50):
            await scene.commit(20, f"g{number}")
        while len(scene.pulsar.cursors) < 50:
            await scene.sync()
        cursor = scene.pulsar.asks_for_entries("g7")
        cursor.consumers = 1
        async with asyncio.timeout(10):
            while (scene.shard, ("g7", PLACE)) not in scene.sync_on._watched:
                await asyncio.sleep(0.01)
                await scene.sync()
        cursor.consumers, cursor.entry = 0, 3
        await scene.sync()
        assert scene.shard.committed("g7")[PLACE].offset == 30

    run(work, adopt=True, looks=100.0, moves=100_000.0, period=0.01)


def test_a_group_with_members_is_not_moved(caplog: pytest.LogCaptureFixture) -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(30)
        await scene.sync()
        join = JoinRequest(
            token=0,
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/h",
            session=10.0,
            rebalance=10.0,
            protocol_type="consumer",
            protocols=(("range", b""),),
            new_member_id="",
        )
        assert (await scene.shard.join(GROUP, join)).error == ErrorCode.NONE
        scene.pulsar.reset(GROUP, 0)
        await scene.sync()
        assert "has members" in caplog.text
        assert scene.committed() == 30

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=True)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_subscription_that_others_delete(adopt: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(30)
        await scene.sync()
        del scene.pulsar.cursors[GROUP]
        for _ in range(3):
            await scene.sync()
        assert caplog.text.count("was deleted by others") == 1
        assert scene.committed() == (None if adopt else 30)
        assert scene.pulsar.cursors == {}, "it is not made again until the group commits"
        await scene.commit(31)
        await scene.sync()
        assert (scene.cursor.entry, scene.cursor.inside) == (3, 1)

    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        run(work, adopt=adopt)


@pytest.mark.parametrize("when", ["steady", "restarted before", "restarted after", "refused once"])
def test_a_deleted_group_leaves_no_subscription(when: str) -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(15)
        await scene.sync()
        assert GROUP in scene.pulsar.cursors
        if when == "restarted before":
            await scene.killed_and_started()
        await scene.delete()
        if when == "restarted after":
            await scene.killed_and_started()
        if when == "refused once":
            scene.pulsar.away = True
            await scene.sync()
            scene.pulsar.away = False
        await scene.sync()
        assert scene.pulsar.cursors == {}
        # And that is known, too: one of that name that somebody makes now is theirs.
        scene.pulsar.cursors[GROUP] = Cursor()
        await scene.killed_and_started()
        await scene.sync()
        assert GROUP in scene.pulsar.cursors
        assert scene.shard.offsets.leftover == {}

    run(work)


def test_a_deleted_group_that_commits_again_keeps_its_subscription() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(15)
        await scene.sync()
        await scene.delete()
        await scene.commit(20)
        await scene.sync()
        assert scene.cursor.entry == 2
        assert scene.shard.offsets.leftover == {}

    run(work)


def test_who_takes_over_deletes_the_subscription_of_a_group_that_was_deleted_twice() -> None:
    """The second time is on its way to the log when it is noted that the first one needs nothing any more."""

    async def work(scene: Scene) -> None:
        await scene.commit(15)
        await scene.delete()
        await scene.commit(20)
        scene.log.waits = True
        deleting = asyncio.create_task(scene.shard.delete(GROUP))
        await asyncio.sleep(0)
        syncing = asyncio.create_task(scene.sync())
        for _ in range(50):
            await asyncio.sleep(0)
        scene.log.waits = False
        scene.log.store()
        await asyncio.gather(deleting, syncing)
        assert GROUP in scene.pulsar.cursors
        await scene.killed_and_started()
        await scene.sync()
        assert scene.pulsar.cursors == {}

    run(work)


def test_a_group_that_commits_while_its_subscription_is_looked_for_keeps_it() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(15)
        await scene.sync()
        await scene.delete()
        stats = scene.pulsar.stats

        async def late(topic: str, *, internal: bool = False) -> Mapping[str, Any]:
            if scene.committed() is None:
                await scene.commit(20)
            return await stats(topic, internal=internal)

        scene.pulsar.stats = late  # type: ignore[method-assign]
        await scene.sync()
        assert "delete" not in scene.pulsar.requests
        await scene.sync()
        assert scene.cursor.entry == 2 and scene.shard.offsets.leftover == {}

    run(work)


def test_a_cursor_is_moved_in_the_first_period_without_consumers() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(10)
        await scene.sync()
        scene.cursor.consumers = 1
        await scene.commit(30)
        await scene.sync()
        assert scene.cursor.entry == 1
        scene.cursor.consumers = 0
        await scene.sync()
        assert scene.cursor.entry == 3

    run(work)


def test_a_subscription_that_a_consumer_has_is_left_alone() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(10)
        await scene.sync()
        scene.cursor.consumers = 1
        await scene.commit(30)
        await scene.sync()
        assert scene.cursor.entry == 1
        await scene.delete()
        await scene.sync()
        assert scene.cursor.entry == 1, "theirs from now on"
        scene.cursor.consumers = 0
        await scene.sync()
        assert GROUP in scene.pulsar.cursors

    run(work)


def test_a_takeover_leaves_cursors_that_are_right_alone() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(20)
        await scene.sync()
        await scene.killed_and_started()
        scene.pulsar.requests.clear()
        await scene.sync()
        assert "reset" not in scene.pulsar.requests
        scene.pulsar.reset(GROUP, 0)
        await scene.sync()
        assert scene.committed() == 0
        # Where the group was committed and nobody had time to move the cursor, it is moved.
        await scene.commit(30)
        await scene.killed_and_started()
        await scene.sync()
        assert scene.cursor.entry == 3

    run(work, adopt=True)


def test_what_belongs_to_a_deleted_topic_goes_with_it() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(20)
        await scene.commit(20, "other")
        await scene.sync()
        scene.pulsar.away = True
        await scene.sync()
        scene.pulsar.away, scene.pulsar.exists = False, False
        await scene.sync()
        assert scene.committed() == 20, "Pulsar may say so while a topic moves"
        assert scene.sync_on._placed == {scene.shard: {}}
        await asyncio.sleep(0.06)
        await scene.sync()
        await scene.sync()
        assert scene.shard.commits == {}
        assert scene.shard.offsets.leftover == {}
        await scene.shard.forget_old(2)
        await asyncio.sleep(0)
        assert scene.shard.groups == {}

    run(work, gone_after=0.05)


def test_offsets_of_a_topic_that_comes_back_stay() -> None:
    async def work(scene: Scene) -> None:
        await scene.commit(20)
        await scene.sync()
        scene.pulsar.exists = False
        await scene.sync()
        scene.pulsar.exists = True
        await scene.sync()
        await asyncio.sleep(0.06)
        scene.pulsar.exists = False
        await scene.sync()
        assert scene.committed() == 20

    run(work, gone_after=0.05)


def test_idle_groups_cost_a_bounded_number_of_requests() -> None:
    async def work(scene: Scene) -> None:
        for number in range(100):
            await scene.commit(20, f"g{number}")
        while len(scene.pulsar.cursors) < 100:
            await scene.sync()
        for _ in range(3):
            await scene.sync()
        scene.pulsar.requests.clear()
        seen = []
        for _ in range(5):
            before = len(scene.pulsar.requests)
            await scene.sync()
            seen.append(len(scene.pulsar.requests) - before)
        # Two requests for each look, and looks by the second, however many groups there are.
        assert sum(seen) <= 2 * 20, seen
        # Those that are not looked at now are looked at later.
        scene.pulsar.reset("g99", 0)
        async with asyncio.timeout(20):
            while scene.shard.committed("g99")[PLACE].offset != 0:
                await asyncio.sleep(0.01)
                await scene.sync()

    run(work, adopt=True, looks=50.0, moves=100_000.0, period=0.01)
