"""How much of a topic's `max.message.bytes` a record takes, counted as Kafka's own producer counts it.

CloudEvents, Size Limits: intermediaries forward events of 64 KiB and less; larger ones as far as they can.
"""

from __future__ import annotations

from typing import Final

from penstock.record import KafkaRecord

__all__ = ["BATCH", "LENGTH", "RECORD", "batch_bytes", "fits"]

BATCH: Final = 61
"""The head of a batch of records, format 2."""
RECORD: Final = 21
"""Length, attributes, timestamp and offset of a record, at most."""
LENGTH: Final = 5
"""A length as a variable integer, at most."""


def batch_bytes(record: KafkaRecord) -> int:
    """Give the size of a batch that holds only this record, at most.

    >>> batch_bytes(KafkaRecord(value=b"abc", headers=(("k", None),)))
    111
    """
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    return BATCH + RECORD + LENGTH + sum(LENGTH + len(part or b"") for part in parts)


def fits(record: KafkaRecord, limit: int | None) -> bool:
    """Say whether a topic with this limit takes the record; None is no limit."""
    return limit is None or batch_bytes(record) <= limit
