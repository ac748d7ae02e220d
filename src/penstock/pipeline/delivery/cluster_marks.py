"""What the marks of several clusters say together: how far each is, by which program, and at what moment.

A mark tells how far a partition of the source is on one cluster, in a text that keeps more: a digest of the
program, and what `now()` was. Anybody may have written it. Nothing is asked of a cluster here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.pipeline.delivery.range_clock import read_moment
from penstock.pipeline.delivery.range_progress import read_run

__all__ = [
    "SOURCE_SINK",
    "Marks",
    "begun_member",
    "earlier_plan",
    "is_open",
    "lowest_marks",
    "moment_of",
    "offsets_by_sink",
    "plan_of",
    "same_plan",
    "steps",
]

SOURCE_SINK: Final = 0
"""The sink that is the cluster that is read."""

Marks = Mapping[int, Mapping[int, GroupOffset]]
"""By sink and partition."""


def _plan_of(text: str, member: str = "plan") -> str | None:
    """Read the digest that a mark was written with; None if it has none."""
    try:
        found: Any = json.loads(text).get(member)
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def plan_of(marks: Iterable[GroupOffset]) -> str | None:
    """Return the digest that all of some marks were written with; None if they have none, or several."""
    found = {_plan_of(mark.metadata) for mark in marks}
    return found.pop() if len(found) == 1 else None


def begun_member(digest: str) -> str:
    """Return the member of a mark that says which plan may have written to Pulsar what is behind the mark.

    A loop writes it with all of its marks but the last: a loop that comes to its end leaves nothing open.
    """
    return f',"begun":"{digest}"'


def is_open(mark: GroupOffset) -> bool:
    """Whether something behind a mark may have been written to Pulsar.

    >>> is_open(GroupOffset(9, "{" + begun_member("a")[1:] + "}")), is_open(GroupOffset(9))
    (True, False)
    """
    return _plan_of(mark.metadata, "begun") is not None


def earlier_plan(found: Marks, sinks: Collection[int], now: str | None) -> str | None:
    """Return the digest of the plan that has begun what these marks leave open; None if it is that of `now`.

    `sinks` are those that are written and have marks. Open is what lies between marks that differ, and what
    is behind marks that say so. Marks below the group's are of clusters that were not written for a while.

    >>> marks = {0: {0: GroupOffset(9, '{"begun":"a"}')}, 1: {0: GroupOffset(5, '{"begun":"b"}')}}
    >>> earlier_plan(marks, (), "a"), earlier_plan(marks, (), "c")
    (None, 'a')
    >>> earlier_plan({0: {}, 1: {0: GroupOffset(9, '{"plan":"a"}')}, 2: {0: GroupOffset(7)}}, (1, 2), "c")
    'a'
    """
    parts = {part for marks in found.values() for part in marks}
    ahead = [
        mark
        for part in parts
        for each in [offsets_by_sink(part, 0, found, sinks)]
        for sink in sinks
        if (mark := found[sink].get(part)) is not None and mark.offset > min(each.values())
    ]
    begun = {
        _plan_of(mark.metadata, "begun")
        for marks in found.values()
        for part, mark in marks.items()
        if mark.offset >= _floor(found, part, sinks)
    }
    # One run has written all of them: it begins with marks of its own everywhere.
    return min({plan_of(ahead), *begun} - {None, now}, key=str, default=None)


def same_plan(marks: Iterable[GroupOffset], digest: str | None) -> bool:
    """Whether all marks were written with this program; never if it says nothing."""
    return digest is not None and all(_plan_of(mark.metadata) == digest for mark in marks)


def moment_of(marks: Collection[GroupOffset]) -> int | None:
    """Return what `now()` stood for in what the leading one of some marks stands for; None: it does not say.

    >>> moment_of([GroupOffset(3, '{"now":1}'), GroupOffset(9, '{"now":2}')]), moment_of([])
    (2, None)
    """
    leading = max(marks, key=lambda mark: mark.offset, default=None)
    return None if leading is None else read_moment(leading.metadata)


def _floor(found: Marks, partition: int, sinks: Collection[int]) -> int:
    """Return where the group is, below which no mark counts; 0 if it is not known whose its offset is.

    Where nothing is written on the cluster that is read, the group only shows how far a loop is, and a client
    in the group, or a tool, may have moved it: then it counts if a loop has written it.
    """
    group = found[SOURCE_SINK].get(partition)
    is_shown = SOURCE_SINK not in sinks and any(partition in found[sink] for sink in sinks)
    return 0 if group is None or (is_shown and read_run(group.metadata) is None) else group.offset


def offsets_by_sink(partition: int, first: int, found: Marks, sinks: Collection[int]) -> dict[int, int]:
    """Say how far a partition is on each sink, by all marks that there are.

    A sink without a mark is new: it begins where the others are, or where the group is, else at `first`. One
    that is behind the group, which is committed last, was not written for a while, or at least once: its mark
    is old, and it begins there like a new one.

    >>> offsets_by_sink(0, 5, {0: {0: GroupOffset(9)}, 1: {0: GroupOffset(11)}, 2: {}}, [1, 2])
    {1: 11, 2: 11}
    >>> offsets_by_sink(0, 5, {0: {}, 1: {}}, [0, 1])
    {0: 5, 1: 5}
    >>> offsets_by_sink(0, 5, {0: {0: GroupOffset(9)}, 1: {0: GroupOffset(7)}}, [0, 1])
    {0: 9, 1: 9}
    >>> offsets_by_sink(0, 5, {0: {0: GroupOffset(9, '{"run":"a"}')}, 1: {0: GroupOffset(7)}}, [1])
    {1: 9}
    """
    floor = _floor(found, partition, sinks)
    known = {sink: max(found[sink][partition].offset, floor) for sink in sinks if partition in found[sink]}
    group = found[SOURCE_SINK].get(partition)
    begin = min(known.values(), default=first if group is None else group.offset)
    return {sink: known.get(sink, begin) for sink in sinks}


def steps(offsets: Mapping[int, int], end: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Cut what is left before `end` at the marks of the sinks; give each part's end, and who has it already.

    >>> [(at, sorted(skipped)) for at, skipped in steps({0: 10, 1: 20, 2: 50}, 30)]
    [(20, [1, 2]), (30, [2])]
    >>> list(steps({0: 30, 1: 30}, 30))
    []
    """
    bounds = sorted({min(offset, end) for offset in offsets.values()} | {end})
    for start, until in zip(bounds, bounds[1:], strict=False):
        yield until, frozenset(sink for sink, offset in offsets.items() if offset > start)


def lowest_marks(found: Marks, sinks: Collection[int]) -> dict[int, GroupOffset]:
    """Return the lowest mark of each partition, by those of these sinks; the group's where they have none.

    Also where they are old, see `offsets_by_sink`.

    >>> group = {0: GroupOffset(9, '{"run":"a"}'), 1: GroupOffset(9)}
    >>> found = {0: group, 1: {0: GroupOffset(7), 1: GroupOffset(7)}}
    >>> [mark.offset for part, mark in sorted(lowest_marks(found, (1,)).items())]
    [9, 7]
    """
    marks = dict(found[SOURCE_SINK])
    known = [found[sink] for sink in sinks]
    for part in {part for each in known for part in each}:
        lowest = min((each[part] for each in known if part in each), key=lambda mark: mark.offset)
        if lowest.offset >= _floor(found, part, sinks):
            marks[part] = lowest
    return marks
