"""What of fetched bytes is whole, and what of it may be seen."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.kafka_raw.fetched import wanted_size, whole_batches
from penstock.brokers.kafka_raw.visible import visible
from penstock.errors import WireError
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.record_batch import HEAD_SIZE, read_batches

COMMIT, ABORT = 1, 0
CONTROL = 0x20


def batch(offset: int, producer: int = -1, count: int = 2) -> bytes:
    """A batch of empty records, inside a transaction if a producer is named."""
    body = BatchBody(bytes(7 * count), count, 0, 0)
    data = framed(body, producer_id=producer, epoch=0, sequence=0, transactional=producer >= 0)
    data[:8] = struct.pack(">q", offset)
    return bytes(data)


def marker(offset: int, producer: int, kind: int) -> bytes:
    # Length 10, attributes, two deltas, a key of 4 bytes: version and type.
    record = bytes((20, 0, 0, 0, 8)) + struct.pack(">hh", 0, kind) + bytes(2)
    data = framed(BatchBody(record, 1, 0, 0), producer_id=producer, epoch=0, sequence=0, transactional=True)
    data[:8] = struct.pack(">q", offset)
    data[22] |= CONTROL
    return bytes(data)


def offsets(data: bytes, *aborted: tuple[int, int]) -> list[list[int]]:
    """The base offsets of each slice that is visible."""
    return [[each.base_offset for each in read_batches(part)] for part in visible(memoryview(data), aborted)]


def test_everything_is_one_slice_without_transactions() -> None:
    assert offsets(batch(0) + batch(2) + batch(4)) == [[0, 2, 4]]
    assert offsets(b"") == []


def test_markers_are_never_seen() -> None:
    assert offsets(batch(0, 7) + marker(2, 7, COMMIT) + batch(3)) == [[0], [3]]


def test_aborted_batches_are_left_out_up_to_their_marker() -> None:
    data = batch(0, 7) + batch(2, 8) + batch(4, 7) + marker(6, 7, ABORT) + batch(7, 7) + marker(9, 7, COMMIT)
    assert offsets(data, (7, 0)) == [[2], [7]]


def test_one_producer_aborts_twice() -> None:
    data = batch(0, 7) + marker(2, 7, ABORT) + batch(3, 7) + marker(5, 7, ABORT) + batch(6, 7)
    assert offsets(data, (7, 3), (7, 0)) == [[6]]


def test_a_commit_marker_of_another_does_not_end_an_aborted_one() -> None:
    assert offsets(batch(0, 7) + marker(2, 8, COMMIT) + batch(3, 7), (7, 0)) == []


def test_a_transaction_that_began_before_these_batches() -> None:
    assert offsets(batch(10, 7) + marker(12, 7, ABORT) + batch(13), (7, 2)) == [[13]]


def test_a_batch_outside_of_transactions_is_seen_though_its_producer_aborts() -> None:
    outside = bytearray(batch(2, 7))
    outside[22] &= ~0x10
    assert offsets(batch(0, 7) + bytes(outside), (7, 0)) == [[2]]


def test_a_control_batch_without_a_marker_is_refused() -> None:
    data = bytearray(marker(0, 7, ABORT)[: HEAD_SIZE + 3])
    data[8:12] = struct.pack(">i", len(data) - 12)
    with pytest.raises(WireError, match="marker"):
        offsets(bytes(data), (7, 0))


# Whole batches


def test_a_batch_that_was_cut_is_left_for_the_next_time() -> None:
    data = batch(5) + batch(7)
    whole, behind = whole_batches(memoryview(data)[:-1], 5)
    assert (bytes(whole), behind) == (batch(5), 7)
    nothing, behind = whole_batches(memoryview(data)[:40], 5)
    assert (len(nothing), behind) == (0, 5)
    assert wanted_size(memoryview(data)[:40]) == len(batch(5))
    assert wanted_size(memoryview(data)[:4]) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__(slice(8, 12), struct.pack(">i", -12)),
        lambda data: data.__setitem__(slice(8, 12), struct.pack(">i", 20)),
        lambda data: data.__setitem__(slice(23, 27), struct.pack(">i", -1)),
        lambda data: data.__setitem__(slice(0, 8), struct.pack(">q", 2)),
    ],
    ids=["no length", "short", "no records", "an offset that was read already"],
)
def test_batches_that_would_keep_a_reader_in_place_are_refused(change: Callable[[bytearray], None]) -> None:
    data = bytearray(batch(5))
    change(data)
    with pytest.raises(WireError):
        whole_batches(memoryview(data), 5)


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_give_a_part_of_them_or_a_typed_error(data: bytes, position: int) -> None:
    try:
        whole, behind = whole_batches(memoryview(data), position)
    except WireError:
        return
    assert len(whole) <= len(data)
    assert behind > position if whole else behind == position
