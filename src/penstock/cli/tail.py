"""`penstock tail`: the events of a topic of Kafka or Pulsar; what cannot be decoded is shown with why."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.places import PlaceName, ServerName, find_place, kafka_options, pulsar_client
from penstock.cli.settings import Format, current
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar_messages import Unreadable
    from penstock.brokers.start import Start
    from penstock.contract.places import Place
    from penstock.events import CloudEvent
    from penstock.record import KafkaRecord, PulsarMessage

__all__ = ["command"]

_DEBUG_VERBOSITY = 2
_LONGEST = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One record as it is shown."""

    place: str
    time: int | None
    event: CloudEvent | None = None
    reason: str | None = None
    """Why it is no event; None if it is one."""
    tombstone: bool = False
    key: bytes | None = None
    raw: str = ""


def command(
    place: PlaceName,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="beginning, end, -100, 10m, a time, or an offset.")
    ] = "end",
    type_: Annotated[str | None, typer.Option("--type", help="Only events of this type.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Only events for which this SQL condition is true.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Records as JSON lines, every byte kept.")] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="Show what is there now, then end.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    server: ServerName = None,
) -> None:
    """Show events as they come; with `-o json` one JSON object a line."""
    from penstock.brokers.start import Start, StartKind

    found, _ = find_place(place, server)
    begin = Start.parse(start)
    if until_end and begin.kind is StartKind.END:
        begin = Start(StartKind.BEGINNING)
    wanted = _wanted(type_, where)
    if not until_end:
        # Who waits for events hears that a broker has gone, and that it is back.
        output.show_logs(debug=current().verbosity >= _DEBUG_VERBOSITY)
    shown = 0

    def show(item: Shown) -> bool:
        """Show an item; say whether that is enough."""
        nonlocal shown
        if not wanted(item):
            return False
        output.data(item.raw if raw else _text(item))
        shown += 1
        return limit is not None and shown >= limit

    readers = {"kafka": _kafka, "gateway": _kafka, "pulsar": _pulsar}
    if found.protocol not in readers:
        raise UsageError(f"{found.server} speaks {found.protocol}", next="name a Kafka or Pulsar server")
    readers[found.protocol](found, begin, until_end, show)


Show = Callable[[Shown], bool]


def _kafka(place: Place, start: Start, until_end: bool, show: Show) -> None:
    from penstock.brokers.kafka_records import follow

    records = follow(kafka_options(place.connection), place.topic, start, until_end=until_end)
    for item in _last(map(_of_record, records), start, until_end):
        if show(item):
            break
    records.close()  # type: ignore[attr-defined]


def _pulsar(place: Place, start: Start, until_end: bool, show: Show) -> None:
    asyncio.run(_pulsar_loop(place, start, until_end, show))


async def _pulsar_loop(place: Place, start: Start, until_end: bool, show: Show) -> None:
    from penstock.brokers.pulsar_messages import follow
    from penstock.brokers.start import StartKind

    if start.kind is StartKind.OFFSET:
        raise UsageError("Pulsar has no offsets", next="give --from beginning, end, -100 or 10m")
    async with (
        pulsar_client(place.connection) as client,
        aclosing(follow(client, place.topic, start, until_end=until_end)) as items,
    ):
        if until_end and start.kind is StartKind.LAST:
            for item in _last([_of_message(each) async for each in items], start, until_end):
                if show(item):
                    return
            return
        async for each in items:
            if show(_of_message(each)):
                return


def _last(items: Any, start: Start, until_end: bool) -> Iterator[Shown]:
    """Give the last of all partitions together, if the last were asked for."""
    from penstock.brokers.start import StartKind

    if not (until_end and start.kind is StartKind.LAST):
        return iter(items)
    return iter(deque(sorted(items, key=lambda item: item.time or 0), maxlen=start.number))


# Records to what is shown


def _of_record(record: KafkaRecord) -> Shown:
    from penstock.events import KafkaBinding, Level
    from penstock.events.lines import write_record

    reading = KafkaBinding().read(record, Level.FORENSIC)
    event, reason = _verdict(reading, record.value)
    return Shown(
        place=f"{record.topic}/{record.partition}/{record.offset}",
        time=record.timestamp,
        event=event,
        reason=reason,
        tombstone=record.value is None,
        key=record.key,
        raw=write_record(record),
    )


def _of_message(message: PulsarMessage | Unreadable) -> Shown:
    from penstock.events import Level, PulsarBinding
    from penstock.events.bindings.pulsar import key_bytes
    from penstock.events.lines import write_record
    from penstock.record import PulsarMessage

    if not isinstance(message, PulsarMessage):
        place = f"{message.topic} {message.message_id}"
        return Shown(place=place, time=None, reason=message.reason, raw=f'{{"unreadable": "{place}"}}')
    event, reason = _verdict(PulsarBinding().read(message, Level.FORENSIC), message.payload)
    return Shown(
        place=f"{(message.topic or '').rpartition('/')[2]} {message.message_id}",
        time=message.event_time or message.publish_time,
        event=event,
        reason=reason,
        tombstone=message.payload is None,
        key=key_bytes(message),
        raw=write_record(message),
    )


def _verdict(reading: Any, value: bytes | None) -> tuple[CloudEvent | None, str | None]:
    """Give the event if the record is a valid one, else why it is not."""
    if reading.verdict.value == "event":
        return reading.event, None
    if value is None and reading.verdict.value == "foreign":
        return None, "a null value, no event"
    told = reading.error.what if reading.error else "; ".join(finding.what for finding in reading.findings)
    return None, told or reading.verdict.value


def _wanted(type_: str | None, where: str | None) -> Callable[[Shown], bool]:
    """Give the test of the flags; records that are no events pass only where nothing was asked of events."""
    from penstock.pipeline.evaluators.reference.route import Output, RouteEvaluator
    from penstock.pipeline.plan.route import RoutePlan
    from penstock.pipeline.plan.sql import parse_sql

    route = RouteEvaluator(RoutePlan(name="tail", where=parse_sql(where))) if where else None

    def test(item: Shown) -> bool:
        if item.event is None:
            return type_ is None and route is None
        if type_ is not None and item.event.type != type_:
            return False
        now = time.time_ns() // 1000
        return route is None or isinstance(route.route(item.event, key=item.key, now=now), Output)

    return test


# What people read


def _text(item: Shown) -> str:
    if current().output is Format.TABLE:
        return _line(item)
    import json

    return json.dumps(_object(item), ensure_ascii=False, separators=(",", ":"))


def _line(item: Shown) -> str:
    head = f"{_clock(item.time)}  {item.place}"
    if item.event is None:
        return f"{head}  not an event: {item.reason}"
    event, mark = item.event, "  (tombstone)" if item.tombstone else ""
    words = [event.type, event.id, event.source, event.subject or "-"]
    return f"{head}  {'  '.join(words)}{mark}  {_data(event)}".rstrip()


def _data(event: CloudEvent) -> str:
    raw = event.data_bytes
    if raw is None:
        return ""
    text = raw.decode("utf-8", "backslashreplace")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _object(item: Shown) -> Mapping[str, Any]:
    import json

    from penstock.events import FORMATS
    from penstock.events.content import absent
    from penstock.events.types import write_base64

    key = None if item.key is None else item.key.decode("utf-8", "backslashreplace")
    made: dict[str, Any] = {"place": item.place, "time": _clock(item.time), "key": key}
    if item.event is None:
        return {**made, "reason": item.reason, "record": json.loads(item.raw)}
    try:
        event = json.loads(FORMATS.named("json").encode(item.event))
    except (ValueError, RecursionError):
        # JSON for others, and not for Python: a number of thousands of digits.
        bare = json.loads(FORMATS.named("json").encode(item.event.replace(data=absent)))
        event = {**bare, "data_base64": write_base64(item.event.data_bytes or b"")}
    return {**made, "tombstone": item.tombstone, "event": event}


def _clock(millis: int | None) -> str:
    """Write a time; one that is no date, which any producer can send, as its number."""
    if millis is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(millis)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
