"""What every engine counts, by the names under which it is told."""

from __future__ import annotations

from typing import Final

__all__ = ["COUNTERS"]

COUNTERS: Final = (
    "n_in",
    "n_out",
    "n_dead",
    "n_unmatched",
    "n_dropped",
    "n_retried",
    "n_unfollowed",
    "n_expired",
)
