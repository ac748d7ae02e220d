"""Key mappers: where the key of a record comes from when the caller gives none (Kafka 3.1).

None by default. A mapper is a function of the event and cannot change it; the attribute it reads
still travels with the event.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.events.cloudevent import CloudEvent

__all__ = ["Key", "KeyMapper", "as_bytes", "attribute", "partitionkey"]

Key = bytes | str | None
KeyMapper = Callable[[CloudEvent], Key]


def partitionkey(event: CloudEvent) -> str | None:
    """Use the Partitioning extension as the key, as it is, if present."""
    # Kafka 3.1: an opt-in mapper that "maps the partitionkey attribute value to the key as-is".
    return event.get("partitionkey")


def attribute(name: str) -> KeyMapper:
    """Make a mapper that uses one attribute as the key."""
    return lambda event: event.get(name)


def as_bytes(key: Key) -> bytes | None:
    """Give a key as Kafka stores it: text as UTF-8."""
    return key.encode() if isinstance(key, str) else key
