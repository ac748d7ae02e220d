"""A program at work on fetched batches: record bytes in, bodies of batches out, no Spark and no socket.

Records of which the kernel is not certain go through the reference evaluator, many at once; what they become
takes the places in the order that it would have had. A small fetch may hold millions of them: a transaction
gets only as many as take some seconds, and what follows is fetched again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

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
from penstock.wire.kernels import IntArray

__all__ = ["BatchRouter", "Output"]

_AHEAD: Final = 32_768
"""Records of a look ahead."""
_AT_ONCE: Final = 4096
"""Those of them that are not certain and are values at the same time, of some KiB each."""
_AHEAD_BYTES: Final = 8 << 20
"""The same in bytes, of the records as they came; one record may have more."""
_SLOW_SECONDS: Final = 2.0
"""So long the reference may work between two flushes, and so in one transaction."""
_FULL_SECONDS: Final = 20.0
"""No further batch is begun so long after the first one since a flush; ordinary work commits before."""
_OWN_COUNTERS = ("n_slow", "n_shadow", "n_different")
_COUNTED = {"n_in": at.X_IN, "n_out": at.X_OUT, "n_unmatched": at.X_UNMATCHED, "n_dropped": at.X_DROPPED}


class BatchRouter:
    """Runs one program; `partitions` says how many each of its targets has.

    `put` is given each batch as soon as it is full, and must be done with its bytes when it returns. With
    `shadow` one of so many records is also routed by the reference, and a difference is counted and logged.
    `limits` are the bytes of a batch that targets were found to take, where that is less than their settings.
    """

    collects = holds = False
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
        self._slow_seconds = 0.0
        """Of the reference, since the last flush."""
        self._began: float | None = None
        """When what was routed first since the last flush was begun."""

    @property
    def is_full(self) -> bool:
        """Whether what was fed since the last flush took so long that it should be committed."""
        if self._slow_seconds > _SLOW_SECONDS:
            return True
        return self._began is not None and time.monotonic() - self._began > _FULL_SECONDS

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
    ) -> int | None:
        """Route the records with offsets from `first` up to `end` of whole batches.

        `now` is what `now()` stands for, in microseconds; by default the moment of this call. Control
        batches, and those that `skip` names, are passed over. Returns the offset of the first record that was
        not routed because it is full, None if all were. Raises RecordsError for bytes that are no batches or
        no records.
        """
        if self.is_full:
            return first
        began = time.monotonic()
        place = Place(topic, partition, time.time_ns() // 1000 if now is None else now)
        self._outbox.begin(partition)
        self._interpreter.set_now(place.now)
        for number, bodies in enumerate(_together(bodies_of(data, first, end, skip, self._inflated))):
            left = bodies[0].base_offset if number and self.is_full else self._route(bodies, place)
            self._began = began if self._began is None else self._began
            if left is not None:
                return left
        return None

    def _route(self, bodies: Sequence[Body], place: Place) -> int | None:
        """Route bodies; give the offset of the first record that is left."""
        waiting: dict[tuple[int, int], list[Written]] = {}
        for number, body in enumerate(bodies):
            self._interpreter.begin(body)
            while (status := self._interpreter.go()) == at.SLOW:
                if not self._slow(bodies, number, place, waiting):
                    self._count()
                    return self._interpreter.offset
            if status == at.BROKEN:
                raise corrupt(place.partition, body.base_offset)
        self._count()
        if self._shadow is not None:
            self.counts.update(self._shadow.compare(bodies, place))
        return None

    def flush(self, *, now: int | None = None) -> None:
        """Put what is waiting; it was routed when it was fed."""
        self._outbox.flush()
        self._slow_seconds, self._began = 0.0, None

    def _slow(
        self, bodies: Sequence[Body], number: int, place: Place, waiting: dict[tuple[int, int], list[Written]]
    ) -> bool:
        """Write what the record becomes at which the kernel stopped, and go behind it; False if full."""
        here, offset = (number, int(self._interpreter.state[at.X_POS])), self._interpreter.offset
        if here not in waiting:
            # Messages of Pulsar that have one offset together are not cut apart: a mark is an offset.
            if self.is_full and offset > bodies[number].base_offset:
                return False
            began = time.monotonic()
            # While others wait that were looked ahead to, this one became uncertain since: only it is new.
            rows = [(bodies[number], np.array([here[1]]))] if waiting else [*self._uncertain(bodies, number)]
            waiting.update(self._routed(rows, number, place))
            self._slow_seconds += time.monotonic() - began
            self._began = began if self._began is None else self._began
        ordinals = Counter[int]()
        for target, record in waiting.pop(here):
            self._outbox.add(target, record, offset, ordinals[target])
            ordinals[target] += 1
        self._interpreter.pass_over()
        return True

    def _routed(
        self, rows: Sequence[tuple[Body, IntArray]], number: int, place: Place
    ) -> dict[tuple[int, int], list[Written]]:
        """Route records of bodies from `number` on: one call of the reference for many of them."""
        written, counted = self._slow_path.written(rows, place)
        self.counts.update(counted)
        self.counts["n_slow"] += len(written)
        keys = [(number + n, start) for n, (_, starts) in enumerate(rows) for start in starts.tolist()]
        return dict(zip(keys, written, strict=True))

    def _uncertain(self, bodies: Sequence[Body], number: int) -> Iterator[tuple[Body, IntArray]]:
        """Find where the next records begin that are not certain, as far as a look ahead goes."""
        interpreter, records, room, size = self._interpreter, _AHEAD, _AT_ONCE, _AHEAD_BYTES
        with interpreter.elsewhere():
            for body in bodies[number:]:
                if body is not bodies[number]:
                    interpreter.begin(body)
                seen, here = min(records, int(interpreter.state[at.X_LEFT])), int(interpreter.state[at.X_POS])
                starts = interpreter.look_ahead(seen)
                # The first one always: the kernel waits for it.
                least = int(body is bodies[number])
                found = starts[: max(min(int(np.searchsorted(starts, here + size)), room), least)]
                yield body, found
                records, size = records - seen, size - len(body.records) + here
                room -= len(found)
                if min(records, size, room) <= 0 or len(found) < len(starts):
                    return

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
