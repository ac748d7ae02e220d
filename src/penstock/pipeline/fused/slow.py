"""Records that the kernel leaves alone, through the stage: one call for many, and what each became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.pipeline.fused.bodies import Body
from penstock.pipeline.fused.program import Program
from penstock.pipeline.outgoing import COUNTERS
from penstock.pipeline.stage import Refused, Stage
from penstock.record import KafkaRecord
from penstock.wire.kernels import IntArray

__all__ = ["Place", "SlowPath", "Written", "record_of"]

Written = tuple[int, KafkaRecord]
"""The number of a target, and a record for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where records come from, and the moment at which they are routed, in microseconds."""

    topic: str
    partition: int
    now: int


class SlowPath:
    """A stage that is asked about some records of some bodies."""

    def __init__(self, program: Program, stage: Stage) -> None:
        self._stage = stage
        self._numbers = {(target.sink, target.topic): n for n, target in enumerate(program.targets)}

    def written(
        self, rows: Sequence[tuple[Body, IntArray]], place: Place, refused: Refused | None = None
    ) -> tuple[list[list[Written]], Counter[str]]:
        """Give what each record becomes, body by body in the order of their starts, and what was counted.

        What a topic has `refused` becomes a dead letter.
        """
        batches = [body.arrow(starts, place.topic, place.partition) for body, starts in rows]
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        outgoing = self._stage.route(batch, now=place.now, refused=refused)
        found: list[list[Written]] = [[] for _ in range(batch.num_rows)]
        *written, counted = outgoing.batch().to_pylist()
        for row, record in zip(outgoing.places(), written, strict=True):
            found[row].append((self._numbers[record["sink"], record["topic"]], record_of(record)))
        return found, Counter({name: counted[name] for name in COUNTERS})


def record_of(row: dict[str, object]) -> KafkaRecord:
    """Give a row of records as a record: key, value and headers."""
    headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])  # type: ignore[attr-defined]
    return KafkaRecord(key=row["key"], value=row["value"], headers=headers)  # type: ignore[arg-type]
