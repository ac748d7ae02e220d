"""Budgets: whatever comes in whatever order, they stay bounded and everybody gets through."""

from __future__ import annotations

import random
from collections import deque

import pytest

from penstock.gateway.budget import Budget, Share, Unread

CHUNK = 50
"""The most that one read brings."""


class Sender:
    """Sends requests one after another, a piece whenever it is read; each is served a while later."""

    def __init__(self, share: Share, sizes: list[int]) -> None:
        self.share, self.sizes = share, deque(sizes)
        self.partial = self.under_way = 0
        self.reading = True

    def regulate(self) -> None:
        held = self.partial + self.under_way
        self.reading = self.share.admits(self, held, in_frame=self.partial > 0)

    def read(self, amount: int) -> int:
        """Take in a piece; give the size of the request if it is whole with that."""
        piece = min(amount, self.sizes[0] - self.partial)
        self.share.take_partial(piece)
        self.partial += piece
        whole = 0
        if self.partial == self.sizes[0]:
            whole = self.sizes.popleft()
            self.share.take(whole)
            self.under_way += whole
            self.share.take_partial(-self.partial)
            self.partial = 0
            self.share.retire(self)
        self.regulate()
        return whole


@pytest.mark.parametrize("seed", range(40))
def test_everybody_gets_through_and_the_budget_is_bounded(seed: int) -> None:
    chance = random.Random(seed)
    floor, limit, largest = 20, chance.choice([300, 1000]), 200
    budget = Budget(limit=limit, per_share=chance.choice([limit, limit // 2]), floor=floor)
    senders = [
        Sender(budget.join(number % 3), [chance.choice([5, 30, largest]) for _ in range(10)])
        for number in range(chance.choice([2, 12]))
    ]
    served: deque[tuple[Sender, int]] = deque()
    most, turns = 0, 0
    while served or any(sender.sizes for sender in senders):
        turns += 1
        assert turns < 20_000, "nobody gets on"
        ready = [sender for sender in senders if sender.reading and sender.sizes]
        if ready and (not served or chance.random() < 0.7):
            sender = chance.choice(ready)
            whole = sender.read(chance.randint(1, CHUNK))
            if whole:
                served.append((sender, whole))
        else:
            assert served, "everybody waits for room, and nothing is under way"
            sender, size = served.popleft()
            sender.under_way -= size
            sender.share.give(size)
            sender.regulate()
        most = max(most, budget.used)
    assert most <= limit + limit // 2 + largest + len(senders) * (floor + CHUNK)
    assert budget.used == budget.partial == 0 and not budget.waiting and budget.finisher is None
    for sender in senders:
        sender.share.leave()
    assert len(budget) == 0


class Waiting:
    """A connection that notes how often it was told to look again."""

    def __init__(self) -> None:
        self.looked = 0

    def regulate(self) -> None:
        self.looked += 1


def test_room_for_all_wakes_those_of_other_shares() -> None:
    budget = Budget(limit=100, per_share=60)
    full, other = budget.join("full"), budget.join("other")
    full.take(90)
    other.take(10)
    waiting = Waiting()
    assert not other.admits(waiting, 10, in_frame=False)
    # The share that gives is still full itself; the budget is not any more.
    full.give(20)
    assert waiting.looked == 1
    assert other.admits(waiting, 10, in_frame=False) and not budget.waiting


def test_a_connection_that_cannot_go_on_gives_its_turn_to_the_next() -> None:
    budget = Budget(limit=100, per_share=100)
    share = budget.join("a")
    share.take_partial(120)
    first, second = Waiting(), Waiting()
    assert share.admits(first, 60, in_frame=True)
    assert not share.admits(second, 60, in_frame=True)
    share.retire(first)
    assert second.looked == 1
    assert share.admits(second, 60, in_frame=True) and not share.admits(first, 60, in_frame=True)


class Holder:
    """A connection with answers that are not read."""

    def __init__(self, budget: Unread, key: str, unread: int, stalled_since: float) -> None:
        self.unread_share = budget.join(key)
        self.unread = unread
        self.stalled_since = stalled_since
        self.ended = False
        self._budget = budget
        self.unread_share.take(unread)
        budget.holders[self] = None

    def count_unread(self) -> None:
        return None

    def end_unread(self) -> None:
        self.ended = True
        del self._budget.holders[self]
        self.unread_share.give(self.unread)


def test_only_those_whose_answers_take_room_are_ended() -> None:
    budget = Unread(limit=150, per_share=80)
    # The first has read all: to end it would free nothing, however long ago that was.
    rows = [("a", 0, 1.0), ("b", 70, 2.0), ("c", 60, 4.0), ("a", 40, 3.0)]
    read, oldest, other, newest = [Holder(budget, *row) for row in rows]
    budget.make_room(newest.unread_share)
    assert [each.ended for each in (read, oldest, other, newest)] == [False, True, False, False]
    # Its share is over and the budget is not: it concerns nobody else.
    more = Holder(budget, "c", 30, 5.0)
    assert budget.used < budget.limit
    budget.make_room(more.unread_share)
    assert [each.ended for each in (read, other, newest, more)] == [False, True, False, False]


def test_a_share_is_forgotten_with_the_last_request_of_a_connection_that_is_gone() -> None:
    budget = Budget(limit=100, per_share=100)
    share = budget.join("a")
    share.take(10)
    share.leave()
    assert len(budget) == 1
    share.give(10)
    assert len(budget) == 0


def test_a_request_that_will_not_come_wholly_is_free_again_everywhere() -> None:
    budget = Budget(limit=100, per_share=100)
    share = budget.join("a")
    share.take_partial(60)
    share.give_partial(60)
    assert (budget.used, budget.partial, share.used, share.partial) == (0, 0, 0, 0)


@pytest.mark.parametrize(("whole", "may_finish"), [(49, True), (50, False), (90, False)])
def test_nobody_finishes_a_request_while_whole_ones_make_room_by_themselves(
    whole: int, may_finish: bool
) -> None:
    budget = Budget(limit=100, per_share=100)
    share = budget.join("a")
    share.take(whole)
    share.take_partial(110 - whole)
    assert share.admits(Waiting(), 60, in_frame=True) is may_finish
