"""How records are numbered: which offset the first message of a delivered entry has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.wire.pulsar import Entry

__all__ = ["BY_INDEX", "Numbering"]


class Numbering(NamedTuple):
    """A way to number records."""

    first_offset: Callable[[Delivery], int]
    """The offset of the first message of an entry, -1 if it has none."""
    counter: Callable[[], OffsetCounter]
    """Makes what knows the offsets of entries that were just produced."""
    continuous: bool
    """Whether a hole between two entries means that something was removed."""
    largest_batch: int = sys.maxsize
    """How many messages of an entry have offsets of their own."""


def _index(delivery: Delivery) -> int:
    return delivery.entry.first_index if isinstance(delivery.entry, Entry) else -1


BY_INDEX: Final = Numbering(_index, OffsetCounter, continuous=True)
"""By the broker-entry index: 0, 1, 2 and so on, whoever writes."""
