"""How many bytes an offset of each partition takes, judged by the first record batches behind a position."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from penstock.brokers.kafka_raw.calls import FETCH
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetch_call import FetchLimits, FetchRow, fetch_request, read_fetch
from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import PenstockError
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["bytes_per_offset", "density"]

_ONE_BATCH: Final = 1
_LIMITS: Final = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=_ONE_BATCH, read_committed=True)
_HEAD: Final = struct.Struct(">qi")
_LAST_DELTA: Final = struct.Struct(">i")
_LAST_DELTA_AT: Final = 23


def bytes_per_offset(cluster: Cluster, topic: str, positions: Mapping[int, int]) -> dict[int, float]:
    """Return the bytes of one offset, by partition, as far as brokers answer; each partition is asked once.

    A broker gives at least one batch for a request, whatever the limit, but not for each of its partitions
    (KIP-74). So there is a request for each, for one batch.
    """
    found: dict[int, float] = {}
    try:
        for partition, offset in positions.items():
            leader = cluster.leader(topic, partition)
            rows = {topic: [FetchRow(partition, leader.epoch, offset, _ONE_BATCH)]}
            (answer,) = cluster.ask(leader.node, FETCH, fetch_request(_LIMITS, rows), read_fetch)
            size = density(answer.records) if answer.error_code == ErrorCode.NONE else None
            if size is not None:
                found[partition] = size
    except PenstockError as exc:
        if not is_retriable(exc):
            raise
    return found


def density(records: memoryview) -> float | None:
    """Return the bytes of one offset in the batches whose headers are there; None if there are none."""
    pos = size = offsets = 0
    while pos + _LAST_DELTA_AT + _LAST_DELTA.size <= len(records):
        _, length = _HEAD.unpack_from(records, pos)
        (delta,) = _LAST_DELTA.unpack_from(records, pos + _LAST_DELTA_AT)
        if length <= 0 or delta < 0:
            break
        size, offsets, pos = size + _HEAD.size + length, offsets + delta + 1, pos + _HEAD.size + length
    return size / offsets if offsets else None
