"""Packed offsets: golden values of the two historical layouts and of ours, and what does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.gateway.pulsar.packed import OLD_KOP, PENSTOCK, WRAPPER, Layout
from penstock.wire.pulsar import MessageId

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("layout", "place", "offset"),
    [
        (WRAPPER, (0, 0, -1), 0),
        (WRAPPER, (1, 0, -1), 1 << 28),
        (WRAPPER, (12345, 678, -1), 3313835704998),
        (WRAPPER, (2**35 - 1, 2**28 - 1, -1), LARGEST),
        (OLD_KOP, (0, 1, 0), 4096),
        (OLD_KOP, (1, 0, 0), 1 << 44),
        (OLD_KOP, (123, 45, 6), 2163838883647494),
        (OLD_KOP, (2**19 - 1, 2**32 - 1, 4095), LARGEST),
        (PENSTOCK, (1, 0, 0), 1 << 29),
        (PENSTOCK, (5, 3, 7), 2684366855),
        (PENSTOCK, (2**34 - 1, 2**17 - 1, 4095), LARGEST),
    ],
)
def test_golden_values(layout: Layout, place: tuple[int, int, int], offset: int) -> None:
    assert layout.pack(MessageId(*place)) == offset
    assert layout.unpack(offset)[:3] == place


@pytest.mark.parametrize(
    ("layout", "place"),
    [
        (WRAPPER, (2**35, 0, -1)),
        (WRAPPER, (0, 2**28, -1)),
        (OLD_KOP, (2**19, 0, 0)),
        (PENSTOCK, (2**34, 0, 0)),
        (PENSTOCK, (0, 2**17, 0)),
        (PENSTOCK, (0, 0, 4096)),
        (PENSTOCK, (-1, -1, -1)),
    ],
)
def test_what_does_not_fit_is_refused(layout: Layout, place: tuple[int, int, int]) -> None:
    with pytest.raises(ApiError, match="does not fit"):
        layout.pack(MessageId(*place))


def test_a_negative_offset_is_none() -> None:
    with pytest.raises(ApiError):
        PENSTOCK.unpack(-1)


places = st.tuples(st.integers(0, 2**34 - 1), st.integers(0, 2**17 - 1), st.integers(0, 4095))


@given(places, places)
def test_offsets_grow_with_places(first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
    packed = [PENSTOCK.pack(MessageId(*place)) for place in (first, second)]
    assert (first < second) == (packed[0] < packed[1])
    assert [PENSTOCK.unpack(offset)[:3] for offset in packed] == [first, second]


def test_how_many_records_a_batch_may_have() -> None:
    assert (PENSTOCK.largest_batch, WRAPPER.largest_batch) == (4096, 1)
