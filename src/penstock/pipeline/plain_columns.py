"""Plain records to events by whole columns, where the result is certain; the other rows are given back.

Rows are shared out by the names of their headers. A header that stands alone, is text and is a legal value
of its attribute needs no second look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidEvent
from penstock.events.event_mapping import EVENT_TYPE_ATTRIBUTES, HEADER_ATTRIBUTES, PREFIX
from penstock.events.event_type import SPLIT_HEADERS, EventType
from penstock.events.rules import is_name
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.certain import certainly_valid, texts_of
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.shapes import Shape, shapes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["LAST_MILLISECOND", "Part", "header_places", "join", "read_by_columns"]

_EVENT_TYPE: Final = "event-type"
_SLOW: Final = frozenset({*SPLIT_HEADERS, "source-identity"})
"""Headers that mean more than one attribute each."""
_OWN: Final = frozenset(HEADER_ATTRIBUTES.values()) | frozenset(EVENT_TYPE_ATTRIBUTES.values())
"""Attributes that have a header of their own."""
LAST_MILLISECOND: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a batch as events: columns of those rows only."""

    rows: pa.IntegerArray
    attributes: Mapping[str, pa.StringArray]
    data: pa.BinaryArray
    foreign: pa.ListArray
    code: pa.StringArray
    reason: pa.StringArray


def read_by_columns(
    batch: pa.RecordBatch, source: str, kind: str | None, content_type: str | None
) -> tuple[list[Part], pa.IntegerArray | None]:
    """Give the parts of which everything is certain, and the numbers of the other rows."""
    parts: list[Part] = []
    slow: list[Rows] = []
    given = {"source": source, "type": kind, "datacontenttype": content_type}
    for shape in shapes_of(batch.column("headers")):
        certain, columns = _columns(shape, batch, given)
        kept = shape.rows[certain]
        if len(kept):
            parts.append(_part(shape, certain, columns, batch))
        slow += [shape.rows[~certain]] if len(kept) < len(shape.rows) else []
    return parts, pa.array(np.sort(np.concatenate(slow))) if slow else None


def _columns(
    shape: Shape, batch: pa.RecordBatch, given: Mapping[str, str | None]
) -> tuple[Mask, dict[str, pa.StringArray]]:
    """Give every attribute of the rows of a shape, and which rows are certain."""
    certain = np.ones(len(shape.rows), dtype=bool)
    places = header_places(shape.names)
    if places is None:
        return ~certain, {}
    values = batch.column("headers").values.field(1)
    columns: dict[str, pa.StringArray] = {}
    for attribute, place in places.items():
        texts, sound = texts_of(values.take(pa.array(shape.starts + place)))
        certain &= sound if sound is not None else True
        columns[attribute] = texts.fill_null("") if texts.null_count else texts
    if _EVENT_TYPE in columns:
        certain &= _type_columns(columns)
    certain &= _fill(columns, batch.take(pa.array(shape.rows)), given)
    for name, texts in columns.items():
        if name in places:
            certain &= certainly_valid(name, texts)
    return certain, columns


def header_places(names: Sequence[str]) -> dict[str, int] | None:
    """Return the place of each attribute among headers; None if their names alone need a closer look."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        lower = name.lower()
        attribute = HEADER_ATTRIBUTES.get(lower) or (lower if lower == _EVENT_TYPE else None)
        if lower.startswith(PREFIX):
            attribute = lower.removeprefix(PREFIX)
            if attribute in _OWN:
                return None
        if lower in _SLOW or attribute in places:
            return None
        if attribute is not None:
            if attribute != _EVENT_TYPE and not is_name(attribute):
                return None
            places[attribute] = place
    return places


def _type_columns(columns: dict[str, pa.StringArray]) -> Mask:
    """Take event-type apart, each spelling once; its parts are legal if the constructor takes them."""
    encoded = columns.pop(_EVENT_TYPE).dictionary_encode()
    found = [_parsed(text) for text in encoded.dictionary.to_pylist()]
    indices = encoded.indices
    good: Mask = np.array([each is not None for each in found], dtype=bool)[indices.to_numpy()]
    for part, attribute in EVENT_TYPE_ATTRIBUTES.items():
        texts = pa.array([getattr(each, part) if each else None for each in found], pa.utf8()).take(indices)
        good &= attribute not in columns
        columns[attribute] = texts
        good &= certainly_valid(attribute, texts.fill_null("x"))
    return good


def _parsed(text: str) -> EventType | None:
    try:
        return EventType.parse(text)
    except InvalidEvent:
        return None


def _fill(columns: dict[str, pa.StringArray], rows: pa.RecordBatch, given: Mapping[str, str | None]) -> Mask:
    """Add what the headers do not say; False where something is missing or strange."""
    certain = np.ones(rows.num_rows, dtype=bool)
    has_body = _mask(rows.column("value").is_valid())
    # A null without a type is a tombstone, and a body without a content type breaks a rule.
    certain &= has_body if "type" not in columns else True
    certain &= ~has_body | (given["datacontenttype"] is not None) | ("datacontenttype" in columns)
    columns.setdefault("specversion", _constant("1.0", rows.num_rows))
    for name, text in given.items():
        if name not in columns and text is not None:
            columns[name] = _constant(text, rows.num_rows)
            certain &= certainly_valid(name, columns[name])
            if name == "datacontenttype":
                columns[name] = pc.if_else(pa.array(has_body), columns[name], None)
    certain &= "type" in columns and "source" in columns
    if "subject" not in columns:
        columns["subject"] = rows.column("topic")
        certain &= certainly_valid("subject", columns["subject"].fill_null(""))
    if "id" not in columns:
        columns["id"] = _addresses(rows)
        certain &= _mask(columns["id"].is_valid())
    if "time" not in columns:
        columns["time"], known = _times(rows.column("timestamp"))
        certain &= known
    return certain


def _addresses(rows: pa.RecordBatch) -> pa.StringArray:
    parts = [rows.column(name).cast(pa.utf8()) for name in ("topic", "partition", "offset")]
    return pc.binary_join_element_wise(*parts, pa.scalar("/"))


def _times(milliseconds: pa.Int64Array) -> tuple[pa.StringArray, Mask]:
    """Write moments as events do: no fraction where there is none, else six digits."""
    known = _mask(pc.and_(pc.greater_equal(milliseconds, 0), pc.less_equal(milliseconds, LAST_MILLISECOND)))
    moments = pc.if_else(pa.array(known), milliseconds, 0).cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    texts = pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")
    return pc.replace_substring(texts, ".000000Z", "Z"), known


def _part(shape: Shape, certain: Mask, columns: Mapping[str, pa.StringArray], batch: pa.RecordBatch) -> Part:
    kept = pa.array(np.flatnonzero(certain))
    rows = pa.array(shape.rows[certain])
    none = pa.nulls(len(rows), pa.utf8())
    return Part(
        rows=rows,
        attributes={name: texts.take(kept) for name, texts in columns.items()},
        data=batch.column("value").take(rows),
        foreign=_foreign(shape, shape.starts[certain], batch.column("headers")),
        code=none,
        reason=none,
    )


def _foreign(shape: Shape, starts: Rows, headers: pa.ListArray) -> pa.ListArray:
    owned = set((header_places(shape.names) or {}).values())
    mine = np.array([place for place in range(len(shape.names)) if place not in owned], dtype=np.int64)
    indices = (starts[:, None] + mine).ravel()
    offsets = np.arange(0, (len(starts) + 1) * len(mine), max(len(mine), 1), dtype=np.int32)
    if not len(mine):
        offsets = np.zeros(len(starts) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), headers.values.take(pa.array(indices))).cast(HEADERS)


def join(parts: Sequence[Part], rows: int) -> EventColumns:
    """Put the parts together in the order of the batch."""
    order = np.concatenate([part.rows.to_numpy() for part in parts]) if parts else np.empty(0, np.int64)
    inverse = np.empty(rows, dtype=np.int64)
    inverse[order] = np.arange(rows)
    back = pa.array(inverse)

    def column(pieces: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        return pa.concat_arrays(pieces).take(back) if pieces else pa.nulls(0, kind)

    names = dict.fromkeys(name for part in parts for name in part.attributes)
    texts = {
        name: column([p.attributes.get(name, pa.nulls(len(p.rows), pa.utf8())) for p in parts], pa.utf8())
        for name in names
    }
    no = _flags(rows)
    return EventColumns(
        rows=rows,
        attributes=texts,
        data=column([part.data for part in parts], pa.binary()),
        data_is_json=no,
        structured=no,
        code=column([part.code for part in parts], pa.utf8()),
        reason=column([part.reason for part in parts], pa.utf8()),
        foreign=column([part.foreign for part in parts], HEADERS),
    )


def _flags(rows: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(False), rows)


def _constant(text: str, rows: int) -> pa.StringArray:
    return pa.repeat(pa.scalar(text, pa.utf8()), rows)


def _mask(found: pa.BooleanArray) -> Mask:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
