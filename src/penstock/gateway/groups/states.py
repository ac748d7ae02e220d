"""The states of a classic group, and every transition between them.

Everything about transitions is in this table; nothing here knows what a member is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from penstock.errors import InternalError

__all__ = ["TRANSITIONS", "Event", "State", "after"]


class State(StrEnum):
    """Kafka's names of the states, as DescribeGroups tells them."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING = "PreparingRebalance"
    """Members are asked to join again."""
    COMPLETING = "CompletingRebalance"
    """All have joined; the leader's assignment is awaited."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Removed; nobody comes back to this one."""


class Event(StrEnum):
    """What moves a group."""

    REBALANCE = "membership or metadata changed"
    ALL_JOINED = "the next generation has members"
    NOBODY_JOINED = "the next generation has none"
    ASSIGNED = "the leader has sent the assignment"
    REMOVED = "the group was deleted or has expired"


TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.EMPTY: {Event.REBALANCE: State.PREPARING, Event.REMOVED: State.DEAD},
    State.PREPARING: {
        Event.ALL_JOINED: State.COMPLETING,
        Event.NOBODY_JOINED: State.EMPTY,
        Event.REMOVED: State.DEAD,
    },
    State.COMPLETING: {
        Event.REBALANCE: State.PREPARING,
        Event.ASSIGNED: State.STABLE,
        Event.REMOVED: State.DEAD,
    },
    State.STABLE: {Event.REBALANCE: State.PREPARING, Event.REMOVED: State.DEAD},
    State.DEAD: {},
}


def after(state: State, event: Event) -> State:
    """Give the state that follows.

    >>> after(State.COMPLETING, Event.ASSIGNED).value
    'Stable'
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise InternalError(f"a group that is {state} cannot have: {event}") from None
