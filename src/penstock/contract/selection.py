"""Which message of a channel an event belongs to.

A message is selected by the const or enum of `ce_type` (and of `ce_dataschema`) in its headers schema, or of
`CE-EventType` where it is in Pulsar's profile 0.1; else by `x-penstock-type`; else by being the only message
of its channel; else by being named like the type of the event. `choose_message` is that rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.contract.messages import Message
from penstock.contract.node import JsonValue
from penstock.contract.schema import Schema, SchemaFormat, constants

__all__ = [
    "HEADERS_01",
    "HEADERS_10",
    "Selector",
    "choose_message",
    "header_schema",
    "is_cloud_event",
    "selector_of",
]

HEADERS_10 = ("ce_specversion", "ce_type", "ce_id", "ce_source")
"""What the required attributes are called on Kafka (spec 000), and in profile 1.0 on Pulsar."""
HEADERS_01 = ("CE-CloudEventsVersion", "CE-EventType", "CE-EventID", "CE-Source")
"""What they are called in profile 0.1 on Pulsar (spec 002)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """The events that a message stands for; None means that any value fits."""

    types: tuple[str, ...] | None = None
    dataschemas: tuple[str, ...] | None = None

    def takes(self, event_type: str | None, dataschema: str | None = None) -> bool:
        """Say whether an event belongs to the message.

        >>> Selector(types=("a",)).takes("a"), Selector(types=("a",)).takes("b"), Selector().takes(None)
        (True, False, True)
        """
        return _fits(self.types, event_type) and _fits(self.dataschemas, dataschema)

    def overlap(self, other: Selector) -> str | None:
        """Say in words which events both take; None if there are none."""
        types = _common(self.types, other.types)
        if types == () or _common(self.dataschemas, other.dataschemas) == ():
            return None
        return f"events of type {', '.join(types)}" if types else "any type of event"


def _fits(allowed: tuple[str, ...] | None, value: str | None) -> bool:
    return allowed is None or value in allowed


def _common(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if left is None or right is None:
        return left if right is None else right
    return tuple(value for value in left if value in right)


def choose_message(
    messages: Sequence[tuple[str, Selector]], event_type: str | None, dataschema: str | None = None
) -> int | None:
    """Give the place of the message that an event belongs to, of messages with names and selectors.

    None if there is none, or more than one could be meant. A selector that says something goes before one
    that takes everything; where both leave it open, the message that is named like the type is meant.

    >>> choose_message([("t.a", Selector()), ("t.b", Selector())], "t.b")
    1
    """
    fitting = [at for at, (_, each) in enumerate(messages) if each.takes(event_type, dataschema)]
    candidates = [at for at in fitting if messages[at][1] != Selector()] or fitting
    if len(candidates) > 1:
        candidates = [at for at in candidates if messages[at][0] == event_type]
    return candidates[0] if len(candidates) == 1 else None


def selector_of(message: Message) -> Selector:
    """Read the rule that selects a message."""
    types = constants(header_schema(message.headers, "ce_type")) or constants(
        header_schema(message.headers, "CE-EventType")
    )
    dataschemas = constants(header_schema(message.headers, "ce_dataschema"))
    return Selector(types=types or message.types or None, dataschemas=dataschemas)


def header_schema(headers: Schema | None, name: str) -> Schema | None:
    """Find the schema of one header, also behind a reference and inside allOf."""
    if headers is None or headers.format is not SchemaFormat.JSON:
        return None
    found = _property(headers.definition, headers.definition, name, 8)
    if found is None:
        return None
    return Schema(format=headers.format, media_type=headers.media_type, definition=found)


def is_cloud_event(message: Message, content_type: str | None) -> bool:
    """Say whether a message carries CloudEvents, by its content type, its headers or our extension."""
    if (content_type or "").startswith("application/cloudevents"):
        return True
    return bool(message.types) or any(
        header_schema(message.headers, name) is not None for name in (*HEADERS_10, *HEADERS_01)
    )


def _property(schema: JsonValue, root: JsonValue, name: str, depth: int) -> JsonValue:
    target = _target(schema, root, depth)
    if not isinstance(target, dict) or depth == 0:
        return None
    properties = target.get("properties")
    if isinstance(properties, dict) and name in properties:
        return _target(properties[name], root, depth)
    parts = target.get("allOf")
    found = (_property(part, root, name, depth - 1) for part in (parts if isinstance(parts, list) else ()))
    return next((value for value in found if value is not None), None)


def _target(schema: JsonValue, root: JsonValue, depth: int) -> JsonValue:
    """Follow a bundled reference; circles end with the depth."""
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and depth > 0:
        name = str(schema["$ref"]).removeprefix("#/definitions/")
        definitions = root.get("definitions") if isinstance(root, dict) else None
        schema = definitions.get(name) if isinstance(definitions, dict) else None
        depth -= 1
    return schema
