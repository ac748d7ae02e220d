"""Records to events, a batch at a time, with the verdicts of their binding (spec 000, spec 002).

Binary mode goes by columns. Structured mode, and every row of which a rule is not certain, is read by the
binding itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import EventError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.content import Json, absent
from penstock.events.draft import failed
from penstock.events.reading import Level, Mode, Reading
from penstock.pipeline.arrow.batch import NATIVE_TYPES, OTHER, EventColumns
from penstock.pipeline.arrow.bindings import Binding, owned_by
from penstock.pipeline.arrow.dialects import columns_of
from penstock.pipeline.arrow.shapes import Shape, shapes_of
from penstock.pipeline.evaluators.reference.reading import CODES
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

__all__ = ["CODES", "HEADERS", "decode_batch"]

HEADERS = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))


@dataclass(slots=True)
class _Part:
    """Some rows of the batch, decoded: the columns of those rows only."""

    rows: Rows
    data: pa.Array
    attributes: dict[str, pa.Array] = field(default_factory=dict)
    types: dict[str, pa.Array] = field(default_factory=dict)
    is_json: pa.Array | None = None
    structured: pa.Array | None = None
    code: pa.Array | None = None
    reason: pa.Array | None = None
    foreign: pa.Array | None = None


def decode_batch(
    value: pa.BinaryArray,
    headers: pa.ListArray,
    binding: Binding | None = None,
    level: Level = Level.STRICT,
) -> EventColumns:
    """Decode one batch of records at the level `strict` or `lenient`."""
    binding = binding or KafkaBinding()
    parts: list[_Part] = []
    slow: list[Rows] = []
    for shape in shapes_of(headers):
        part, left = _by_columns(shape, value, headers, binding, level)
        parts += [part] if part is not None else []
        slow += [left] if len(left) else []
    if slow:
        rows = np.sort(np.concatenate(slow))
        parts.append(_one_by_one(rows, value, headers, binding, level))
    return _join(parts, len(value))


# Binary mode, by columns


def _by_columns(
    shape: Shape, value: pa.BinaryArray, headers: pa.ListArray, binding: Binding, level: Level
) -> tuple[_Part | None, Rows]:
    """Decode the rows of a shape of which everything is certain; give the others back."""
    found = columns_of(shape, headers, binding, level)
    rows, starts = shape.rows, shape.starts
    if found is None or not found.certain.any():
        return None, rows
    certain = found.certain
    everything = bool(certain.all())
    kept = rows if everything else rows[certain]
    pick = None if everything else pa.array(np.flatnonzero(certain))

    def picked(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        return columns if pick is None else {name: column.take(pick) for name, column in columns.items()}

    part = _Part(rows=kept, data=_take(value, kept))
    part.attributes, part.types = picked(found.attributes), picked(found.types)
    part.foreign = _foreign(shape, headers, starts if everything else starts[certain], binding)
    return part, rows[~certain]


def _foreign(shape: Shape, headers: pa.ListArray, starts: Rows, binding: Binding) -> pa.Array | None:
    own = owned_by(binding)
    mine = [position for position, name in enumerate(shape.names) if not own(name)]
    if not mine:
        return None
    indices = (starts[:, None] + np.array(mine, dtype=np.int64)).ravel()
    offsets = np.arange(0, len(indices) + 1, len(mine), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), headers.values.take(pa.array(indices))).cast(HEADERS)


# Everything else, by the binding itself


def _one_by_one(
    rows: Rows, value: pa.BinaryArray, headers: pa.ListArray, binding: Binding, level: Level
) -> _Part:
    picked = pa.array(rows)
    values, pairs = value.take(picked).to_pylist(), headers.take(picked).to_pylist()
    records = [
        KafkaRecord(value=raw, headers=tuple((pair["key"], pair["value"]) for pair in own or ()))
        for raw, own in zip(values, pairs, strict=True)
    ]
    readings = [_read(binding, record, level) for record in records]
    part = _Part(rows=rows, data=pa.array([_data_bytes(reading) for reading in readings], pa.binary()))
    names = dict.fromkeys(name for r in readings if r.event for name in r.event.attributes)
    for name in names:
        part.attributes[name] = pa.array(
            [r.event.get(name) if r.event else None for r in readings], pa.utf8()
        )
    part.types = dict(_types(readings))
    part.is_json = pa.array([r.event is not None and isinstance(r.event.data, Json) for r in readings])
    part.structured = pa.array([r.mode is Mode.STRUCTURED for r in readings])
    part.code = pa.array([None if r.event else CODES[r.verdict] for r in readings], pa.utf8())
    part.reason = pa.array([None if r.event else str(r.error) for r in readings], pa.utf8())
    part.foreign = pa.array(
        [[{"key": k, "value": v} for k, v in binding.foreign(record, level)] for record in records], HEADERS
    )
    return part


def _read(binding: Binding, record: KafkaRecord, level: Level) -> Reading:
    try:
        return binding.read(record, level)
    except EventError as error:
        return failed(error, Level.FORENSIC)


def _data_bytes(reading: Reading) -> bytes | None:
    if reading.event is None or reading.event.data is absent:
        return None
    return reading.event.data_bytes


def _types(readings: Sequence[Reading]) -> Iterator[tuple[str, pa.Array]]:
    names = dict.fromkeys(name for r in readings if r.event for name in r.event.types)
    for name in names:
        kinds = [r.event.types.get(name) if r.event else None for r in readings]
        marks = [0 if kind is None else NATIVE_TYPES.get(kind.value, OTHER) for kind in kinds]
        yield name, pa.array(marks, pa.uint8())


# Putting the parts back in order


def _join(parts: Sequence[_Part], rows: int) -> EventColumns:
    order = np.concatenate([part.rows for part in parts]) if parts else np.empty(0, dtype=np.int64)
    back = None
    if len(parts) > 1 or not np.array_equal(order, np.arange(rows)):
        inverse = np.empty(rows, dtype=np.int64)
        inverse[order] = np.arange(rows)
        back = pa.array(inverse)

    def column(kind: pa.DataType, pieces: Sequence[pa.Array | None], empty: object = None) -> pa.Array:
        filled = [
            piece if piece is not None else _constant(empty, len(part.rows), kind)
            for part, piece in zip(parts, pieces, strict=True)
        ]
        joined = filled[0] if len(filled) == 1 else pa.concat_arrays(filled) if filled else pa.nulls(0, kind)
        return joined if back is None else joined.take(back)

    names = dict.fromkeys(name for part in parts for name in part.attributes)
    typed = dict.fromkeys(name for part in parts for name in part.types)
    return EventColumns(
        rows=rows,
        attributes={n: column(pa.utf8(), [p.attributes.get(n) for p in parts]) for n in names},
        types={n: column(pa.uint8(), [p.types.get(n) for p in parts], 0) for n in typed},
        data=column(pa.binary(), [p.data for p in parts]),
        data_is_json=column(pa.bool_(), [p.is_json for p in parts], False),
        structured=column(pa.bool_(), [p.structured for p in parts], False),
        code=column(pa.utf8(), [p.code for p in parts]),
        reason=column(pa.utf8(), [p.reason for p in parts]),
        foreign=column(HEADERS, [p.foreign for p in parts], []),
    )


def _constant(value: object, length: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(length, kind)
    if value == []:
        none = pa.array(np.zeros(length + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], kind.value_type)).cast(kind)
    return pa.repeat(pa.scalar(value, kind), length)


def _take(array: pa.Array, rows: Rows) -> pa.Array:
    return array if len(rows) == len(array) else array.take(pa.array(rows))
