"""Ranges of offsets: how much of a topic one batch takes, and which task works on which part of it.

Nothing here knows Spark or a socket, and nothing imports a kernel: the planner on the driver uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.brokers.kafka_offsets import Offsets

__all__ = [
    "ENOUGH",
    "REFERENCE_COST",
    "Share",
    "OffsetRange",
    "limited",
    "cut",
    "assigned",
    "offset_ranges_of",
    "task_count",
    "within_bytes",
]

ENOUGH: Final = 50_000
"""Offsets for which a task of its own pays: Spark spends as much CPU on one task as routing them takes."""

_ALONE: Final = 5 * ENOUGH
"""Offsets of a range that has a task of its own even where slots are rare."""

_PER_RANGE: Final = 5_000
"""Offsets that cost as much as the transaction of a range."""

REFERENCE_COST: Final = 25
"""What a record costs that the reference decides, at least, in records of the kernel; functions cost more."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, but not including, `end`."""

    partition: int
    start: int
    end: int
    is_cut: bool = False
    """Whether other tasks do other parts of the same partition at the same time."""

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Share:
    """What one task of a batch does."""

    spans: Sequence[OffsetRange]
    now: int | None = None
    """What `now()` stands for, in microseconds; None: it is not fixed for the batch."""
    packed: bytes | None = None
    """The work that began the batch, if that is not the one of the query: it finishes the batch."""


def limited(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    """Choose where a batch ends: at the end of the topic, or where `limit` offsets are shared out fairly.

    Every partition that has something gets its part of the limit, and at least one offset.

    >>> limited({0: 0, 1: 0}, {0: 300, 1: 100}, 40)
    {0: 30, 1: 10}
    >>> limited({0: 0}, {0: 300, 1: 1}, None)
    {0: 300, 1: 1}
    """
    # A topic that ends before the start has lost its end: who reads the batch tells, not who plans it.
    ends = {part: max(last, start.get(part, 0)) for part, last in latest.items()}
    waiting = {part: end - start.get(part, 0) for part, end in ends.items()}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {**start, **ends}
    shares = {part: min(many, max(1, many * limit // total)) for part, many in waiting.items()}
    return {**start, **{part: start.get(part, 0) + share for part, share in shares.items()}}


def within_bytes(start: Offsets, end: Offsets, sizes: Mapping[int, float], limit: int) -> Offsets:
    """Shorten a batch to about `limit` bytes, by the bytes of an offset of each partition as far as known.

    Every partition keeps its part, and at least one offset. Partitions of unknown size count as the others.

    >>> within_bytes({0: 0, 1: 0}, {0: 300, 1: 100}, {0: 10.0}, 2000)
    {0: 150, 1: 50}
    """
    if not sizes:
        return end
    usual = sum(sizes.values()) / len(sizes)
    spans = offset_ranges_of(start, end)
    total = sum(len(span) * sizes.get(span.partition, usual) for span in spans)
    if total <= limit:
        return end
    kept = {span.partition: max(1, int(len(span) * limit / total)) for span in spans}
    return {**end, **{part: start.get(part, 0) + many for part, many in kept.items()}}


def offset_ranges_of(start: Offsets, end: Offsets) -> tuple[OffsetRange, ...]:
    """Give what lies between two positions, one range a partition; empty ones are left out.

    >>> offset_ranges_of({0: 5}, {0: 5, 1: 2})
    (OffsetRange(partition=1, start=0, end=2, is_cut=False),)
    """
    found = (OffsetRange(part, start.get(part, 0), last) for part, last in sorted(end.items()))
    return tuple(span for span in found if span.end > span.start)


def task_count(spans: Sequence[OffsetRange], slots: int, most: int | None = None, *, cost: int = 1) -> int:
    """Choose into how many tasks a batch is divided, for so many `slots` and `most` tasks.

    `cost` is what a record costs, in records of the kernel, for which the other numbers are.

    As many as there are slots, but none with less than `ENOUGH` to do. A range that is several times as long
    is a task of its own also where slots are rare: Spark gives it to whichever executor is free by then, and
    be it one that has just come.

    >>> few = [OffsetRange(part, 0, 10) for part in range(12)]
    >>> many = [OffsetRange(part, 0, 60_000) for part in range(12)]
    >>> task_count(few, 4), task_count(many, 4), task_count(many, 40), task_count(many, 40, most=3)
    (2, 4, 12, 3)
    >>> some = [OffsetRange(part, 0, 1000) for part in range(4)]
    >>> task_count(some, 4), task_count(some, 4, cost=REFERENCE_COST)
    (1, 3)
    """
    weight = sum(len(span) * cost + _PER_RANGE for span in spans)
    long = sum(len(span) * cost >= _ALONE for span in spans)
    wanted = max(min(slots, -(-weight // ENOUGH)), long, 1)
    return min(wanted, max(1, len(spans)), most or wanted)


def cut(spans: Sequence[OffsetRange], slots: int) -> tuple[OffsetRange, ...]:
    """Cut ranges that are longer than the part of one slot, so that all slots have about as much to do.

    No part has less than `ENOUGH`. The parts of a partition are done side by side: its order is gone.

    >>> cut([OffsetRange(0, 0, 10), OffsetRange(1, 0, 150_000)], 2)
    (OffsetRange(partition=0, start=0, end=10, is_cut=False), \
OffsetRange(partition=1, start=0, end=75000, is_cut=True), \
OffsetRange(partition=1, start=75000, end=150000, is_cut=True))
    >>> len(cut([OffsetRange(0, 0, 1_000_000)], 100)), len(cut([OffsetRange(0, 0, 1_000_000)], 1))
    (20, 1)
    """
    most = max(ENOUGH, -(-sum(map(len, spans)) // max(1, slots)))
    counts = (min(round(len(span) / most), len(span) // ENOUGH) for span in spans)
    return tuple(part for span, count in zip(spans, counts, strict=True) for part in _parts(span, count))


def _parts(span: OffsetRange, count: int) -> Iterator[OffsetRange]:
    if count < 2:
        yield span
        return
    bounds = [span.start + len(span) * number // count for number in range(count + 1)]
    for start, end in pairwise(bounds):
        yield OffsetRange(span.partition, start, end, is_cut=True)


def assigned(spans: Iterable[OffsetRange], groups: int) -> list[Sequence[OffsetRange]]:
    """Divide ranges among so many tasks, the longest first, each to the one that has the least.

    A range is never divided here: its order, its transaction and its mark belong to one task.

    >>> three = [OffsetRange(0, 0, 5), OffsetRange(1, 0, 9), OffsetRange(2, 0, 3)]
    >>> [[len(span) for span in group] for group in assigned(three, 2)]
    [[9], [5, 3]]
    """
    parts: list[list[OffsetRange]] = [[] for _ in range(groups)]
    for span in sorted(spans, key=len, reverse=True):
        min(parts, key=lambda part: sum(len(each) + _PER_RANGE for each in part)).append(span)
    return [part for part in parts if part]
