"""The machine under random members: joins, leaves, silence, new instances, commits, and time.

Invariants: one generation at a time, every partition with at most one member of a stable group, committed
offsets never go back by themselves, nobody who waits is forgotten, and every rebalance ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.gateway.groups.beating import beat
from penstock.gateway.groups.expiry import next_deadline, pass_time
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.joining import join
from penstock.gateway.groups.leaving import leave
from penstock.gateway.groups.offsets import check_commit
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.requests import Identity, JoinAnswer, JoinRequest, LeaveRequest, SyncRequest
from penstock.gateway.groups.states import State
from penstock.gateway.groups.syncing import sync
from penstock.wire.kafka import ErrorCode

PARTITIONS = range(6)
SESSION, REBALANCE = 10.0, 20.0
GONE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


@dataclass
class Client:
    """What a consumer knows."""

    instance: str | None
    protocols: tuple[str, ...]
    known_id: bool
    member_id: str = ""
    generation: int = -1
    token: int | None = None
    leads: tuple[str, ...] = ()
    positions: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition that it has; fetched when it was given the partition."""


class Members(RuleBasedStateMachine):
    """Clients that behave as Kafka's do, driven in any order."""

    @initialize(delay=st.sampled_from([0.0, 3.0]))
    def begin(self, delay: float) -> None:
        self.limits = Limits(initial_delay=delay, max_members=5)
        self.group = Group(group_id="g")
        self.now = 0.0
        self.clients = [Client(None, ("range", "sticky"), known_id) for known_id in (True, True, False)]
        self.tokens = 0
        self.waiting: dict[int, Client] = {}
        self.committed: dict[int, int] = {}
        self.generations: dict[int, tuple[Any, ...]] = {}

    # What happens

    @rule(
        instance=st.sampled_from([None, None, "one", "two"]),
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("other",)]),
        known_id=st.booleans(),
    )
    def appear(self, instance: str | None, protocols: tuple[str, ...], known_id: bool) -> None:
        if len(self.clients) < 8:
            self.clients.append(Client(instance, protocols, known_id))

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 4))
    def everybody_works(self, rounds: int) -> None:
        """All do what a consumer does next; chance alone seldom makes a group stable."""
        for _ in range(rounds):
            for client in self.clients:
                step = self._syncs if client.generation == self.group.generation else self._joins
                (self._joins if self.group.state is State.PREPARING else step)(client)
            self.time_passes(3.0)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def joins(self, data: st.DataObject) -> None:
        self._joins(self._pick(data))

    def _joins(self, client: Client) -> None:
        if client.token is not None:
            return
        token = self._token(client)
        request = JoinRequest(
            token=token,
            member_id=client.member_id,
            instance_id=client.instance,
            client_id="c",
            client_host="h",
            session=SESSION,
            rebalance=REBALANCE,
            protocol_type="consumer",
            protocols=tuple((name, b"") for name in client.protocols),
            new_member_id=f"m{token}",
            needs_known_id=client.known_id,
        )
        self._apply(join(self.group, request, self.now, self.limits))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def syncs(self, data: st.DataObject) -> None:
        self._syncs(self._pick(data))

    def _syncs(self, client: Client) -> None:
        if client.token is not None or client.generation < 0:
            return
        token = self._token(client)
        parts = self._divide(client.leads)
        request = SyncRequest(token=token, who=self._who(client), assignments=parts)
        self._apply(sync(self.group, request, self.now, self.limits))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def beats(self, data: st.DataObject) -> None:
        client = self._pick(data)
        if client.token is None and client.generation >= 0:
            self.group, error = beat(self.group, self._who(client), self.now)
            self._hear(client, error)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        client = self._pick(data)
        asked = LeaveRequest(member_id=client.member_id, instance_id=client.instance)
        outcome, error = leave(self.group, asked, self.now, self.limits)
        self._apply(outcome)
        if error == ErrorCode.NONE:
            self._forget(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanishes(self, data: st.DataObject) -> None:
        """Its connection is gone; the group hears nothing of it."""
        client = self._pick(data)
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def commits(self, data: st.DataObject) -> None:
        client = self._pick(data)
        error = check_commit(self.group, self._who(client))
        assert error == self._expected_of_commit(client)
        if error:
            return
        for partition, offset in client.positions.items():
            # A zombie that was let in would bring the group back to where it was when it lost the partition.
            assert offset >= self.committed.get(partition, 0)
            client.positions[partition] = self.committed[partition] = offset + 1

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 11.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := next_deadline(self.group)) is not None and due <= until:
            self.now = max(self.now, due)
            before = self.group
            self._apply(pass_time(self.group, self.now, self.limits))
            assert self.group != before, "time stands still"
        self.now = until

    # What must hold

    @invariant()
    def nobody_who_waits_is_forgotten(self) -> None:
        members = self.group.members.values()
        held = [each.joining for each in members] + [each.syncing for each in members]
        assert sorted(self.waiting) == sorted(token for token in held if token is not None)

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.group
        assert (group.state is State.EMPTY) <= (not group.members)
        assert (group.state in (State.COMPLETING, State.STABLE)) <= bool(group.members)
        assert group.leader in group.members or not group.members
        assert group.unsynced <= set(group.members)
        statics = {each.instance_id: key for key, each in group.members.items() if each.instance_id}
        assert group.statics == statics

    @invariant()
    def a_partition_has_one_member(self) -> None:
        if self.group.state is State.STABLE:
            given = [part for member in self.group.members.values() for part in member.assignment]
            assert len(given) == len(set(given))

    @invariant()
    def a_rebalance_ends(self) -> None:
        if self.group.state in (State.PREPARING, State.COMPLETING):
            due = next_deadline(self.group)
            assert due is not None and due <= self.now + max(REBALANCE, SESSION)

    def teardown(self) -> None:
        if not hasattr(self, "group"):
            return
        # Nobody speaks any more: everybody is answered, and the group empties.
        for _ in range(20):
            self.time_passes(25.0)
        assert self.waiting == {}
        assert self.group.members == {} and self.group.pending == {}
        assert self.group.state is State.EMPTY

    def _expected_of_commit(self, client: Client) -> ErrorCode:
        """Who must be able to commit, and what everybody else hears."""
        group, state = self.group, self.group.state
        if state is State.EMPTY and client.generation < 0:
            return ErrorCode.NONE
        if client.generation < 0 and not client.member_id and client.instance is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member = group.members.get(client.member_id)
        if client.instance is not None:
            owner = group.statics.get(client.instance)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != client.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        elif member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if client.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if state is State.COMPLETING else ErrorCode.NONE

    # How clients work

    def _pick(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients))

    def _who(self, client: Client) -> Identity:
        return Identity(member_id=client.member_id, instance_id=client.instance, generation=client.generation)

    def _token(self, client: Client) -> int:
        self.tokens += 1
        client.token = self.tokens
        self.waiting[self.tokens] = client
        return self.tokens

    def _divide(self, members: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
        count = len(members)
        return tuple((name, bytes(PARTITIONS[at::count])) for at, name in enumerate(members))

    def _apply(self, outcome: Outcome) -> None:
        assert outcome.group.generation >= self.group.generation
        self.group = outcome.group
        for token, answer in outcome.answers:
            client = self.waiting.pop(token)
            client.token = None
            if isinstance(answer, JoinAnswer):
                self._hear_join(client, answer)
            elif answer.error:
                self._hear(client, answer.error)
            else:
                client.positions = {part: self.committed.get(part, 0) for part in answer.assignment}

    def _hear_join(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
            return
        if answer.error:
            self._hear(client, answer.error)
            return
        told = (answer.protocol, answer.leader, answer.protocol_type)
        assert self.generations.setdefault(answer.generation, told)[0] == answer.protocol
        client.member_id, client.generation = answer.member_id, answer.generation
        client.leads = tuple(member.member_id for member in answer.members)
        client.positions = {}

    def _hear(self, client: Client, error: ErrorCode) -> None:
        if error in GONE:
            self._forget(client)

    def _forget(self, client: Client) -> None:
        client.member_id, client.generation, client.positions, client.leads = "", -1, {}, ()


TestMembers = Members.TestCase
TestMembers.settings = settings(settings.default, stateful_step_count=60)


def test_the_model_can_fail() -> None:
    """A machine that forgets a waiting member is found out by the invariants."""
    model = Members()
    model.begin(delay=0.0)
    model.clients = [Client(None, ("range",), False)]
    model._token(model.clients[0])
    model.group = replace(model.group, generation=1)
    try:
        model.nobody_who_waits_is_forgotten()
    except AssertionError:
        return
    raise AssertionError("the invariant did not see it")
