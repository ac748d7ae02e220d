"""How much JSON a route reads: beyond this the data is unreadable, for every engine alike."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NAME", "MAX_NUMBER"]

MAX_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 190
"""Objects and arrays in each other; every parser in use reads that many."""
MAX_NAME: Final = 49_999
"""Length of a member's name in UTF-16 units: what Spark's parser takes, less the letter we put before it."""
MAX_NUMBER: Final = 4_000
"""Characters of a number: what every parser in use reads."""
