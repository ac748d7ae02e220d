"""The form of a message: what workers must know of it to read, check and write its payload; no secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from penstock.contract.schema import Schema, SchemaFormat
from penstock.contract.schema_ids import SchemaId
from penstock.contract.selection import Selector, choose_message
from penstock.pipeline.typed.avro_schema import SchemaTexts
from penstock.pipeline.typed.frame import Frame, frame_of

if TYPE_CHECKING:
    from penstock.contract import ResolvedMessage, ResolvedOperation

__all__ = ["Form", "KeyForm", "Written", "choose", "form_of", "forms_of", "schema_token", "unwritable"]

CLOUDEVENTS: Final = "application/cloudevents"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyForm:
    """What a key must be."""

    schema: str
    """JSON text of a JSON Schema or an Avro schema."""
    is_avro: bool = False
    frame: Frame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One message."""

    name: str
    selector: Selector
    codec: str
    """How data is written: json, avro, protobuf, text or bytes."""
    content_type: str | None = None
    schema: str | None = None
    """The payload's schema as JSON text: of Avro for that codec, else a JSON Schema."""
    is_envelope: bool = False
    """The schema describes the whole event in structured mode."""
    frame: Frame | None = None
    key: KeyForm | None = None

    @property
    def is_decoded(self) -> bool:
        """Whether data has to be taken out of Avro or out of a frame before an expression can read it."""
        framed = self.frame is not None and self.frame.location is not None
        return not self.is_envelope and (self.codec == "avro" or (self.codec == "json" and framed))

    @property
    def is_framed_protobuf(self) -> bool:
        """Whether data is Protobuf behind a registry's frame, which nobody here can read."""
        framed = self.frame is not None and self.frame.location is not None
        return self.codec == "protobuf" and not self.is_envelope and framed


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The schema that a message is written with."""

    schema_id: SchemaId
    schema: SchemaTexts
    branch: str | None = None
    """The branch of a union, by name."""


def forms_of(operation: ResolvedOperation) -> tuple[Form, ...]:
    """Give the forms of all messages of an operation."""
    return tuple(form_of(message) for message in operation.messages)


def form_of(message: ResolvedMessage) -> Form:
    """Give the form of a message."""
    frame = frame_of(message)
    is_envelope = (message.content_type or "").startswith(CLOUDEVENTS)
    is_avro = message.codec == "avro" and not is_envelope
    return Form(
        name=message.name,
        selector=message.selector,
        codec=message.codec,
        content_type=message.content_type,
        schema=_text(message.payload, SchemaFormat.AVRO if is_avro else SchemaFormat.JSON),
        is_envelope=is_envelope,
        frame=frame,
        key=_key(message.key, frame),
    )


def _text(schema: Schema | None, language: SchemaFormat) -> str | None:
    if schema is None or schema.format is not language:
        return None
    return orjson.dumps(schema.definition).decode()


def _key(schema: Schema | None, frame: Frame | None) -> KeyForm | None:
    avro, plain = _text(schema, SchemaFormat.AVRO), _text(schema, SchemaFormat.JSON)
    if avro is not None:
        return KeyForm(schema=avro, is_avro=True, frame=frame)
    return None if plain is None else KeyForm(schema=plain)


def unwritable(operation: ResolvedOperation) -> str | None:
    """Say why the messages of an operation cannot be written; None if they can."""
    for form in forms_of(operation):
        frame = form.frame
        unclear = frame is not None and frame.width is None and frame.vendor == "apicurio"
        if form.is_decoded and frame is not None and frame.location == "payload" and unclear:
            return f"message {form.name} does not say how many bytes a schema id has (4 or 8)"
    return None


def choose(forms: Sequence[Form], event_type: str | None, dataschema: str | None) -> int | None:
    """Give the place of the form that an event has; None if none is meant, or more than one."""
    return choose_message([(form.name, form.selector) for form in forms], event_type, dataschema)


def schema_token(schema_id: SchemaId) -> str:
    """Write an id as one word; Apicurio's contentId is the id of its compatible API.

    >>> from penstock.contract.schema_ids import IdKind
    >>> schema_token(SchemaId(number=5)), schema_token(SchemaId(number=5, kind=IdKind.GLOBAL_ID))
    ('id:5', 'globalId:5')
    """
    if schema_id.guid is not None:
        return f"guid:{schema_id.guid}"
    kind = _SAME.get(schema_id.kind, schema_id.kind)
    return f"{kind}:{schema_id.number}"


_SAME: Final[Mapping[str, str]] = {"contentId": "id"}
