"""Events held against the contract: the message of each, its data as JSON, and if asked for its schema.

A row that does not fit gets a code: no-message, unknown-schema, data-invalid, schema-mismatch, key-mismatch
or protobuf-framed. What has a code already stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contract.codecs import first_error
from penstock.contract.selection import Selector
from penstock.errors import InvalidEvent, UnknownSchemas
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.jsontext import loads
from penstock.events.reading import Mode
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.typed.avro import avro_to_json
from penstock.pipeline.typed.form import Form, KeyForm, choose
from penstock.pipeline.typed.frame import id_headers, without_ids
from penstock.pipeline.typed.keys import json_validator, key_problem
from penstock.pipeline.typed.schema_table import SchemaTable, UnknownSchema
from penstock.record import Headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

__all__ = ["ContractCheck"]

_JSON: Final = "application/json"
_NONE: Final = -1
_ID_HEADERS: Final = sorted(id_headers())
_TOO_MANY: Final = "so many unknown ids came before that this one was not looked up"
_STRUCTURED: Final = KafkaBinding(mode=Mode.STRUCTURED)


@dataclass(slots=True)
class _Findings:
    """What becomes of the rows of a batch."""

    rejects: dict[int, tuple[str, str]] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)

    def reject(self, row: int, code: str, reason: str) -> None:
        self.rejects.setdefault(row, (code, reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCheck:
    """The check of one operation; a Checker."""

    operation: str
    forms: tuple[Form, ...]
    schemas: SchemaTable = SchemaTable()
    full: bool = False
    """Whether payloads and keys are held against their schemas."""

    def __call__(self, events: EventColumns, batch: pa.RecordBatch) -> EventColumns:
        """Check every event of a batch."""
        findings = _Findings()
        chosen = self._chosen(events, findings)
        for at, form in enumerate(self.forms):
            rows = np.flatnonzero(chosen == at)
            if len(rows):
                self._check(form, rows, events, batch, findings)
        self._settle(findings)
        return _applied(events, findings) if findings.rejects or findings.data else events

    # Which message

    def _chosen(self, events: EventColumns, findings: _Findings) -> NDArray[np.int64]:
        """Give the number of the form of each row; -1 for rows that are out."""
        alive = ~np.asarray(events.rejected.to_numpy(zero_copy_only=False), dtype=bool)
        if len(self.forms) == 1 and self.forms[0].selector == Selector():
            return np.where(alive, 0, _NONE)
        pairs, which = _distinct(events)
        picks = [choose(self.forms, *pair) for pair in pairs]
        chosen = np.array([_NONE if at is None else at for at in picks], dtype=np.int64)[which]
        for row in np.flatnonzero(alive & (chosen == _NONE)).tolist():
            findings.reject(row, "no-message", self.no_message(*pairs[which[row]]))
        return np.where(alive, chosen, _NONE)

    def no_message(self, event_type: str | None, dataschema: str | None) -> str:
        """Return the reason of an event that no message is meant for."""
        schema = f" and dataschema {dataschema[:200]}" if dataschema else ""
        return f"operation {self.operation} has no message for type {(event_type or '')[:200]}{schema}"

    # What a message asks for

    def _check(
        self, form: Form, rows: Rows, events: EventColumns, batch: pa.RecordBatch, findings: _Findings
    ) -> None:
        if form.is_framed_protobuf:
            reason = "Protobuf behind a schema id cannot be read: that takes a compiler for its schema"
            for row in rows.tolist():
                findings.reject(row, "protobuf-framed", reason)
            return
        if form.is_decoded:
            self._decode(form, rows, events, batch, findings)
        if self.full and form.key is not None:
            self._check_keys(form.key, rows, batch, findings)
        if self.full and form.schema is not None and (form.codec == "json" or form.is_envelope):
            _validate(form, rows, events, findings)

    def _decode(
        self, form: Form, rows: Rows, events: EventColumns, batch: pa.RecordBatch, findings: _Findings
    ) -> None:
        picked = pa.array(rows)
        raws = events.data.take(picked).to_pylist()
        parsed = events.data_is_json.take(picked).to_pylist()
        looks = form.frame is not None and form.frame.location != "payload"
        headers = batch.column("headers").take(picked).to_pylist() if looks else [None] * len(rows)
        for row, raw, is_parsed, own in zip(rows.tolist(), raws, parsed, headers, strict=True):
            if raw is None or is_parsed:  # no data, or JSON inside a structured event: nothing to take off
                continue
            try:
                findings.data[row] = self.decoded(form, raw, _pairs(own))
            except InvalidEvent as exc:
                findings.reject(row, "data-invalid", str(exc))
            except UnknownSchema as exc:
                findings.unknown[row] = exc.token

    def decoded(self, form: Form, raw: bytes, headers: Headers) -> bytes:
        """Return data as JSON text; InvalidEvent if it cannot be read, UnknownSchema for a new id."""
        schema_id, body = form.frame.read(raw, headers) if form.frame is not None else (None, raw)
        if form.codec == "json":
            return body
        own = None if form.schema is None else (form.schema,)
        if schema_id is not None:
            return avro_to_json(body, self.schemas.get(schema_id), own)
        if own is None:
            raise InvalidEvent(
                "neither a schema id nor the contract says how data is written", attribute="data"
            )
        return avro_to_json(body, own, None)

    def _check_keys(self, form: KeyForm, rows: Rows, batch: pa.RecordBatch, findings: _Findings) -> None:
        keys = batch.column("key").take(pa.array(rows)).to_pylist()
        verdicts: dict[object, str | None] = {}
        for row, key in zip(rows.tolist(), keys, strict=True):
            headers = _pairs(batch.column("headers")[row].as_py()) if form.is_avro else ()
            known = (key, headers)
            try:
                if known not in verdicts:
                    verdicts[known] = key_problem(key, form, headers, self.schemas.get)
                problem = verdicts[known]
            except UnknownSchema as exc:
                findings.unknown[row] = exc.token
                continue
            if problem is not None:
                findings.reject(row, "key-mismatch", problem)

    def _settle(self, findings: _Findings) -> None:
        """Ask the driver for new ids; what it does not know either is rejected."""
        news = self.schemas.news(findings.unknown.values())
        if news:
            raise UnknownSchemas(self.operation, news)
        for row, token in findings.unknown.items():
            findings.reject(row, "unknown-schema", self.unknown_schema(token))

    def unknown_schema(self, token: str) -> str:
        """Return the reason of a record whose schema the registry does not know, or was not asked for."""
        asked = token in self.schemas.missing
        return f"the registry has no schema with {token}" if asked else f"{token}: {_TOO_MANY}"


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return tuple((pair["key"], pair["value"]) for pair in headers or ())


def _distinct(events: EventColumns) -> tuple[list[tuple[str | None, str | None]], Rows]:
    """Give every pair of type and dataschema once, and which of them each row has."""
    none = pa.nulls(events.rows, pa.utf8())
    types = events.attributes.get("type", none).dictionary_encode("encode")
    schemas = events.attributes.get("dataschema", none).dictionary_encode("encode")
    width = max(len(schemas.dictionary), 1)
    codes = types.indices.to_numpy().astype(np.int64) * width + schemas.indices.to_numpy()
    distinct, which = np.unique(codes, return_inverse=True)
    first, second = types.dictionary.to_pylist(), schemas.dictionary.to_pylist()
    return [(first[code // width], second[code % width]) for code in distinct.tolist()], which


# JSON Schema


def _validate(form: Form, rows: Rows, events: EventColumns, findings: _Findings) -> None:
    validator = json_validator(form.schema or "true")
    for row in rows.tolist():
        if row in findings.rejects or row in findings.unknown:
            continue
        try:
            value = _envelope(events, row) if form.is_envelope else _json_at(events, row, findings)
        except ValueError as exc:
            findings.reject(row, "schema-mismatch", f"message {form.name}: data is not JSON: {exc}")
            continue
        problem = None if value is _nothing else first_error(validator, value)
        if problem is not None:
            place = "".join(f"/{step}" for step in problem.path)
            reason = f"message {form.name}: {place or 'the value'}: {problem.message[:500]}"
            findings.reject(row, "schema-mismatch", reason)


_nothing: Final = object()
"""There is no data, so no schema speaks of it: a tombstone, or an event that is only its attributes."""


def _json_at(events: EventColumns, row: int, findings: _Findings) -> Any:
    raw = findings.data.get(row)
    if raw is None:
        raw = events.data[row].as_py()
    return _nothing if raw is None else loads(raw)


def _envelope(events: EventColumns, row: int) -> Any:
    return loads(_STRUCTURED.encode(event_at(events, row)).value or b"")


# Putting it into the columns


def _applied(events: EventColumns, findings: _Findings) -> EventColumns:
    rejects = findings.rejects
    changed = {row: raw for row, raw in findings.data.items() if row not in rejects}
    codes = {row: code for row, (code, _) in rejects.items()}
    reasons = {row: reason for row, (_, reason) in rejects.items()}
    attributes = {name: _blank(texts, rejects) for name, texts in events.attributes.items()}
    if changed:
        known = attributes.get("datacontenttype", pa.nulls(events.rows, pa.utf8()))
        attributes["datacontenttype"] = _put(known, dict.fromkeys(changed, _JSON))
    return replace(
        events,
        attributes=attributes,
        data=_blank(_put(events.data, changed), rejects),
        code=_put(events.code, codes),
        reason=_put(events.reason, reasons),
        foreign=_without_ids(events.foreign, changed),
    )


def _put(column: pa.Array, values: Mapping[int, Any]) -> pa.Array:
    """Give a column with other values in some rows."""
    if not values:
        return column
    rows = sorted(values)
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array([values[row] for row in rows], column.type))


def _blank(column: pa.Array, rows: Mapping[int, Any]) -> pa.Array:
    return _put(column, dict.fromkeys(rows))


def _without_ids(foreign: pa.ListArray, changed: Mapping[int, Any]) -> pa.ListArray:
    """Take schema ids out of the headers of events whose data is no longer what they speak of."""
    if not changed or not pc.any(pc.is_in(foreign.values.field(0), pa.array(_ID_HEADERS, pa.utf8()))).as_py():
        return foreign
    lists = foreign.to_pylist()
    for row in changed:
        kept = without_ids(_pairs(lists[row]))
        lists[row] = [{"key": name, "value": value} for name, value in kept]
    return pa.array(lists, HEADERS)
