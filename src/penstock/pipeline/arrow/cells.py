"""One value for each row of a batch, and of which rows it is not certain.

Values are Arrow arrays: booleans, doubles (decimals of up to 15 digits, which a double holds and orders
exactly), texts, and moments in microseconds; null is null. What stands in a row that is unsure means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["Cells", "any_unsure", "broadcast", "mask_of"]


@dataclass(frozen=True, slots=True)
class Cells:
    """Values, one a row, or one for all rows; `unsure` is None if all of them are certain."""

    values: pa.Array | pa.Scalar
    unsure: Mask | None = None


def any_unsure(cells: Sequence[Cells]) -> Mask | None:
    """Say which rows are unsure in any of these."""
    masks = [cell.unsure for cell in cells if cell.unsure is not None]
    return np.logical_or.reduce(masks) if masks else None


def broadcast(values: pa.Array | pa.Scalar, rows: int, kind: pa.DataType) -> pa.Array:
    """Give a value for each row."""
    if isinstance(values, pa.Scalar):
        return pa.repeat(values.cast(kind), rows) if values.is_valid else pa.nulls(rows, kind)
    return values


def mask_of(values: pa.BooleanArray) -> Mask:
    """Say where values are true; null counts as not."""
    filled = pc.fill_null(values, False) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)
