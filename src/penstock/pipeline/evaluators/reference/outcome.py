"""What one record becomes: records for topics, counts, and a dead letter for each route that rejects it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.errors import EventError, PenstockError
from penstock.events.reading import Mode
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event
from penstock.pipeline.evaluators.reference.reading import UnreadBatch
from penstock.pipeline.ports import Target
from penstock.pipeline.size import batch_bytes, fits
from penstock.record import KafkaRecord

__all__ = ["INTERNAL", "DeadLetters", "Outcome", "Refused", "Written", "is_of_a_record", "reason_of_bug"]

INTERNAL: Final = "internal-error"
_TOO_LARGE: Final = "too-large"

Refused = Mapping[tuple[int, int, str], tuple[str, str]]
"""Records that a topic has refused: from offset, sink and topic to the code and the reason of the letter."""
Written = tuple[Target, KafkaRecord]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where the dead letters of a route go; without a name those of records that fail before any route."""

    target: Target
    pipeline: str
    server: str | None
    route: str | None = None


@dataclass(slots=True)
class Outcome:
    """One record and what has become of it so far."""

    record: KafkaRecord
    refused: Refused
    written: list[Written] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    """Names of counters, once for each time."""
    failed: bool = False
    """Whether a step raised because of the record, so that nothing but a letter is left of it."""
    _dead: dict[str | None, tuple[DeadLetters, DeadLetter]] = field(default_factory=dict)
    """Letters are written when all their reasons are known."""

    def send(self, target: Target, record: KafkaRecord, dead: DeadLetters) -> None:
        """Write a record, if the topic takes it by its settings and has not refused it."""
        if target.limit is not None and not fits(record, target.limit):
            reason = f"{batch_bytes(record)} bytes; {target.topic} takes {target.limit}"
            self.bury(dead, _TOO_LARGE, reason)
        elif target.compacted and record.key is None:
            reason = f"{target.topic} is compacted: it takes no record without a key"
            self.bury(dead, "no-key", reason)
        elif self.refused and (known := self._refusal(target)) is not None:
            self.bury(dead, *known)
        else:
            self.written.append((target, record))
            self.counted.append("n_out")

    def is_refused(self, target: Target) -> bool:
        """Whether the topic has refused what the record becomes there."""
        return bool(self.refused) and self._refusal(target) is not None

    def bury(self, dead: DeadLetters, code: str, reason: str, attempt: int = 1) -> None:
        """Put the record aside: one letter for each route, whatever the number of reasons."""
        known = self._dead.get(dead.route)
        if known is None:
            letter = DeadLetter(
                record=self.record,
                code=code,
                reason=reason,
                route=dead.route,
                attempt=attempt,
                server=dead.server,
                kept=type(self.record) is not UnreadBatch,
            )
            self.counted.append("n_dead")
        else:
            letter = known[1].also(reason, attempt)
        self._dead[dead.route] = dead, letter

    def fail(self, dead: DeadLetters, exc: Exception) -> None:
        """Take everything back but for one letter that says what was raised."""
        self.failed = True
        self.written.clear()
        self.counted.clear()
        self._dead.clear()
        self.bury(dead, INTERNAL, reason_of_bug(exc))

    def finish(self) -> list[Written]:
        """Return everything that is written for the record, its letters last."""
        for dead, letter in self._dead.values():
            target, binding = dead.target, dead.target.binding(Mode.BINARY)
            event = dead_letter_event(letter, dead.pipeline)
            own = event.id.encode() if target.compacted else None
            record = binding.encode(event, key=own if letter.record.key is None else letter.record.key)
            code, _ = self._refusal(target) or ("", "")
            if not fits(record, target.limit) or code == _TOO_LARGE:
                # A dead letter that cannot be written would stop the job: this one says where the record is.
                short = dead_letter_event(replace(letter, kept=False), dead.pipeline)
                record = binding.encode(short, key=own)
            self.written.append((target, record))
        return self.written

    def _refusal(self, target: Target) -> tuple[str, str] | None:
        offset = self.record.offset
        return None if offset is None else self.refused.get((offset, target.sink, target.topic))


def is_of_a_record(exc: Exception) -> bool:
    """Whether an exception is about one record: not the machine, not one that stops a job on purpose."""
    return isinstance(exc, EventError) or not isinstance(exc, PenstockError | OSError | MemoryError)


def reason_of_bug(exc: Exception) -> str:
    """Say what was raised and where, for the reason of a dead letter."""
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return f"a bug in Penstock: {type(exc).__name__} at {place}: {exc!s:.500}"
