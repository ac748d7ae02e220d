"""Offsets as Spark writes them: a JSON object of topics, each an object of partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.brokers.kafka_offsets import Offsets

__all__ = ["advanced", "behind", "gap", "offsets_of", "read_offsets"]


def read_offsets(text: str | None, topic: str) -> Offsets:
    """Read the offsets of one topic; nothing if they are not there, ValueError if the text is not like that.

    >>> read_offsets('{"orders":{"0":5,"1":7}}', "orders"), read_offsets("None", "orders")
    ({0: 5, 1: 7}, {})
    """
    # Spark has several words for nothing: a first batch begins at the text None, or null.
    return offsets_of(json.loads(text) if text and text.startswith("{") else None, topic)


def offsets_of(found: object, topic: str) -> Offsets:
    """Read the offsets of one topic from what was JSON; nothing if they are not there.

    Raises ValueError if it is not like that.

    >>> offsets_of({"orders": {"0": 5}}, "orders"), offsets_of("None", "orders")
    ({0: 5}, {})
    """
    parts = found.get(topic, {}) if isinstance(found, dict) else {}
    if not isinstance(parts, Mapping):
        raise ValueError(f"the offsets of {topic} are no object")
    return {int(partition): int(offset) for partition, offset in parts.items()}


def behind(end: Offsets, latest: Offsets) -> int:
    """Count the records between where a reader stands and the end of the topic.

    >>> behind({0: 5, 1: 7}, {0: 6, 1: 9, 2: 1})
    4
    """
    return sum(max(0, last - end.get(partition, 0)) for partition, last in latest.items())


def advanced(start: Offsets, end: Offsets) -> int:
    """Count the offsets that a batch covers; a partition without a start is new.

    >>> advanced({0: 5}, {0: 6, 1: 2})
    3
    """
    return sum(last - start.get(partition, 0) for partition, last in end.items())


def gap(reader: Offsets, earliest: Offsets, until: Offsets | None = None) -> int:
    """Count the offsets that were deleted before a reader came to them.

    >>> gap({0: 5, 1: 7}, {0: 8, 1: 7}), gap({0: 5}, {0: 20}, until={0: 6})
    (3, 1)
    """
    ends = {} if until is None else until
    return sum(
        max(0, min(earliest.get(partition, 0), ends.get(partition, earliest.get(partition, 0))) - offset)
        for partition, offset in reader.items()
    )
