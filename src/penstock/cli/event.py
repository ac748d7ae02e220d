"""penstock event: encode, decode, check and convert events offline, from JSON lines.

Records are the lines of `penstock.events.lines` (and of `kcat -J`), events are CloudEvents in the JSON
format, one per line. The exit code is 1 if a line was refused; nothing is dropped without a word.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.settings import current
from penstock.errors import EventError, InternalError, MachineError, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.events import CloudEvent, Reading

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Encode, decode, check and convert events offline.")
REFUSED = 1


class Binding(StrEnum):
    """Where a record comes from or goes to."""

    KAFKA = "kafka"
    PULSAR = "pulsar"
    PULSAR_10 = "pulsar-1.0"
    HTTP = "http"


class ContentMode(StrEnum):
    """How an event lies in its record."""

    BINARY = "binary"
    STRUCTURED = "structured"


class Strictness(StrEnum):
    """How much a reader forgives."""

    STRICT = "strict"
    LENIENT = "lenient"


Source = Annotated[str, typer.Argument(metavar="FILE", help="JSON lines; - is standard input.")]
From = Annotated[Binding, typer.Option("--from", help="The binding of the records.")]
To = Annotated[Binding, typer.Option("--to", help="The binding to write; pulsar is profile 0.1.")]
AsMode = Annotated[ContentMode, typer.Option("--mode", help="The content mode to write.")]
AsFormat = Annotated[str, typer.Option("--format", help="The event format of structured mode.")]
At = Annotated[Strictness, typer.Option("--level", help="strict refuses, lenient reports and goes on.")]
Key = Annotated[str | None, typer.Option("--key", metavar="ATTRIBUTE", help="Use this attribute as the key.")]
Sniff = Annotated[
    bool, typer.Option("--sniff", help="Take JSON that looks like an event as one, without headers.")
]
Bridged = Annotated[bool, typer.Option("--bridged", help="Pulsar: ce_ values are base64 (pulsar-io-kafka).")]
Dash = Annotated[bool, typer.Option("--dash", help="Kafka: also read ce- headers.")]


@app.command()
def decode(
    source: Source = "-",
    from_: From = Binding.KAFKA,
    level: At = Strictness.STRICT,
    sniff: Sniff = False,
    bridged: Bridged = False,
    dash: Dash = False,
) -> None:
    """Read records, write events in the JSON format."""
    from penstock.events import FORMATS

    reader = _reader(from_, sniff=sniff, bridged=bridged, dash=dash)

    def work(line: bytes) -> Iterator[str]:
        for event in _events(reader, reader.record(line), level):
            yield FORMATS.named("json").encode(event).decode()

    _run(source, work)


@app.command()
def encode(
    source: Source = "-",
    to: To = Binding.KAFKA,
    mode: AsMode = ContentMode.BINARY,
    format_: AsFormat = "json",
    key: Key = None,
) -> None:
    """Read events in the JSON format, write records."""
    from penstock.events import FORMATS
    from penstock.events.lines import write_record

    write = _writer(to, mode, format_, key)
    _run(source, lambda line: [write_record(write(FORMATS.named("json").decode(line), None, ()))])


@app.command()
def convert(
    source: Source = "-",
    from_: From = Binding.KAFKA,
    to: To = Binding.PULSAR,
    mode: AsMode = ContentMode.BINARY,
    format_: AsFormat = "json",
    key: Key = None,
    level: At = Strictness.STRICT,
    sniff: Sniff = False,
    bridged: Bridged = False,
    dash: Dash = False,
) -> None:
    """Read records of one binding, write records of another.

    Key and foreign headers go along between Kafka and Pulsar, escaped as the gateway does it where they are
    no text; to and from HTTP only the event does.
    """
    from penstock.events import Level
    from penstock.events.lines import write_record

    reader = _reader(from_, sniff=sniff, bridged=bridged, dash=dash)
    write = _writer(to, mode, format_, key)

    def work(line: bytes) -> Iterator[str]:
        record = reader.record(line)
        for event in _events(reader, record, level):
            yield write_record(write(event, reader.key(record), reader.foreign(record, Level(level.value))))

    _run(source, work)


@app.command()
def check(
    source: Source = "-",
    from_: From = Binding.KAFKA,
    level: At = Strictness.STRICT,
    sniff: Sniff = False,
    bridged: Bridged = False,
    dash: Dash = False,
) -> None:
    """Say of every record whether it is a valid event, and if not, why."""
    from penstock.events import Level

    reader = _reader(from_, sniff=sniff, bridged=bridged, dash=dash)
    accepted = {"event"} if level is Strictness.STRICT else {"event", "tolerated"}
    refused = False
    rows: list[tuple[object, ...]] = []
    for number, line in _lines(source):
        with _at(number):
            readings = reader.read(reader.record(line), Level.FORENSIC)
        for reading in readings:
            refused |= reading.verdict.value not in accepted
            rows += _report(number, reading)
    output.rows(
        ("line", "verdict", "id", "severity", "attribute", "finding", "clause"), rows, current().output
    )
    if refused:
        raise typer.Exit(REFUSED)


def _report(number: int, reading: Reading) -> list[tuple[object, ...]]:
    event_id = reading.event.id if reading.event else reading.attributes.get("id")
    found = [(f.severity.value, f.attribute, f.what, f.clause) for f in reading.findings]
    if not found:
        error = reading.error
        found = [("fatal", None, error.what, error.why) if error else (None, None, None, None)]  # type: ignore[list-item]
    return [(number, reading.verdict.value, event_id, *finding) for finding in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How one binding reads lines, records, keys and foreign headers."""

    record: Callable[[bytes], Any]
    read: Callable[[Any, Any], Iterable[Reading]]
    key: Callable[[Any], bytes | str | None] = lambda record: None
    foreign: Callable[[Any, Any], tuple[tuple[str, bytes | None], ...]] = lambda record, level: ()


def _reader(binding: Binding, *, sniff: bool, bridged: bool, dash: bool) -> _Reader:
    from penstock.events import HttpBinding, KafkaBinding, PulsarBinding, lines
    from penstock.events.bindings.pulsar import key_bytes
    from penstock.events.headers import to_headers

    kafka, pulsar = KafkaBinding(dash=dash, sniff=sniff), PulsarBinding(sniff=sniff, bridged=bridged)
    from_pulsar = _Reader(
        record=lambda line: lines.read_pulsar(lines.read_line(line)),
        read=lambda message, level: (pulsar.read(message, level),),
        key=key_bytes,
        foreign=lambda message, level: to_headers(pulsar.foreign(message, level)),
    )
    readers: Mapping[Binding, _Reader] = {
        Binding.KAFKA: _Reader(
            record=lambda line: lines.read_kafka(lines.read_line(line)),
            read=lambda record, level: (kafka.read(record, level),),
            key=lambda record: record.key,
            foreign=kafka.foreign,
        ),
        Binding.PULSAR: from_pulsar,
        Binding.PULSAR_10: from_pulsar,
        Binding.HTTP: _Reader(
            record=lambda line: lines.read_http(lines.read_line(line)),
            read=lambda message, level: _read_http(HttpBinding(), message, level),
        ),
    }
    return readers[binding]


def _read_http(binding: Any, message: Any, level: Any) -> Iterable[Reading]:
    readings: Iterable[Reading] = (
        binding.read_batch(message, level) if binding.is_batch(message) else (binding.read(message, level),)
    )
    return readings


Writer = Callable[["CloudEvent", "bytes | str | None", "tuple[tuple[str, bytes | None], ...]"], Any]


def _writer(binding: Binding, mode: ContentMode, format_: str, key: str | None) -> Writer:
    from penstock.events import FORMATS, HttpBinding, KafkaBinding, Mode, Profile, PulsarBinding
    from penstock.events.bindings.key import attribute
    from penstock.events.headers import to_properties

    if format_ not in (known := [each.name for each in FORMATS]):
        raise UsageError(f"there is no event format '{format_}'", next=f"choose one of {', '.join(known)}")
    mapper = attribute(key) if key else None
    shape: dict[str, Any] = {"mode": Mode(mode.value), "format": format_}
    kafka = KafkaBinding(**shape, key_mapper=mapper)
    http = HttpBinding(**shape)
    profile = Profile.V1_0 if binding is Binding.PULSAR_10 else Profile.V0_1
    pulsar = PulsarBinding(**shape, key_mapper=mapper, profile=profile)

    def to_pulsar(event: CloudEvent, given: bytes | str | None, headers: Any) -> Any:
        return pulsar.encode(event, key=None if key else given, properties=to_properties(headers))

    writers: Mapping[Binding, Writer] = {
        Binding.KAFKA: lambda event, given, headers: kafka.encode(
            event, key=None if key else given, headers=headers
        ),
        Binding.PULSAR: to_pulsar,
        Binding.PULSAR_10: to_pulsar,
        Binding.HTTP: lambda event, given, headers: http.encode(event),
    }
    return writers[binding]


def _events(reader: _Reader, record: Any, level: Strictness) -> Iterator[CloudEvent]:
    from penstock.events import Level

    for reading in reader.read(record, Level(level.value)):
        if reading.event is None:
            raise reading.error or InternalError("a reading has neither event nor error")
        for finding in reading.findings:
            output.talk(f"{finding.severity.value}: {finding.what} ({finding.clause})")
        yield reading.event


def _run(source: str, work: Callable[[bytes], Iterable[str]]) -> None:
    """Print what the work makes of each line; a line that is refused is told and makes the exit code 1."""
    refused = False
    for number, line in _lines(source):
        try:
            with _at(number):
                for text in work(line):
                    output.data(text)
        except EventError as error:
            refused = True
            output.error(error)
    if refused:
        raise typer.Exit(REFUSED)


@contextmanager
def _at(number: int) -> Iterator[None]:
    """Tell in an error which line it was."""
    try:
        yield
    except PenstockError as error:
        error.where = f"line {number}" + (f", {error.where}" if error.where else "")
        raise


def _lines(source: str) -> Iterator[tuple[int, bytes]]:
    try:
        stream = sys.stdin.buffer if source == "-" else Path(source).open("rb")  # noqa: SIM115 - closed below
    except OSError as exc:
        raise MachineError(
            f"cannot read {source}: {exc.strerror}",
            where=source,
            next="name a file that is there, or - for standard input",
        ) from exc
    with stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line
