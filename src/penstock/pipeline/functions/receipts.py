"""Completion events (spec 004, receipt-queue): what became of an event, on the channel that it names.

Only channels of the contract are followed, never the one that is read and never one of dead letters: whoever
can send an event could otherwise write there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.events import CloudEvent, Json
from penstock.pipeline.deadletter import source_of
from penstock.pipeline.plan.identity import derived_id
from penstock.pipeline.ports import Invoked, Receipt, Routed, Target

__all__ = ["TYPE", "Receipts"]

TYPE: Final = "io.penstock.receipt"
_ATTRIBUTE: Final = "receiptqueue"
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The channels that may be asked for, by name and by topic."""

    pipeline: str
    route: str
    channels: Mapping[str, Target] = field(default_factory=dict)

    def wanted(self, routed: Routed) -> str | None:
        """Give the channel that an event asks for, if it asks."""
        return routed.event.get(_ATTRIBUTE)

    def of(self, routed: Routed, invoked: Invoked, outcome: str) -> Receipt | None:
        """Give the receipt of an event; None if its channel is not one to follow."""
        target = self.channels.get(self.wanted(routed) or "")
        if target is None:
            return None
        source, id = routed.origin or (routed.event.source, routed.event.id)
        data: dict[str, Any] = {
            "id": id,
            "source": source,
            "route": self.route,
            "outcome": outcome,
            "code": invoked.code,
            "reason": _last_line(invoked.reason),
            "attempts": invoked.attempts,
            "events": [event.id for event in invoked.events],
        }
        attributes = {
            "specversion": "1.0",
            "id": derived_id(f"{self.route}/receipt", source, id),
            "source": source_of(self.pipeline),
            "type": TYPE,
            "datacontenttype": "application/json",
            "causationid": id,
        }
        return Receipt(event=CloudEvent.unchecked(attributes, Json(data)), target=target)


def _last_line(reason: str) -> str:
    """Leave the traceback to the dead letter: a receipt goes to whoever asked for it."""
    return next(reversed(reason.strip().splitlines()), "")[:_LONGEST_REASON]
