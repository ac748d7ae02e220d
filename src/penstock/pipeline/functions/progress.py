"""Which record of a batch a function is at: for its log lines, and for the worker if the process dies.

The number of the record stands in a file that worker and child map into memory; the worker reads it after
a time-out or a crash. It is a hint: a function that looks at its records in another order gives a wrong one.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.events import Event, EventBatch
from penstock.pipeline.functions.parcels import Record

__all__ = ["NOWHERE", "Progress", "ProgressMark", "WatchedBatch"]

NOWHERE: Final = -1
_NUMBER: Final = struct.Struct("=q")


class ProgressMark:
    """One number in memory that two processes share."""

    __slots__ = ("_memory",)
    SIZE: Final = _NUMBER.size

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, self.SIZE)

    def write(self, number: int) -> None:
        """Say which record it is."""
        _NUMBER.pack_into(self._memory, 0, number)

    def read(self) -> int:
        """Give the number of the record, or NOWHERE."""
        return int(_NUMBER.unpack_from(self._memory)[0])

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()


@dataclass(slots=True)
class Progress:
    """The records of the call that runs, and the one that the function is at."""

    mark: ProgressMark
    records: Sequence[Record] = ()
    number: int = NOWHERE

    def begin(self, records: Sequence[Record]) -> None:
        """Start a call."""
        self.records = records
        self.at(NOWHERE)

    def at(self, number: int) -> None:
        """Move to a record, or away from all."""
        self.number = number
        self.mark.write(number)

    @property
    def current(self) -> Sequence[Record]:
        """The record that the function is at; all of them if it is at none."""
        return self.records if self.number == NOWHERE else (self.records[self.number],)


@dataclass(frozen=True, slots=True)
class WatchedBatch(EventBatch):
    """A batch that tells which record a function is at while it goes through them."""

    progress: Progress | None = field(default=None, compare=False, repr=False)

    def __iter__(self) -> Iterator[Event]:
        if self.progress is None:
            yield from self.records
            return
        for number, record in enumerate(self.records):
            self.progress.at(number)
            yield record
        self.progress.at(NOWHERE)
