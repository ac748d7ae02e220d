"""One batch of events as columns: what decoding gives and encoding takes.

Every column has one value a row of the batch it came from. A row that was rejected has nulls in all event
columns, and its code and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

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
    code: pa.StringArray
    """Why a row is no event; null where it is one."""
    reason: pa.StringArray
    foreign: pa.ListArray
    """Headers of the application, in order, repeated and null ones included."""
    types: Mapping[str, pa.UInt8Array] = field(default_factory=dict)
    """Marks of declared types by extension name; an extension that is not here is text in every row."""

    @property
    def rejected(self) -> pa.BooleanArray:
        """Which rows are no events."""
        return self.code.is_valid()
