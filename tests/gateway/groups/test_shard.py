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
        again.load(log.records)
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
        again.load(log.records)
        assert again.heartbeat("g", who) == ErrorCode.NONE
        assert again.committed("g")[PLACE] == Commit(offset=5, metadata="m")
        request = SyncRequest(token=0, who=who)
        assert (await soon(again.sync("g", request))).assignment == b"mine"
        assert again.leave("g", [LeaveRequest(member_id=who.member_id)]) == [ErrorCode.NONE]
        assert await soon(again.delete("g")) == ErrorCode.NONE
        again.close()
        empty = Shard(log, LIMITS)
        empty.load(log.records)
        assert (empty.groups, empty.commits) == ({}, {})
        empty.close()

    run(work)


def test_a_record_that_makes_no_sense_is_left_out() -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS)
        shard.load([(b"", b""), (b"\x00\x01\x00", b"x"), (b"\x7f\xffpenstock", b"node 1")])
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
        shard.forget_old(10_000)
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
        shard.leave("g", [LeaveRequest(member_id=who.member_id)])
        emptied = shard.groups["g"].changed_at
        shard.forget_old(emptied + 3_599_000)
        await asyncio.sleep(0)
        assert PLACE in shard.committed("g")
        shard.forget_old(emptied + 3_600_000)
        await asyncio.sleep(0)
        assert "g" not in shard.groups
        shard.close()

    run(work)


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        (replace(LIMITS, max_groups=1), asked()),
        (replace(LIMITS, max_member_bytes=3), asked(protocols=(("range", b"long"),))),
        (replace(LIMITS, max_group_bytes=5), asked(protocols=(("range", b"longer"),))),
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
        shard = Shard(Log(), replace(LIMITS, max_members=1, max_groups=1, max_group_bytes=10))
        joined = await soon(shard.join("g", asked()))
        assert (await soon(shard.join("g", asked()))).error == ErrorCode.GROUP_MAX_SIZE_REACHED
        refused = await shard.commit("other", ALONE, {PLACE: Commit(offset=1)})
        assert refused == {PLACE: ErrorCode.GROUP_MAX_SIZE_REACHED}
        who = Identity(member_id=joined.member_id, generation=joined.generation)
        large = SyncRequest(token=0, who=who, assignments=((joined.member_id, b"x" * 11),))
        assert (await soon(shard.sync("g", large))).error == ErrorCode.UNKNOWN_SERVER_ERROR
        shard.close()

    run(work)
