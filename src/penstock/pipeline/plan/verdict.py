"""What a route decides about an event: keep it, drop it, or reject it with a code. Shared by all engines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "DATA_INVALID",
    "EXPIRED",
    "INVALID_ATTRIBUTE",
    "KEEP",
    "MISSING_ATTRIBUTE",
    "REASONS",
    "TOMBSTONE",
    "TOMBSTONE_DROPPED",
    "UNMATCHED",
    "Decision",
    "Verdict",
]


class Decision(StrEnum):
    """The three ends of an event on a route."""

    KEEP = "keep"
    DROP = "drop"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and, where it is not to keep, its code: what is counted and what a dead letter says."""

    decision: Decision
    code: str = ""


KEEP: Final = Verdict(Decision.KEEP)
UNMATCHED: Final = Verdict(Decision.DROP, "unmatched")
EXPIRED: Final = Verdict(Decision.DROP, "expired")
TOMBSTONE_DROPPED: Final = Verdict(Decision.DROP, "tombstone")
TOMBSTONE: Final = Verdict(Decision.REJECT, "tombstone")
DATA_INVALID: Final = Verdict(Decision.REJECT, "data-invalid")
MISSING_ATTRIBUTE: Final = Verdict(Decision.REJECT, "missing-attribute")
INVALID_ATTRIBUTE: Final = Verdict(Decision.REJECT, "invalid-attribute")

REASONS: Final[dict[Verdict, str]] = {
    UNMATCHED: "the condition of the route is not true",
    EXPIRED: "expirytime has passed",
    TOMBSTONE_DROPPED: "a null value that is no event, and the route drops those",
    TOMBSTONE: "a null value that is no event, and the route rejects those",
    DATA_INVALID: "the data is JSON by its content type and cannot be read as JSON",
    MISSING_ATTRIBUTE: "the route sets an attribute that every event needs to nothing",
    INVALID_ATTRIBUTE: "the route sets an attribute to a text that CloudEvents does not allow",
}
"""A sentence for each verdict that is not to keep."""
