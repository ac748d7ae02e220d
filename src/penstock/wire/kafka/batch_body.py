"""The records of one batch before it is framed: what a writer of records makes and a producer sends.

Who makes records knows nothing of producers; producer id, epoch and sequence (KIP-98) come when the batch
gets its place in the order of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.wire.buffer import Buffer
from penstock.wire.kafka.compression import Compression, compress
from penstock.wire.kafka.record_batch import HEAD_SIZE, TRANSACTIONAL, write_batch_head

__all__ = ["BatchBody", "framed"]

_NO_HEAD = bytes(HEAD_SIZE)


@dataclass(frozen=True, slots=True)
class BatchBody:
    """Records one behind the other, with offset deltas from 0 and timestamp deltas from `base_timestamp`."""

    records: Buffer
    count: int
    base_timestamp: int
    max_timestamp: int


def framed(
    body: BatchBody,
    *,
    compression: str = "none",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Give a whole batch of format v2, checksum included; nothing of `body` is referred to any more.

    >>> batch = framed(BatchBody(bytes.fromhex("0e00000002610000"), 1, 0, 0))
    >>> len(batch), batch[16]
    (69, 2)
    """
    codec = Compression[compression.upper()]
    records = body.records if codec is Compression.NONE else compress(codec, body.records)
    # Joined, because a bytearray of a size is filled with zeros first.
    out = bytearray().join((_NO_HEAD, records))
    write_batch_head(
        memoryview(out),
        base_offset=0,
        last_offset_delta=body.count - 1,
        base_timestamp=body.base_timestamp,
        max_timestamp=body.max_timestamp,
        record_count=body.count,
        attributes=codec | (TRANSACTIONAL if transactional else 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return out
