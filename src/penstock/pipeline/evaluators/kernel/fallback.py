"""Records that the kernel leaves alone, by the reference: one call for many, and what each became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.pipeline.evaluators.kernel.program import Program
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference.outcome import Refused
from penstock.pipeline.evaluators.reference.router import Known, ReferenceRouter
from penstock.pipeline.stage import Stage
from penstock.record import KafkaRecord
from penstock.wire.kernels import IntArray

__all__ = ["Place", "Fallback", "Written"]

Written = tuple[int, KafkaRecord]
"""The number of a target, and a record for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where records come from, and the moment at which they are routed, in microseconds."""

    topic: str
    partition: int
    now: int


class Fallback:
    """The reference evaluator, asked about some records of some bodies."""

    def __init__(self, program: Program, stage: Stage) -> None:
        self._router = ReferenceRouter(stage)
        self._numbers = {(target.sink, target.topic): n for n, target in enumerate(program.targets)}

    def written(
        self,
        rows: Sequence[tuple[Body, IntArray]],
        place: Place,
        refused: Refused | None = None,
        known: Known | None = None,
    ) -> tuple[list[list[Written]], Counter[str]]:
        """Return what each record becomes, body by body in the order of their starts, and what was counted.

        What a topic has `refused` becomes a dead letter. `known` keeps the answers of functions.
        """
        records = [
            record
            for body, starts in rows
            for record in body.kafka_records(starts, place.topic, place.partition)
        ]
        routing = self._router.route(records, now=place.now, refused=refused, known=known)
        numbers = self._numbers
        return [
            [(numbers[target.sink, target.topic], record) for target, record in written]
            for written in routing.written
        ], routing.counts
