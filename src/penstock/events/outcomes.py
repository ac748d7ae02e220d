"""What a function decides about each record of a batch: emit, retry, dead letter, or drop.

Nothing is dropped silently: `Drop` is a decision, forgetting a record is an error.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.events.cloudevent import CloudEvent
from penstock.events.event import Event

__all__ = ["Dead", "Drop", "Emit", "Outcome", "Retry", "settle"]


@dataclass(frozen=True, slots=True, init=False)
class Emit:
    """The record became one event or several.

    >>> len(Emit(Event("a"), Event("b")).events)
    2
    """

    events: tuple[Event | CloudEvent, ...]

    def __init__(self, *events: Event | CloudEvent) -> None:
        if not events or not all(isinstance(event, Event | CloudEvent) for event in events):
            raise UsageError("Emit takes one event or several", next="use Drop() if there is none")
        object.__setattr__(self, "events", events)


@dataclass(frozen=True, slots=True)
class Retry:
    """The record could not be handled now; try again, not before `after` seconds."""

    reason: str = ""
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Dead:
    """The record can never be handled; it goes to the dead letters with the reason."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise UsageError("a dead letter needs a reason")


@dataclass(frozen=True, slots=True)
class Drop:
    """The record is not wanted; it is counted and goes nowhere."""

    reason: str = ""


Outcome = Emit | Retry | Dead | Drop


def settle(records: Sized, returned: Sequence[object]) -> tuple[Outcome, ...]:
    """Give one outcome per record from what a function returned; an event alone means Emit.

    >>> settle([1, 2], [Event("a"), Drop()])
    (Emit(events=(Event('a', {}, None),)), Drop(reason=''))
    """
    if len(returned) != len(records):
        raise UsageError(
            f"the function returned {len(returned)} outcomes for {len(records)} records",
            next="return one outcome per record, in order",
        )
    return tuple(_outcome(value, number) for number, value in enumerate(returned))


def _outcome(value: object, number: int) -> Outcome:
    if isinstance(value, Emit | Retry | Dead | Drop):
        return value
    if isinstance(value, Event | CloudEvent):
        return Emit(value)
    raise UsageError(
        f"the function returned {type(value).__name__} for record {number}",
        next="return an event, Emit(...), Retry(), Dead(reason) or Drop()",
    )
