"""The bytes of a column, as NumPy and kernels see them, not copied; and booleans as masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

__all__ = ["buffers_of", "bytes_of", "mask_of"]


def buffers_of(array: pa.Array) -> tuple[Bytes, Rows]:
    """Give the bytes of a binary or text array, and where each row begins and the last one ends."""
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, content = array.buffers()
    if not len(array) or content is None:
        return np.empty(0, dtype=np.uint8), np.zeros(len(array) + 1, dtype=np.int64)
    numbers = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)
    places = numbers[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return np.frombuffer(content, dtype=np.uint8), places


def bytes_of(array: pa.Array) -> Bytes:
    """Give the bytes of all rows behind each other."""
    content, places = buffers_of(array)
    return content[places[0] : places[-1]]


def mask_of(values: pa.BooleanArray) -> Mask:
    """Say where values are true; null counts as not."""
    filled = pc.fill_null(values, False) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)
