"""Events to records, a batch at a time: binary headers, or the JSON format spliced from columns.

Attributes are written core first, then by name. JSON is spliced only where every text needs no escape and
data is known to be JSON; every other row is written by the binding itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CannotEncode, MissingExtra
from penstock.events.bindings.pulsar import Profile, Values, is_own
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json, absent
from penstock.events.formats import FORMATS
from penstock.events.headers import CONTENT_TYPE, header_of
from penstock.events.jsontext import loads
from penstock.events.media import is_json
from penstock.events.reading import Mode
from penstock.events.types import AttributeType
from penstock.pipeline.arrow.batch import NATIVE_TYPES, STRING, EventColumns
from penstock.pipeline.arrow.bindings import Binding, PulsarRecords
from penstock.pipeline.arrow.buffers import buffers_of, bytes_of
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.properties01 import can_be_01, pairs_01
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["Records", "encode_batch", "event_at"]

_TYPES: Mapping[int, AttributeType] = {mark: AttributeType(name) for name, mark in NATIVE_TYPES.items()}
_MARKER = FORMATS.named("json").media_type.encode()
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_ESCAPED = r'["\\\x00-\x1f]'
"""What JSON escapes; control characters are in attributes that only lenient reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a batch of events; `code` and `reason` say why a row could not be written."""

    value: pa.BinaryArray
    headers: pa.ListArray
    code: pa.StringArray
    reason: pa.StringArray


def encode_batch(events: EventColumns, binding: Binding) -> Records:
    """Write every row; none may be a reject."""
    fast = _fast_of(binding)
    certain = np.zeros(events.rows, dtype=bool) if fast is None else fast[0](events)
    if isinstance(binding, PulsarRecords) and certain.any():
        certain &= ~_has_own(events.foreign)
    kept, slow = np.flatnonzero(certain), np.flatnonzero(~certain)
    parts = [_one_by_one(events, slow, binding)] if len(slow) or not events.rows else []
    if len(kept) and fast is not None:
        parts.insert(0, fast[1](events if not len(slow) else events.take(pa.array(kept))))
    if len(parts) == 1:
        return parts[0]
    return _join(parts, np.concatenate([kept, slow]))


def _fast_of(binding: Binding) -> _Fast | None:
    """Give what says which rows can be written by columns, and what writes them."""
    if isinstance(binding, PulsarRecords):
        asked = binding.pulsar
        plain = asked.format == "json" and asked.values is Values.AUTO and not asked.repeat_properties
        return _FAST.get((asked.profile, asked.mode)) if plain else None
    plain = binding.format == "json" and not binding.repeat_headers and binding.target_has_headers
    return _FAST.get((None, binding.mode)) if plain else None


def _has_own(foreign: pa.ListArray) -> Mask:
    """Say which rows have a header of the application that Pulsar's binding would take for its own."""
    found = np.zeros(len(foreign), dtype=bool)
    offsets = foreign.offsets.to_numpy().astype(np.int64)
    names = foreign.values.field(0)[offsets[0] : offsets[-1]].dictionary_encode()
    own = np.array([is_own(name) for name in names.dictionary.to_pylist()], dtype=bool)
    if own.any():
        places = np.flatnonzero(own[names.indices.to_numpy()]) + offsets[0]
        found[np.searchsorted(offsets, places, side="right") - 1] = True
    return found


def event_at(events: EventColumns, row: int) -> CloudEvent:
    """Give one row as an event."""
    texts = {name: events.attributes[name][row].as_py() for name in events.names()}
    attributes = {name: text for name, text in texts.items() if text is not None}
    marks = {name: marks[row].as_py() for name, marks in events.types.items() if name in attributes}
    types = {name: _TYPES.get(mark, AttributeType.STRING) for name, mark in marks.items() if mark}
    return CloudEvent.unchecked(attributes, _data_at(events, row), types)


def _data_at(events: EventColumns, row: int) -> Data:
    raw = events.data[row].as_py()
    if raw is None:
        return absent
    return Json.parse(raw) if events.data_is_json[row].as_py() else raw


# The exact way


def _one_by_one(events: EventColumns, rows: Rows, binding: Binding) -> Records:
    values: list[bytes | None] = []
    headers: list[list[dict[str, object]]] = []
    codes: list[str | None] = []
    reasons: list[str | None] = []
    for row in rows.tolist():
        foreign = tuple((pair["key"], pair["value"]) for pair in events.foreign[row].as_py() or ())
        try:
            record = binding.encode(event_at(events, row), headers=foreign)
            code, reason = None, None
        except CannotEncode as exc:
            record, code, reason = KafkaRecord(headers=foreign), "cannot-encode", str(exc)
        values.append(record.value)
        headers.append([{"key": name, "value": value} for name, value in record.headers])
        codes.append(code)
        reasons.append(reason)
    return Records(
        value=pa.array(values, pa.binary()),
        headers=pa.array(headers, HEADERS),
        code=pa.array(codes, pa.utf8()),
        reason=pa.array(reasons, pa.utf8()),
    )


def _join(parts: Sequence[Records], order: Rows) -> Records:
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[order] = np.arange(len(order))
    back = pa.array(inverse)

    def column(pieces: Sequence[pa.Array]) -> pa.Array:
        return pa.concat_arrays(pieces).take(back)

    return Records(
        value=column([part.value for part in parts]),
        headers=column([part.headers for part in parts]),
        code=column([part.code for part in parts]),
        reason=column([part.reason for part in parts]),
    )


def _records(value: pa.Array, headers: pa.Array) -> Records:
    none = pa.nulls(len(value), pa.utf8())
    return Records(value=value, headers=headers, code=none, reason=none)


# Binary mode


def _can_be_binary(events: EventColumns) -> Mask:
    # JSON format 3.1.2: a JSON value without datacontenttype is made explicit, by the binding.
    return ~_mask(events.data_is_json)


def _binary(events: EventColumns) -> Records:
    pairs = [(header_of(name), events.attributes[name].cast(pa.binary())) for name in events.names()]
    return _records(events.data, _headers(pairs, events.foreign))


def _binary_01(events: EventColumns) -> Records:
    return _records(events.data, _headers(pairs_01(events), events.foreign))


def _headers(pairs: Sequence[tuple[str, pa.Array]], foreign: pa.ListArray) -> pa.ListArray:
    """Interleave columns to a list of headers a row, without nulls, foreign headers behind."""
    rows = len(foreign)
    width = len(pairs)
    # Column by column behind each other, then the foreign ones: all headers, to be taken row by row.
    keys = pa.concat_arrays(
        [*(pa.repeat(pa.scalar(name, pa.utf8()), rows) for name, _ in pairs), foreign.values.field(0)]
    )
    values = pa.concat_arrays([*(column for _, column in pairs), foreign.values.field(1)])
    own = np.arange(rows * width, dtype=np.int64).reshape(width, rows).T
    there = np.stack([_mask(column.is_valid()) for _, column in pairs], axis=1) if pairs else own.astype(bool)
    offsets = foreign.offsets.to_numpy().astype(np.int64)
    counts = there.sum(axis=1) + np.diff(offsets)
    none = offsets[-1] == offsets[0]
    indices = own[there] if none else _with_foreign(own, there, offsets, rows * width)
    struct = pa.StructArray.from_arrays(
        [keys.take(pa.array(indices)), values.take(pa.array(indices))], ["key", "value"]
    )
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), struct).cast(HEADERS)


def _with_foreign(own: Rows, there: Mask, offsets: Rows, base: int) -> Rows:
    rows = len(own)
    extra = np.diff(offsets)
    row_of_own = np.repeat(np.arange(rows), there.sum(axis=1))
    row_of_extra = np.repeat(np.arange(rows), extra)
    positions = base + np.arange(offsets[0], offsets[-1], dtype=np.int64)
    order = np.argsort(np.concatenate([row_of_own, row_of_extra]), kind="stable")
    return np.concatenate([own[there], positions])[order]


# Structured mode, JSON format


def _can_be_spliced(events: EventColumns) -> Mask:
    certain = np.ones(events.rows, dtype=bool)
    for texts in events.attributes.values():
        written = bytes_of(texts)
        if (written == _QUOTE).any() or (written == _BACKSLASH).any() or (written < _SPACE).any():
            certain &= ~_mask(pc.match_substring_regex(texts, _ESCAPED).fill_null(False))
    for marks in events.types.values():
        certain &= _mask(pc.equal(marks, STRING))
    return certain & _is_json_data(events)


def _is_json_data(events: EventColumns) -> Mask:
    """Say of which rows data is absent, or JSON text of a JSON type."""
    good = _mask(events.data.is_null())
    media_types = events.attributes.get("datacontenttype")
    if media_types is None:
        return good | _mask(events.data_is_json)
    encoded = media_types.dictionary_encode()
    json_types = np.array([is_json(text) for text in encoded.dictionary.to_pylist()] + [False])
    codes = encoded.indices.fill_null(len(json_types) - 1).to_numpy(zero_copy_only=False)
    declared = json_types[codes]
    parsed = _mask(events.data_is_json) & (declared | _mask(media_types.is_null()))
    good |= parsed
    unknown = np.flatnonzero(declared & ~good)
    if len(unknown):
        good[unknown] = _certainly_json(events.data, unknown)
        unknown = unknown[~good[unknown]]
    good[unknown] = [_is_json_text(raw) for raw in events.data.take(pa.array(unknown)).to_pylist()]
    return good


def _certainly_json(data: pa.BinaryArray, rows: Rows) -> Mask:
    """Return which rows a scan finds to be JSON: none without Numba, which has the kernel."""
    try:
        from penstock.wire.kernels.json import STACK_SIZE, VALID, scan_json
    except MissingExtra:
        return np.zeros(len(rows), dtype=bool)
    buffer, offsets = buffers_of(data)
    no_paths = np.full(2, -1, dtype=np.int64)
    status, cells = np.empty(len(rows), dtype=np.int64), np.zeros(3 * len(rows), dtype=np.int64)
    names, stack = np.empty(0, dtype=np.uint8), np.zeros(STACK_SIZE, dtype=np.int64)
    scan_json(buffer, offsets, rows, no_paths, names, status, cells, stack)
    return np.asarray(status == VALID, dtype=bool)


def _is_json_text(raw: bytes) -> bool:
    try:
        loads(raw)
    except ValueError:
        return False
    return True


def _spliced(events: EventColumns) -> Records:
    pieces: list[pa.Array | pa.Scalar] = []
    for number, name in enumerate(events.names()):
        before = f'{"{" if number == 0 else ","}"{name}":"'
        pieces += _member(before.encode(), events.attributes[name].cast(pa.binary()), b'"')
    pieces += _member(b',"data":', events.data, b"")
    value = pc.binary_join_element_wise(*pieces, pa.scalar(b"}"), pa.scalar(b""))
    marker = pa.repeat(pa.scalar(_MARKER, pa.binary()), events.rows)
    return _records(value, _headers([(CONTENT_TYPE, marker)], events.foreign))


def _member(before: bytes, texts: pa.BinaryArray, behind: bytes) -> list[pa.Array | pa.Scalar]:
    """Give the pieces of a member; where there is no value, nothing is written."""
    pieces = [pa.scalar(before), texts, pa.scalar(behind)]
    if not texts.null_count:
        return pieces
    return [pc.binary_join_element_wise(*pieces, pa.scalar(b"")).fill_null(b"")]


def _mask(found: pa.BooleanArray) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


_Fast = tuple[Callable[[EventColumns], "Mask"], Callable[[EventColumns], Records]]
# Profile 1.0 has Kafka's names; of 0.1 the binding itself writes what is structured.
_FAST: Mapping[tuple[Profile | None, Mode], _Fast] = {
    (None, Mode.BINARY): (_can_be_binary, _binary),
    (None, Mode.STRUCTURED): (_can_be_spliced, _spliced),
    (Profile.V1_0, Mode.BINARY): (_can_be_binary, _binary),
    (Profile.V1_0, Mode.STRUCTURED): (_can_be_spliced, _spliced),
    (Profile.V0_1, Mode.BINARY): (can_be_01, _binary_01),
}
