"""Kafka's rules as tables: what each member of a group hears in each state, request by request.

The rules are those of Kafka's own coordinator for classic groups. Transactional commits are not among them:
TxnOffsetCommit is not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from penstock.errors import ApiError
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.joining import join
from penstock.gateway.groups.leaving import leave
from penstock.gateway.groups.offsets import expired
from penstock.gateway.groups.rebalance import complete
from penstock.gateway.groups.requests import Identity, JoinRequest, LeaveRequest, SyncRequest
from penstock.gateway.groups.schemas import Commit, Record
from penstock.gateway.groups.shard import Shard
from penstock.gateway.groups.states import State
from penstock.gateway.groups.syncing import sync
from penstock.wire.kafka import ErrorCode

LIMITS = Limits(initial_delay=0.0)
PLACE = ("orders", 0)
ORDERS = bytes.fromhex("0000 00000001 0006") + b"orders" + bytes.fromhex("ffffffff")
"""The metadata of a consumer that reads the topic `orders`."""
WAITS: Final = "waits"
"""The request is answered later."""

NONE, DEAD = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
OLD, REBALANCE = ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


class Log:
    """A log that stores at once."""

    max_group_bytes = 5_000_000

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


# How a group comes into each state


def asked(member_id: str = "", **more: Any) -> JoinRequest:
    given = {
        "token": 1,
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session": 10.0,
        "rebalance": 10.0,
        "protocol_type": "consumer",
        "protocols": (("range", ORDERS),),
        "new_member_id": "",
    }
    return JoinRequest(**(given | more))


def joined(group: Group, **more: Any) -> Group:
    return join(group, asked(**more), 0.0, LIMITS).group


def completing() -> Group:
    """The leader `first`, and the instance `one` with the id `static`; `waiting` was given its id only."""
    group = joined(Group(group_id="g"), new_member_id="first")
    group = joined(group, new_member_id="static", instance_id="one", token=2)
    group = joined(group, member_id="first", token=3)
    return joined(group, new_member_id="waiting", needs_known_id=True, token=4)


def stable() -> Group:
    group = completing()
    leader = Identity(member_id="first", generation=group.generation)
    return sync(group, SyncRequest(token=5, who=leader), 0.0, LIMITS).group


def preparing() -> Group:
    return joined(stable(), new_member_id="third", token=6)


def empty() -> Group:
    """Nobody is left; the id that was given out is still there."""
    group = stable()
    for member_id in ("first", "static"):
        group = leave(group, LeaveRequest(member_id=member_id), 0.0, LIMITS)[0].group
    # The one who was given an id holds the rebalance up until it comes or the time is over.
    return complete(group, 0.0).group


STATES: Final[Mapping[str, Callable[[], Group | None]]] = {
    "none": lambda: None,
    "simple": lambda: Group(group_id="g"),
    "empty": empty,
    "preparing": preparing,
    "completing": completing,
    "stable": stable,
    "dead": lambda: replace(empty(), state=State.DEAD),
}
"""By name: no group, one that never had members, one that has lost them, and Kafka's other states."""


def test_the_states_are_what_they_are_called() -> None:
    found = {name: group.state for name, make in STATES.items() if (group := make()) is not None}
    assert found == {
        "simple": State.EMPTY,
        "empty": State.EMPTY,
        "preparing": State.PREPARING,
        "completing": State.COMPLETING,
        "stable": State.STABLE,
        "dead": State.DEAD,
    }
    for name in ("preparing", "completing", "stable"):
        group = STATES[name]()
        assert group is not None and group.leader == "first" and group.statics == {"one": "static"}
        assert set(group.pending) == {"waiting"}


GENERATION = completing().generation

WHO: Final[Mapping[str, Identity]] = {
    "member": Identity(member_id="first", generation=GENERATION),
    "member, old generation": Identity(member_id="first", generation=GENERATION - 1),
    "member, later generation": Identity(member_id="first", generation=GENERATION + 7),
    "member, no generation": Identity(member_id="first"),
    "nobody's id": Identity(member_id="nobody", generation=GENERATION),
    "nobody's id, no generation": Identity(member_id="nobody"),
    "id not joined": Identity(member_id="waiting", generation=GENERATION),
    "id not joined, instance": Identity(member_id="waiting", instance_id="two", generation=GENERATION),
    "static": Identity(member_id="static", instance_id="one", generation=GENERATION),
    "static, old generation": Identity(member_id="static", instance_id="one", generation=GENERATION - 1),
    "static, old id": Identity(member_id="former", instance_id="one", generation=GENERATION),
    "static, no id": Identity(instance_id="one"),
    "static, id alone": Identity(member_id="static", generation=GENERATION),
    "other instance": Identity(member_id="static", instance_id="two", generation=GENERATION),
    "simple consumer": Identity(),
    "generation alone": Identity(generation=GENERATION),
}

Row = Mapping[str, ErrorCode | str]


def rows(**by_state: Row) -> list[tuple[str, str, ErrorCode | str]]:
    """Make each row complete: identities that are not named get what `others` says."""
    assert by_state.keys() == STATES.keys()
    for state, row in by_state.items():
        assert row.keys() - {"others"} <= WHO.keys(), state
    return [(state, who, row.get(who, row["others"])) for state, row in by_state.items() for who in WHO]


MEMBERS: Final[Row] = {
    "others": UNKNOWN,
    "member": NONE,
    "member, old generation": OLD,
    "member, later generation": OLD,
    "member, no generation": OLD,
    "static": NONE,
    "static, id alone": NONE,
    "static, old generation": OLD,
    "static, old id": FENCED,
    "static, no id": FENCED,
}
"""Who is known in a group with members."""


def in_all(code: ErrorCode | str) -> Row:
    """Tell all who are known and of this generation the same."""
    return {who: code if known is NONE else known for who, known in MEMBERS.items()}


NO_GENERATION: Final = {who for who, identity in WHO.items() if identity.generation < 0}
EMPTY: Final[Row] = {"others": UNKNOWN} | dict.fromkeys(NO_GENERATION, NONE)

COMMITS = rows(
    none={"others": NOT_FOUND} | dict.fromkeys(NO_GENERATION, NONE),
    simple=EMPTY,
    empty=EMPTY,
    preparing=MEMBERS,
    completing=in_all(REBALANCE),
    stable=MEMBERS,
    dead={"others": DEAD},
)
BEATS = rows(
    none={"others": UNKNOWN},
    simple={"others": UNKNOWN},
    empty={"others": UNKNOWN},
    preparing=in_all(REBALANCE),
    completing=MEMBERS,
    stable=MEMBERS,
    dead={"others": DEAD},
)
SYNCS = rows(
    none={"others": UNKNOWN},
    simple={"others": UNKNOWN},
    empty={"others": UNKNOWN},
    preparing=in_all(REBALANCE),
    completing={**MEMBERS, "static": WAITS, "static, id alone": WAITS},
    stable=MEMBERS,
    dead={"others": DEAD},
)
LEAVING: Final[Row] = {
    **dict.fromkeys(WHO, NONE),
    "others": NONE,
    "nobody's id": UNKNOWN,
    "nobody's id, no generation": UNKNOWN,
    "static, old id": FENCED,
    "other instance": UNKNOWN,
    "simple consumer": UNKNOWN,
    "generation alone": UNKNOWN,
}
"""A generation is not asked for, and an administrator names an instance without its id."""
LEAVES = rows(
    none={"others": UNKNOWN},
    simple={"others": UNKNOWN},
    empty={"others": UNKNOWN, "id not joined": NONE, "id not joined, instance": NONE},
    preparing=LEAVING,
    completing=LEAVING,
    stable=LEAVING,
    dead={"others": DEAD},
)


async def in_state(state: str, ask: Callable[[Shard], Any]) -> ErrorCode | str:
    """Ask a coordinator of a group in this state."""
    shard = Shard(Log(), LIMITS, clock=lambda: 0.0)
    group = STATES[state]()
    if group is not None:
        shard._put(group, keep=True)
    try:
        found = ask(shard)
        if asyncio.iscoroutine(found):
            task = asyncio.ensure_future(found)
            for _ in range(5):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
                return WAITS
            found = task.result()
        return found if isinstance(found, ErrorCode) else ErrorCode(found.error)
    except ApiError as exc:
        return ErrorCode(exc.error_code)
    finally:
        shard.close()


@pytest.mark.parametrize(("state", "who", "expected"), COMMITS)
def test_who_may_commit(state: str, who: str, expected: ErrorCode) -> None:
    async def commit(shard: Shard) -> ErrorCode:
        errors = await shard.commit("g", WHO[who], {PLACE: Commit(offset=1)})
        await asyncio.sleep(0)
        assert (PLACE in shard.committed("g")) == (errors[PLACE] == NONE)
        return errors[PLACE]

    assert asyncio.run(in_state(state, commit)) == expected


@pytest.mark.parametrize(("state", "who", "expected"), BEATS)
def test_who_may_beat(state: str, who: str, expected: ErrorCode) -> None:
    assert asyncio.run(in_state(state, lambda shard: shard.heartbeat("g", WHO[who]))) == expected


@pytest.mark.parametrize(("state", "who", "expected"), SYNCS)
def test_who_may_sync(state: str, who: str, expected: ErrorCode | str) -> None:
    request = SyncRequest(token=0, who=WHO[who])
    assert asyncio.run(in_state(state, lambda shard: shard.sync("g", request))) == expected


@pytest.mark.parametrize(("state", "who", "expected"), LEAVES)
def test_who_may_leave(state: str, who: str, expected: ErrorCode) -> None:
    request = LeaveRequest(member_id=WHO[who].member_id, instance_id=WHO[who].instance_id)
    assert asyncio.run(in_state(state, lambda shard: shard.leave("g", [request])[0])) == expected


@pytest.mark.parametrize(
    ("state", "who", "is_refreshed"),
    [
        (state, who, expected == NONE and WHO[who].member_id in ("first", "static"))
        for state, who, expected in COMMITS
        if state in ("preparing", "completing", "stable")
    ],
)
def test_a_commit_keeps_a_session(state: str, who: str, is_refreshed: bool) -> None:
    """A member that commits lives, and nobody else is kept alive by a commit that is refused."""

    async def work() -> None:
        now = 0.0
        shard = Shard(Log(), LIMITS, clock=lambda: now)
        group = STATES[state]()
        assert group is not None
        shard._put(group, keep=True)
        before = {key: each.expires for key, each in group.members.items()}
        now = 3.0
        await shard.commit("g", WHO[who], {PLACE: Commit(offset=1)})
        after = {key: each.expires for key, each in shard.groups["g"].members.items()}
        changed = {WHO[who].member_id: now + 10.0} if is_refreshed else {}
        assert after == before | changed
        shard.close()

    asyncio.run(work())


# Offsets that are deleted, or too old

SUBSCRIBED, LIVE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NON_EMPTY_GROUP
DELETES: Final[Mapping[str, tuple[ErrorCode, ErrorCode, ErrorCode, ErrorCode]]] = {
    "none": (NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "simple": (NONE, NONE, NONE, NONE),
    "empty": (NONE, NONE, NONE, NONE),
    "preparing": (SUBSCRIBED, NONE, SUBSCRIBED, LIVE),
    "completing": (SUBSCRIBED, NONE, SUBSCRIBED, LIVE),
    "stable": (SUBSCRIBED, NONE, SUBSCRIBED, LIVE),
    "dead": (NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND),
}
"""A topic that consumers read, one that they do not, members that say what they read in a form that cannot be
read (they may read anything), and members that are no consumers."""


def changed(
    group: Group | None, *, protocol_type: str = "consumer", metadata: bytes = ORDERS
) -> Group | None:
    """Let all members be of another kind."""
    if group is None:
        return None
    members = {
        key: replace(each, protocols=tuple((name, metadata) for name, _ in each.protocols))
        for key, each in group.members.items()
    }
    kind = None if group.protocol_type is None else protocol_type
    return replace(group, members=members, protocol_type=kind)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("column", "topic", "kind"),
    [
        (0, "orders", {}),
        (1, "other", {}),
        (2, "other", {"metadata": b"?"}),
        (3, "orders", {"protocol_type": "connect"}),
    ],
)
def test_which_offsets_may_be_deleted(state: str, column: int, topic: str, kind: dict[str, Any]) -> None:
    async def work() -> None:
        shard = Shard(Log(), LIMITS, clock=lambda: 0.0)
        group = changed(STATES[state](), **kind)
        if group is not None:
            shard._put(group, keep=True)
        try:
            found = (await shard.delete_offsets("g", [(topic, 0)]))[topic, 0]
        except ApiError as exc:
            found = ErrorCode(exc.error_code)
        assert found == DELETES[state][column]
        shard.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("state", "topic", "kind", "is_old"),
    [
        ("simple", "orders", {}, True),
        ("empty", "orders", {}, True),
        ("stable", "orders", {}, False),
        ("stable", "other", {}, True),
        ("stable", "other", {"metadata": b"?"}, False),
        ("stable", "other", {"protocol_type": "connect"}, False),
        ("preparing", "other", {}, False),
        ("completing", "other", {}, False),
        ("dead", "orders", {}, False),
    ],
)
def test_which_offsets_grow_old(state: str, topic: str, kind: dict[str, Any], is_old: bool) -> None:
    """While a group rebalances nobody knows what it will read, so nothing of it is too old."""
    group = changed(STATES[state](), **kind)
    assert group is not None
    commits = {(topic, 0): Commit(offset=1, committed_at=0)}
    later = 2 * round(LIMITS.offsets_retention * 1000)
    assert list(expired(group, commits, later, LIMITS)) == ([(topic, 0)] if is_old else [])


# Who leads


def test_one_who_leads_goes_on_leading_when_an_older_member_is_back() -> None:
    """A static leader is away at the end of a rebalance: another one leads, and stays when it comes again."""
    group = joined(Group(group_id="g"), new_member_id="static", instance_id="one")
    leader = Identity(member_id="static", instance_id="one", generation=group.generation)
    group = sync(group, SyncRequest(token=2, who=leader), 0.0, LIMITS).group
    group = complete(joined(group, new_member_id="second", token=3), 0.0).group
    assert (list(group.members), group.leader) == (["static", "second"], "second")
    for generation in (group.generation + 1, group.generation + 2):
        other = (("range", ORDERS + bytes([generation])),)
        group = joined(group, member_id="static", instance_id="one", protocols=other, token=4)
        assert group.state is State.PREPARING
        group = joined(group, member_id="second", token=5)
        assert (group.state, group.generation, group.leader) == (State.COMPLETING, generation, "second")
