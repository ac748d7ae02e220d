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
from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.messages import Message
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
    """Say whether two Avro definitions are the same JSON."""
    try:
        return bool(json.loads(left) == json.loads(right))
    except (ValueError, RecursionError):
        return left == right


def _has_structured(contract: Contract, messages: Iterable[Message]) -> bool:
    kinds = (each.content_type or contract.default_content_type or "" for each in messages)
    return any(kind.startswith(_STRUCTURED) for kind in kinds)


def _is_record(text: str) -> bool:
    definition = json.loads(text)
    return isinstance(definition, dict) and definition.get("type") == "record"
