"""`penstock publish`: CloudEvents from lines, a file or flags to a topic of Kafka or Pulsar."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.event_lines import PipedEvents, is_live, read_all, read_bytes
from penstock.cli.places import (
    PlaceName,
    ServerName,
    find_place,
    kafka_options,
    mode_of,
    pulsar_client,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.contract.places import Place
    from penstock.events import CloudEvent, Json
    from penstock.record import KafkaRecord, PulsarMessage

__all__ = ["command"]


class ContentMode(StrEnum):
    """How an event lies in its record."""

    BINARY = "binary"
    STRUCTURED = "structured"


class _Tombstone(Enum):
    """A null value under a key, sent instead of an event."""

    TOMBSTONE = "tombstone"


Source = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Events in the JSON format, one a line; - is stdin, of a pipe each line is sent as it comes.",
    ),
]
AllOrNothing = Annotated[
    bool,
    typer.Option("--all-or-nothing", help="Read stdin to its end first; a bad line sends none."),
]


def command(
    place: PlaceName,
    file: Source = None,
    type_: Annotated[str | None, typer.Option("--type", help="One event of this type, by flags.")] = None,
    source: Annotated[str, typer.Option(help="Its source.")] = "/penstock/publish",
    id_: Annotated[str | None, typer.Option("--id", help="Its id; a random one if not given.")] = None,
    subject: Annotated[str | None, typer.Option(help="Its subject.")] = None,
    data: Annotated[str | None, typer.Option(help="Its data; @FILE reads a file.")] = None,
    content_type: Annotated[str, typer.Option("--content-type", help="Of its data.")] = "application/json",
    attributes: Annotated[
        list[str] | None, typer.Option("-A", "--attribute", metavar="NAME=VALUE", help="One more attribute.")
    ] = None,
    mode: Annotated[
        ContentMode | None, typer.Option(help="The content mode; else as the contract says.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of the records.")] = None,
    headers: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="NAME=VALUE", help="One more header.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="A null value under --key, no event.")
    ] = False,
    all_or_nothing: AllOrNothing = False,
    server: ServerName = None,
) -> None:
    """Send events to a channel, an operation or a topic, and wait until the broker has them."""
    by_flags = {"--id": id_, "--subject": subject, "--data": data, "--attribute": attributes}
    _refuse_mixture(type_, file, [name for name, value in by_flags.items() if value], tombstone=tombstone)
    found, contract = find_place(place, server)
    extra = _pairs(headers)
    if tombstone:
        sent = _send(found, [_Tombstone.TOMBSTONE], "binary", key or _wants_key(), extra)
    else:
        by_type = _one(type_, source, id_, subject, data, content_type, attributes) if type_ else None
        events = by_type or _given(file, all_or_nothing=all_or_nothing)
        sent = _send(found, events, mode.value if mode else mode_of(place, contract), key, extra)
        _refuse_lines(events, sent)
    output.talk(f"{sent} sent to {found.topic} on {found.server}")


def _refuse_mixture(type_: str | None, file: str | None, flags: Sequence[str], *, tombstone: bool) -> None:
    """Refuse what would be left out: an event by flags without its type, or beside a file or a tombstone."""
    if tombstone and (type_ or file or flags):
        raise UsageError("a tombstone is no event", next="leave --tombstone out, or what describes the event")
    if type_ and file:
        raise UsageError("one event by --type, or those of a file", next=f"leave --type or {file} out")
    if flags and not type_:
        raise UsageError(f"{', '.join(flags)} without --type", next="add --type, which every event has")


def _refuse_lines(events: Iterable[object], sent: int) -> None:
    """Raise UsageError if lines of a pipe were no events: what came before and behind them is sent."""
    if isinstance(events, PipedEvents) and events.refused:
        raise UsageError(
            f"{events.refused} lines are no events; {sent} others were sent",
            next="correct them and send only those, or read all lines first: --all-or-nothing",
        )


def _wants_key() -> str:
    raise UsageError("a tombstone has a key", next="give --key")


_Events = Iterable["CloudEvent | _Tombstone | None"]
"""None: no event is there yet."""


def _send(
    place: Place,
    events: _Events,
    mode: str,
    key: str | None,
    extra: Mapping[str, str],
) -> int:
    senders: dict[str, Callable[..., int]] = {"kafka": _to_kafka, "gateway": _to_kafka, "pulsar": _to_pulsar}
    if place.protocol not in senders:
        raise UsageError(f"{place.server} speaks {place.protocol}", next="name a Kafka or Pulsar server")
    return senders[place.protocol](place, events, mode, key, extra)


def _to_kafka(place: Place, events: _Events, mode: str, key: str | None, extra: Mapping[str, str]) -> int:
    from penstock.brokers.kafka_records import publish
    from penstock.events import KafkaBinding, Mode
    from penstock.record import KafkaRecord

    own = tuple((name, os.fsencode(value)) for name, value in extra.items())
    key_bytes = None if key is None else os.fsencode(key)

    def records() -> Iterator[KafkaRecord | None]:
        binding = KafkaBinding(mode=Mode(mode))
        for event in events:
            if event is None:
                yield None
            elif isinstance(event, _Tombstone):
                yield KafkaRecord(key=key_bytes, headers=own, topic=place.topic)
            else:
                yield replace(binding.encode(event, key=key_bytes, headers=own), topic=place.topic)

    return publish(kafka_options(place.connection), records(), named=_name_of_record)


def _name_of_record(record: KafkaRecord) -> str:
    """Name the event of a record, for who is told that it was refused."""
    from penstock.errors import EventError
    from penstock.events import KafkaBinding

    try:
        return _name_of(KafkaBinding().decode(record))
    except EventError:
        return "the tombstone" if record.value is None else "a record"


def _name_of(event: CloudEvent) -> str:
    return f"event {event.id!r} of {event.source!r}"


def _to_pulsar(place: Place, events: _Events, mode: str, key: str | None, extra: Mapping[str, str]) -> int:
    from penstock.brokers.pulsar_messages import publish
    from penstock.events import Mode, PulsarBinding
    from penstock.record import PulsarMessage

    own = tuple(extra.items())
    _refuse_bytes(key or "", *extra.values())

    def messages() -> Iterator[PulsarMessage | None]:
        binding = PulsarBinding(mode=Mode(mode))
        for event in events:
            if event is None:
                yield None
            elif isinstance(event, _Tombstone):
                yield PulsarMessage(payload=None, key=key, properties=own)
            else:
                yield binding.encode(event, key=key, properties=own)

    async def send() -> int:
        async with pulsar_client(place.connection) as client:
            # A structured event is no payload by the schema; a producer without one writes it as bytes.
            schema = place.avro_schema if mode == "binary" else None
            return await publish(client, place.topic, messages(), avro_schema=schema, named=_name_of_message)

    return asyncio.run(send())


def _name_of_message(message: PulsarMessage) -> str:
    from penstock.errors import EventError
    from penstock.events import PulsarBinding

    try:
        return _name_of(PulsarBinding().decode(message))
    except EventError:
        return "the tombstone" if message.payload is None else "a message"


def _refuse_bytes(*texts: str) -> None:
    """Raise UsageError for an argument that is not UTF-8, which Python keeps as lone surrogates."""
    if any(not _is_utf8(text) for text in texts):
        raise UsageError("keys and properties of Pulsar are UTF-8", next="give the key and headers as UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        return bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


# Where events come from


def _one(
    type_: str,
    source: str,
    id_: str | None,
    subject: str | None,
    data: str | None,
    content_type: str,
    attributes: list[str] | None,
) -> list[CloudEvent]:
    from penstock.events import CloudEvent

    given: dict[str, Any] = {"id": id_ or str(uuid.uuid4()), "source": source, "type": type_}
    given |= {"subject": subject} if subject is not None else {}
    given |= {"datacontenttype": content_type} if data is not None else {}
    made = CloudEvent({**given, **_pairs(attributes)})
    return [made if data is None else made.replace(data=_data(data, content_type))]


def _data(text: str, content_type: str) -> bytes | Json:
    """Take data as it was given, byte for byte; JSON is read only to see that it is JSON."""
    from penstock.errors import InvalidEvent
    from penstock.events import Json
    from penstock.events.media import is_json

    raw = read_bytes(text[1:]) if text.startswith("@") else os.fsencode(text)
    if not is_json(content_type):
        return raw
    try:
        return Json.parse(raw)
    except InvalidEvent as exc:
        raise UsageError(
            f"the {exc.what}", where="--data", next="correct it, or give --content-type"
        ) from exc


def _given(file: str | None, *, all_or_nothing: bool) -> PipedEvents | list[CloudEvent]:
    """Give the events of a file, all of them or none, or those of a pipe as they come."""
    if file is None and sys.stdin.isatty():
        raise UsageError("there is no event", next="give --type, or events in a file or on stdin")
    return PipedEvents() if is_live(file) and not all_or_nothing else read_all(file)


def _pairs(given: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise UsageError(f"{name!r} has no value", next="write NAME=VALUE")
    return {name: value for name, _, value in pairs}
