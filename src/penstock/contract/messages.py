"""Message, Message Trait, Message Example and Correlation ID Objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.contract.bindings import Bindings, message_bindings
from penstock.contract.info import ExternalDocs, Tag, external_docs, tags
from penstock.contract.kafka import KafkaMessage
from penstock.contract.node import JsonValue, Node, plain
from penstock.contract.readers import any_value, expression, list_of, map_of, part, text, texts
from penstock.contract.rules import structure
from penstock.contract.schema import Schema, multi_format_schema
from penstock.contract.shape import Part, Reading, spec
from penstock.contract.traits import with_traits

__all__ = ["CorrelationId", "Message", "MessageExample", "MessageTrait", "correlation_id", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationId(Part):
    """Correlation ID Object."""

    SPEC_NAME: ClassVar[str] = "a Correlation ID Object"
    description: str | None = spec(text)
    location: str | None = spec(expression, required=True)


correlation_id = part(CorrelationId, "correlationIds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageExample(Part):
    """Message Example Object."""

    SPEC_NAME: ClassVar[str] = "a Message Example Object"
    name: str | None = spec(text)
    summary: str | None = spec(text)
    headers: Mapping[str, JsonValue] | None = spec(map_of(any_value))
    payload: JsonValue = spec(any_value)


def _type_names(reading: Reading, node: Node) -> tuple[str, ...] | None:
    """Read x-penstock-type: one type of event, or a list of them."""
    if isinstance(node.value, list):
        names: Any = texts(reading, node)
        return names  # type: ignore[no-any-return]
    name = text(reading, node)
    return None if name is None else (name,)


def _id_bytes(reading: Reading, node: Node) -> int | None:
    """Read x-penstock-schema-id-bytes."""
    if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value in (0, 4, 8):
        return node.value
    field, wanted = node.path[-1], "0, 4 or 8"
    reading.report.add(structure.OUT_OF_RANGE, node, field=field, found=plain(node), wanted=wanted)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrait(Part):
    """Message Trait Object: a message without payload and traits."""

    SPEC_NAME: ClassVar[str] = "a Message Trait Object"
    headers: Schema | None = spec(multi_format_schema)
    correlation_id: CorrelationId | None = spec(correlation_id)
    content_type: str | None = spec(text)
    name: str | None = spec(text)
    title: str | None = spec(text)
    summary: str | None = spec(text)
    description: str | None = spec(text)
    tags: tuple[Tag, ...] = spec(tags, default=())
    external_docs: ExternalDocs | None = spec(external_docs)
    bindings: Bindings[KafkaMessage, Part] = spec(message_bindings, default=Bindings())
    examples: tuple[MessageExample, ...] = spec(list_of(part(MessageExample)), default=())
    types: tuple[str, ...] = spec(_type_names, name="x-penstock-type", default=())
    """The types of event that this message stands for; our extension."""
    schema_id_bytes: int | None = spec(_id_bytes, name="x-penstock-schema-id-bytes")
    """How many bytes the id of a schema has in the payload, 0 if there is none; our extension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(MessageTrait):
    """Message Object, with its traits merged in."""

    SPEC_NAME: ClassVar[str] = "a Message Object"
    payload: Schema | None = spec(multi_format_schema)
    traits: tuple[MessageTrait, ...] = spec(list_of(part(MessageTrait, "messageTraits")), default=())


message = with_traits(Message, "messages", "messageTraits")
