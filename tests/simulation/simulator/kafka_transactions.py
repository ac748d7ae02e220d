"""Transactions as Kafka's coordinator keeps them (KIP-98), and the offsets of groups, in or outside of them.

A transaction is decided when its end is in the coordinator's log; its markers come to the partitions and to
the offsets of its group after that, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.wire.kafka.error_codes import ErrorCode
from simulator.threads import World

__all__ = ["GroupTable", "State", "Transaction", "Transactions"]

Place = tuple[str, int]
SWEEP: Final = 10.0
"""Seconds between two looks for transactions that have timed out."""


class State(Enum):
    """Where a transaction is."""

    EMPTY = "empty"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


_ENDING: Final = frozenset({State.COMMITTING, State.ABORTING})


@dataclass(slots=True)
class Transaction:
    """What is known of a transactional id."""

    name: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    """The epoch before, if its owner has renewed it."""
    timeout: float = 60.0
    state: State = State.EMPTY
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    began: float = 0.0
    left: set[object] = field(default_factory=set)
    """Who has not got the marker yet."""


class GroupTable:
    """Committed offsets, and those of transactions that are not decided here yet."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.pending: dict[tuple[int, str], dict[Place, tuple[int, str]]] = {}
        self._epochs: dict[tuple[int, str], int] = {}

    def commit(self, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        """Commit outside of a transaction."""
        for (topic, part), found in offsets.items():
            self.committed[group, topic, part] = found

    def note(self, producer_id: int, epoch: int, group: str, offsets: dict[Place, tuple[int, str]]) -> int:
        """Keep offsets of a transaction until it is decided; give a code."""
        if epoch < self._epochs.get((producer_id, group), -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self._epochs[producer_id, group] = epoch
        self.pending.setdefault((producer_id, group), {}).update(offsets)
        return 0

    def mark(self, producer_id: int, epoch: int, group: str, *, committed: bool) -> None:
        """End a transaction here."""
        self._epochs[producer_id, group] = max(epoch, self._epochs.get((producer_id, group), -1))
        found = self.pending.pop((producer_id, group), {})
        if committed:
            self.commit(group, found)

    def is_pending(self, group: str, place: Place) -> bool:
        """Say whether an offset waits for the end of a transaction."""
        return any(name == group and place in found for (_, name), found in self.pending.items())


class Transactions:
    """The coordinator; `send_marker` brings a marker to a partition and calls back when it is there."""

    def __init__(
        self,
        world: World,
        groups: GroupTable,
        send_marker: Callable[[Place, int, int, bool, Callable[[], None]], None],
        note: Callable[[str, str], None],
    ) -> None:
        self.on_decided: Callable[[Transaction, bool], None] = lambda which, committed: None
        self.found: dict[str, Transaction] = {}
        self._world = world
        self._groups = groups
        self._send_marker = send_marker
        self._note = note
        self._ids = 1000
        self._world.after(SWEEP, self._sweep)

    def new_id(self) -> int:
        """Give a producer id."""
        self._ids += 1
        return self._ids

    def epoch_of(self, name: str) -> int | None:
        """Give the epoch of a transactional id."""
        which = self.found.get(name)
        return None if which is None else which.epoch

    def init(self, name: str, timeout: float) -> tuple[int, int, int]:
        """Give code, producer id and epoch; an open transaction is aborted first, and its owner fenced."""
        which = self.found.get(name)
        if which is None:
            which = self.found[name] = Transaction(name, self.new_id())
        if which.state is State.OPEN:
            which.epoch += 1
            self._decide(which, committed=False)
        if which.state in _ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        which.epoch += 1
        which.last_epoch = -1
        which.timeout = timeout
        which.state = State.EMPTY
        self._note("kafka", f"{name} has epoch {which.epoch}")
        return 0, which.producer_id, which.epoch

    def renew(self, name: str, timeout: float, producer_id: int, epoch: int) -> tuple[int, int, int]:
        """Give code, producer id and the next epoch to who has this one (KIP-360)."""
        which = self.found[name]
        if which.producer_id != producer_id or epoch not in (which.epoch, which.last_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1
        if epoch == which.last_epoch:
            return 0, which.producer_id, which.epoch  # it is asked again: the answer was lost
        code, *made = self.init(name, timeout)
        if not code:
            which.last_epoch = epoch
        return code, made[0], made[1]

    def add(self, name: str, producer_id: int, epoch: int, places: set[Place], groups: set[str]) -> int:
        """Let partitions or a group take part; give a code."""
        which, code = self._known(name, producer_id, epoch)
        if which is None or code:
            return code
        if which.state in _ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if which.state is not State.OPEN:
            which.state, which.began = State.OPEN, self._world.now
        which.partitions |= places
        which.groups |= groups
        return 0

    def end(self, name: str, producer_id: int, epoch: int, *, committed: bool) -> int:
        """Decide; give a code."""
        which, code = self._known(name, producer_id, epoch)
        if which is None or code:
            return code
        if which.state is State.OPEN:
            self._decide(which, committed=committed)
            return 0
        done = State.COMMITTED if committed else State.ABORTED
        under_way = State.COMMITTING if committed else State.ABORTING
        if which.state is under_way:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return 0 if which.state is done else ErrorCode.INVALID_TXN_STATE

    def verify(self, name: str, producer_id: int, epoch: int, who: Place | str) -> int:
        """Give the code for a partition or a group that may take part in what is open (KIP-890)."""
        which, code = self._known(name, producer_id, epoch)
        if which is None or code:
            return code
        if which.state in _ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        takes = who in which.partitions or who in which.groups
        return 0 if takes and which.state is State.OPEN else ErrorCode.INVALID_TXN_STATE

    def _known(self, name: str, producer_id: int, epoch: int) -> tuple[Transaction | None, int]:
        which = self.found.get(name)
        if which is None or which.producer_id != producer_id:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # The versions that the client speaks say so of a producer that is fenced.
        return which, 0 if which.epoch == epoch else ErrorCode.INVALID_PRODUCER_EPOCH

    def _decide(self, which: Transaction, *, committed: bool) -> None:
        which.state = State.COMMITTING if committed else State.ABORTING
        self._note("kafka", f"{which.name} is {which.state.value}")
        self.on_decided(which, committed)
        which.left = {*which.partitions, *which.groups}
        for place in sorted(which.partitions):
            self._later(lambda place=place: self._mark(which, place, committed=committed))
        for group in sorted(which.groups):
            self._later(lambda group=group: self._mark_group(which, group, committed=committed))

    def _later(self, what: Callable[[], None]) -> None:
        self._world.after(self._world.random.choice((0.0001, 0.002, 0.05, 1.0)), what)

    def _mark(self, which: Transaction, place: Place, *, committed: bool) -> None:
        done = lambda: self._marked(which, place)  # noqa: E731
        self._send_marker(place, which.producer_id, which.epoch, committed, done)

    def _mark_group(self, which: Transaction, group: str, *, committed: bool) -> None:
        self._groups.mark(which.producer_id, which.epoch, group, committed=committed)
        self._marked(which, group)

    def _marked(self, which: Transaction, who: object) -> None:
        which.left.discard(who)
        if not which.left and which.state in _ENDING:
            which.state = State.COMMITTED if which.state is State.COMMITTING else State.ABORTED
            which.partitions.clear()
            which.groups.clear()

    def _sweep(self) -> None:
        for which in self.found.values():
            if which.state is State.OPEN and self._world.now - which.began > which.timeout:
                self._note("kafka", f"{which.name} has timed out")
                which.epoch += 1
                self._decide(which, committed=False)
        self._world.after(SWEEP, self._sweep)
