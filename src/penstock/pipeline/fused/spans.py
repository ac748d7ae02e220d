"""Ranges of offsets: how much of a topic one batch takes, and who works on which part of it.

Nothing here knows Spark or a socket, and nothing imports a kernel: the planner on the driver uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.brokers.kafka_offsets import Offsets

__all__ = ["Span", "admitted", "grouped", "spans_of"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The offsets of one partition from `start` up to, but not including, `end`."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def admitted(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    """Choose where a batch ends: at the end of the topic, or where `limit` offsets are shared out fairly.

    Every partition that has something gets its part of the limit, and at least one offset.

    >>> admitted({0: 0, 1: 0}, {0: 300, 1: 100}, 40)
    {0: 30, 1: 10}
    >>> admitted({0: 0}, {0: 300, 1: 1}, None)
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


def spans_of(start: Offsets, end: Offsets) -> tuple[Span, ...]:
    """Give what lies between two positions, one range a partition; empty ones are left out.

    >>> spans_of({0: 5}, {0: 5, 1: 2})
    (Span(partition=1, start=0, end=2),)
    """
    found = (Span(part, start.get(part, 0), last) for part, last in sorted(end.items()))
    return tuple(span for span in found if span.end > span.start)


def grouped(spans: Iterable[Span], groups: int) -> list[Sequence[Span]]:
    """Share ranges out to so many workers, the longest first, each to whom has the least.

    A range is never split: its order, its transaction and its mark belong to one worker.

    >>> [[len(span) for span in group] for group in grouped([Span(0, 0, 5), Span(1, 0, 9), Span(2, 0, 3)], 2)]
    [[9], [5, 3]]
    """
    parts: list[list[Span]] = [[] for _ in range(groups)]
    for span in sorted(spans, key=len, reverse=True):
        min(parts, key=lambda part: sum(map(len, part))).append(span)
    return [part for part in parts if part]
