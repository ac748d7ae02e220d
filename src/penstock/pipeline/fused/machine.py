"""A program at work on fetched batches: record bytes in, bodies of batches out, no Spark and no socket.

Records of which the kernel is not certain go through the stage itself, all of a fetch at once; their records
take the places in the order that they would have had.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from penstock.pipeline.fused.bodies import Body, Skip, bodies_of, corrupt
from penstock.pipeline.fused.outbox import Outbox, Output, Pick, Put
from penstock.pipeline.fused.program import Program
from penstock.pipeline.outgoing import COUNTERS
from penstock.pipeline.stage import Stage
from penstock.record import KafkaRecord
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.record_batch import read_batches
from penstock.wire.kernels.records import record_starts

__all__ = ["Machine", "Output"]

BATCH_BYTES = 512 * 1024
INFLATED = 64 << 20
"""Bytes that a compressed batch may inflate to."""


class Machine:
    """Runs one program; `partitions` says how many each of its targets has.

    `put` is given each batch as soon as it is full, and must be done with its bytes when it returns.
    """

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
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((*COUNTERS, "n_slow"), 0))
        self._stage = stage
        self._inflated = inflated
        self._numbers = {(target.sink, target.topic): n for n, target in enumerate(program.targets)}
        limits = [target.limit for target in program.targets]
        self._outbox = Outbox(partitions, limits, put, batch_bytes=batch_bytes, pick=pick)

    def feed(
        self,
        data: Buffer,
        *,
        topic: str,
        partition: int,
        first: int,
        end: int,
        skip: Skip | None = None,
    ) -> int:
        """Route the records with offsets from `first` up to `end` of whole batches; give the next offset.

        Control batches, and those that `skip` names, are passed over. Raises RecordsError for bytes that are
        no batches or no records.
        """
        now = time.time_ns() // 1000
        for body in bodies_of(data, first, end, skip, self._inflated):
            self._slowly(body, topic, partition, now)
        behind = [batch.base_offset + batch.last_offset_delta + 1 for batch in read_batches(data)]
        return max([first, *(min(offset, end) for offset in behind)])

    def flush(self) -> None:
        """Put what is waiting."""
        self._outbox.flush()

    def _slowly(self, body: Body, topic: str, partition: int, now: int) -> None:
        starts = np.empty(body.count, np.int64)
        found = record_starts(body.records, body.count, body.first, body.end, starts)
        if found < 0:
            raise corrupt(partition, body.base_offset)
        *rows, counted = self._stage.process(
            body.arrow(starts[:found], topic, partition), now=now
        ).to_pylist()
        for row in rows:
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])
            record = KafkaRecord(key=row["key"], value=row["value"], headers=headers)
            self._outbox.add(self._numbers[row["sink"], row["topic"]], record)
        self.counts.update({name: counted[name] for name in COUNTERS})
        self.counts["n_slow"] += found
