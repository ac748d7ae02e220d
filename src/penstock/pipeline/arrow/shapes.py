"""Which rows of a batch have the same header names in the same order: their shape.

A topic has few shapes, so what depends on names is decided once a shape and not once a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Shape", "shapes_of"]

_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows that have these header names."""

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Where each row's first header stands among all headers of the batch."""


def shapes_of(headers: pa.ListArray) -> Iterator[Shape]:
    """Share the rows out by shape; a row without headers, or with null ones, has the empty shape."""
    offsets = headers.offsets.to_numpy().astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if headers.null_count:
        lengths = np.where(headers.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    names, codes = _codes(headers)
    for rows in _groups(_signatures(starts, lengths, codes)):
        yield from _exact(rows, starts, lengths, codes, names)


def _codes(headers: pa.ListArray) -> tuple[list[str], NDArray[np.int64]]:
    encoded = headers.values.field(0).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _signatures(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], codes: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Give rows of one shape the same number; others may share it, which `_exact` sorts out."""
    longest = int(lengths.max(initial=0))
    signature = lengths.astype(np.uint64)
    with np.errstate(over="ignore"):
        for position in range(longest):
            has = lengths > position
            code = codes[starts[has] + position].astype(np.uint64)
            signature[has] = (signature[has] ^ (code + np.uint64(1))) * _PRIME
            signature[has] ^= signature[has] >> np.uint64(29)
    return signature


def _groups(signatures: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
    if not len(signatures):
        return []
    if (signatures == signatures[0]).all():
        return [np.arange(len(signatures), dtype=np.int64)]
    _, inverse = np.unique(signatures, return_inverse=True)
    order = np.argsort(inverse, kind="stable").astype(np.int64)
    return list(np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1))


def _exact(
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    codes: NDArray[np.int64],
    names: list[str],
) -> Iterator[Shape]:
    """Split a group until all of its rows really have the same names."""
    while len(rows):
        first = rows[0]
        length = int(lengths[first])
        wanted = codes[starts[first] : starts[first] + length]
        same = lengths[rows] == length
        for position in range(length):
            same[same] = codes[starts[rows[same]] + position] == wanted[position]
        yield Shape(tuple(names[code] for code in wanted), rows[same], starts[rows[same]])
        rows = rows[~same]
