"""The rule of offsets: counted while entry ids follow each other, learnt otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.wire.pulsar import MessageId


def test_nothing_is_counted_before_something_is_known() -> None:
    assert OffsetCounter().count(MessageId(1, 0), 1) is None


def test_a_new_ledger_is_learnt_even_when_it_begins_at_0() -> None:
    counter = OffsetCounter()
    counter.learn(MessageId(1, 9), 1, last_index=9)
    assert counter.count(MessageId(2, 0), 1) is None
    assert counter.learn(MessageId(2, 0), 2, last_index=11) == 10
    assert counter.count(MessageId(2, 1), 1) == 12


def test_an_older_entry_that_is_learnt_late_does_not_move_the_end_back() -> None:
    counter = OffsetCounter()
    counter.learn(MessageId(1, 5), 1, last_index=50)
    assert counter.learn(MessageId(1, 3), 4, last_index=30) == 27
    assert counter.next_offset == 51
    assert counter.count(MessageId(1, 6), 1) == 51


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.booleans()), max_size=60))
def test_counted_and_learnt_offsets_are_those_of_the_broker(entries: list[tuple[bool, int, bool]]) -> None:
    """Each entry is ours or foreign, has messages, and may begin a new ledger."""
    counter, ledger, entry, following = OffsetCounter(), 1, 0, 0
    for ours, messages, rolled in entries:
        if rolled:
            ledger, entry = ledger + 1, 0
        place, first = MessageId(ledger, entry), following
        entry, following = entry + 1, following + messages
        if ours:
            offset = counter.count(place, messages)
            if offset is None:
                offset = counter.learn(place, messages, last_index=following - 1)
            assert offset == first
            assert counter.next_offset == following
