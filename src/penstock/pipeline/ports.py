"""The joints of a stage: what reads a batch, what checks it, what runs a function on it, what writes it.

Each is a value that travels to Spark's workers, so it must pickle and must not know Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.events import CloudEvent
from penstock.events.bindings.pulsar import Profile, Values
from penstock.events.reading import Mode
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import Binding, binding_of
from penstock.record import Headers, KafkaRecord

__all__ = ["Checker", "Invoked", "Invoker", "Reader", "Receipt", "Routed", "Target", "Writer"]


class Reader(Protocol):
    """Makes events of the records of a batch; what is no event has a code and a reason."""

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events, one row a record."""


class Checker(Protocol):
    """Holds events against the contract.

    It fills code and reason of those that do not fit, and may give data in another form (Avro as JSON).
    """

    def __call__(self, events: EventColumns, batch: pa.RecordBatch) -> EventColumns:
        """Give the events again; rows that have a code already stay as they are."""


class Writer(Protocol):
    """Makes a record of an event, in another way than the binding's two modes; CannotEncode if it cannot."""

    def __call__(
        self,
        event: CloudEvent,
        key: bytes | None,
        headers: Headers,
        *,
        null_value: bool = False,
        came: Headers | None = None,
    ) -> KafkaRecord:
        """Write one event.

        `null_value` says that it came with a null value, which stays one. `came` are all headers of the plain
        record that the event is, if nothing of it was changed since.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a route sends to: the number of the sink in the job's list, and the topic there."""

    topic: str
    sink: int = 0
    writer: Writer | None = None
    """None: CloudEvents in the route's mode."""
    profile: Profile | None = None
    """How CloudEvents are written on Pulsar; None: the topic is on Kafka."""
    values: Values = Values.AUTO
    """How a property of profile 0.1 says a value."""
    repeat_headers: bool = False
    """Whether structured events have the headers of binary mode besides (Kafka 3.3.3, spec 002 3.2.2)."""
    limit: int | None = None
    """The topic's max.message.bytes, if it is known: a record that is larger becomes a dead letter."""
    compacted: bool = False
    """Whether the topic is known to be compacted: a record without a key becomes a dead letter."""

    def binding(self, mode: Mode) -> Binding:
        """Give the binding that writes CloudEvents here in a content mode."""
        return binding_of(self.profile, mode, self.values, self.repeat_headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """An event that a route has kept, on its way into the route's function."""

    event: CloudEvent
    key: bytes | None
    headers: Headers
    record: KafkaRecord
    """Key and origin of the record as it was read; value and headers may be left out."""
    origin: tuple[str, str] | None = None
    """Source and id of the event as it was read; None if they are still those of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A completion event, to be written after the outcome that it tells of is durable."""

    event: CloudEvent
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoked:
    """What a function made of one event: events, nothing, or a dead letter."""

    events: tuple[CloudEvent, ...] = ()
    keys: tuple[bytes | None, ...] | None = None
    """The key of each event; None if they keep the one that they came with."""
    headers: tuple[Headers, ...] | None = None
    """The foreign headers of each event; None if they keep those that they came with."""
    code: str | None = None
    """Set if the event goes to the dead letters."""
    reason: str = ""
    attempts: int = 1
    receipt: Receipt | None = None
    unfollowed: bool = False
    """Whether the event asked for a receipt on something that is no channel for receipts."""


class Invoker(Protocol):
    """Runs a function of the user on events, in order, with its retries and within its bounds."""

    def __call__(self, events: Sequence[Routed]) -> Sequence[Invoked]:
        """Give what became of each event; never raises for what the function does."""
