"""Record batches against aiokafka's and kio's code for the same format."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordsError
from penstock.pipeline.evaluators.kernel.record_body import bodies_of
from penstock.wire.kafka import Compression, ErrorCode, RecordBatch, read_batches, write_batch_head
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.kernels import crc32c

rows = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=10),
        st.none() | st.binary(max_size=50),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)
Rows = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def kio_reader() -> Any:
    """Give kio's reader of batches with our CRC-32C: the package that it takes it from is not in the lock."""
    with patch.dict(sys.modules, {"crc32c": SimpleNamespace(crc32c=crc32c)}):
        from kio.records.readers import read_batch
    return read_batch


read_batch = kio_reader()


def built(given_rows: Rows, compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 1, 1234, 5, 42, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(given_rows):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


@given(rows)
def test_a_head_says_what_aiokafka_put_there(given_rows: Rows) -> None:
    data = built(given_rows)
    [batch] = read_batches(data)
    batch.check()
    assert (batch.record_count, batch.last_offset_delta) == (len(given_rows), len(given_rows) - 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1234, 5, 42)
    assert (batch.base_timestamp, batch.max_timestamp) == (
        given_rows[0][0],
        max(row[0] for row in given_rows),
    )
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.is_log_append_time
    assert bytes(batch.records(1 << 20)) == data[HEAD_SIZE:]


@given(rows, st.integers(0, 1 << 60), st.integers(0, 1 << 30))
def test_a_head_that_we_write_is_read_by_aiokafka_and_kio(given_rows: Rows, offset: int, epoch: int) -> None:
    source = built(given_rows)
    data = bytearray(HEAD_SIZE) + source[HEAD_SIZE:]
    write_batch_head(
        memoryview(data),
        base_offset=offset,
        last_offset_delta=len(given_rows) - 1,
        base_timestamp=given_rows[0][0],
        max_timestamp=max(row[0] for row in given_rows),
        record_count=len(given_rows),
        partition_leader_epoch=epoch,
        attributes=0x10,
        producer_id=1234,
        producer_epoch=5,
        base_sequence=42,
    )
    # Only base offset and leader epoch differ, which the checksum does not cover.
    assert data[16:] == source[16:]
    theirs = DefaultRecordBatch(bytes(data))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == [
        (offset + i, *row) for i, row in enumerate(given_rows)
    ]
    batch, size = read_batch(bytes(data), 0)
    assert size == len(data)
    assert (batch.base_offset, batch.partition_leader_epoch) == (offset, epoch)
    assert [(r.key, r.value) for r in batch.records] == [(row[1], row[2]) for row in given_rows]


@pytest.mark.parametrize("compression", list(Compression))
def test_what_aiokafka_compresses_is_inflated(compression: Compression) -> None:
    row = (5, b"key", b"value" * 100, [("h", b"v")])
    plain = built([row] * 10)
    [batch] = read_batches(built([row] * 10, compression))
    batch.check()
    assert batch.compression == compression
    assert bytes(batch.records(1 << 20)) == plain[HEAD_SIZE:]


def test_batches_are_cut_one_after_the_other() -> None:
    one, two = built([(1, None, b"a", [])]), built([(2, None, b"bb", [])])
    assert [bytes(batch.data) for batch in read_batches(one + two)] == [one, two]
    assert list(read_batches(b"")) == []


def first(data: bytes) -> RecordBatch:
    return next(iter(read_batches(data)))


GOOD = built([(1, None, b"a", [])])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:5], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:8] + b"\0\0\0\x05" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.INVALID_RECORD),
        (GOOD[:16] + b"\0", ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_no_batch_is_refused_with_its_code(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(RecordsError) as caught:
        first(data)
    assert caught.value.error_code == code


def test_every_flipped_bit_behind_the_checksum_is_seen() -> None:
    for i in range(17, len(GOOD)):
        with pytest.raises(RecordsError) as caught:
            first(GOOD[:i] + bytes((GOOD[i] ^ 1,)) + GOOD[i + 1 :]).check()
        assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=120))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    try:
        assert sum(len(batch.data) for batch in read_batches(data)) == len(data)
    except RecordsError as error:
        assert error.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def empty_batch(last_offset_delta: int) -> bytes:
    """Write what compaction leaves of a batch whose records are gone: its producer is remembered."""
    out = bytearray(HEAD_SIZE)
    write_batch_head(
        memoryview(out),
        base_offset=7,
        last_offset_delta=last_offset_delta,
        base_timestamp=-1,
        max_timestamp=1000,
        record_count=0,
        attributes=0,
        producer_id=42,
        producer_epoch=1,
        base_sequence=3,
    )
    return bytes(out)


def test_a_batch_without_records_is_a_batch() -> None:
    first, second = read_batches(empty_batch(4) + built([(0, b"k", b"v", [])]))
    first.check()
    assert (len(first.data), first.record_count, first.base_offset, first.last_offset_delta) == (61, 0, 7, 4)
    assert bytes(first.records(1 << 20)) == b""
    assert second.record_count == 1


def test_a_batch_without_records_has_a_body_without_records() -> None:
    (body,) = bodies_of(empty_batch(4), 0, 1 << 40, None, 1 << 20)
    assert (body.count, len(body.records), len(body.starts())) == (0, 0, 0)
