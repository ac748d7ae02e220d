"""The memory of all readers: shares shrink with their number, and the least used one makes room."""

from __future__ import annotations

from penstock.gateway.pulsar.read_ahead import ReadAhead

MIB = 1024 * 1024


class Reader:
    """Remembers its limit."""

    def __init__(self, used: float = 0.0, held: int = 0) -> None:
        self.used = used
        self.held_bytes = held
        self.most = 0

    def limit(self, size: int) -> None:
        self.most = size


def test_few_readers_have_a_full_share_and_many_divide_the_budget() -> None:
    budget = ReadAhead(limit=16 * MIB)
    readers = [Reader() for _ in range(4)]
    for reader in readers:
        budget.add(reader, lambda: None)
    assert [reader.most for reader in readers] == [4 * MIB] * 4
    budget.remove(readers[0])
    budget.remove(readers[1])
    assert [reader.most for reader in readers[2:]] == [8 * MIB] * 2


def test_one_reader_too_many_closes_the_one_least_used() -> None:
    budget = ReadAhead(limit=MIB)
    closed: list[float] = []
    for number in (5.0, 2.0, 3.0, 4.0, 9.0):
        budget.add(Reader(number), lambda number=number: closed.append(number))  # type: ignore[misc]
    assert closed == [2.0]
    assert budget.share == MIB // 4


def test_how_much_is_used_is_told() -> None:
    budget = ReadAhead(limit=MIB)
    budget.add(Reader(held=MIB // 2), lambda: None)
    assert budget.used == 0.5


def test_a_new_reader_closes_those_that_hold_more_than_the_budget() -> None:
    budget = ReadAhead(limit=16 * MIB)
    closed: list[float] = []
    for number in (3.0, 1.0, 2.0):
        reader = Reader(number, held=8 * MIB)
        budget.add(reader, lambda number=number: closed.append(number))  # type: ignore[misc]
    assert closed == [1.0]
    assert budget.used == 1.0
    budget.add(Reader(held=MIB // 2), lambda: None)
    assert closed == [1.0, 2.0]
    assert budget.used < 1.0


def test_a_reader_alone_is_never_closed() -> None:
    budget = ReadAhead(limit=MIB)
    budget.add(Reader(held=8 * MIB), lambda: 1 / 0)
    assert budget.used == 8.0
