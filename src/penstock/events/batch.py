"""A micro-batch: spec 004's list-typed event, whose `records` hold headers and a body or attributes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CannotEncode, InvalidEvent, UsageError
from penstock.events.batch_json import event_of_value, value_of_event
from penstock.events.event import Event
from penstock.events.event_json import write_json
from penstock.events.event_type import LIST, EventType
from penstock.events.jsontext import loads
from penstock.events.reading import Level

__all__ = ["BATCH_LIMITS", "BatchLimits", "EventBatch"]

_CLAUSE = "spec 004, Micro-Batch Considerations"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How large a batch may be, as JSON."""

    records: int = 10_000
    bytes: int = 16 << 20


BATCH_LIMITS = BatchLimits()


def _envelope() -> Event:
    return Event("", {"event-type": str(EventType(class_=LIST, kind="records"))})


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events for one call of a function; the envelope is the list-typed event that holds them.

    >>> batch = EventBatch.of([Event("orders", {"event-id": "1", "event-type": "kind=order"})], id="b-1")
    >>> batch.encode().decode()
    '{"headers":[["event-id","b-1"],["event-type","class=list;kind=records"]],"records":[{"path":"orders",...}]}'
    """

    records: tuple[Event, ...] = ()
    envelope: Event = field(default_factory=_envelope)

    def __post_init__(self) -> None:
        if self.envelope.body is not None or self.envelope.has_attributes:
            raise UsageError("the envelope of a batch has headers only", why=_CLAUSE)

    @classmethod
    def of(cls, records: Iterable[Event], *, id: str, kind: str = "records", path: str = "") -> EventBatch:
        """Make a batch with an id and a kind of its own."""
        event_type = str(EventType(class_=LIST, kind=kind))
        return cls(tuple(records), Event(path, {"event-id": id, "event-type": event_type}))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.records)

    def encode(self, *, limits: BatchLimits = BATCH_LIMITS) -> bytes:
        """Write the batch as JSON; CannotEncode if it is too large."""
        if len(self.records) > limits.records:
            raise CannotEncode(
                f"a batch of {len(self.records)} records; the limit is {limits.records}", why=_CLAUSE
            )
        value = value_of_event(self.envelope) | {
            "records": [value_of_event(record) for record in self.records]
        }
        raw = write_json(value, "the batch")
        if len(raw) > limits.bytes:
            raise CannotEncode(f"a batch of {len(raw)} bytes; the limit is {limits.bytes}", why=_CLAUSE)
        return raw

    @classmethod
    def decode(
        cls,
        raw: bytes,
        *,
        level: Level = Level.STRICT,
        limits: BatchLimits = BATCH_LIMITS,
        trusted: bool = False,
    ) -> EventBatch:
        """Read a batch; InvalidEvent says which record is wrong, and in `strict` which rule it breaks.

        Only with `trusted` is believed what the JSON says about who appended a header: whoever can send a
        batch could otherwise send an identity.
        """
        value = _object(raw, limits)
        records = value.pop("records", None)
        if not isinstance(records, list):
            raise _wrong("records is not an array", "records")
        if len(records) > limits.records:
            raise _wrong(f"{len(records)} records; the limit is {limits.records}", "records")
        envelope = event_of_value(value, "batch", trusted=trusted)
        if envelope.body is not None or envelope.has_attributes:
            raise _wrong("a batch has records in place of a body", "batch")
        places = ((record, f"records[{number}]") for number, record in enumerate(records))
        events = tuple(event_of_value(record, where, trusted=trusted) for record, where in places)
        return cls(events, envelope)._checked(level)

    def _checked(self, level: Level) -> EventBatch:
        _hold(self.envelope, level, "batch")
        if level is Level.STRICT:
            event_type = self.envelope.event_type
            # "indicate in the event type that it's a list type and pass a 'records' list object".
            if event_type is None or not event_type.is_list:
                raise _wrong("event-type does not say class=list", "batch")
        for number, record in enumerate(self.records):
            _hold(record, level, f"records[{number}]")
        return self


def _object(raw: bytes, limits: BatchLimits) -> dict[str, Any]:
    if len(raw) > limits.bytes:
        raise _wrong(f"{len(raw)} bytes; the limit is {limits.bytes}", "batch")
    try:
        value = loads(raw)
    except ValueError as exc:
        raise _wrong(f"not JSON: {exc}", "batch") from exc
    if not isinstance(value, dict):
        raise _wrong("not an object", "batch")
    return value


def _hold(event: Event, level: Level, where: str) -> None:
    try:
        event.checked(level)
    except InvalidEvent as exc:
        raise InvalidEvent(
            f"{where}: {exc.what}", attribute=f"{where}.{exc.attribute}", clause=exc.clause, fix=exc.fix
        ) from exc


def _wrong(what: str, where: str) -> InvalidEvent:
    return InvalidEvent(f"{where}: {what}", attribute=where, clause=_CLAUSE)
