"""Events written as the messages of a `send` operation: data in the message's form, with its schema id."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events import CloudEvent, absent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.reading import Mode
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import Binding, PulsarRecords, binding_of
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import Records, event_at
from penstock.pipeline.plain import PlainWriter
from penstock.pipeline.ports import Writer
from penstock.pipeline.typed.avro import avro_from_json
from penstock.pipeline.typed.form import CLOUDEVENTS, Form, Written, choose
from penstock.pipeline.typed.frame import Frame, without_ids
from penstock.record import Headers, KafkaRecord

__all__ = ["ContractWriter", "write_batch"]

_AVRO_TYPE: Final = "application/avro"
_JSON_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractWriter:
    """The writer of an operation whose messages are more than CloudEvents with JSON; a Writer."""

    operation: str
    forms: tuple[Form, ...]
    written: Mapping[str, Written]
    """The registered schemas, by message."""
    is_plain: bool = False
    profile: Profile | None = None
    """How CloudEvents are written on Pulsar; None: the operation is on Kafka."""
    values: Values = Values.AUTO
    """How a property of profile 0.1 says a value."""
    repeat_headers: bool = False
    """Whether structured events have the headers of binary mode besides."""

    def __call__(
        self,
        event: CloudEvent,
        key: bytes | None,
        headers: Headers,
        *,
        null_value: bool = False,
        came: Headers | None = None,
    ) -> KafkaRecord:
        """Write one event as its message asks for; CannotEncode if it is none of them."""
        at = choose(self.forms, event.type, event.get("dataschema"))
        if at is None:
            raise CannotEncode(f"operation {self.operation} has no message for type {event.type[:200]}")
        form = self.forms[at]
        # Only an envelope can say "no data" without a null value, which is a tombstone (Kafka 3.3.2).
        if event.data is absent and (null_value or not form.is_envelope):
            return self._record(event, key, headers, came)
        if form.is_envelope:
            return self._envelope(form).encode(event, key=key, headers=headers)
        made, added = _DATA.get(form.codec, _as_it_is)(event, form, self.written.get(form.name))
        if added is not None:
            headers = without_ids(headers) + added
            came = None if came is None else without_ids(came) + added
        return self._record(made, key, headers, came)

    def _record(
        self, event: CloudEvent, key: bytes | None, headers: Headers, came: Headers | None
    ) -> KafkaRecord:
        if self.is_plain:
            return PlainWriter()(event, key, headers, came=came)
        return binding_of(self.profile, Mode.BINARY, self.values).encode(event, key=key, headers=headers)

    def _envelope(self, form: Form) -> Binding:
        """Give the binding for an event format, by the suffix of its media type."""
        essence = (form.content_type or "").partition(";")[0].strip().lower()
        name = essence.removeprefix(f"{CLOUDEVENTS}+") if "+" in essence else "json"
        repeat = self.repeat_headers
        if self.profile is None:
            return KafkaBinding(mode=Mode.STRUCTURED, format=name, repeat_headers=repeat)
        pulsar = PulsarBinding(
            profile=self.profile,
            mode=Mode.STRUCTURED,
            format=name,
            values=self.values,
            repeat_properties=repeat,
        )
        return PulsarRecords(pulsar=pulsar)


def write_batch(events: EventColumns, writer: Writer) -> Records:
    """Write every event of a batch by a writer; keys are not its business here."""
    rows = [
        _written(event_at(events, row), _pairs(events.foreign[row].as_py()), writer)
        for row in range(events.rows)
    ]
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record, _ in rows]
    problems = [problem for _, problem in rows]
    return Records(
        value=pa.array([record.value for record, _ in rows], pa.binary()),
        headers=pa.array(headers, HEADERS),
        code=pa.array([problem and "cannot-encode" for problem in problems], pa.utf8()),
        reason=pa.array(problems, pa.utf8()),
    )


def _written(event: CloudEvent, headers: Headers, writer: Writer) -> tuple[KafkaRecord, str | None]:
    try:
        return writer(event, None, headers), None
    except CannotEncode as exc:
        return KafkaRecord(), str(exc)


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return tuple((pair["key"], pair["value"]) for pair in headers or ())


_Made = tuple[CloudEvent, Headers | None]
"""An event with its data written, and the headers that belong to that; None if data is as it came."""


def _as_it_is(event: CloudEvent, _form: Form, _written: Written | None) -> _Made:
    return event, None


def _as_protobuf(event: CloudEvent, form: Form, _written: Written | None) -> _Made:
    if event.has_json:
        raise CannotEncode(f"message {form.name} is Protobuf, which JSON is not written as")
    return event, None


def _as_json(event: CloudEvent, form: Form, written: Written | None) -> _Made:
    if written is None:
        return event, None
    raw = event.data_bytes or b""
    if not event.has_json:
        raise CannotEncode(f"message {form.name} is JSON, the data is {event.datacontenttype}")
    return _framed(event, raw, form, written, _JSON_TYPE)


def _as_avro(event: CloudEvent, form: Form, written: Written | None) -> _Made:
    media_type = form.content_type or _AVRO_TYPE
    if not event.has_json:
        if event.datacontenttype == media_type:  # as it was read, by a route that does not look into it
            return event, None
        raise CannotEncode(
            f"message {form.name} is Avro, the data is {event.datacontenttype}",
            next="let the route check messages, so that data is read",
        )
    schema = written.schema if written is not None else (form.schema,) if form.schema is not None else None
    if schema is None:
        raise CannotEncode(f"message {form.name} has no Avro schema")
    raw = avro_from_json(_value(event, schema), schema, written.branch if written is not None else None)
    return _framed(event, raw, form, written, media_type)


def _value(event: CloudEvent, schema: tuple[str, ...]) -> object:
    try:
        if not any('"decimal"' in text for text in schema):
            return event.json()
        # A decimal keeps all its digits, which a double does not have.
        event.json()
        return json.loads(event.data_bytes or b"", parse_float=Decimal)
    except (InvalidEvent, ValueError) as exc:
        raise CannotEncode(f"data is not JSON: {exc}", where="data") from exc


def _framed(event: CloudEvent, raw: bytes, form: Form, written: Written | None, media_type: str) -> _Made:
    frame = form.frame or Frame()
    value, headers = frame.write(written.schema_id if written is not None else None, raw)
    attributes = {**event.attributes, "datacontenttype": media_type}
    return CloudEvent.unchecked(attributes, value, event.types, sound=False), headers


_DATA: Final[Mapping[str, Callable[[CloudEvent, Form, Written | None], _Made]]] = {
    "avro": _as_avro,
    "json": _as_json,
    "protobuf": _as_protobuf,
}
