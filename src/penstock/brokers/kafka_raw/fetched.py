"""What came of one partition: whole record batches as bytes, and where they end."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.brokers.kafka_raw.fetch_call import Aborted
from penstock.errors import WireError

__all__ = ["Fetched", "wanted_size", "whole_batches"]

_BATCH = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23
_HEAD_SIZE = 61


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches from `first`, which may lie within the first of them, up to `next_offset`; they stay valid."""

    topic: str
    partition: int
    first: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    data: memoryview
    aborted: Aborted


def whole_batches(records: memoryview, position: int) -> tuple[memoryview, int]:
    """Cut off a batch at the end that is not whole; give the rest and the offset behind it.

    A broker may cut the last batch to the size that was asked for (protocol guide, Fetch).
    """
    pos, behind = 0, position
    while len(records) - pos >= _HEAD_SIZE:
        base, length = _BATCH.unpack_from(records, pos)
        size = _BATCH.size + length
        (delta,) = _LAST_DELTA.unpack_from(records, pos + _LAST_DELTA_AT)
        if size < _HEAD_SIZE or delta < 0 or base + delta < behind:
            raise WireError(
                f"the broker sent a batch of {size} bytes with offsets {base} to {base + delta}",
                why=f"{behind} is the next offset that it can hold",
            )
        if size > len(records) - pos:
            break
        pos, behind = pos + size, base + delta + 1
    return records[:pos], behind


def wanted_size(records: memoryview) -> int:
    """Give the size of the first batch, as far as can be seen; 0 if nothing can."""
    return _BATCH.size + int(_BATCH.unpack_from(records)[1]) if len(records) >= _BATCH.size else 0
