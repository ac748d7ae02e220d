"""Answers go out in the order of the requests, whichever is ready first."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.gateway.connection import Connection


def frames(count: int) -> bytes:
    one = [struct.pack(">hhih", 18, 0, number, -1) for number in range(count)]
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in one)


@given(st.permutations(range(12)), st.integers(1, 40))
def test_the_order_of_answers_is_that_of_requests(order: Sequence[int], piece: int) -> None:
    connection = Connection(max_request_bytes=100)
    data, slots = frames(12), []
    for begin in range(0, len(data), piece):
        connection.input.receive(data[begin : begin + piece])
        slots += list(connection.requests())
    assert [slot.header.correlation_id for slot in slots] == list(range(12))
    assert connection.bytes_under_way == 12 * 10
    out: list[object] = []
    for number in order:
        assert connection.is_first(slots[number]) == (number == len(out))
        out += connection.answer(slots[number], [b"%d" % number])
    assert out == [b"%d" % number for number in range(12)]
    assert (len(connection), connection.bytes_under_way) == (0, 0)


def test_a_request_without_an_answer_holds_nothing_up() -> None:
    connection = Connection(max_request_bytes=100)
    connection.input.receive(frames(2))
    first, second = connection.requests()
    assert connection.answer(second, [b"2"]) == []
    assert connection.answer(first, ()) == [b"2"]


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    connection = Connection(max_request_bytes=100)
    connection.input.receive(struct.pack(">i", size))
    with pytest.raises(WireError):
        list(connection.requests())


def test_a_frame_too_short_for_a_header_is_refused() -> None:
    connection = Connection(max_request_bytes=100)
    connection.input.receive(struct.pack(">i", 3) + b"abc")
    with pytest.raises(WireError):
        list(connection.requests())
