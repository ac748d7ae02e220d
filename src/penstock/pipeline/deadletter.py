"""A dead letter: a CloudEvent that keeps the raw record it stands for, bit for bit, and says why.

Its data is a JSON object: code, reason, route, attempt, origin (server, topic, partition, offset, timestamp)
and record (key, value and headers in base64, null where it had none). `restore` gives the record back. A
record that the dead-letter topic is too small for is null: the origin says where it can still be read.
Older letters have no server in their origin; they are read as well.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent, Json
from penstock.pipeline.plan.identity import derived_id
from penstock.record import KafkaRecord

__all__ = ["TYPE", "DeadLetter", "dead_letter_event", "read_dead_letter", "restore", "source_of"]

TYPE: Final = "io.penstock.deadletter"
_MOST_REASONS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not be processed."""

    record: KafkaRecord
    code: str
    """A word that can be counted, such as `invalid-event`."""
    reason: str
    route: str | None = None
    """None if it failed before any route."""
    attempt: int = 1
    kept: bool = True
    """False if the record was too large to be kept: it is to be read at its origin."""
    server: str | None = None
    """The server, by its name in the contract, that the record was read from; None if that is not known."""

    def also(self, reason: str, attempt: int) -> DeadLetter:
        """Give the letter with one more reason, such as a second target that does not take the record."""
        told = self.reason.split("; and ")
        more = reason not in told and len(told) < _MOST_REASONS
        text = f"{self.reason}; and {reason}" if more else self.reason
        return replace(self, reason=text, attempt=max(self.attempt, attempt))

    @property
    def origin(self) -> str:
        """Where the record was read, as text: [server/]topic/partition/offset."""
        record = self.record
        place = f"{record.topic}/{record.partition}/{record.offset}"
        return f"{self.server}/{place}" if self.server else place


def source_of(pipeline: str) -> str:
    """Give the source of a pipeline's dead letters; a title may hold what a URI-reference may not.

    >>> source_of("My shop")
    '/penstock/My%20shop'
    """
    return f"/penstock/{quote(pipeline, safe='')}"


def dead_letter_event(letter: DeadLetter, pipeline: str) -> CloudEvent:
    """Write a dead letter as an event; the same record and route give the same id in every run.

    The id is made of route, server, place and timestamp. Two clusters may have a topic of one name, and in a
    topic that was deleted and made again other records have the same offsets.
    """
    record = letter.record
    source = source_of(pipeline)
    data = {
        "code": letter.code,
        "reason": letter.reason,
        "route": letter.route,
        "attempt": letter.attempt,
        "origin": {
            "server": letter.server,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        },
        "record": _kept(record) if letter.kept else None,
    }
    attributes = {
        "specversion": "1.0",
        "id": derived_id(letter.route or "", source, f"{letter.origin}@{record.timestamp}"),
        "source": source,
        "type": TYPE,
        "subject": f"{record.topic}/{record.partition}/{record.offset}",
        "datacontenttype": "application/json",
        "deadlettercode": letter.code,
    }
    if letter.route is not None:
        attributes["deadletterroute"] = letter.route
    return CloudEvent(attributes, Json(data))


def read_dead_letter(event: CloudEvent) -> DeadLetter:
    """Read a dead letter; InvalidEvent if the event is none."""
    if event.type != TYPE:
        raise InvalidEvent(f"an event of type {event.type[:60]!r} is no dead letter", attribute="type")
    try:
        data: Any = event.json()
        _require(data, _DATA)
        _require(data["origin"], _ORIGIN)
        return DeadLetter(
            record=_record(data["record"] or _NOTHING, data["origin"]),
            code=data["code"],
            reason=data["reason"],
            route=data["route"],
            attempt=data["attempt"],
            kept=data["record"] is not None,
            server=data["origin"].get("server"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as exc:
        raise InvalidEvent(f"the data of a dead letter cannot be read: {exc}", attribute="data") from exc


def restore(event: CloudEvent) -> KafkaRecord:
    """Give the record that a dead letter stands for, as it was."""
    letter = read_dead_letter(event)
    if not letter.kept:
        raise InvalidEvent("this dead letter does not keep its record: it was too large", attribute="data")
    return letter.record


_DATA: Final = {"code": str, "reason": str, "route": str | None, "attempt": int}
_ORIGIN: Final = {
    "server": str | None,
    "topic": str | None,
    "partition": int | None,
    "offset": int | None,
    "timestamp": int | None,
}


def _require(found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise TypeError if a field is of another type; anybody may have written it."""
    for name, kind in kinds.items():
        if not isinstance(found.get(name), kind):
            raise TypeError(f"{name} is no {kind}")


_NOTHING: Final[Mapping[str, Any]] = {"key": None, "value": None, "headers": ()}


def _kept(record: KafkaRecord) -> Mapping[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _record(raw: Mapping[str, Any], origin: Mapping[str, Any]) -> KafkaRecord:
    return KafkaRecord(
        key=_bytes(raw["key"]),
        value=_bytes(raw["value"]),
        headers=tuple((str(name), _bytes(value)) for name, value in raw["headers"]),
        topic=origin["topic"],
        partition=origin["partition"],
        offset=origin["offset"],
        timestamp=origin["timestamp"],
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
