"""What a reader of committed records may see of fetched batches (KIP-98, Data Flow 5)."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.brokers.kafka_raw.fetch_call import Aborted
from penstock.errors import WireError
from penstock.wire.kafka.record_batch import HEAD_SIZE, RecordBatch, read_batches

__all__ = ["ABORT", "COMMIT", "marker_type", "visible"]

ABORT, COMMIT = 0, 1
"""Types of the markers that end transactions."""


def visible(data: memoryview, aborted: Aborted) -> Iterator[memoryview]:
    """Give the batches to be read, as few slices as possible; markers and aborted batches are left out.

    `aborted` is what the broker said with these batches: none if the reader wants to see all records.
    """
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    open_ids: set[int] = set()
    begin = pos = 0
    for batch in read_batches(data):
        if _is_hidden(batch, waiting, open_ids):
            if pos > begin:
                yield data[begin:pos]
            begin = pos + len(batch.data)
        pos += len(batch.data)
    if pos > begin:
        yield data[begin:pos]


def _is_hidden(batch: RecordBatch, waiting: list[tuple[int, int]], open_ids: set[int]) -> bool:
    last = batch.base_offset + batch.last_offset_delta
    while waiting and waiting[-1][1] <= last:
        open_ids.add(waiting.pop()[0])
    if batch.is_control:
        # The marker ends the transaction: the same producer may commit the next one.
        if batch.producer_id in open_ids and marker_type(batch) == ABORT:
            open_ids.discard(batch.producer_id)
        return True
    return batch.is_transactional and batch.producer_id in open_ids


def marker_type(batch: RecordBatch) -> int:
    """Read the type of a control record, which is the second number of its key: version i16, type i16."""
    view, pos = batch.data, HEAD_SIZE
    # Length, attributes (one byte), timestamp delta, offset delta, length of the key.
    pos = _behind_varint(view, pos) + 1
    for _ in range(3):
        pos = _behind_varint(view, pos)
    if pos + 4 > len(view):
        raise _broken()
    return int.from_bytes(view[pos + 2 : pos + 4], "big")


def _behind_varint(view: memoryview, pos: int) -> int:
    while pos < len(view) and view[pos] & 0x80:
        pos += 1
    if pos >= len(view):
        raise _broken()
    return pos + 1


def _broken() -> WireError:
    return WireError("a control batch of the broker holds no marker of a transaction")
