"""The event columns of a DataFrame: one row an event, extensions in a map, for Arrow and for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.rules import CORE
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import HEADERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ATTRIBUTES", "EVENT_DDL", "EVENT_SCHEMA", "EXTENSIONS", "attributes_of", "event_arrays"]

ATTRIBUTES: Final = tuple(CORE)
EXTENSIONS: Final = pa.map_(pa.utf8(), pa.utf8())
EVENT_SCHEMA: Final = pa.schema(
    [
        *((name, pa.utf8()) for name in ATTRIBUTES),
        ("extensions", EXTENSIONS),
        ("data", pa.binary()),
        ("mode", pa.utf8()),
        ("foreign", HEADERS),
        ("code", pa.utf8()),
        ("reason", pa.utf8()),
    ]
)
EVENT_DDL: Final = ", ".join(
    (
        *(f"{name} string" for name in ATTRIBUTES),
        "extensions map<string,string>",
        "data binary, mode string",
        "foreign array<struct<key:string,value:binary>>",
        "code string, reason string",
    )
)


def event_arrays(events: EventColumns) -> list[pa.Array]:
    """Give the columns of `EVENT_SCHEMA`; those of a reject are null but for code and reason."""
    alive = events.code.is_null()
    texts = {name: events.attributes.get(name) for name in ATTRIBUTES}
    columns = {
        name: pa.nulls(events.rows, pa.utf8()) if each is None else each for name, each in texts.items()
    }
    # JSON format 3.1.2: without datacontenttype the data of a JSON object is application/json.
    implied = pc.and_(events.data_is_json, columns["datacontenttype"].is_null())
    columns["datacontenttype"] = pc.if_else(implied, "application/json", columns["datacontenttype"])
    mode = pc.if_else(events.structured, "structured", "binary")
    return [
        *columns.values(),
        _extensions(events),
        events.data,
        pc.if_else(alive, mode, pa.scalar(None, pa.utf8())),
        events.foreign,
        events.code,
        events.reason,
    ]


def _extensions(events: EventColumns) -> pa.MapArray:
    """Gather all extensions of each row in one map, by name."""
    names = [name for name in events.names() if name not in CORE]
    there = [_mask(events.attributes[name].is_valid()) for name in names]
    counts = np.sum(there, axis=0, dtype=np.int32) if names else np.zeros(events.rows, dtype=np.int32)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    if not names:
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.utf8()), pa.array([], pa.utf8()))
    rows = np.concatenate([np.flatnonzero(mask) for mask in there])
    order = pa.array(np.argsort(rows, kind="stable"))
    keys = pa.array(np.repeat(np.array(names, dtype=object), [int(mask.sum()) for mask in there]), pa.utf8())
    texts = pa.concat_arrays([events.attributes[name].drop_null() for name in names])
    return pa.MapArray.from_arrays(offsets, keys.take(order), texts.take(order))


def attributes_of(batch: pa.RecordBatch) -> dict[str, pa.StringArray]:
    """Give the attributes of a batch of event columns; those that are not there are left out."""
    found = {name: batch.column(name) for name in ATTRIBUTES if name in batch.schema.names}
    if "specversion" not in found:
        found["specversion"] = pa.repeat(pa.scalar("1.0"), batch.num_rows)
    if "extensions" in batch.schema.names:
        found |= _split(batch.column("extensions"))
    return found


def _split(maps: pa.MapArray) -> dict[str, pa.StringArray]:
    """Make a column of each extension; null where a row does not have it."""
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    encoded = maps.keys[first:last].dictionary_encode()
    codes, items = encoded.indices.to_numpy(), maps.items[first:last]
    found = {}
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        mine = np.flatnonzero(codes == code)
        places = np.full(len(maps), -1, dtype=np.int64)
        places[rows[mine]] = mine
        found[name] = items.take(pa.array(places, mask=places < 0))
    return found


def _mask(found: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)
