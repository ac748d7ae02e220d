"""Which binding the records of a topic have: Kafka's, or Pulsar's.

A Pulsar message is shown as a record whose headers are its properties (spec 001, Message), so the
profiles of spec 002 are read from headers and written to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from penstock.errors import CannotEncode, EventError, InvalidEvent
from penstock.events.bindings.kafka import KafkaBinding, event_of
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values, is_own
from penstock.events.cloudevent import CloudEvent
from penstock.events.draft import failed
from penstock.events.headers import CONTENT_TYPE, PREFIX, to_headers
from penstock.events.reading import Level, Mode, Reading
from penstock.record import Headers, KafkaRecord, Properties, PulsarMessage

__all__ = ["Binding", "PulsarRecords", "binding_of", "owned_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarRecords:
    """Reads and writes events as the records that `mapping` makes of Pulsar messages.

    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed"})
    >>> record = PulsarRecords().encode(event, key=b"k")
    >>> record.headers[0], PulsarRecords().decode(record) == event
    (('CE-EventID', b'1'), True)
    """

    pulsar: PulsarBinding = PulsarBinding()

    @property
    def mode(self) -> Mode:
        """How events are written."""
        return self.pulsar.mode

    def decode(self, record: KafkaRecord) -> CloudEvent:
        """Read one record at the level `strict`."""
        return event_of(self.read(record))

    def read(self, record: KafkaRecord, level: Level = Level.STRICT) -> Reading:
        """Read one record at any level."""
        try:
            message = PulsarMessage(payload=record.value, properties=_properties(record.headers))
        except EventError as error:
            return failed(error, level)
        return self.pulsar.read(message, level)

    def foreign(self, record: KafkaRecord, level: Level = Level.STRICT) -> Headers:
        """Give the headers that belong to the application, in order."""
        return tuple(header for header in record.headers if not is_own(header[0], level))

    def is_own(self, name: str, level: Level = Level.STRICT) -> bool:
        """Say whether a header of this name belongs to the binding at a level."""
        return is_own(name, level)

    def encode(self, event: CloudEvent, *, key: bytes | None = None, headers: Headers = ()) -> KafkaRecord:
        """Write one event; `key` and foreign `headers` travel beside it."""
        taken = next((name for name, _ in headers if is_own(name)), None)
        if taken is not None:
            # On Kafka CE-* is anybody's; on Pulsar a reader takes it for an attribute, or refuses it (A19).
            raise CannotEncode(
                f"header {taken[:60]!r} of the application would be an attribute on Pulsar",
                why="spec 002 3.1.2.1",
                next="let whoever sends it give it another name",
            )
        message = self.pulsar.encode(event)
        return KafkaRecord(value=message.payload, key=key, headers=to_headers(message.properties) + headers)


Binding = KafkaBinding | PulsarRecords


def _properties(headers: Headers) -> Properties:
    """Give headers as properties; those of the application that are no text are none."""
    found = []
    for name, value in headers:
        try:
            if value is not None:
                found.append((name, value.decode()))
        except UnicodeDecodeError as exc:
            if is_own(name):
                what = f"property {name[:60]!r} is not UTF-8"
                raise InvalidEvent(what, attribute=name, clause="spec 002 3.1.2.2 (A14)") from exc
    return tuple(found)


def owned_by(binding: Binding) -> Callable[[str], bool]:
    """Give what tells whether a header belongs to a binding, in any of its dialects."""
    return is_own if isinstance(binding, PulsarRecords) else _is_kafka


def _is_kafka(name: str) -> bool:
    return name == CONTENT_TYPE or name.startswith(PREFIX)


@cache
def binding_of(
    profile: Profile | None, mode: Mode, values: Values = Values.AUTO, repeat: bool = False
) -> Binding:
    """Give the binding that writes to a topic: of a profile on Pulsar, None on Kafka.

    `values` is how a 0.1 property says a value; with `repeat` structured events have the headers of binary
    mode besides.
    """
    if profile is None:
        return KafkaBinding(mode=mode, repeat_headers=repeat)
    pulsar = PulsarBinding(profile=profile, mode=mode, values=values, repeat_properties=repeat)
    return PulsarRecords(pulsar=pulsar)
