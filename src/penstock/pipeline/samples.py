"""Test files beside a pipeline: events that are given, and what is expected of them.

An expected event names only what matters: the attributes and the members of data that must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from penstock.contract.files import Access, CannotRead
from penstock.contract.finding import Report
from penstock.contract.library import Library
from penstock.contract.node import JsonValue
from penstock.contract.readers import any_value, integer, list_of, map_of, part, text
from penstock.contract.shape import NOTHING, Part, Reading, read_part, spec
from penstock.errors import EventError, UsageError
from penstock.events import CloudEvent
from penstock.events.lines import read_line
from penstock.events.timestamp import read_nanoseconds
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.deadletter import DeadLetter
from penstock.pipeline.trial import Sent, Trial, event_of, sample_record, try_out

__all__ = ["Expected", "SampleTest", "differences", "find_tests", "read_events", "read_test", "run_test"]

_MOST: Final = 100_000
_LONGEST: Final = 200
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected(Part):
    """What the routes shall make of the events; counts that are not named are not looked at."""

    SPEC_NAME: ClassVar[str] = "an expect block"
    channels: Mapping[str, tuple[JsonValue, ...]] = spec(map_of(list_of(any_value)), default=NOTHING)
    dead: tuple[JsonValue, ...] = spec(list_of(any_value), default=())
    receipts: tuple[JsonValue, ...] = spec(list_of(any_value), default=())
    dropped: int | None = spec(integer(0, _MOST))
    unmatched: int | None = spec(integer(0, _MOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTest(Part):
    """One file."""

    SPEC_NAME: ClassVar[str] = "a test of a pipeline"
    route: str | None = spec(text)
    """None: all routes of what is received."""
    receive: str | None = spec(text)
    now: str | None = spec(text)
    """The moment at which the test takes place, for `expirytime`."""
    given: tuple[JsonValue, ...] = spec(list_of(any_value), required=True, default=())
    expect: Expected = spec(part(Expected), required=True, default=Expected())


def find_tests(pipeline: Path) -> list[Path]:
    """Give the test files of a pipeline: `tests/*.yaml`, `*.yml` and `*.json` beside it."""
    folder = pipeline.absolute().parent / "tests"
    return sorted(path for ending in ("yaml", "yml", "json") for path in folder.glob(f"*.{ending}"))


def read_test(path: Path) -> SampleTest:
    """Read a test file; UsageError for the first thing that is wrong with it."""
    report = Report()
    try:
        library = Library(path, report, Access.configured())
    except CannotRead as exc:
        raise UsageError(f"cannot read {path}: {exc}", next="name a test file") from exc
    found: Any = None
    if library.root is not None:
        found = read_part(SampleTest, Reading(library, report), library.root)
    for finding in report:
        raise UsageError(finding.message, where=str(finding.position), next=finding.fix)
    if not isinstance(found, SampleTest):
        raise UsageError(f"{path} is no test of a pipeline", next="give it `given` and `expect`")
    return found


def read_events(path: Path) -> Sequence[Mapping[str, Any]]:
    """Read sample events: a JSON array, one JSON object, or one object a line."""
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}", next="name a file of events") from exc
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError):
        return _by_lines(path, raw)
    events: list[Mapping[str, Any]] = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(event, dict) for event in events):
        raise UsageError(f"{path} holds something that is no event", next="give an array of objects")
    return events


def _by_lines(path: Path, raw: bytes) -> list[Mapping[str, Any]]:
    events = []
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            events += [read_line(line)] if line.strip() else []
        except UsageError as exc:
            exc.where = f"{path}:{number}"
            raise
    return events


def run_test(pipeline: Pipeline, test: SampleTest) -> list[str]:
    """Run one test; give a line for each difference, none if it passes."""
    samples = [sample_record(sample) for sample in test.given if isinstance(sample, Mapping)]
    if len(samples) != len(test.given):
        raise UsageError("an event under `given` is no mapping", where=str(test.at("given").position()))
    trial = try_out(pipeline, samples, route=test.route, receive=test.receive, now=_moment(test))
    return list(differences(test.expect, trial))


def _moment(test: SampleTest) -> int | None:
    try:
        return None if test.now is None else read_nanoseconds(test.now) // 1000
    except ValueError as exc:
        raise UsageError(f"now: {exc}", where=str(test.at("now").position())) from exc


def differences(expected: Expected, trial: Trial) -> Iterator[str]:
    """Compare what was expected with what came."""
    sent: dict[str, list[Any]] = {}
    for each in trial.sent:
        sent.setdefault(each.channel, []).append(_plain_event(each))
    for channel in dict.fromkeys((*expected.channels, *sent)):
        yield from _compare_all(channel, expected.channels.get(channel, ()), sent.get(channel, []))
    yield from _compare_all("dead", expected.dead, [_plain_letter(letter) for letter in trial.dead])
    yield from _compare_all("receipts", expected.receipts, [_plain_event(each) for each in trial.receipts])
    for name, count in (("dropped", expected.dropped), ("unmatched", expected.unmatched)):
        if count is not None and count != trial.counts[name]:
            yield f"{name}: expected {count}, got {trial.counts[name]}"


def _compare_all(where: str, expected: Sequence[Any], got: Sequence[Any]) -> Iterator[str]:
    if len(expected) != len(got):
        yield f"{where}: expected {len(expected)}, got {len(got)}"
        yield from (
            f"{where}[{number}]: not expected: {_short(got[number])}" for number in _rest(expected, got)
        )
        yield from (
            f"{where}[{number}]: did not come: {_short(expected[number])}" for number in _rest(got, expected)
        )
    for number, pair in enumerate(zip(expected, got, strict=False)):
        yield from _compare(f"{where}[{number}]", *pair)


def _rest(shorter: Sequence[Any], longer: Sequence[Any]) -> range:
    return range(len(shorter), len(longer))


def _compare(where: str, expected: Any, got: Any) -> Iterator[str]:
    """Compare what is named: a mapping may hold more than expected, anything else must be equal."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for name, value in expected.items():
            yield from _compare(f"{where}.{name}", value, got.get(name, _MISSING))
    elif got is _MISSING:
        yield f"{where}: expected {_short(expected)}, it is not there"
    elif expected != got or isinstance(expected, bool) != isinstance(got, bool):
        yield f"{where}: expected {_short(expected)}, got {_short(got)}"


def _plain_event(sent: Sent) -> dict[str, Any]:
    key = sent.record.key
    plain: dict[str, Any] = {"key": None if key is None else key.decode("utf-8", "backslashreplace")}
    if sent.event is None:
        raw = sent.record.value
        return {**plain, "value": None if raw is None else raw.decode("utf-8", "backslashreplace")}
    return {**plain, **_natives(sent.event), **_data(sent.event)}


def _natives(event: CloudEvent) -> dict[str, Any]:
    return {
        name: event.value(name) if name in event.types else text for name, text in event.attributes.items()
    }


def _data(event: CloudEvent) -> dict[str, Any]:
    raw = event.data_bytes
    if raw is None:
        return {}
    try:
        return {"data": event.json()}
    except EventError:
        return {"data": raw.decode("utf-8", "backslashreplace")}


def _plain_letter(letter: DeadLetter) -> dict[str, Any]:
    event = event_of(letter.record)
    about = {"code": letter.code, "reason": letter.reason, "route": letter.route, "attempt": letter.attempt}
    return {**(_natives(event) if event is not None else {}), **about}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
