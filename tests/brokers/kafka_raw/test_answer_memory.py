"""Memory of answers is used again, and never while somebody looks at it."""

from __future__ import annotations

import numpy as np

from penstock.brokers.kafka_raw.answer_memory import AnswerMemory

MIB = 1024 * 1024


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_what_nobody_looks_at_is_used_again() -> None:
    memory = AnswerMemory()
    first = address(memory.take(MIB))
    view = memory.take(MIB // 2)
    assert (address(view), len(view)) == (first, MIB // 2)


def test_what_somebody_looks_at_stays_as_it_is() -> None:
    memory = AnswerMemory()
    views = [memory.take(MIB) for _ in range(5)]
    for number, view in enumerate(views):
        view[:] = bytes((number,)) * MIB
    parts = [np.frombuffer(view[MIB // 2 :], np.uint8) for view in views]
    del views, view
    memory.take(MIB)[:] = b"\xff" * MIB
    assert [int(part[0]) for part in parts] == [0, 1, 2, 3, 4]


def test_one_that_is_still_looked_at_does_not_stop_the_others() -> None:
    memory = AnswerMemory()
    seen = set()
    held = memory.take(MIB)
    for _ in range(6):
        held = memory.take(MIB)
        seen.add(address(held))
    assert len(seen) == 2


def test_very_small_and_very_large_ones_are_not_kept() -> None:
    memory = AnswerMemory()
    for size in (0, 4, 40 * MIB):
        assert len(memory.take(size)) == size
    assert not memory._kept
