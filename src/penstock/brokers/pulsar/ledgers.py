"""Places in a topic by the internal statistics of its managed ledger (REST, internalStats)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["last_before", "last_index", "ledger_ids", "place_before_end"]


def ledger_ids(stats: Mapping[str, Any]) -> list[int]:
    """Return the ids of the ledgers that are left, oldest first; the last one may be empty.

    >>> ledger_ids({"ledgers": [{"ledgerId": 7}, {"ledgerId": 3}]})
    [3, 7]
    """
    return sorted(int(ledger["ledgerId"]) for ledger in stats.get("ledgers", ()))


def last_index(stats: Mapping[str, Any]) -> int:
    """Return the index of the last message ever written, which the broker keeps; -1 if it does not say.

    >>> last_index({"properties": {"index": "41"}}), last_index({})
    (41, -1)
    """
    index = str((stats.get("properties") or {}).get("index", ""))
    return int(index) if index.isdecimal() else -1


def last_before(stats: Mapping[str, Any], ledger_id: int) -> MessageId:
    """Find the last entry before a ledger in the internal statistics of a topic; -1:-1 if there is none.

    >>> stats = {"ledgers": [{"ledgerId": 3, "entries": 7}, {"ledgerId": 5, "entries": 0}, {"ledgerId": 8}]}
    >>> last_before(stats, 8)[:2], last_before(stats, 3)[:2]
    ((3, 6), (-1, -1))
    """
    earlier = [
        MessageId(int(ledger["ledgerId"]), int(ledger["entries"]) - 1)
        for ledger in stats.get("ledgers", ())
        if int(ledger["ledgerId"]) < ledger_id and int(ledger.get("entries") or 0) > 0
    ]
    return max(earlier, default=MessageId(-1, -1))


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
