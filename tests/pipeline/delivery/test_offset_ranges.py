"""How a topic is cut into batches and ranges, and where a range goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.delivery.offset_ranges import (
    ENOUGH,
    OffsetRange,
    assigned,
    cut,
    limited,
    offset_ranges_of,
    task_count,
    within_bytes,
)
from penstock.pipeline.delivery.range_progress import RangeProgress, read_mark

RANGE = 5_000
"""What a range weighs beside its offsets."""
OFFSETS = st.dictionaries(st.integers(0, 7), st.integers(0, 10_000), max_size=8)


@given(start=OFFSETS, latest=OFFSETS, limit=st.none() | st.integers(1, 20_000))
def test_a_batch_stays_within_the_topic_and_its_limit(
    start: dict[int, int], latest: dict[int, int], limit: int | None
) -> None:
    end = limited(start, latest, limit)
    spans = offset_ranges_of(start, end)
    assert all(start.get(part, 0) <= offset for part, offset in end.items())
    assert all(span.end <= latest[span.partition] for span in spans)
    waiting = sum(max(0, last - start.get(part, 0)) for part, last in latest.items())
    taken = sum(map(len, spans))
    # Every partition that has something moves, so a small limit may be exceeded by one record of each.
    assert min(waiting, 1) <= taken <= (waiting if limit is None else max(limit, len(latest)))
    assert limit is None or taken >= min(waiting, limit) - len(latest)


@given(sizes=st.lists(st.integers(1, 1000), max_size=12), groups=st.integers(1, 5))
def test_ranges_are_shared_out_whole_and_evenly(sizes: list[int], groups: int) -> None:
    spans = [OffsetRange(number, 0, size) for number, size in enumerate(sizes)]
    shares = assigned(spans, groups)
    assert sorted(span for share in shares for span in share) == sorted(spans)
    loads = [sum(len(span) + RANGE for span in share) for share in shares]
    assert len(shares) == min(groups, len(sizes))
    assert not loads or max(loads) - min(loads) <= max(sizes) + RANGE


@given(
    sizes=st.lists(st.integers(1, 2_000_000), min_size=1, max_size=12),
    start=OFFSETS,
    slots=st.integers(1, 64),
)
def test_parts_of_ranges_are_worth_a_task_and_leave_nothing_out(
    sizes: list[int], start: dict[int, int], slots: int
) -> None:
    spans = [
        OffsetRange(part, start.get(part, 0), start.get(part, 0) + size) for part, size in enumerate(sizes)
    ]
    parts = cut(spans, slots)
    for span in spans:
        own = [part for part in parts if part.partition == span.partition]
        assert [own[0].start, *(part.end for part in own)] == [*(part.start for part in own), span.end]
        assert own == [span] or all(part.is_cut and len(part) >= ENOUGH for part in own)
    # No part is much longer than what a slot has to do, so that no slot waits for it.
    fair = max(ENOUGH, sum(sizes) / slots)
    assert max(map(len, parts)) <= 2 * fair


@given(
    sizes=st.lists(st.integers(1, 2_000_000), min_size=1, max_size=40),
    slots=st.integers(1, 64),
    most=st.none() | st.integers(1, 50),
)
def test_a_task_is_worth_its_cost_and_long_ranges_have_one_each(
    sizes: list[int], slots: int, most: int | None
) -> None:
    spans = [OffsetRange(number, 0, size) for number, size in enumerate(sizes)]
    count = task_count(spans, slots, most)
    long = sum(size >= 5 * ENOUGH for size in sizes)
    assert 1 <= count <= min(len(sizes), most or len(sizes))
    assert count <= max(slots, long)
    assert count >= min(long, most or long)
    assert count <= max(1, long, -(-(sum(sizes) + RANGE * len(sizes)) // ENOUGH))


@given(
    start=OFFSETS,
    grown=OFFSETS,
    sizes=st.dictionaries(st.integers(0, 7), st.floats(1.0, 1e6)),
    limit=st.integers(1, 10**9),
)
def test_a_batch_is_shortened_to_its_bytes_and_moves_every_partition(
    start: dict[int, int], grown: dict[int, int], sizes: dict[int, float], limit: int
) -> None:
    end = {**start, **{part: start.get(part, 0) + many for part, many in grown.items()}}
    found = within_bytes(start, end, sizes, limit)
    before, after = offset_ranges_of(start, end), offset_ranges_of(start, found)
    assert [span.partition for span in before] == [span.partition for span in after]
    assert all(one.end >= other.end for one, other in zip(before, after, strict=True))
    usual = sum(sizes.values()) / max(1, len(sizes))
    assert sum((len(span) - 1) * sizes.get(span.partition, usual) for span in after) <= limit * 1.001


def test_a_mark_goes_on_where_it_was_and_keeps_its_counts() -> None:
    mark = RangeProgress(5, 5).advanced(9, {"n_in": 4, "n_out": 0}).advanced(12, {"n_in": 3, "n_dead": 1})
    assert read_mark(5, mark.offset, mark.text) == RangeProgress(5, 12, {"n_in": 7, "n_dead": 1})


def test_a_mark_of_another_range_or_of_somebody_else_counts_nothing() -> None:
    mark = RangeProgress(5, 12, {"n_in": 7})
    assert read_mark(8, mark.offset, mark.text) == RangeProgress(8, 12)
    for text in ("", "null", "[]", "{", '{"start":8}', '{"start":8,"counts":[1]}', "[" * 100_000):
        assert read_mark(8, 12, text) == RangeProgress(8, 12)
