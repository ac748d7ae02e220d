"""One of so many records goes by the kernel and by the reference; where they differ, it is counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from penstock.pipeline.evaluators.kernel.batch_builder import BatchBuilder, Output
from penstock.pipeline.evaluators.kernel.fallback import Fallback, Place, Written
from penstock.pipeline.evaluators.kernel.interpreter import Interpreter
from penstock.pipeline.evaluators.kernel.program import Program
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.record import KafkaRecord
from penstock.wire import routing_layout as at
from penstock.wire.buffer import as_array
from penstock.wire.kernels import IntArray

__all__ = ["Shadow"]

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 1024
"""Records that are values at once."""


class Shadow:
    """A second kernel that writes to nobody."""

    def __init__(self, program: Program, slow_path: Fallback, every: int, batch_bytes: int) -> None:
        self._every = every
        self._seen = 0
        self._slow_path = slow_path
        self._written: list[Written] = []
        limits = [target.limit for target in program.targets]
        self._outbox = BatchBuilder(
            [1] * len(limits),
            limits,
            self._take,
            batch_bytes=batch_bytes,
            pick=lambda target, count: 0,
            by_position=program.by_position,
            has_ids=False,
        )
        self._interpreter = Interpreter(program, self._outbox)

    def compare(self, bodies: Sequence[Body], place: Place) -> Counter[str]:
        """Count the records that were compared, and those of which the two did not make the same."""
        counts: Counter[str] = Counter()
        for body in bodies:
            starts = self._chosen(body)
            for at_once in range(0, len(starts), _AT_ONCE):
                counts.update(self._compared(body, starts[at_once : at_once + _AT_ONCE], place))
        return counts

    def _compared(self, body: Body, starts: IntArray, place: Place) -> Counter[str]:
        expected, _ = self._slow_path.written([(body, starts)], place)
        self._interpreter.set_now(place.now)
        counts: Counter[str] = Counter()
        for start, wanted in zip(starts.tolist(), expected, strict=True):
            found = self._by_kernel(body, start)
            if found is None:
                continue
            differs = Counter(found) != Counter(wanted)
            counts.update(n_shadow=1, n_different=int(differs))
            if differs:
                # Where it is, and nothing of what it holds.
                at_offset = int(body.offsets(np.array([start], np.int64))[0])
                _log.error(
                    "kernel and reference differ: %s-%d at %d", place.topic, place.partition, at_offset
                )
        return counts

    def _chosen(self, body: Body) -> IntArray:
        starts = body.starts()
        first = -self._seen % self._every
        self._seen += len(starts)
        return starts[first :: self._every].copy()

    def _by_kernel(self, body: Body, start: int) -> list[Written] | None:
        """Give what the kernel makes of a record; None if it is not certain."""
        self._written = []
        self._interpreter.begin(body)
        self._interpreter.state[at.X_POS], self._interpreter.state[at.X_LEFT] = start, 1
        done = self._interpreter.go() == at.DONE
        self._outbox.flush()
        return self._written if done else None

    def _take(self, output: Output) -> None:
        self._written += ((output.target, record) for record in _records(output))


def _records(output: Output) -> Iterator[KafkaRecord]:
    body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
    for record in body.kafka_records(body.starts(), None, None):
        # What was routed has no origin yet.
        yield KafkaRecord(key=record.key, value=record.value, headers=record.headers)
