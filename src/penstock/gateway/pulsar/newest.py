"""The record with the largest timestamp (KIP-734), without reading a whole partition.

At first the newest 64 MiB are looked at, which is all of a small partition; after that, what came since. A
larger timestamp further back, which only a client with a wrong clock can have written, is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.gateway.ports import Found
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["NEWEST_BYTES", "Newest", "place_before_end"]

NEWEST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Newest:
    """What was found so far."""

    found: Found = Found()
    upto: int = -1
    """The offset up to which was looked; -1 if not at all."""


def place_before_end(stats: Mapping[str, Any], size: int) -> MessageId:
    """Find, by the internal statistics of a topic, an entry with about so many bytes behind it.

    >>> ledgers = [{"ledgerId": 7, "entries": 100, "size": 1000}, {"ledgerId": 9, "entries": 0, "size": 0}]
    >>> stats = {"ledgers": ledgers, "currentLedgerEntries": 10, "currentLedgerSize": 300}
    >>> [place_before_end(stats, size)[:2] for size in (150, 500, 5000)]
    [(9, 5), (7, 80), (-1, -1)]
    """
    *closed, current = stats.get("ledgers") or [{}]
    open_one = (current.get("ledgerId", -1), *_counts(stats, "currentLedgerEntries", "currentLedgerSize"))
    rows = [(ledger.get("ledgerId", -1), *_counts(ledger, "entries", "size")) for ledger in closed]
    for ledger_id, entries, total in reversed([*rows, open_one]):
        if entries and total > size:
            return MessageId(int(ledger_id), entries - max(entries * size // total, 1))
        size -= total
    return EARLIEST


def _counts(said: Mapping[str, Any], *names: str) -> tuple[int, ...]:
    return tuple(int(said.get(name) or 0) for name in names)
