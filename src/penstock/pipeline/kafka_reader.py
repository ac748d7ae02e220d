"""How CloudEvents are read from Kafka: exactly as the binding says, or with what a route asks for besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Level
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import decode_batch
from penstock.pipeline.evaluators.reference.reading import Decoded, Reject, read_record, read_strictly
from penstock.record import KafkaRecord

__all__ = ["KafkaReader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaReader:
    """Reads CloudEvents in either mode; a Reader."""

    level: Level = Level.STRICT
    dash: bool = False
    """Also `ce-` names."""
    sniff: bool = False
    """Also JSON that looks like an event, without headers (Kafka 1.3, 3.3.1)."""

    @property
    def respells(self) -> bool:
        """Whether headers in another spelling than that of the binding are read as attributes."""
        return self.dash or self.level is not Level.STRICT

    @property
    def binding(self) -> KafkaBinding:
        """The binding that reads."""
        return KafkaBinding(dash=self.dash, sniff=self.sniff)

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events, one row a record."""
        return decode_batch(batch.column("value"), batch.column("headers"), self.binding, self.level)

    def by_record(self) -> Callable[[KafkaRecord], Decoded | Reject]:
        """Return what reads one record."""
        if self == KafkaReader():
            return partial(read_strictly, self.binding)
        return partial(read_record, self.binding, level=self.level)
