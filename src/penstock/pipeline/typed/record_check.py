"""Events held against the contract record by record: `ContractCheck` for the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.contract.codecs import first_error
from penstock.contract.selection import Selector
from penstock.errors import InvalidEvent, UnknownSchemas
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Json
from penstock.events.jsontext import loads
from penstock.events.reading import Mode
from penstock.pipeline.evaluators.reference.reading import Decoded, Reject
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form, choose
from penstock.pipeline.typed.frame import without_ids
from penstock.pipeline.typed.keys import json_validator, key_problem
from penstock.pipeline.typed.schema_table import UnknownSchema
from penstock.record import KafkaRecord

__all__ = ["RecordCheck", "Unresolved"]

_JSON: Final = "application/json"
_MAX_CHOICES: Final = 1024
_MAX_TEXT: Final = 512
_STRUCTURED: Final = KafkaBinding(mode=Mode.STRUCTURED)
_FRAMED: Final = "Protobuf behind a schema id cannot be read: that takes a compiler for its schema"
_nothing: Final = object()
"""There is no data, so no schema speaks of it: a tombstone, or an event that is only its attributes."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A record with a schema id that the table does not have; `otherwise` is what it is without that."""

    token: str
    otherwise: Reject | None


class RecordCheck:
    """One check, prepared for records: the choice of a message is remembered by type and dataschema."""

    def __init__(self, check: ContractCheck) -> None:
        self._check = check
        self._only = 0 if len(check.forms) == 1 and check.forms[0].selector == Selector() else None
        self._choices: dict[tuple[str | None, str | None], int | None] = {}

    def check(self, decoded: Decoded, record: KafkaRecord) -> Decoded | Reject | Unresolved:
        """Return the event, maybe with its data as JSON, or why it does not fit."""
        event = decoded.event
        at = self._choice(event.get("type"), event.get("dataschema"))
        if at is None:
            return Reject("no-message", self._check.no_message(event.get("type"), event.get("dataschema")))
        form = self._check.forms[at]
        if form.is_framed_protobuf:
            return Reject("protobuf-framed", _FRAMED)
        if not form.is_decoded and not self._check.full:
            return decoded
        return self._read(form, decoded, record)

    def settle(self, unresolved: Sequence[Unresolved]) -> list[Reject]:
        """Return what becomes of records whose ids are not known; UnknownSchemas if one was not asked for.

        It is raised once for all records of a batch, so that the driver asks the registry once.
        """
        news = self._check.schemas.news(each.token for each in unresolved)
        if news:
            raise UnknownSchemas(self._check.operation, news)
        return [
            each.otherwise or Reject("unknown-schema", self._check.unknown_schema(each.token))
            for each in unresolved
        ]

    def _choice(self, event_type: str | None, dataschema: str | None) -> int | None:
        if self._only is not None:
            return self._only
        key = event_type, dataschema
        try:
            return self._choices[key]
        except KeyError:
            found = choose(self._check.forms, event_type, dataschema)
        short = len(event_type or "") + len(dataschema or "") <= _MAX_TEXT
        if short and len(self._choices) < _MAX_CHOICES:
            self._choices[key] = found
        return found

    def _read(self, form: Form, decoded: Decoded, record: KafkaRecord) -> Decoded | Reject | Unresolved:
        reject: Reject | None = None
        token: str | None = None
        data: bytes | None = None
        raw = decoded.event.data_bytes
        # No data, or JSON inside a structured event: nothing to take off.
        if form.is_decoded and raw is not None and not isinstance(decoded.event.data, Json):
            try:
                data = self._check.decoded(form, raw, record.headers)
            except InvalidEvent as exc:
                reject = Reject("data-invalid", str(exc))
            except UnknownSchema as exc:
                token = exc.token
        if self._check.full and form.key is not None:
            try:
                problem = key_problem(record.key, form.key, record.headers, self._check.schemas.get)
                if problem is not None:
                    reject = reject or Reject("key-mismatch", problem)
            except UnknownSchema as exc:
                token = exc.token
        described = form.schema is not None and (form.codec == "json" or form.is_envelope)
        if self._check.full and described and reject is None and token is None:
            reject = _mismatch(form, decoded.event, raw if data is None else data)
        if token is not None:
            return Unresolved(token, reject)
        if reject is not None or data is None:
            return reject or decoded
        return _as_json(decoded, data)


def _mismatch(form: Form, event: CloudEvent, raw: bytes | None) -> Reject | None:
    """Hold data, or the whole event, against its JSON Schema."""
    try:
        value: Any = _nothing if raw is None else None
        if form.is_envelope:
            value = loads(_STRUCTURED.encode(event).value or b"")
        elif raw is not None:
            value = loads(raw)
    except ValueError as exc:
        return Reject("schema-mismatch", f"message {form.name}: data is not JSON: {exc}")
    problem = None if value is _nothing else first_error(json_validator(form.schema or "true"), value)
    if problem is None:
        return None
    place = "".join(f"/{step}" for step in problem.path)
    return Reject("schema-mismatch", f"message {form.name}: {place or 'the value'}: {problem.message[:500]}")


def _as_json(decoded: Decoded, data: bytes) -> Decoded:
    """Return the event with its data as JSON; ids in headers are not true of that."""
    event = decoded.event
    attributes = {**event.attributes, "datacontenttype": _JSON}
    made = CloudEvent.unchecked(attributes, data, event.types, sound=False)
    return Decoded(made, without_ids(decoded.foreign), decoded.structured)
