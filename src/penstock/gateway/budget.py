"""Memory budgets: bytes that clients make the gateway hold, in all and for each principal or address.

Only bytes that are here are counted, never bytes that a client announces. A connection that holds less than
`floor` is read whatever the budgets say, so heartbeats and other small requests always come through. When a
budget is full and most of it are requests that have not come wholly, one connection at a time may finish the
one that it is sending: else connections with half a request each could wait for each other's room for ever.
So a budget is exceeded by at most half of it and one request, and by the floor of each connection.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from penstock.gateway.limits import Limits

__all__ = ["Budget", "Budgets", "Share", "Unread"]


class Reader(Protocol):
    """A connection whose reading is paused while a budget is full."""

    def regulate(self) -> None:
        """Read if that is possible now."""


class Budget:
    """The bytes of one kind that all connections hold together, and the shares of it.

    >>> budget = Budget(limit=100, per_share=60)
    >>> share = budget.join("10.0.0.1")
    >>> share.take(60)
    >>> share.is_full, budget.join("10.0.0.2").is_full, budget.used
    (True, False, 60)
    """

    def __init__(self, *, limit: int, per_share: int, floor: int = 0) -> None:
        self.limit = limit
        self.per_share = min(per_share, limit)
        self.floor = floor
        self.used = 0
        self.partial = 0
        """The part of it that belongs to requests which have not come wholly."""
        self.finisher: Reader | None = None
        """The connection that may read on although the budget is full."""
        self.waiting: dict[Reader, None] = {}
        """Connections that are paused for this budget, in the order in which they came to wait."""
        self._shares: dict[Hashable, Share] = {}

    def join(self, key: Hashable) -> Share:
        """Return the share of a principal or address for one more connection of it."""
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = Share(self, key)
        share.connections += 1
        return share

    def drop(self, share: Share) -> None:
        """Forget a share that nobody uses: there are never more of them than connections and requests."""
        if self._shares.get(share.key) is share:
            del self._shares[share.key]

    def wake(self) -> None:
        """Let every connection that waits look again whether it may read."""
        for reader in list(self.waiting):
            reader.regulate()

    def __len__(self) -> int:
        """Count the shares."""
        return len(self._shares)

    @property
    def used_ratio(self) -> float:
        """The used part of the budget, or of the fullest share of it."""
        most = max((share.used for share in self._shares.values()), default=0)
        return max(self.used / self.limit, most / self.per_share)


class Share:
    """What the connections of one principal or address hold of a budget."""

    __slots__ = ("budget", "connections", "finisher", "key", "limit", "partial", "used")

    def __init__(self, budget: Budget, key: Hashable) -> None:
        self.budget = budget
        self.key = key
        self.limit = budget.per_share
        self.used = 0
        self.partial = 0
        self.connections = 0
        self.finisher: Reader | None = None

    @property
    def is_full(self) -> bool:
        """Whether the share, or the budget of all, is used up."""
        return self.used >= self.limit or self.budget.used >= self.budget.limit

    @property
    def room(self) -> int:
        """The bytes that may still be taken; negative if too many are."""
        return min(self.limit - self.used, self.budget.limit - self.budget.used)

    def take(self, size: int) -> None:
        """Count bytes that are held from now on."""
        self.used += size
        self.budget.used += size

    def take_partial(self, size: int) -> None:
        """Count bytes of a request that has not come wholly; negative when it has, and is counted itself."""
        budget = self.budget
        self.partial += size
        self.used += size
        budget.partial += size
        budget.used += size

    def give_partial(self, size: int) -> None:
        """Count bytes of a request that will not come wholly as free again."""
        self.partial -= size
        self.budget.partial -= size
        self.give(size)

    def give(self, size: int) -> None:
        """Count bytes that are free again; connections that wait may go on when there is room again."""
        budget = self.budget
        if budget.waiting:
            blocked = [each for each in (self, budget) if _is_blocked(each)]
            self.used -= size
            budget.used -= size
            if not all(map(_is_blocked, blocked)):
                budget.wake()
        else:
            self.used -= size
            budget.used -= size
        if not self.connections and not self.used:
            budget.drop(self)

    def leave(self) -> None:
        """Count a connection as gone; requests of it may still be under way."""
        self.connections -= 1
        if not self.connections and not self.used:
            self.budget.drop(self)

    def admits(self, reader: Reader, held: int, *, in_frame: bool) -> bool:
        """Whether a connection that holds so many bytes may read on; if not, it is regulated again in time.

        `in_frame` says that a part of a request has come, so that the connection may become the finisher.
        """
        budget = self.budget
        may = (
            held < budget.floor
            or not self.is_full
            or budget.finisher is reader
            or (in_frame and self._may_finish(reader))
        )
        if not may:
            budget.waiting[reader] = None
        elif budget.waiting:
            budget.waiting.pop(reader, None)
        return may

    def _may_finish(self, reader: Reader) -> bool:
        # The share first: who has the turn of all passes also a share that is full, so the two cannot wait
        # for each other.
        return all(_has_turn(each, reader) for each in (self, self.budget))

    def retire(self, reader: Reader) -> None:
        """A connection has finished its request, cannot go on with it, or is gone: it is another's turn."""
        budget = self.budget
        budget.waiting.pop(reader, None)
        had_turn = reader in (self.finisher, budget.finisher)
        if self.finisher is reader:
            self.finisher = None
        if budget.finisher is reader:
            budget.finisher = None
        if had_turn and budget.waiting:
            budget.wake()


def _has_turn(full: Share | Budget, reader: Reader) -> bool:
    """Give a connection the turn if nobody has it; requests that are here wholly make room by themselves."""
    if full.used < full.limit:
        return True
    if not _is_blocked(full):
        full.finisher = reader
    return full.finisher is reader


def _is_blocked(full: Share | Budget) -> bool:
    """Whether it is full, and nobody may take the turn to finish a request."""
    if full.used < full.limit:
        return False
    return full.finisher is not None or full.used - full.partial >= full.limit // 2


class UnreadHolder(Protocol):
    """A connection that has written answers which its client has not read."""

    unread: int
    """Bytes, as they were last counted."""
    unread_share: Share
    stalled_since: float
    """When the client was last seen reading, on the loop's clock."""

    def count_unread(self) -> None:
        """Look how much is still unread."""

    def end_unread(self) -> None:
        """End the connection at once; its bytes are given back."""


class Unread(Budget):
    """The answers that clients have not read yet: beyond the budget the longest unread ones are ended.

    A client whose connection is ended connects again and asks again; no record is lost by that.
    """

    def __init__(self, *, limit: int, per_share: int) -> None:
        super().__init__(limit=limit, per_share=per_share)
        self.holders: dict[UnreadHolder, None] = {}

    def make_room(self, share: Share) -> None:
        """End connections, of this share or of all, until both are within their limits."""
        if not self._is_over(share):
            return
        for holder in list(self.holders):
            holder.count_unread()
        while self._is_over(share):
            whose = [
                holder
                for holder in self.holders
                if holder.unread and (self.used > self.limit or holder.unread_share is share)
            ]
            if not whose:
                return
            min(whose, key=lambda holder: (holder.stalled_since, -holder.unread)).end_unread()

    def _is_over(self, share: Share) -> bool:
        return share.used > share.limit or self.used > self.limit


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a process, shared by its listeners."""

    requests: Budget
    """Of authenticated clients, by principal, and of listeners that do not authenticate, by address."""
    unauthenticated: Budget
    """Requests of clients that have yet to authenticate, by address."""
    answers: Unread
    """By principal or address."""

    @classmethod
    def of(cls, limits: Limits) -> Budgets:
        """Make empty budgets of these limits."""
        return cls(
            requests=Budget(
                limit=limits.bytes_in_all, per_share=limits.bytes_per_principal, floor=limits.small_bytes
            ),
            unauthenticated=Budget(
                limit=limits.unauthenticated_bytes_in_all,
                per_share=limits.unauthenticated_bytes_per_address,
                floor=limits.unauthenticated_small_bytes,
            ),
            answers=Unread(limit=limits.answer_bytes_in_all, per_share=limits.answer_bytes_per_principal),
        )

    @property
    def used_ratio(self) -> float:
        """The used part of the fullest budget or share."""
        return max(each.used_ratio for each in (self.requests, self.unauthenticated, self.answers))
