"""Records to events, one at a time, with the rules of `penstock.events`: an event, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import EventError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.cloudevent import CloudEvent
from penstock.events.draft import failed
from penstock.events.headers import CONTENT_TYPE, PREFIX
from penstock.events.media import is_cloudevents
from penstock.events.reading import Level, Mode, Reading, Verdict
from penstock.pipeline.arrow.bindings import Binding
from penstock.record import Headers, KafkaRecord

__all__ = [
    "CODES",
    "FOREIGN",
    "UNSUPPORTED",
    "Decoded",
    "Reject",
    "UnreadBatch",
    "read_record",
    "read_strictly",
]

CODES: Final[Mapping[Verdict, str]] = {
    Verdict.FOREIGN: "not-a-cloudevent",
    Verdict.INVALID: "invalid-event",
    Verdict.TOLERATED: "invalid-event",
    Verdict.UNSUPPORTED: "unsupported-format",
}
"""What a reject is called, by the verdict of the exact reader."""
FOREIGN: Final = CODES[Verdict.FOREIGN]
UNSUPPORTED: Final = CODES[Verdict.UNSUPPORTED]


@dataclass(slots=True)
class Decoded:
    """An event, the headers of the application beside it, and whether it came in structured mode."""

    event: CloudEvent
    foreign: Headers
    structured: bool


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a record is no event, or does not fit its contract: a code that is counted, and a reason."""

    code: str
    reason: str


class UnreadBatch(KafkaRecord):
    """Stands for a batch whose records were not inflated: its letter says where it is, and why."""

    reason: str

    def __init__(self, reason: str, **origin: Any) -> None:
        super().__init__(value=b"", **origin)
        object.__setattr__(self, "reason", reason)  # records are frozen

    @property
    def reject(self) -> Reject:
        """Why it is no event."""
        return Reject("batch-too-large", self.reason)


def read_record(binding: Binding, record: KafkaRecord, level: Level) -> Decoded | Reject:
    """Read a record by its binding at the level `strict` or `lenient`."""
    try:
        reading = binding.read(record, level)
    except EventError as error:
        reading = failed(error, Level.FORENSIC)
    if reading.event is None:
        return _reject(reading)
    return Decoded(reading.event, binding.foreign(record, level), reading.mode is Mode.STRUCTURED)


def read_strictly(binding: KafkaBinding, record: KafkaRecord) -> Decoded | Reject:
    """Do what `read_record` does at the level `strict`; quicker, for the binding as it is by default."""
    try:
        event = binding.decode(record)
    except EventError as error:
        return _reject(failed(error, Level.FORENSIC))
    # The same as `binding.foreign` at this level, without a call for each header.
    foreign = tuple([each for each in record.headers if each[0] != CONTENT_TYPE and each[0][:3] != PREFIX])
    return Decoded(event, foreign, _is_structured(record.headers))


def _reject(reading: Reading) -> Reject:
    return Reject(CODES[reading.verdict], str(reading.error))


def _is_structured(headers: Headers) -> bool:
    # Kafka 3: structured if content-type is prefixed with application/cloudevents.
    for name, raw in headers:
        if name == CONTENT_TYPE and raw is not None and is_cloudevents(raw.decode("utf-8", "replace")):
            return True
    return False
