"""One batch of events as columns: what decoding gives and encoding takes.

Every column has one value a row of the batch it came from. A row that was rejected has nulls in all event
columns, and its code and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.rules import CORE

__all__ = ["INTEGER", "NATIVE_TYPES", "STRING", "EventColumns"]

STRING, INTEGER, BOOLEAN, OTHER = 0, 1, 2, 3
NATIVE_TYPES = {"String": STRING, "Integer": INTEGER, "Boolean": BOOLEAN}
"""How a declared type of an extension is marked in `types`; any other type is written as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumns:
    """The events of one batch."""

    rows: int
    attributes: Mapping[str, pa.StringArray]
    """Text by attribute name; null where the event has no such attribute."""
    data: pa.BinaryArray
    """Null where the event has no data."""
    data_is_json: pa.BooleanArray
    """True where data is a JSON value rather than bytes."""
    structured: pa.BooleanArray
    """True where the event came in structured mode."""
    code: pa.StringArray
    """Why a row is no event; null where it is one."""
    reason: pa.StringArray
    foreign: pa.ListArray
    """Headers of the application, in order, repeated and null ones included."""
    types: Mapping[str, pa.UInt8Array] = field(default_factory=dict)
    """Marks of declared types by extension name; an extension that is not here is text in every row."""

    @classmethod
    def empty(cls) -> EventColumns:
        """Give no events."""
        headers = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))
        return cls(
            rows=0,
            attributes={},
            data=pa.array([], pa.binary()),
            data_is_json=pa.array([], pa.bool_()),
            structured=pa.array([], pa.bool_()),
            code=pa.array([], pa.utf8()),
            reason=pa.array([], pa.utf8()),
            foreign=pa.array([], headers),
        )

    def take(self, rows: pa.IntegerArray) -> EventColumns:
        """Give some of the rows, in this order."""
        return EventColumns(
            rows=len(rows),
            attributes={name: texts.take(rows) for name, texts in self.attributes.items()},
            data=self.data.take(rows),
            data_is_json=self.data_is_json.take(rows),
            structured=self.structured.take(rows),
            code=self.code.take(rows),
            reason=self.reason.take(rows),
            foreign=self.foreign.take(rows),
            types={name: marks.take(rows) for name, marks in self.types.items()},
        )

    def with_rejects(self, rejects: Mapping[int, tuple[str, str]]) -> EventColumns:
        """Give the same rows, some of which are rejected: each of these has a code and a reason."""
        if not rejects:
            return self
        there = np.zeros(self.rows, bool)
        there[list(rejects)] = True
        mask = pa.array(there)

        def emptied(column: pa.Array, value: object = None) -> pa.Array:
            return pc.if_else(mask, pa.scalar(value, column.type), column)

        def told(column: pa.Array, which: int) -> pa.Array:
            known = column.to_pylist()
            return pa.array(
                [rejects[n][which] if n in rejects else text for n, text in enumerate(known)], pa.utf8()
            )

        return EventColumns(
            rows=self.rows,
            attributes={name: emptied(texts) for name, texts in self.attributes.items()},
            data=emptied(self.data),
            data_is_json=emptied(self.data_is_json, False),
            structured=emptied(self.structured, False),
            code=told(self.code, 0),
            reason=told(self.reason, 1),
            foreign=emptied(self.foreign, []),
            types={name: emptied(marks, 0) for name, marks in self.types.items()},
        )

    def names(self) -> list[str]:
        """Name the attributes in the order in which they are written: core first, then by name."""
        own = [name for name in CORE if name in self.attributes]
        return own + sorted(name for name in self.attributes if name not in CORE)

    @property
    def rejected(self) -> pa.BooleanArray:
        """Which rows are no events."""
        return self.code.is_valid()
