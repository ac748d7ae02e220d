"""The shell of the groups: stored before answered, a log that fails, restarts, age and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import ApiError, ClusterError
from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.requests import Identity, JoinAnswer, JoinRequest, LeaveRequest, SyncRequest
from penstock.gateway.groups.schemas import Commit, Record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.groups.states import State
from penstock.wire.kafka import ErrorCode

ALONE = Identity()
PLACE = ("orders", 0)
LIMITS = Limits(initial_delay=0.0, min_session=0.01)


class Log:
    """A log in memory that stores when it is told to."""

    max_group_bytes = 5_000_000

    def __init__(self, *, waits: bool = False) -> None:
        self.records: list[Record] = []
        self.waits = waits
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

    def fail(self) -> None:
        for _, done in self.waiting:
            done.set_exception(ClusterError("fenced"))
        self.waiting.clear()


def asked(member_id: str = "", **more: Any) -> JoinRequest:
    given = {
        "token": 0,
        "member_id": member_id,
        "instance_id": None,
        "client_id": "client",
        "client_host": "/h",
        "session": 10.0,
        "rebalance": 10.0,
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "new_member_id": "",
    }
    return JoinRequest(**(given | more))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def soon(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, 5)


async def member(shard: Shard, group: str = "g") -> Identity:
    joined = await soon(shard.join(group, asked()))
    assert joined.error == ErrorCode.NONE, joined
    who = Identity(member_id=joined.member_id, generation=joined.generation)
    request = SyncRequest(token=0, who=who, assignments=((joined.member_id, b"mine"),))
    assert (await soon(shard.sync(group, request))).assignment == b"mine"
    return who


def test_a_commit_is_seen_when_it_is_stored() -> None:
    async def work() -> None:
        log = Log(waits=True)
        shard = Shard(log, LIMITS)
        commit = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5)}))
        await asyncio.sleep(0)
        assert shard.committed("g") == {}
        log.store()
        assert await soon(commit) == {PLACE: ErrorCode.NONE}
        assert shard.committed("g")[PLACE].offset == 5
        shard.close()

    run(work)


def test_a_commit_is_stored_also_if_its_client_is_gone() -> None:
    async def work() -> None:
        log = Log(waits=True)
        shard = Shard(log, LIMITS)
        commit = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5)}))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
        log.store()
        await asyncio.sleep(0)
        assert shard.committed("g")[PLACE].offset == 5
        shard.close()

    run(work)


def test_a_commit_under_way_does_not_outlive_its_group() -> None:
    async def work() -> None:
        log = Log()
        shard = Shard(log, LIMITS)
        await shard.commit("g", ALONE, {PLACE: Commit(offset=5)})
        log.waits = True
        late = asyncio.create_task(shard.commit("g", ALONE, {("orders", 1): Commit(offset=5)}))
        await asyncio.sleep(0)
        deleted = asyncio.create_task(shard.delete("g"))
        await asyncio.sleep(0)
        log.store()
        assert await soon(deleted) == ErrorCode.NONE
        await soon(late)
        log.store()
        await asyncio.sleep(0)
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert shard.commits == again.commits == {}
        shard.close()
        again.close()

    run(work)


def test_names_that_cannot_be_stored_are_refused() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        for more in ({"instance_id": "x" * 40_000}, {"protocols": (("x" * 40_000, b""),)}):
            assert (await soon(shard.join("g", asked(**more)))).error == ErrorCode.INVALID_REQUEST
        assert (await soon(shard.join("g" * 40_000, asked()))).error == ErrorCode.INVALID_REQUEST
        refused = await shard.commit("g" * 40_000, ALONE, {PLACE: Commit(offset=5)})
        assert refused == {PLACE: ErrorCode.INVALID_GROUP_ID}
        assert shard.groups == {}
        shard.close()

    run(work)


def test_a_log_that_fails_sends_everybody_elsewhere() -> None:
    async def work() -> None:
        log, told = Log(waits=True), []
        shard = Shard(log, LIMITS, on_failure=told.append)
        commit = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5)}))
        first = await soon(shard.join("other", asked()))
        who = Identity(member_id=first.member_id, generation=first.generation)
        synced = asyncio.create_task(shard.sync("other", SyncRequest(token=0, who=who)))
        await asyncio.sleep(0.01)
        log.fail()
        for task in (commit, synced):
            with pytest.raises(ApiError) as caught:
                await soon(task)
            assert caught.value.error_code == ErrorCode.NOT_COORDINATOR
        assert [str(error) for error in told] == ["fenced"]
        with pytest.raises(ApiError):
            shard.heartbeat("other", who)
        with pytest.raises(ApiError):
            shard.committed("g")

    run(work)


def test_a_member_that_waits_is_sent_elsewhere_when_the_shard_closes() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        await member(shard)
        waiting = asyncio.create_task(shard.join("g", asked()))
        await asyncio.sleep(0.01)
        shard.close()
        with pytest.raises(ApiError, match="does not coordinate"):
            await soon(waiting)

    run(work)


def test_a_group_is_there_after_a_restart() -> None:
    async def work() -> None:
        log = Log()
        shard = Shard(log, LIMITS)
        who = await member(shard)
        await shard.commit("g", who, {PLACE: Commit(offset=5, metadata="m")})
        shard.close()
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert again.heartbeat("g", who) == ErrorCode.NONE
        assert again.committed("g")[PLACE] == Commit(offset=5, metadata="m")
        request = SyncRequest(token=0, who=who)
        assert (await soon(again.sync("g", request))).assignment == b"mine"
        assert again.leave("g", [LeaveRequest(member_id=who.member_id)]) == [ErrorCode.NONE]
        assert await soon(again.delete("g")) == ErrorCode.NONE
        again.close()
        empty = Shard(log, LIMITS)
        await empty.load(log.records)
        assert (empty.groups, empty.commits) == ({}, {})
        empty.close()

    run(work)


def test_a_record_that_makes_no_sense_is_left_out() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        await shard.load([(b"", b""), (b"\x00\x01\x00", b"x"), (b"\x7f\xffpenstock", b"node 1")])
        assert (shard.groups, shard.commits) == ({}, {})
        shard.close()

    run(work)


def test_a_session_ends_in_time() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        joined = await soon(shard.join("g", asked(session=0.05, rebalance=0.05)))
        assert shard.groups["g"].state is State.COMPLETING
        async with asyncio.timeout(5):
            while shard.groups["g"].state is not State.EMPTY:
                await asyncio.sleep(0.01)
        who = Identity(member_id=joined.member_id, generation=joined.generation)
        assert shard.heartbeat("g", who) == ErrorCode.UNKNOWN_MEMBER_ID
        shard.close()

    run(work)


def test_an_empty_group_waits_for_more_members() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, initial_delay=0.1))
        joins = [asyncio.create_task(shard.join("g", asked())) for _ in range(5)]
        answers = await soon(asyncio.gather(*joins))
        assert {answer.generation for answer in answers} == {1}
        assert sorted(len(answer.members) for answer in answers) == [0, 0, 0, 0, 5]
        shard.close()

    run(work)


def test_old_offsets_are_forgotten() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, offsets_retention=10.0))
        await shard.commit("old", ALONE, {PLACE: Commit(offset=1, committed_at=0)})
        await shard.commit("own", ALONE, {PLACE: Commit(offset=1, committed_at=0, expires_at=50_000)})
        await shard.commit("half", ALONE, {PLACE: Commit(offset=1, committed_at=0)})
        await shard.commit("half", ALONE, {("orders", 1): Commit(offset=1, committed_at=9_000)})
        who = await member(shard, "live")
        await shard.commit("live", who, {PLACE: Commit(offset=1, committed_at=0)})
        await shard.forget_old(10_000)
        await asyncio.sleep(0)
        assert sorted(shard.groups) == ["half", "live", "own"]
        assert list(shard.committed("half")) == [("orders", 1)]
        # Its members do not say what they read, so nothing is known to be out of use.
        assert PLACE in shard.committed("live")
        shard.close()

    run(work)


def test_a_group_that_became_empty_keeps_its_offsets_from_then_on() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, offsets_retention=3600.0))
        who = await member(shard)
        await shard.commit("g", who, {PLACE: Commit(offset=1, committed_at=0)})
        # The table is filled when the log has told, one turn later; before that there is nothing to keep.
        await asyncio.sleep(0)
        assert PLACE in shard.committed("g")
        shard.leave("g", [LeaveRequest(member_id=who.member_id)])
        emptied = shard.groups["g"].changed_at
        await shard.forget_old(emptied + 3_599_000)
        await asyncio.sleep(0)
        assert PLACE in shard.committed("g")
        await shard.forget_old(emptied + 3_600_000)
        await asyncio.sleep(0)
        assert "g" not in shard.groups
        shard.close()

    run(work)


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        (replace(LIMITS, max_groups=1), asked()),
        (replace(LIMITS, max_member_bytes=3), asked(protocols=(("range", b"long"),))),
        (replace(LIMITS, max_group_bytes=500), asked(protocols=(("range", b"x" * 500),))),
        (replace(LIMITS, max_group_bytes=500), asked(protocols=(("x" * 500, b""),))),
        (replace(LIMITS, max_group_bytes=500), asked(client_id="x" * 500)),
        (replace(LIMITS, max_group_bytes=500), asked(instance_id="x" * 500)),
        (replace(LIMITS, max_tenant_bytes=4000), asked(client_id="x" * 3000)),
    ],
)
def test_limits_of_a_join(limits: Limits, request_: JoinRequest) -> None:
    async def work() -> None:
        shard = Shard(Log(), limits)
        await member(shard, "first")
        answer: JoinAnswer = await soon(shard.join("second", request_))
        assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
        shard.close()

    run(work)


def test_limits_of_a_group() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, max_members=1, max_groups=1, max_group_bytes=500))
        joined = await soon(shard.join("g", asked()))
        assert (await soon(shard.join("g", asked()))).error == ErrorCode.GROUP_MAX_SIZE_REACHED
        refused = await shard.commit("other", ALONE, {PLACE: Commit(offset=1)})
        assert refused == {PLACE: ErrorCode.GROUP_MAX_SIZE_REACHED}
        who = Identity(member_id=joined.member_id, generation=joined.generation)
        large = SyncRequest(token=0, who=who, assignments=((joined.member_id, b"x" * 500),))
        assert (await soon(shard.sync("g", large))).error == ErrorCode.UNKNOWN_SERVER_ERROR
        shard.close()

    run(work)


def test_the_sweep_leaves_a_commit_that_is_on_its_way() -> None:
    """An empty group without offsets is forgotten; but not one whose first commit the log has in hand."""

    async def work() -> None:
        log = Log(waits=True)
        shard = Shard(log, LIMITS)
        commit = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5, committed_at=1)}))
        await asyncio.sleep(0)
        await shard.forget_old(2)
        log.store()
        assert await soon(commit) == {PLACE: ErrorCode.NONE}
        await asyncio.sleep(0)
        log.store()
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert shard.committed("g")[PLACE].offset == again.committed("g")[PLACE].offset == 5
        shard.close()
        again.close()

    run(work)


@pytest.mark.parametrize("members", [False, True])
def test_the_sweep_leaves_a_new_commit_over_an_old_one(members: bool) -> None:
    """A tombstone for the old offset would stand behind the new one in the log."""

    async def work() -> None:
        log = Log()
        shard = Shard(log, replace(LIMITS, offsets_retention=10.0))
        await shard.commit("g", ALONE, {PLACE: Commit(offset=1, committed_at=0)})
        other = Commit(offset=1, committed_at=100_000)
        await shard.commit("g", ALONE, {("other", 0): other} if members else {})
        await asyncio.sleep(0)
        log.waits = True
        commit = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5, committed_at=50_000)}))
        await asyncio.sleep(0)
        await shard.forget_old(50_001)
        log.store()
        await soon(commit)
        await asyncio.sleep(0)
        log.store()
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert again.committed("g")[PLACE].offset == 5
        shard.close()
        again.close()

    run(work)


@pytest.mark.parametrize("place", [PLACE, ("orders", 1)], ids=["the same", "another"])
def test_the_sweep_leaves_a_commit_that_begins_while_it_rests(
    place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It rests after every group, whatever the clock says.
    monkeypatch.setattr("penstock.gateway.groups.pacing.Pace.is_due", lambda _: True)

    async def work() -> None:
        log = Log()
        shard = Shard(log, replace(LIMITS, offsets_retention=10.0))
        await shard.commit("g", ALONE, {PLACE: Commit(offset=1, committed_at=0)})
        log.waits = True
        sweep = asyncio.create_task(shard.forget_old(50_001))
        commit = asyncio.create_task(shard.commit("g", ALONE, {place: Commit(offset=5, committed_at=50_000)}))
        while not sweep.done() or not commit.done():
            await asyncio.sleep(0)
            log.store()
        await sweep
        assert await commit == {place: ErrorCode.NONE}
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert shard.committed("g")[place].offset == again.committed("g")[place].offset == 5
        shard.close()
        again.close()

    run(work)


def test_a_commit_behind_a_deletion_stays() -> None:
    """A commit, a deletion and a commit are under way together: the last one is what is left."""

    async def work() -> None:
        log = Log(waits=True)
        shard = Shard(log, LIMITS)
        first = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=5)}))
        await asyncio.sleep(0)
        deleted = asyncio.create_task(shard.delete("g"))
        for _ in range(3):
            await asyncio.sleep(0)
        last = asyncio.create_task(shard.commit("g", ALONE, {PLACE: Commit(offset=7)}))
        await asyncio.sleep(0)
        log.store()
        assert await soon(deleted) == ErrorCode.NONE
        assert [await soon(each) for each in (first, last)] == [{PLACE: ErrorCode.NONE}] * 2
        log.store()
        await asyncio.sleep(0)
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert shard.committed("g")[PLACE].offset == again.committed("g")[PLACE].offset == 7
        shard.close()
        again.close()

    run(work)


def test_a_tenant_that_has_filled_its_limits_refuses_nobody_else() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, max_groups=3, max_tenant_bytes=20_000))
        for number in range(4):
            errors = await shard.commit(f"//acme/shop/{number}", ALONE, {PLACE: Commit(offset=1)})
            assert errors[PLACE] == (ErrorCode.NONE if number < 3 else ErrorCode.GROUP_MAX_SIZE_REACHED)
        joined = await soon(shard.join("//acme/shop/5", asked()))
        assert joined.error == ErrorCode.GROUP_MAX_SIZE_REACHED
        await member(shard, "//beta/shop/0")
        await member(shard, "own")
        await asyncio.sleep(0)
        many = {("orders", number): Commit(offset=1) for number in range(100)}
        for group_id in ("//acme/shop/0", "//beta/shop/0"):
            errors = await shard.commit(group_id, ALONE, dict(list(many.items())[:1]))
        full = await shard.commit("//acme/shop/0", ALONE, many)
        assert set(full.values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert await shard.commit("alone", ALONE, {PLACE: Commit(offset=1)}) == {PLACE: ErrorCode.NONE}
        # What is there already may be committed again, and what was removed makes room.
        assert await shard.commit("//acme/shop/0", ALONE, {PLACE: Commit(offset=2)}) == {
            PLACE: ErrorCode.NONE
        }
        for number in range(3):
            assert await shard.delete(f"//acme/shop/{number}") == ErrorCode.NONE
        await asyncio.sleep(0)
        assert await shard.commit("//acme/shop/5", ALONE, {PLACE: Commit(offset=1)}) == {
            PLACE: ErrorCode.NONE
        }
        shard.close()

    run(work)


def test_all_together_are_bounded_and_the_greedy_are_refused_first() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, max_tenant_bytes=100_000, max_bytes=40_000))
        rows = {("orders", number): Commit(offset=1) for number in range(70)}
        await shard.commit("//acme/shop/g", ALONE, rows)
        few = dict(list(rows.items())[:40])
        errors = await shard.commit("//beta/shop/g", ALONE, few)
        assert set(errors.values()) == {ErrorCode.NONE}, "within its share, although all is full"
        await asyncio.sleep(0)
        errors = await shard.commit(
            "//acme/shop/g", ALONE, {("more", n): Commit(offset=1) for n in range(70)}
        )
        assert set(errors.values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}, "beyond its share"
        shard.close()

    run(work)


def test_usage_is_given_back() -> None:
    async def work() -> None:
        log = Log()
        shard = Shard(log, replace(LIMITS, offsets_retention=10.0))
        who = await member(shard, "g")
        await shard.commit("g", who, {PLACE: Commit(offset=1, metadata="m" * 100, committed_at=0)})
        await shard.commit("//a/b/c", ALONE, {PLACE: Commit(offset=1, committed_at=0)})
        await asyncio.sleep(0)
        again = Shard(log, LIMITS)
        await again.load(log.records)
        assert again.usage.groups == shard.usage.groups == {"": 1, "a/b": 1}
        assert 0 < again.usage.all_bytes <= shard.usage.all_bytes
        shard.leave("g", [LeaveRequest(member_id=who.member_id)])
        assert await shard.delete("g") == ErrorCode.NONE
        await shard.forget_old(10_000)
        await asyncio.sleep(0)
        assert (shard.usage.groups, shard.usage.bytes, shard.usage.all_bytes) == ({}, {}, 0)
        shard.close()
        again.close()

    run(work)


class SmallLog(Log):
    """A log whose messages have a largest size."""

    max_group_bytes = 2000

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        if all(len(key) + len(value or b"") <= 2000 for key, value in records):
            return super().append(records)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(ApiError("too large", error_code=ErrorCode.MESSAGE_TOO_LARGE))
        return done


def test_what_the_log_cannot_take_fails_its_own_request() -> None:
    async def work() -> None:
        told: list[BaseException] = []
        shard = Shard(SmallLog(), replace(LIMITS, max_offset_metadata=50_000), on_failure=told.append)
        neighbour = await member(shard, "neighbour")
        answers = [await soon(shard.join("g", asked(client_id="x" * size))) for size in (1000, 2000)]
        assert [each.error for each in answers] == [ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
        large = {PLACE: Commit(offset=1, metadata="m" * 3000)}
        assert await shard.commit("h", ALONE, large) == {PLACE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        longest = {PLACE: Commit(offset=1, metadata="m" * 40_000)}
        assert await shard.commit("h", ALONE, longest) == {PLACE: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert await shard.commit("h", ALONE, {PLACE: Commit(offset=1)}) == {PLACE: ErrorCode.NONE}
        assert shard.heartbeat("neighbour", neighbour) == ErrorCode.NONE
        assert (told, shard.closed) == ([], False)
        shard.close()

    run(work)


def test_a_group_that_the_log_refuses_is_an_error_of_its_members() -> None:
    async def work() -> None:
        shard = Shard(SmallLog(), LIMITS)
        # As if the stored form were larger than what was counted.
        shard.limits = replace(shard.limits, max_group_bytes=1_000_000)
        joined = await soon(shard.join("g", asked()))
        who = Identity(member_id=joined.member_id, generation=joined.generation)
        request = SyncRequest(token=0, who=who, assignments=((joined.member_id, b"x" * 3000),))
        with pytest.raises(ApiError) as caught:
            await soon(shard.sync("g", request))
        assert caught.value.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert not shard.closed
        shard.close()

    run(work)


def test_ids_that_were_given_out_count_as_members() -> None:
    async def work() -> None:
        shard = Shard(Log(), replace(LIMITS, max_members=2))
        answers = [await soon(shard.join("g", asked(needs_known_id=True))) for _ in range(3)]
        required, full = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED
        assert [each.error for each in answers] == [required, required, full]
        joined = [asyncio.create_task(shard.join("g", asked(each.member_id))) for each in answers[:2]]
        assert {each.error for each in await soon(asyncio.gather(*joined))} == {ErrorCode.NONE}
        shard.close()

    run(work)


async def rejoined(shard: Shard, *member_ids: str, metadata: bytes = b"") -> list[JoinAnswer]:
    """Let members join again, in this order; new metadata makes each of them begin a rebalance."""
    requests = [asked(each, protocols=(("range", metadata),)) for each in member_ids]
    return list(await soon(asyncio.gather(*(shard.join("g", each) for each in requests))))


def test_the_leader_stays_the_leader() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        first = await member(shard)
        second = asyncio.create_task(shard.join("g", asked()))
        await asyncio.sleep(0)
        [again] = await rejoined(shard, first.member_id)
        other = await soon(second)
        for metadata in (b"1", b"2", b"3"):
            # Although another one comes first.
            found = await rejoined(shard, other.member_id, first.member_id, metadata=metadata)
            assert {each.leader for each in found} == {again.leader} == {first.member_id}
            generation = found[0].generation
            who = Identity(member_id=first.member_id, generation=generation)
            assert (await soon(shard.sync("g", SyncRequest(token=0, who=who)))).error == ErrorCode.NONE
        shard.close()

    run(work)


def test_a_static_member_that_is_away_stays_until_its_session_ends() -> None:
    """KIP-345: a rebalance ends without it, and it is a member all the same."""

    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        static = await soon(shard.join("g", asked(instance_id="one", rebalance=0.05, session=0.4)))
        who = Identity(member_id=static.member_id, instance_id="one", generation=static.generation)
        assert (await soon(shard.sync("g", SyncRequest(token=0, who=who)))).error == ErrorCode.NONE
        other = await soon(shard.join("g", asked(rebalance=0.05)))
        assert other.generation == static.generation + 1
        assert set(shard.groups["g"].members) == {static.member_id, other.member_id}
        async with asyncio.timeout(5):
            while static.member_id in shard.groups["g"].members:
                await asyncio.sleep(0.01)
        shard.close()

    run(work)


def test_a_group_with_commits_under_way_is_stored_or_refused_as_a_whole() -> None:
    """What a tenant has under way counts: many requests at once do not pass its limit together."""

    async def work() -> None:
        log = Log(waits=True)
        shard = Shard(log, replace(LIMITS, max_tenant_bytes=10_000))
        rows = [{("orders", number): Commit(offset=1)} for number in range(50)]
        commits = [asyncio.create_task(shard.commit("g", ALONE, row)) for row in rows]
        for _ in range(3):
            await asyncio.sleep(0)
        log.store()
        errors = [next(iter((await soon(each)).values())) for each in commits]
        assert set(errors) == {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert len(shard.committed("g")) == errors.count(ErrorCode.NONE) < 25
        shard.close()

    run(work)


def test_members_of_a_tenant_that_is_full_go_on() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        who = await member(shard)
        static = await soon(shard.join("s", asked(instance_id="one")))
        assert static.error == ErrorCode.NONE
        shard.limits = replace(LIMITS, max_tenant_bytes=shard.usage.bytes[""])
        shard.usage._limits = shard.limits
        assert (await soon(shard.join("g", asked()))).error == ErrorCode.GROUP_MAX_SIZE_REACHED
        again = await soon(shard.join("g", asked(who.member_id)))
        assert (again.error, again.generation) == (ErrorCode.NONE, who.generation + 1)
        request = SyncRequest(
            token=0,
            who=Identity(member_id=who.member_id, generation=again.generation),
            assignments=((who.member_id, b"mine"),),
        )
        assert (await soon(shard.sync("g", request))).assignment == b"mine"
        replaced = await soon(shard.join("s", asked(instance_id="one")))
        assert replaced.error == ErrorCode.NONE
        shard.close()

    run(work)
