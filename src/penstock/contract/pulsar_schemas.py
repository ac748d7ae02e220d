"""The schema that a contract wants for a Pulsar topic, and how it compares with the one that is there.

Pulsar keeps one schema for a topic. An Avro record is written there as it stands. Pulsar's other types have
no form for what a contract declares: its JSON type takes Avro definitions, its Avro type no unions. Topics of
such payloads get no schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.brokers.pulsar_admin import PulsarSchema
from penstock.contract.avro_types import PRIMITIVES, normal_form
from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.messages import Message
from penstock.contract.node import JsonValue
from penstock.contract.schema import SchemaFormat
from penstock.contract.subjects import combined

__all__ = ["AVRO", "PayloadSchema", "contradicts", "payload_schema", "same_definition"]

AVRO: Final = "AVRO"
_STRUCTURED: Final = "application/cloudevents"
# What a topic may hold for payloads of a format; others cannot be what the contract describes.
_POSSIBLE: Final[Mapping[SchemaFormat, frozenset[str]]] = {
    SchemaFormat.AVRO: frozenset({"AVRO"}),
    SchemaFormat.JSON: frozenset({"JSON", "STRING", "BYTES", "NONE"}),
    SchemaFormat.PROTOBUF: frozenset({"PROTOBUF", "PROTOBUF_NATIVE", "BYTES", "NONE"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSchema:
    """What the messages of a channel say about the payloads of its topic."""

    format: SchemaFormat | None = None
    """None if they differ, or nothing is said."""
    avro: str | None = None
    """The schema that the topic should have; None if it gets none."""


def payload_schema(contract: Contract, channel: Channel) -> PayloadSchema:
    """Read what the messages of a channel say; structured events are no payloads by the schema."""
    messages = list(channel.messages.values())
    payloads = {name: each.payload for name, each in channel.messages.items() if each.payload is not None}
    if not messages or len(payloads) != len(messages) or _has_structured(contract, messages):
        return PayloadSchema()
    formats = {payload.format for payload in payloads.values()}
    if len(formats) != 1:
        return PayloadSchema()
    (found,) = formats
    text = combined(payloads) if found is SchemaFormat.AVRO else None
    is_record = text is not None and _is_record(text)
    return PayloadSchema(format=found, avro=text if is_record else None)


def contradicts(wanted: SchemaFormat, there: PulsarSchema) -> bool:
    """Say whether payloads of a format cannot be what the schema of a topic describes."""
    possible = _POSSIBLE.get(wanted)
    return possible is not None and there.type not in possible


def same_definition(left: str, right: str) -> bool:
    """Say whether Pulsar takes two Avro definitions for the same one, and so makes no new version of it.

    It compares as Avro's Java library does: without documentation, aliases and the defaults of enumerations.
    """
    try:
        return _essence(normal_form(json.loads(left))) == _essence(normal_form(json.loads(right)))
    except (ValueError, RecursionError):
        return left == right


def _essence(schema: JsonValue) -> JsonValue:
    """Give what is compared of a schema whose names are written in full."""
    if isinstance(schema, list):
        return [_essence(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = (*_NOT_COMPARED, "default") if schema.get("type") == "enum" else _NOT_COMPARED
    made: dict[str, JsonValue] = {key: value for key, value in schema.items() if key not in left_out}
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = _essence(made[key])
    fields = made.get("fields")
    if isinstance(fields, list):
        made["fields"] = [_essence_of_field(each) for each in fields]
    # {"type": "string"} is "string".
    return made["type"] if made.keys() == {"type"} and made["type"] in PRIMITIVES else made


def _essence_of_field(field: JsonValue) -> JsonValue:
    if not isinstance(field, dict):
        return field
    made = {key: value for key, value in field.items() if key not in _NOT_COMPARED}
    if made.get("order") == "ascending":
        del made["order"]
    return {**made, "type": _essence(made.get("type"))}


_NOT_COMPARED: Final = ("doc", "aliases")


def _has_structured(contract: Contract, messages: Iterable[Message]) -> bool:
    kinds = (each.content_type or contract.default_content_type or "" for each in messages)
    return any(kind.startswith(_STRUCTURED) for kind in kinds)


def _is_record(text: str) -> bool:
    definition = json.loads(text)
    return isinstance(definition, dict) and definition.get("type") == "record"
