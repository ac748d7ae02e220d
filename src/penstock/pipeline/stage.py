"""What happens to one Arrow batch of records: decoded once, every route of its source, written as records.

The stage runs inside Spark's Python workers and knows nothing of Spark. One row of its output is one record
to write, with the number of its sink; the last row of each batch has no topic and counts what was read,
dropped and rejected.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from penstock.errors import CannotEncode
from penstock.events import CloudEvent, absent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Mode as EventMode
from penstock.events.reading import Verdict as Reading
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import CODES, HEADERS, decode_batch
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.plan.verdict import EXPIRED, KEEP, REASONS, UNMATCHED, Decision, Verdict
from penstock.pipeline.ports import Checker, Invoked, Invoker, Reader, Routed, Target
from penstock.pipeline.reference.route import route_event, route_null
from penstock.pipeline.size import batch_bytes, fits
from penstock.record import KafkaRecord

__all__ = ["COUNTERS", "INPUT", "OUTPUT", "OUTPUT_DDL", "Stage", "StageRoute", "read_cloud_events"]

INPUT: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
COUNTERS: Final = (
    "n_in",
    "n_out",
    "n_dead",
    "n_unmatched",
    "n_dropped",
    "n_retried",
    "n_unfollowed",
    "n_expired",
)
OUTPUT: Final = pa.schema(
    [
        ("topic", pa.utf8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("sink", pa.int32()),
        *((name, pa.int64()) for name in COUNTERS),
    ]
)
OUTPUT_DDL: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, sink int, "
    + ", ".join(f"{name} bigint" for name in COUNTERS)
)
_FOREIGN, _UNSUPPORTED = CODES[Reading.FOREIGN], CODES[Reading.UNSUPPORTED]
_BINARY, _STRUCTURED = KafkaBinding(mode=EventMode.BINARY), KafkaBinding(mode=EventMode.STRUCTURED)


def read_cloud_events(batch: pa.RecordBatch) -> EventColumns:
    """Read a batch of CloudEvents, in either mode."""
    return decode_batch(batch.column("value"), batch.column("headers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRoute:
    """One route as the workers need it."""

    plan: RoutePlan
    targets: tuple[Target, ...]
    dead: Target
    invoker: Invoker | None = None


@dataclass(frozen=True, slots=True)
class _Leaving:
    """An event that a route has kept and what belongs to it."""

    routed: Routed
    structured: bool
    null_value: bool
    row: int


@dataclass(slots=True)
class _Rows:
    """The records that a batch becomes, and the events that wait for a function, by route."""

    topics: list[str | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] = field(default_factory=list)
    sinks: list[int | None] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, list[_Leaving]] = field(default_factory=dict)

    def add(self, target: Target | None, record: KafkaRecord) -> None:
        self.topics.append(target.topic if target else None)
        self.sinks.append(target.sink if target else None)
        self.keys.append(record.key)
        self.values.append(record.value)
        self.headers.append(list(record.headers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All routes of one source."""

    pipeline: str
    routes: tuple[StageRoute, ...]
    dead: Target
    """Where records go that fail before any route."""
    reader: Reader = read_cloud_events
    checks: tuple[Checker, ...] = ()
    unknown: tuple[Target, ...] = ()
    """Where structured events of an unregistered format go unchanged; none: to the dead letters."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do what `mapInArrow` asks for."""
        for batch in batches:
            yield self.process(batch, now=time.time_ns() // 1000)

    def process(self, batch: pa.RecordBatch, *, now: int) -> pa.RecordBatch:
        """Route one batch; `now` is the moment in microseconds."""
        events = self.reader(batch)
        for check in self.checks:
            events = check(events, batch)
        rows = _Rows()
        rows.counts["n_in"] = batch.num_rows
        codes, reasons, structured = (
            events.code.to_pylist(),
            events.reason.to_pylist(),
            events.structured.to_pylist(),
        )
        for row in range(batch.num_rows):
            if codes[row] is None:
                self._route(events, structured[row], batch, row, now, rows)
            else:
                self._not_an_event(codes[row], reasons[row], batch, row, rows)
        self._invoke(batch, rows)
        return self._written(rows)

    # Events

    def _route(
        self, events: EventColumns, structured: bool, batch: pa.RecordBatch, row: int, now: int, rows: _Rows
    ) -> None:
        event, record = event_at(events, row), _record(batch, row)
        foreign = tuple((pair["key"], pair["value"]) for pair in events.foreign[row].as_py())
        verdicts = []
        for route in self.routes:
            found = route_event(route.plan, event, key=record.key, now=now)
            verdicts.append(found.verdict)
            for output in found.outputs:
                routed = Routed(
                    event=output.event,
                    key=output.key,
                    headers=foreign,
                    record=record,
                    origin=(event.source, event.id),
                )
                self._leave(route, _Leaving(routed, structured, output.null_value, row), batch, rows)
            self._account(route, found.verdict, batch, row, rows)
        if all(verdict == UNMATCHED for verdict in verdicts):
            rows.counts["n_unmatched"] += 1

    def _leave(self, route: StageRoute, leaving: _Leaving, batch: pa.RecordBatch, rows: _Rows) -> None:
        if route.invoker is None:
            self._write(route, leaving.routed.event, leaving, batch, rows)
        else:
            rows.waiting.setdefault(route.plan.name, []).append(leaving)

    def _invoke(self, batch: pa.RecordBatch, rows: _Rows) -> None:
        for route in self.routes:
            waiting = rows.waiting.get(route.plan.name, ())
            if route.invoker is not None and waiting:
                results = route.invoker([leaving.routed for leaving in waiting])
                for leaving, invoked in zip(waiting, results, strict=True):
                    self._invoked(route, leaving, invoked, batch, rows)

    def _invoked(
        self, route: StageRoute, leaving: _Leaving, invoked: Invoked, batch: pa.RecordBatch, rows: _Rows
    ) -> None:
        for number, event in enumerate(invoked.events):
            null = event.data is absent and not route.plan.writes_no_data_as_event
            routed = _as_emitted(leaving.routed, invoked, number)
            self._write(route, event, replace(leaving, routed=routed, null_value=null), batch, rows)
        if invoked.code is not None:
            self._bury(route, invoked.code, invoked.reason, batch, leaving.row, rows, invoked.attempts)
        elif not invoked.events:
            rows.counts["n_dropped"] += 1
        rows.counts["n_retried"] += invoked.attempts - 1
        rows.counts["n_unfollowed"] += invoked.unfollowed
        if invoked.receipt is not None:
            rows.add(invoked.receipt.target, _BINARY.encode(invoked.receipt.event))

    def _write(
        self, route: StageRoute, event: CloudEvent, leaving: _Leaving, batch: pa.RecordBatch, rows: _Rows
    ) -> None:
        routed, mode = leaving.routed, route.plan.mode
        wanted = mode is Mode.STRUCTURED or (mode is Mode.KEEP and leaving.structured)
        # A tombstone stays one: no data is a null value, which only binary mode can say.
        binding = _STRUCTURED if wanted and not leaving.null_value else _BINARY
        try:
            for target in route.targets:
                if target.writer is None:
                    record = binding.encode(event, key=routed.key, headers=routed.headers)
                else:
                    record = target.writer(event, routed.key, routed.headers)
                self._send(route, target, record, batch, leaving.row, rows)
        except CannotEncode as exc:
            self._bury(route, "cannot-encode", str(exc), batch, leaving.row, rows)

    def _send(
        self,
        route: StageRoute | None,
        target: Target,
        record: KafkaRecord,
        batch: pa.RecordBatch,
        row: int,
        rows: _Rows,
    ) -> None:
        if fits(record, target.limit):
            rows.add(target, record)
            rows.counts["n_out"] += 1
        else:
            reason = f"{batch_bytes(record)} bytes; {target.topic} takes {target.limit}"
            self._bury(route, "too-large", reason, batch, row, rows)

    def _account(
        self, route: StageRoute, verdict: Verdict, batch: pa.RecordBatch, row: int, rows: _Rows
    ) -> None:
        if verdict.decision is Decision.REJECT:
            self._bury(route, verdict.code, REASONS[verdict], batch, row, rows)
        elif verdict.decision is Decision.DROP and verdict != UNMATCHED:
            rows.counts["n_expired" if verdict == EXPIRED else "n_dropped"] += 1

    # Everything else

    def _not_an_event(self, code: str, reason: str, batch: pa.RecordBatch, row: int, rows: _Rows) -> None:
        if code == _FOREIGN and not batch.column("value")[row].is_valid:
            self._route_null(batch, row, rows)
        elif code == _UNSUPPORTED and self.unknown:
            self._pass_on(None, self.unknown, batch, row, rows)
        else:
            self._bury(None, code, reason, batch, row, rows)

    def _route_null(self, batch: pa.RecordBatch, row: int, rows: _Rows) -> None:
        for route in self.routes:
            verdict = route_null(route.plan)
            if verdict == KEEP:
                self._pass_on(route, route.targets, batch, row, rows)
            self._account(route, verdict, batch, row, rows)

    def _pass_on(
        self,
        route: StageRoute | None,
        targets: Iterable[Target],
        batch: pa.RecordBatch,
        row: int,
        rows: _Rows,
    ) -> None:
        """Write a record as it came."""
        for target in targets:
            self._send(route, target, _record(batch, row), batch, row, rows)

    def _bury(
        self,
        route: StageRoute | None,
        code: str,
        reason: str,
        batch: pa.RecordBatch,
        row: int,
        rows: _Rows,
        attempt: int = 1,
    ) -> None:
        name, target = (route.plan.name, route.dead) if route else (None, self.dead)
        letter = DeadLetter(record=_record(batch, row), code=code, reason=reason, route=name, attempt=attempt)
        written = _BINARY.encode(dead_letter_event(letter, self.pipeline), key=letter.record.key)
        if not fits(written, target.limit):
            # A dead letter that cannot be written would stop the job: this one says where the record is.
            written = _BINARY.encode(dead_letter_event(replace(letter, kept=False), self.pipeline))
        rows.add(target, written)
        rows.counts["n_dead"] += 1

    def _written(self, rows: _Rows) -> pa.RecordBatch:
        rows.add(None, KafkaRecord())
        count = len(rows.topics)
        headers = [[{"key": name, "value": value} for name, value in own] for own in rows.headers]
        counters: Mapping[str, Any] = {name: [None] * (count - 1) + [rows.counts[name]] for name in COUNTERS}
        columns = {
            "topic": rows.topics,
            "key": rows.keys,
            "value": rows.values,
            "headers": headers,
            "sink": rows.sinks,
            **counters,
        }
        return pa.RecordBatch.from_pydict(columns, schema=OUTPUT)


def _as_emitted(routed: Routed, invoked: Invoked, number: int) -> Routed:
    """Give the key and the headers with which the n-th event leaves."""
    key = routed.key if invoked.keys is None else invoked.keys[number]
    headers = routed.headers if invoked.headers is None else invoked.headers[number]
    return replace(routed, key=key, headers=headers)


def _record(batch: pa.RecordBatch, row: int) -> KafkaRecord:
    values = {name: batch.column(name)[row].as_py() for name in INPUT}
    headers = tuple((pair["key"], pair["value"]) for pair in values["headers"] or ())
    return KafkaRecord(**{**values, "headers": headers})
