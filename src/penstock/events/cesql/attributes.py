"""A CloudEvent as CESQL sees it: attribute names and values in the three types (CESQL 1.0.0, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from penstock.errors import InvalidEvent
from penstock.events.cloudevent import CloudEvent
from penstock.events.types import AttributeType

__all__ = ["attributes_of"]

# 3.2: a value that is not one of the primitive CESQL types MUST be represented by the String type.
_PRIMITIVE = (AttributeType.INTEGER, AttributeType.BOOLEAN)


def attributes_of(event: CloudEvent) -> Mapping[str, object]:
    """Give the event's attributes; extensions declared Integer or Boolean keep their type.

    >>> from penstock.events.cesql import evaluate
    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed", "hop": 3})
    >>> evaluate("hop + 1", attributes_of(event)).value
    4
    """
    typed: dict[str, object] = {}
    for name, kind in event.types.items():
        if kind in _PRIMITIVE:
            with suppress(InvalidEvent):  # an event read leniently may break its own declaration: then text
                typed[name] = event.value(name)
    return {**event.attributes, **typed} if typed else event.attributes
