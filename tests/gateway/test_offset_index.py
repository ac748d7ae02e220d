"""The places a gateway remembers: near ones are found, few are kept, removed ledgers are forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.pulsar.offset_index import OffsetIndex
from penstock.wire.pulsar import MessageId


def filled(entries: int, *, records: int = 10, ledger: int = 1) -> OffsetIndex:
    index = OffsetIndex()
    for number in range(entries):
        index.note(number * records, MessageId(ledger, number))
    return index


def test_an_offset_is_found_at_its_entry_or_before_it() -> None:
    index = filled(100)
    assert index.find(0) == MessageId(1, 0)
    assert index.find(555) == MessageId(1, 55)
    assert index.find(-1) is None


def test_far_behind_the_last_point_nothing_is_known() -> None:
    assert filled(3).find(1_000_000) is None


def test_the_index_stays_small_and_keeps_its_ends() -> None:
    index = filled(100_000)
    assert len(index) <= 1024
    assert index.find(0) == MessageId(1, 0)
    assert index.find(999_999) == MessageId(1, 99_999)


def test_what_is_noted_again_is_replaced() -> None:
    index = filled(3)
    index.note(10, MessageId(2, 0))
    assert index.find(15) == MessageId(2, 0)
    assert len(index) == 3


def test_removed_ledgers_are_forgotten() -> None:
    index = filled(3)
    index.note(100, MessageId(2, 0))
    index.keep({2})
    assert index.find(20) is None
    assert index.find(100) == MessageId(2, 0)
    index.clear()
    assert len(index) == 0


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=60), st.integers(0, 20_000))
def test_in_any_order_the_nearest_at_or_before_is_found(offsets: list[int], wanted: int) -> None:
    index = OffsetIndex()
    for offset in offsets:
        index.note(offset, MessageId(1, offset))
    before = [offset for offset in offsets if wanted - 5_000 <= offset <= wanted]
    found = index.find(wanted)
    assert (None if found is None else found.entry_id) == max(before, default=None)
