"""The record with the largest timestamp (KIP-734), without reading a whole partition.

At first the newest 64 MiB are looked at, which is all of a small partition; after that, what came since. A
larger timestamp further back, which only a client with a wrong clock can have written, is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.gateway.ports import Found

__all__ = ["NEWEST_BYTES", "Newest"]

NEWEST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Newest:
    """What was found so far."""

    found: Found = Found()
    upto: int = -1
    """The offset up to which was looked; -1 if not at all."""
