"""Paths into the JSON data of a batch, found by one scan for all routes.

A row whose data is certainly JSON is `valid`; of every other row the reference has to read the data itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import MissingExtra
from penstock.pipeline.arrow.buffers import buffers_of
from penstock.pipeline.plan.nodes import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

__all__ = ["Found", "Path", "Texts", "can_scan", "find_paths", "texts_at", "trie_of"]

Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """Ranges of a buffer, one a row."""

    buffer: NDArray[np.uint8]
    starts: Rows
    sizes: Rows


@dataclass(frozen=True, slots=True)
class Found:
    """What a scan found: for each row whether the data is JSON, and for each path kind and place."""

    valid: Mask
    buffer: NDArray[np.uint8]
    slots: Mapping[Path, int]
    cells: NDArray[np.int64]
    """By slot: kind, start and size of each row, as `wire.kernels.json` names them."""

    def kinds(self, path: Path) -> Rows:
        """Give the kind of the value at a path, row by row."""
        kinds: Rows = self.cells[self.slots[path], 0]
        return kinds

    def texts(self, path: Path) -> Texts:
        """Give the text of the value at a path; of a string without its quotes."""
        _, starts, sizes = self.cells[self.slots[path]]
        return Texts(self.buffer, starts, sizes)

    def take(self, rows: Rows) -> Found:
        """Give some of the rows, in this order."""
        return replace(self, valid=self.valid[rows], cells=self.cells[:, :, rows])


@lru_cache(maxsize=1)
def can_scan() -> bool:
    """Say whether the kernels are there: without Numba the reference has to do everything."""
    try:
        import penstock.wire.kernels  # noqa: F401
    except MissingExtra:
        return False
    return True


def find_paths(data: pa.BinaryArray, rows: Rows, paths: Iterable[Path]) -> Found:
    """Scan the data of some rows, none of them null; row i of the result is rows[i]."""
    from penstock.wire.kernels.json import STACK_SIZE, VALID, scan_json

    trie, names, slots = _trie(frozenset(paths))
    buffer, offsets = buffers_of(data)
    cells = np.zeros((max(len(slots), 1), 3, len(rows)), dtype=np.int64)
    status = np.empty(len(rows), dtype=np.int64)
    stack = np.zeros(STACK_SIZE, dtype=np.int64)
    scan_json(buffer, offsets, rows, trie.copy(), names, status, cells.reshape(-1), stack)
    return Found(status == VALID, buffer, slots, cells)


def texts_at(texts: Texts, there: Mask) -> pa.StringArray:
    """Copy the texts of those rows that are there; they must be UTF-8; the others are null."""
    from penstock.wire.kernels.json_values import gather

    sizes = np.where(there, texts.sizes, 0)
    starts = np.where(there, texts.starts, 0)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    gather(texts.buffer, starts, sizes, out)
    nulls = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(offsets), pa.py_buffer(out), nulls)


@lru_cache(maxsize=64)
def _trie(paths: frozenset[Path]) -> tuple[NDArray[np.int64], NDArray[np.uint8], Mapping[Path, int]]:
    """Write paths as the kernel reads them."""
    slots = {path: number for number, path in enumerate(sorted(paths, key=repr))}
    names = bytearray()

    def place(name: bytes) -> tuple[int, int]:
        names.extend(name)
        return len(names) - len(name), len(name)

    numbers = trie_of(slots, place)
    return np.array(numbers, dtype=np.int64), np.frombuffer(bytes(names), dtype=np.uint8), slots


def trie_of(slots: Mapping[Path, int], place: Callable[[bytes], tuple[int, int]]) -> tuple[int, ...]:
    """Write paths, each with its slot, as `wire.kernels.json` reads them; `place` puts a name somewhere."""
    prefixes = dict.fromkeys(path[:length] for path in slots for length in range(len(path) + 1)) or {(): 0}
    nodes = {prefix: 2 * number for number, prefix in enumerate(sorted(prefixes, key=len))}
    numbers: list[int] = [n for prefix in nodes for n in (-1, slots.get(prefix, -1))]
    for prefix, node in nodes.items():
        if prefix:
            step, parent = prefix[-1], nodes[prefix[:-1]]
            edge, following = len(numbers), numbers[parent]
            where, size = place(step.encode()) if isinstance(step, str) else (step, 0)
            numbers += [int(isinstance(step, int)), where, size, node, following]
            numbers[parent] = edge
    return tuple(numbers)
