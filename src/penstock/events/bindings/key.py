"""Key mappers: where the key of a record comes from when the caller gives none (Kafka 3.1).

None by default. A mapper is a function of the event and cannot change it; the attribute it reads
still travels with the event.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import UsageError
from penstock.events.cloudevent import CloudEvent

__all__ = ["Key", "KeyMapper", "as_bytes", "attribute", "checked", "partitionkey"]

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
    """Give a key as Kafka stores it: text as UTF-8; UsageError if it is neither bytes nor text."""
    found = checked(key)
    return found.encode() if isinstance(found, str) else found


def checked(key: Key) -> Key:
    """Give a key as it is; UsageError if it is neither bytes nor text nor None."""
    if key is None or isinstance(key, (bytes, str)):
        return key
    raise UsageError(
        f"a key is a {type(key).__name__}, not bytes, text or None",
        why="A record's key is bytes (Kafka 3.1); text stands for its UTF-8.",
        next="let the key mapper give text: str(...)",
    )
