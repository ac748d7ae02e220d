"""The events that a route keeps as records, a batch at a time: mode, columns and size of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.reading import Mode as EventMode
from penstock.pipeline.arrow.bindings import Binding
from penstock.pipeline.arrow.buffers import buffers_of
from penstock.pipeline.arrow.cells import mask_of
from penstock.pipeline.arrow.encode import encode_batch
from penstock.pipeline.arrow.route import Kept
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.size import BATCH, LENGTH, RECORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

__all__ = ["Departure", "depart"]


@dataclass(frozen=True, slots=True)
class Departure:
    """Records, ready to be written; `code` and `reason` say why one could not be made."""

    rows: Rows
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray
    code: pa.StringArray
    reason: pa.StringArray

    def take(self, picked: Rows) -> Departure:
        """Give some of the records, in this order."""
        if len(picked) == len(self.rows):
            return self
        chosen = pa.array(picked)
        columns = (self.keys, self.values, self.headers, self.code, self.reason)
        return Departure(self.rows[picked], *(column.take(chosen) for column in columns))

    def sizes(self) -> Rows:
        """Count what `size.batch_bytes` counts, or a little more where a null hides bytes."""
        bounds = self.headers.offsets.to_numpy().astype(np.int64)
        total = BATCH + RECORD + LENGTH + 2 * LENGTH * (1 + np.diff(bounds))
        for column in (self.headers.values.field(0), self.headers.values.field(1)):
            places = buffers_of(column)[1]
            total = total + places[bounds[1:]] - places[bounds[:-1]]
        for column in (self.keys, self.values):
            total = total + np.diff(buffers_of(column)[1])
        return np.asarray(total, dtype=np.int64)


def depart(kept: Kept, plan: RoutePlan, binding_in: Callable[[EventMode], Binding]) -> Iterator[Departure]:
    """Write the events of a route in its mode, by the binding that there is for it; each mode gives one."""
    structured = _structured(kept, plan)
    for wanted, mode in ((structured, EventMode.STRUCTURED), (~structured, EventMode.BINARY)):
        if wanted.any():
            yield _written(_some(kept, wanted), binding_in(mode))


def _structured(kept: Kept, plan: RoutePlan) -> Mask:
    """Say which events are written in structured mode."""
    events = kept.events
    wanted = np.full(events.rows, plan.mode is Mode.STRUCTURED)
    if plan.mode is Mode.KEEP:
        wanted = mask_of(events.structured)
    if plan.writes_no_data_as_event:
        return wanted
    # A tombstone stays one: a null value is an event without data, which only binary mode can say.
    return wanted & (mask_of(events.data.is_valid()) | mask_of(events.structured))


def _some(kept: Kept, wanted: Mask) -> Kept:
    if wanted.all():
        return kept
    rows = np.flatnonzero(wanted)
    picked = pa.array(rows)
    return Kept(kept.rows[rows], kept.events.take(picked), kept.keys.take(picked), kept.is_json[rows])


def _written(kept: Kept, binding: Binding) -> Departure:
    events = kept.events
    if binding.mode is EventMode.STRUCTURED and kept.is_json.any():
        # The scan has seen that this is JSON: it need not be parsed again to be spliced.
        events = replace(events, data_is_json=pc.or_(events.data_is_json, pa.array(kept.is_json)))
    records = encode_batch(events, binding)
    return Departure(kept.rows, kept.keys, records.value, records.headers, records.code, records.reason)
