"""A batch with too many records becomes several that hold the same records."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from penstock.mapping.split import split_batch
from penstock.wire.kafka import RecordBatch, read_batches

LIMIT = 10_000_000
BYTES = st.none() | st.binary(max_size=200)
ROWS = st.lists(st.tuples(st.integers(0, 2**40), BYTES, BYTES), min_size=1, max_size=40)


def made(rows: list[tuple[int, Any, Any]], *, compression: int = 0, sequence: int = -1) -> RecordBatch:
    idempotent = sequence >= 0
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=77 if idempotent else -1,
        producer_epoch=3 if idempotent else -1,
        base_sequence=sequence,
        batch_size=LIMIT,
    )
    for number, (timestamp, key, value) in enumerate(rows):
        assert builder.append(number, timestamp, key, value, [("h", b"x")]) is not None
    [batch] = read_batches(bytes(builder.build()))
    return batch


def contents(batch: RecordBatch) -> list[tuple[int, int, Any, Any, Any]]:
    read = MemoryRecords(bytes(batch.data)).next_batch()
    assert read.validate_crc()
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in read]


@given(rows=ROWS, most=st.integers(1, 45), compression=st.sampled_from([0, 1, 3, 4]))
def test_the_parts_hold_what_the_whole_held(rows: Any, most: int, compression: int) -> None:
    whole = made(rows, compression=compression)
    parts = split_batch(whole, most=most, limit=LIMIT)
    assert [part.record_count for part in parts[:-1]] == [most] * (len(parts) - 1)
    assert 1 <= parts[-1].record_count <= most
    together = []
    for part in parts:
        part.check()
        assert part.last_offset_delta == part.record_count - 1
        together += [(len(together) + offset, *rest) for offset, *rest in contents(part)]
    # Each part begins at offset 0.
    expected = contents(whole)
    assert [row[1:] for row in together] == [row[1:] for row in expected]
    assert [contents(part)[0][0] for part in parts] == [0] * len(parts)


def test_the_sequences_go_on_and_wrap() -> None:
    batch = made([(0, None, b"v")] * 10, sequence=2**31 - 5)
    parts = split_batch(batch, most=4, limit=LIMIT)
    assert [part.base_sequence for part in parts] == [2**31 - 5, 2**31 - 1, 3]
    assert {(part.producer_id, part.producer_epoch) for part in parts} == {(77, 3)}


def test_a_batch_that_fits_is_left_alone() -> None:
    batch = made([(0, None, b"v")] * 4)
    assert split_batch(batch, most=4, limit=LIMIT) == [batch]


@pytest.mark.parametrize(
    "change",
    [
        {"crc": 1},
        {"last_offset_delta": 3},
        {"record_count": 11, "last_offset_delta": 10},
        {"record_count": 9, "last_offset_delta": 8},
    ],
    ids=["checksum", "last offset", "more records than bytes", "bytes behind the last record"],
)
def test_what_is_wrong_stays_whole_for_the_mapping_to_refuse(change: dict[str, int]) -> None:
    batch = made([(0, None, b"v")] * 10)._replace(**change)
    assert split_batch(batch, most=4, limit=LIMIT) == [batch]


def test_a_bomb_stays_whole() -> None:
    batch = made([(0, None, bytes(100_000))] * 10, compression=1)
    assert split_batch(batch, most=4, limit=10_000) == [batch]


@given(cut=st.integers(0, 200), byte=st.integers(0, 255))
def test_garbage_gives_parts_or_the_whole_and_never_a_crash(cut: int, byte: int) -> None:
    whole = made([(number, b"k", b"value") for number in range(10)])
    data = bytearray(whole.data)
    data[61 + cut % (len(data) - 61)] = byte
    [broken] = read_batches(bytes(data))
    from penstock.wire.kernels import crc32c

    broken = broken._replace(crc=crc32c(memoryview(data)[21:]))
    for part in split_batch(broken, most=4, limit=LIMIT):
        assert part.record_count <= 10
