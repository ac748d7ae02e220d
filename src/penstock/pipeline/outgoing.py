"""The records that a batch becomes, as one Arrow batch: columns where columns leave, rows where rows do.

Records stand in the order of the rows that they came from. One row more, without a topic, holds the counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.departure import Departure
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.ports import Target
from penstock.record import KafkaRecord

__all__ = ["COUNTERS", "OUTPUT", "OUTPUT_DDL", "Outgoing"]

OUTPUT: Final = pa.schema(
    [
        ("topic", pa.utf8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("sink", pa.int32()),
        *((name, pa.int64()) for name in COUNTERS),
    ]
)
OUTPUT_DDL: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, sink int, "
    + ", ".join(f"{name} bigint" for name in COUNTERS)
)


@dataclass(slots=True)
class Outgoing:
    """What leaves, and the counters."""

    counts: Counter[str] = field(default_factory=Counter)
    _columns: list[tuple[Target, Departure]] = field(default_factory=list)
    _records: list[tuple[int, Target, KafkaRecord]] = field(default_factory=list)

    def add(self, target: Target, record: KafkaRecord, row: int) -> None:
        """Send one record, made of a row of the batch."""
        self._records.append((row, target, record))

    def add_columns(self, target: Target, departure: Departure) -> None:
        """Send whole columns."""
        self._columns.append((target, departure))

    def extend(self, other: Outgoing, start: int) -> None:
        """Take over what another part of the batch became; its first row is row `start` of the batch."""
        self.counts.update(other.counts)
        self._columns += [
            (target, replace(departure, rows=departure.rows + start)) for target, departure in other._columns
        ]
        self._records += [(row + start, target, record) for row, target, record in other._records]

    def batch(self) -> pa.RecordBatch:
        """Give everything in order, and the counters behind it."""
        parts = [_of_columns(target, departure) for target, departure in self._columns]
        if self._records:
            parts.append(_of_records(self._records))
        order = self._rows()
        columns = [_joined([part[n] for part in parts], order) for n in range(len(_KINDS))]
        return self._counted(columns, len(order))

    def places(self) -> list[int]:
        """Give the row from which each record of `batch` came, in the same order."""
        return sorted(self._rows().tolist())

    def _rows(self) -> np.ndarray:
        rows = [departure.rows for _, departure in self._columns]
        if self._records:
            rows.append(np.array([row for row, _, _ in self._records], dtype=np.int64))
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def _counted(self, columns: Sequence[pa.Array | None], rows: int) -> pa.RecordBatch:
        whole = [
            pa.nulls(1, kind) if column is None else pa.concat_arrays([column, pa.nulls(1, kind)])
            for column, kind in zip(columns, _KINDS, strict=True)
        ]
        empty = pa.nulls(rows, pa.int64())
        for name in COUNTERS:
            whole.append(pa.concat_arrays([empty, pa.array([self.counts[name]], pa.int64())]))
        return pa.RecordBatch.from_arrays(whole, schema=OUTPUT)


_KINDS: Final = tuple(OUTPUT.types[: len(OUTPUT.types) - len(COUNTERS)])


def _joined(pieces: Sequence[pa.Array], order: np.ndarray) -> pa.Array | None:
    if not pieces:
        return None
    joined = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    if (order[1:] >= order[:-1]).all():
        return joined
    return joined.take(pa.array(np.argsort(order, kind="stable")))


def _of_columns(target: Target, departure: Departure) -> tuple[pa.Array, ...]:
    rows = len(departure.rows)
    topic, sink = pa.scalar(target.topic, pa.utf8()), pa.scalar(target.sink, pa.int32())
    columns = (departure.keys, departure.values, departure.headers)
    return pa.repeat(topic, rows), *columns, pa.repeat(sink, rows)


def _of_records(records: Sequence[tuple[int, Target, KafkaRecord]]) -> tuple[pa.Array, ...]:
    headers = [[{"key": name, "value": value} for name, value in r.headers] for _, _, r in records]
    columns = (
        [target.topic for _, target, _ in records],
        [record.key for _, _, record in records],
        [record.value for _, _, record in records],
        headers,
        [target.sink for _, target, _ in records],
    )
    return tuple(pa.array(column, kind) for column, kind in zip(columns, _KINDS, strict=True))
