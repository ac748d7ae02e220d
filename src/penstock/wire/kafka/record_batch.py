"""The record batch, format v2 (KIP-98): its head of 61 bytes, its checksum, its records as bytes.

    base offset i64, length i32, leader epoch i32, magic i8, crc u32 | attributes i16,
    last offset delta i32, base timestamp i64, max timestamp i64, producer id i64,
    producer epoch i16, base sequence i32, record count i32, records

The checksum covers what follows it, so that a broker sets base offset and leader epoch freely.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import RecordsError
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.compression import decompress
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kernels import crc32c

__all__ = ["HEAD_SIZE", "TRANSACTIONAL", "RecordBatch", "read_batch", "read_batches", "write_batch_head"]

_HEAD = struct.Struct(">qiibIhiqqqhii")
_CHECKED = struct.Struct(">hiqqqhii")
HEAD_SIZE = _HEAD.size
_LOG_OVERHEAD = 12
_CRC_AT = 17
_CHECKED_AT = 21
_MAGIC = 2
_MAGIC_AT = 16
_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
"""In the attributes: the batch is part of a transaction."""
_CONTROL = 0x20


class RecordBatch(NamedTuple):
    """One batch; `data` is all of it, the head included."""

    data: memoryview
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """Give the number of the compression."""
        return self.attributes & _COMPRESSION

    @property
    def is_log_append_time(self) -> bool:
        """Say whether max_timestamp is the time of all records, set by a broker."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Say whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Say whether the batch holds a marker of a transaction instead of records."""
        return bool(self.attributes & _CONTROL)

    def kept(self) -> RecordBatch:
        """Copy the bytes, which may be a view that dies."""
        return self._replace(data=memoryview(bytes(self.data)))

    def check(self) -> None:
        """Compare the checksum; raise RecordsError if it differs."""
        actual = crc32c(self.data[_CHECKED_AT:])
        if actual != self.crc:
            raise RecordsError(
                f"the checksum of a record batch is {actual:08x} and not {self.crc:08x}",
                error_code=ErrorCode.CORRUPT_MESSAGE,
            )

    def records(self, limit: int) -> memoryview:
        """Give the records as bytes, inflated to at most `limit`."""
        return decompress(self.compression, self.data[HEAD_SIZE:], limit)


def read_batches(records: Buffer) -> Iterator[RecordBatch]:
    """Cut the records of a Produce request or a log into batches; checksums are not looked at.

    Raises RecordsError on an older format and on a length that cannot be.
    """
    view = memoryview(records)
    while view:
        batch = read_batch(view)
        yield batch
        view = view[len(batch.data) :]


def read_batch(view: memoryview) -> RecordBatch:
    """Read the first batch of some records, as `read_batches` does."""
    # The older formats, of Kafka before 0.11, have their magic at the same place and are shorter.
    if len(view) > _MAGIC_AT and view[_MAGIC_AT] != _MAGIC:
        raise _refused(f"has format {view[_MAGIC_AT]}, and only format 2 is taken", ErrorCode.INVALID_RECORD)
    if len(view) < HEAD_SIZE:
        raise _refused(f"of {len(view)} bytes is shorter than its head", ErrorCode.CORRUPT_MESSAGE)
    fields = _HEAD.unpack_from(view)
    size = _LOG_OVERHEAD + fields[1]
    if not HEAD_SIZE <= size <= len(view):
        raise _refused(f"says it has {size} bytes of the {len(view)} that came", ErrorCode.CORRUPT_MESSAGE)
    return RecordBatch(view[:size], *fields)


def _refused(what: str, error_code: ErrorCode) -> RecordsError:
    return RecordsError(f"a record batch {what}", error_code=error_code)


def write_batch_head(
    out: memoryview,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    partition_leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> None:
    """Write the head in front of the records that are already at out[HEAD_SIZE:], checksum included."""
    _CHECKED.pack_into(
        out,
        _CHECKED_AT,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    length = len(out) - _LOG_OVERHEAD
    struct.pack_into(">qiib", out, 0, base_offset, length, partition_leader_epoch, _MAGIC)
    struct.pack_into(">I", out, _CRC_AT, crc32c(out[_CHECKED_AT:]))
