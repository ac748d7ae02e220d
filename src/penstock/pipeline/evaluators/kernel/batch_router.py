"""A program at work on fetched batches: record bytes in, bodies of batches out, no Spark and no socket.

Records of which the kernel is not certain go through the reference evaluator, all of a fetch at once; what
they become takes the places in the order that it would have had.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.evaluators.kernel.batch_builder import (
    BATCH_BYTES,
    BatchBuilder,
    Output,
    Pick,
    Put,
    batch_limits,
)
from penstock.pipeline.evaluators.kernel.fallback import Fallback, Place, Written
from penstock.pipeline.evaluators.kernel.interpreter import Interpreter
from penstock.pipeline.evaluators.kernel.program import Program
from penstock.pipeline.evaluators.kernel.record_body import HELD, INFLATED, Body, Skip, bodies_of, corrupt
from penstock.pipeline.evaluators.kernel.shadow import Shadow
from penstock.pipeline.stage import Stage
from penstock.wire import routing_layout as at
from penstock.wire.buffer import Buffer

__all__ = ["BatchRouter", "Output"]

_OWN_COUNTERS = ("n_slow", "n_shadow", "n_different")
_COUNTED = {"n_in": at.X_IN, "n_out": at.X_OUT, "n_unmatched": at.X_UNMATCHED, "n_dropped": at.X_DROPPED}


class BatchRouter:
    """Runs one program; `partitions` says how many each of its targets has.

    `put` is given each batch as soon as it is full, and must be done with its bytes when it returns. With
    `shadow` one of so many records is also routed by the reference, and a difference is counted and logged.
    `limits` are the bytes of a batch that targets were found to take, where that is less than their settings.
    """

    collects = holds = is_full = False
    held: Mapping[int, int] = MappingProxyType({})

    def __init__(
        self,
        program: Program,
        stage: Stage,
        partitions: Sequence[int],
        put: Put,
        *,
        batch_bytes: int = BATCH_BYTES,
        pick: Pick | None = None,
        inflated: int = INFLATED,
        shadow: int = 0,
        limits: Mapping[int, int] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((*COUNTERS, *_OWN_COUNTERS), 0))
        self._inflated = inflated
        self._slow_path = Fallback(program, stage)
        self._outbox = BatchBuilder(
            partitions,
            batch_limits(program, limits or {}),
            put,
            batch_bytes=batch_bytes,
            pick=pick,
            by_position=program.by_position,
            has_ids=program.has_ids,
        )
        self._interpreter = Interpreter(program, self._outbox)
        self._shadow = Shadow(program, self._slow_path, shadow, batch_bytes) if shadow else None

    def feed(
        self,
        data: Buffer,
        *,
        topic: str,
        partition: int,
        first: int,
        end: int,
        now: int | None = None,
        skip: Skip | None = None,
    ) -> None:
        """Route the records with offsets from `first` up to `end` of whole batches.

        `now` is what `now()` stands for, in microseconds; by default the moment of this call. Control
        batches, and those that `skip` names, are passed over. Raises RecordsError for bytes that are no
        batches or no records.
        """
        place = Place(topic, partition, time.time_ns() // 1000 if now is None else now)
        self._outbox.begin(partition)
        self._interpreter.set_now(place.now)
        for bodies in _together(bodies_of(data, first, end, skip, self._inflated)):
            self._route(bodies, place)

    def _route(self, bodies: Sequence[Body], place: Place) -> None:
        waiting: dict[tuple[int, int], list[Written]] = {}
        for number, body in enumerate(bodies):
            self._interpreter.begin(body)
            while (status := self._interpreter.go()) == at.SLOW:
                self._slow(bodies, number, place, waiting)
            if status == at.BROKEN:
                raise corrupt(place.partition, body.base_offset)
        self._count()
        if self._shadow is not None:
            self.counts.update(self._shadow.compare(bodies, place))

    def flush(self, *, now: int | None = None) -> None:
        """Put what is waiting; it was routed when it was fed."""
        self._outbox.flush()

    def _slow(
        self, bodies: Sequence[Body], number: int, place: Place, waiting: dict[tuple[int, int], list[Written]]
    ) -> None:
        """Write what the record becomes at which the kernel stopped, and go behind it."""
        here, offset = (number, int(self._interpreter.state[at.X_POS])), self._interpreter.offset
        if here not in waiting:
            waiting.update(self._looked_ahead(bodies, number, place))
        ordinals = Counter[int]()
        for target, record in waiting.pop(here):
            self._outbox.add(target, record, offset, ordinals[target])
            ordinals[target] += 1
        self._interpreter.pass_over()

    def _looked_ahead(
        self, bodies: Sequence[Body], number: int, place: Place
    ) -> dict[tuple[int, int], list[Written]]:
        """Route every record that is not certain from here on: one call of the reference for all of them."""
        rows = [(bodies[number], self._interpreter.look_ahead())]
        with self._interpreter.elsewhere():
            for body in bodies[number + 1 :]:
                self._interpreter.begin(body)
                rows.append((body, self._interpreter.look_ahead()))
        written, counted = self._slow_path.written(rows, place)
        self.counts.update(counted)
        self.counts["n_slow"] += len(written)
        keys = [(number + n, start) for n, (_, starts) in enumerate(rows) for start in starts.tolist()]
        return dict(zip(keys, written, strict=True))

    def _count(self) -> None:
        state = self._interpreter.state
        for name, place in _COUNTED.items():
            self.counts[name] += int(state[place])
            state[place] = 0


def _together(bodies: Iterable[Body]) -> Iterator[Sequence[Body]]:
    """Give as many at once as may be held; for the most part that is all of a fetch."""
    found, size = list[Body](), 0
    for body in bodies:
        found.append(body)
        size += len(body.records)
        if size >= HELD:
            yield found
            found, size = [], 0
    if found:
        yield found
