"""Retries of records with back-off, in the order that a route promises; pure but for its clock.

With `ordering: partition` or `key` a record that is tried again holds back the later ones of its partition or
key. Those that were in the same call are called again after it, so that the last call of each is in order;
everything else goes on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from penstock.events import Retry

__all__ = ["Clock", "Retries", "Settled", "SystemClock", "deliver"]

LONGEST_WAIT: Final = 300.0
"""Seconds; a task of Spark waits that long and no longer."""

Answer = TypeVar("Answer")


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def now(self) -> float:
        """Give the moment in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Give the moment in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a record is tried again, and after how long; the words are those of the delivery block."""

    retry: int = 0
    policy: str = "exponential"
    delay: float = 0.2
    longest: float = LONGEST_WAIT

    def wait(self, attempt: int, after: float = 0.0) -> float:
        """Give the seconds after a number of attempts; a function may ask for more.

        >>> [Retries(delay=0.5).wait(n) for n in (1, 2, 3)], Retries(policy="linear").wait(3)
        ([0.5, 1.0, 2.0], 0.6000000000000001)
        """
        factor = math.ldexp(1.0, min(attempt - 1, 60)) if self.policy == "exponential" else attempt
        wanted = max(self.delay * factor, after if after > 0 else 0.0)
        return min(wanted, self.longest)


@dataclass(slots=True)
class Settled(Generic[Answer]):
    """The last answer for a record, and how many attempts it took; a Retry means that they were used up."""

    answer: Answer
    attempts: int


@dataclass(slots=True)
class _Waiting:
    number: int
    group: Hashable | None
    attempts: int = 0
    due: float = 0.0


class _Queue:
    """The records that are not settled, in their order."""

    def __init__(self, groups: Sequence[Hashable | None]) -> None:
        self._fresh = deque(_Waiting(number, group) for number, group in enumerate(groups))
        self._held: list[_Waiting] = []
        """Older than all fresh ones: tried before, or behind one that was."""

    def __bool__(self) -> bool:
        return bool(self._fresh or self._held)

    def take(self, size: int, now: float) -> list[_Waiting]:
        """Take records that are due and have no older one of their group before them."""
        taken: list[_Waiting] = []
        left: list[_Waiting] = []
        blocked: set[Hashable] = set()
        held = iter(self._held)
        for each in held:
            if len(taken) == size:
                left += [each, *held]
            elif each.group in blocked or each.due > now:
                blocked |= {each.group} - {None}
                left.append(each)
            else:
                taken.append(each)
        while self._fresh and len(taken) < size:
            each = self._fresh.popleft()
            (left if each.group in blocked else taken).append(each)
        self._held = left
        return taken

    def put_back(self, waiting: list[_Waiting]) -> None:
        """Take back what was not settled."""
        self._held = sorted([*self._held, *waiting], key=lambda each: each.number)

    def next_due(self, now: float) -> float:
        """Give when the first record may be tried; what stands behind another is due with it."""
        return min((each.due for each in self._held if each.due > now), default=now)


def deliver(
    groups: Sequence[Hashable | None],
    call: Callable[[list[int]], Sequence[Answer]],
    *,
    size: int,
    retries: Retries,
    clock: Clock,
) -> list[Settled[Answer]]:
    """Call with the numbers of records, `size` at a time, until each has an answer that is no Retry.

    `groups` says for each record what it is in order with; None: with nothing.
    """
    settled: dict[int, Settled[Answer]] = {}
    queue = _Queue(groups)
    while queue:
        now = clock.now()
        batch = queue.take(size, now)
        if not batch:
            clock.sleep(queue.next_due(now) - now)
            continue
        answers = call([each.number for each in batch])
        queue.put_back(_sort_out(batch, answers, settled, retries, clock.now()))
    return [settled[number] for number in range(len(groups))]


def _sort_out(
    batch: Sequence[_Waiting],
    answers: Sequence[Answer],
    settled: dict[int, Settled[Answer]],
    retries: Retries,
    now: float,
) -> list[_Waiting]:
    """Settle what can be; give the others."""
    again: list[_Waiting] = []
    blocked: set[Hashable] = set()
    for each, answer in zip(batch, answers, strict=True):
        if each.group in blocked:
            again.append(each)
            continue
        each.attempts += 1
        if isinstance(answer, Retry) and each.attempts <= retries.retry:
            each.due = now + retries.wait(each.attempts, answer.after)
            blocked |= {each.group} - {None}
            again.append(each)
        else:
            settled[each.number] = Settled(answer, each.attempts)
    return again
