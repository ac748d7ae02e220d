"""Retries in order, on a clock that does not wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events import Drop, Retry
from penstock.pipeline.functions.delivery import LONGEST_WAIT, Retries, deliver


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def run(
    groups: Sequence[Hashable | None], wants: Sequence[int], *, size: int = 4, after: float = 0.0
) -> tuple[list[list[int]], list[int], Clock]:
    """Deliver records of which each wants a number of retries; give the calls, the attempts and the clock."""
    calls: list[list[int]] = []
    seen: Counter[int] = Counter()

    def call(numbers: list[int]) -> list[Drop | Retry]:
        calls.append(numbers)
        seen.update(numbers)
        return [Retry(after=after) if seen[number] <= wants[number] else Drop() for number in numbers]

    clock = Clock()
    settled = deliver(groups, call, size=size, retries=Retries(retry=3, delay=1.0), clock=clock)
    assert all(isinstance(each.answer, Drop) for each in settled if each.attempts <= 3)
    return calls, [each.attempts for each in settled], clock


def test_records_go_in_calls_of_the_size_that_was_set() -> None:
    calls, attempts, clock = run([None] * 10, [0] * 10)
    assert calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (attempts, clock.waits) == ([1] * 10, [])


def test_others_go_on_while_a_record_waits() -> None:
    calls, _, clock = run(["a", "b", "a", "b", "a", "b"], [1, 0, 0, 0, 0, 0], size=2)
    assert calls == [[0, 1], [3, 5], [0, 2], [4]]
    assert clock.waits == [1.0]


def test_waits_double_and_a_function_may_ask_for_more() -> None:
    assert run([None], [9])[2].waits == [1.0, 2.0, 4.0]
    assert run([None], [9], after=3.0)[2].waits == [3.0, 3.0, 4.0]
    assert run([None], [1], after=float("inf"))[2].waits == [LONGEST_WAIT]
    assert run([None], [1], after=float("nan"))[2].waits == [1.0]


@pytest.mark.parametrize("attempt", [1, 50, 100])
def test_no_wait_is_longer_than_a_task_may_wait(attempt: int) -> None:
    assert 0 < Retries(delay=3600).wait(attempt) <= LONGEST_WAIT


@given(
    st.lists(st.tuples(st.sampled_from("abc") | st.none(), st.integers(0, 2)), max_size=12),
    st.integers(1, 5),
)
def test_the_last_calls_of_a_group_are_in_order(records: list[tuple[str | None, int]], size: int) -> None:
    groups = [group for group, _ in records]
    calls, attempts, _ = run(groups, [wants for _, wants in records], size=size)
    last = {number: at for at, numbers in enumerate(calls) for number in numbers}
    assert all(sorted(numbers) == numbers and len(numbers) <= size for numbers in calls)
    for name in set(groups) - {None}:
        order = [last[number] for number, group in enumerate(groups) if group == name]
        assert order == sorted(order)
    for number, (group, wants) in enumerate(records):
        assert attempts[number] <= wants + 1 if group else attempts[number] == wants + 1
