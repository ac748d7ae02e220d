"""What happens to one Arrow batch of records: decoded once, every route of its source, written as records.

The stage runs inside Spark's Python workers and knows nothing of Spark. One row of its output is one record
to write, with the number of its sink; the last row of each batch has no topic and counts what was read,
dropped and rejected.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import EventError, PenstockError
from penstock.events import CloudEvent, absent
from penstock.events.reading import Mode as EventMode
from penstock.events.reading import Verdict as Reading
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.cells import mask_of
from penstock.pipeline.arrow.decode import CODES, decode_batch
from penstock.pipeline.arrow.departure import Departure, depart
from penstock.pipeline.arrow.encode import event_at, events_of
from penstock.pipeline.arrow.route import Kept, Routing, changed_rows, route_batch
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event
from penstock.pipeline.outgoing import COUNTERS, OUTPUT, OUTPUT_DDL, Outgoing
from penstock.pipeline.plain import PlainReader
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.plan.verdict import EXPIRED, KEEP, REASONS, UNMATCHED, Decision, Verdict
from penstock.pipeline.ports import Checker, Invoked, Invoker, Reader, Routed, Target
from penstock.pipeline.reference.route import route_event, route_null
from penstock.pipeline.size import batch_bytes, fits
from penstock.record import Headers, KafkaRecord

__all__ = [
    "COUNTERS",
    "INPUT",
    "OUTPUT",
    "OUTPUT_DDL",
    "Refused",
    "Stage",
    "StageRoute",
    "condition_column",
    "read_cloud_events",
]

INPUT: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_INTERNAL: Final = "internal-error"
_TOO_LARGE: Final = "too-large"

Refused = Mapping[tuple[int, int, str], tuple[str, str]]
"""Records that a topic has refused: from offset, sink and topic to the code and the reason of the letter."""
_FOREIGN, _UNSUPPORTED = CODES[Reading.FOREIGN], CODES[Reading.UNSUPPORTED]


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
    sql: str | None = None
    """A condition in Spark's own SQL; its answer comes with the batch, see `condition_column`."""


def condition_column(number: int) -> str:
    """Name the column with the answer to the condition of a route, by the route's number."""
    return f"_sql{number}"


@dataclass(frozen=True, slots=True)
class _Leaving:
    """An event that a route has kept and what belongs to it."""

    routed: Routed
    structured: bool
    null_value: bool
    """Whether its record came with a null value, which stays one in either mode."""
    row: int
    came: Headers | None = None
    """All headers of the plain record that it is, if nothing of it was changed."""


@dataclass(slots=True)
class _Rows(Outgoing):
    """The records that a batch becomes, and the events that wait for a function, by route."""

    waiting: dict[str, list[_Leaving]] = field(default_factory=dict)
    refused: Refused = field(default_factory=dict)
    dead: dict[tuple[str | None, int], tuple[Target, DeadLetter]] = field(default_factory=dict)
    """The letter of each route (None: before any) and row; it is written when all its reasons are known."""


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
    servers: tuple[str, ...] = ()
    """The names of the clusters, by the number of their sink; the first is that of the source."""

    @property
    def is_plain(self) -> bool:
        """Whether plain records are read."""
        return isinstance(self.reader, PlainReader)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do what `mapInArrow` asks for."""
        for batch in batches:
            yield self.process(batch, now=time.time_ns() // 1000)

    def process(self, batch: pa.RecordBatch, *, now: int) -> pa.RecordBatch:
        """Route one batch; `now` is the moment in microseconds."""
        return self.route(batch, now=now).batch()

    def route(self, batch: pa.RecordBatch, *, now: int, refused: Refused | None = None) -> Outgoing:
        """Do what `process` does; what leaves still knows the row that it came from.

        A record that makes any step raise becomes a dead letter: the batch is halved until it is alone. What
        a record becomes for a topic that has `refused` it is a dead letter, too; then all rows are of one
        partition. A letter that was refused as too large leaves without its record.
        """
        refused = refused or {}
        try:
            return self._routed(batch, now, refused)
        except Exception as exc:
            if not _is_of_a_record(exc):
                raise
            half = batch.num_rows // 2
            if not half:
                return self._broken(batch, exc, refused)
        found = self.route(batch.slice(0, half), now=now, refused=refused)
        found.extend(self.route(batch.slice(half), now=now, refused=refused), half)
        return found

    def _broken(self, batch: pa.RecordBatch, exc: Exception, refused: Refused) -> Outgoing:
        rows = _Rows(refused=refused)
        rows.counts["n_in"] = batch.num_rows
        for row in range(batch.num_rows):
            self._bury(None, _INTERNAL, _bug(exc), batch, row, rows)
        self._write_letters(batch, rows)
        return rows

    def _routed(self, batch: pa.RecordBatch, now: int, refused: Refused) -> Outgoing:
        events = self.reader(batch)
        for check in self.checks:
            events = check(events, batch)
        rows = _Rows(refused=refused)
        rows.counts["n_in"] = batch.num_rows
        routings = route_batch([route.plan for route in self.routes], events, batch.column("key"), now)
        routings = [self._asked(routing, number, batch) for number, routing in enumerate(routings)]
        for route, routing in zip(self.routes, routings, strict=True):
            self._depart(route, routing, events, batch, now, rows)
        slow = np.logical_or.reduce([routing.slow for routing in routings])
        unmatched = np.logical_and.reduce([routing.unmatched for routing in routings])
        rows.counts["n_unmatched"] += int(unmatched.sum())
        for row in np.flatnonzero(slow).tolist():
            self._route(events, routings, batch, row, now, rows)
        for row in np.flatnonzero(mask_of(events.rejected)).tolist():
            self._not_an_event(events.code[row].as_py(), events.reason[row].as_py(), batch, row, rows)
        self._invoke(batch, rows)
        self._write_letters(batch, rows)
        return rows

    def _asked(self, routing: Routing, number: int, batch: pa.RecordBatch) -> Routing:
        """Take the answer to the route's condition in Spark's own SQL, which is a column of the batch."""
        if self.routes[number].sql is None:
            return routing
        return routing.where(mask_of(batch.column(condition_column(number)).fill_null(False)))

    # Events, by columns

    def _depart(
        self,
        route: StageRoute,
        routing: Routing,
        events: EventColumns,
        batch: pa.RecordBatch,
        now: int,
        rows: _Rows,
    ) -> None:
        """Send what a route certainly keeps."""
        kept = routing.kept
        rows.counts["n_expired"] += int(routing.expired.sum())
        if not len(kept.rows):
            return
        if route.invoker is not None or any(target.writer is not None for target in route.targets):
            self._as_objects(route, kept, events, batch, rows)
            return
        buried: set[int] = set()
        alike: dict[object, list[Target]] = {}
        for target in route.targets:
            form = target.profile, target.values, target.repeat_headers
            alike.setdefault(form, []).append(target)
        for targets in alike.values():
            for departure in depart(kept, route.plan, targets[0].binding):
                self._send_columns(route, targets, departure, batch, rows, buried)

    def _as_objects(
        self, route: StageRoute, kept: Kept, events: EventColumns, batch: pa.RecordBatch, rows: _Rows
    ) -> None:
        """Hand events over one by one, because a function or a writer takes them so."""
        picked = pa.array(kept.rows)
        origins = zip(
            events.attributes["source"].take(picked).to_pylist(),
            events.attributes["id"].take(picked).to_pylist(),
            strict=True,
        )
        columns = (
            kept.rows.tolist(),
            events_of(kept.events),
            kept.keys.to_pylist(),
            kept.events.foreign.to_pylist(),
            origins,
            kept.events.structured.to_pylist(),
            _places(batch, picked),
            self._unchanged(route.plan, kept, events, batch, picked),
        )
        for row, event, key, foreign, origin, structured, record, came in zip(*columns, strict=True):
            routed = Routed(event=event, key=key, headers=_pairs(foreign), record=record, origin=origin)
            came_null = event.data is absent and not structured
            null = came_null and not route.plan.writes_no_data_as_event
            self._leave(route, _Leaving(routed, structured, null, row, came), batch, rows)

    def _unchanged(
        self, plan: RoutePlan, kept: Kept, events: EventColumns, batch: pa.RecordBatch, rows: pa.IntegerArray
    ) -> Iterable[Headers | None]:
        """Give the headers of plain records that the route does not change; None for all others."""
        if not self.is_plain:
            return repeat(None, len(rows))
        changed = changed_rows(plan, events.take(rows), kept.events)
        headers = batch.column("headers").take(rows).to_pylist()
        return [
            None if other else _pairs(each) for each, other in zip(headers, changed.tolist(), strict=True)
        ]

    def _send_columns(
        self,
        route: StageRoute,
        targets: Sequence[Target],
        departure: Departure,
        batch: pa.RecordBatch,
        rows: _Rows,
        buried: set[int],
    ) -> None:
        """Send a departure; what cannot be written is buried once, for whichever target it was."""
        failed = mask_of(departure.code.is_valid())
        for place in np.flatnonzero(failed).tolist():
            reason, row = departure.reason[place].as_py(), int(departure.rows[place])
            if row not in buried:
                self._bury(route, departure.code[place].as_py(), reason, batch, row, rows)
            buried.add(row)
        for target in targets:
            sent = ~failed if target.limit is None else ~failed & (departure.sizes() <= target.limit)
            if target.compacted:
                sent &= mask_of(departure.keys.is_valid())
            if rows.refused:
                offsets = batch.column("offset").take(pa.array(departure.rows)).to_pylist()
                sent &= np.array(
                    [(at, target.sink, target.topic) not in rows.refused for at in offsets], bool
                )
            rows.add_columns(target, departure.take(np.flatnonzero(sent)))
            rows.counts["n_out"] += int(sent.sum())
            for place in np.flatnonzero(~failed & ~sent).tolist():
                record = KafkaRecord(
                    key=departure.keys[place].as_py(),
                    value=departure.values[place].as_py(),
                    headers=_pairs(departure.headers[place].as_py()),
                )
                self._send(route, target, record, batch, int(departure.rows[place]), rows)

    # Events, one by one

    def _route(
        self,
        events: EventColumns,
        routings: Sequence[Routing],
        batch: pa.RecordBatch,
        row: int,
        now: int,
        rows: _Rows,
    ) -> None:
        """Route one event by the reference, on those routes that could not do it by columns."""
        event, record = event_at(events, row), _record(batch, row)
        foreign, structured = _pairs(events.foreign[row].as_py()), events.structured[row].as_py()
        matched = False
        for route, routing in zip(self.routes, routings, strict=True):
            if not routing.slow[row]:
                matched |= not routing.unmatched[row]
                continue
            found = route_event(route.plan, event, key=record.key, now=now, structured=structured)
            matched |= found.verdict != UNMATCHED
            for output in found.outputs:
                routed = Routed(
                    event=output.event,
                    key=output.key,
                    headers=foreign,
                    record=record,
                    origin=(event.source, event.id),
                )
                came = record.headers if self.is_plain and output.event is event else None
                leaving = _Leaving(routed, structured, output.null_value, row, came)
                self._leave(route, leaving, batch, rows)
            self._account(route, found.verdict, batch, row, rows)
        rows.counts["n_unmatched"] += not matched

    def _leave(self, route: StageRoute, leaving: _Leaving, batch: pa.RecordBatch, rows: _Rows) -> None:
        if route.invoker is None:
            self._write(route, leaving.routed.event, leaving, batch, rows)
        else:
            rows.waiting.setdefault(route.plan.name, []).append(leaving)

    def _invoke(self, batch: pa.RecordBatch, rows: _Rows) -> None:
        for route in self.routes:
            waiting = sorted(rows.waiting.get(route.plan.name, ()), key=lambda leaving: leaving.row)
            if route.invoker is not None and waiting:
                results = route.invoker([leaving.routed for leaving in waiting])
                for leaving, invoked in zip(waiting, results, strict=True):
                    self._invoked(route, leaving, invoked, batch, rows)

    def _invoked(
        self, route: StageRoute, leaving: _Leaving, invoked: Invoked, batch: pa.RecordBatch, rows: _Rows
    ) -> None:
        for number, event in enumerate(invoked.events):
            null = leaving.null_value and event.data is absent
            routed = _as_emitted(leaving.routed, invoked, number)
            kept = routed.headers == leaving.routed.headers and event == leaving.routed.event
            came = leaving.came if leaving.came is not None and kept else None
            left = _Leaving(routed, leaving.structured, null, leaving.row, came)
            self._write(route, event, left, batch, rows)
        if invoked.code is not None:
            self._bury(route, invoked.code, invoked.reason, batch, leaving.row, rows, invoked.attempts)
        elif not invoked.events:
            rows.counts["n_dropped"] += 1
        rows.counts["n_retried"] += invoked.attempts - 1
        rows.counts["n_unfollowed"] += invoked.unfollowed
        if invoked.receipt is not None:
            target = invoked.receipt.target
            binding = target.binding(EventMode.BINARY)
            rows.add(target, binding.encode(invoked.receipt.event), leaving.row)

    def _write(
        self, route: StageRoute, event: CloudEvent, leaving: _Leaving, batch: pa.RecordBatch, rows: _Rows
    ) -> None:
        routed, asked = leaving.routed, route.plan.mode
        wanted = asked is Mode.STRUCTURED or (asked is Mode.KEEP and leaving.structured)
        # A tombstone stays one: a null value is an event without data, which only binary mode can say.
        mode = EventMode.STRUCTURED if wanted and not leaving.null_value else EventMode.BINARY
        refused: Exception | None = None
        for target in route.targets:
            try:
                if target.writer is None:
                    binding = target.binding(mode)
                    record = binding.encode(event, key=routed.key, headers=routed.headers)
                else:
                    record = target.writer(
                        event,
                        routed.key,
                        routed.headers,
                        null_value=leaving.null_value,
                        came=leaving.came,
                    )
            except Exception as exc:
                # Not left to `route`, which would call a function for its whole batch once more.
                if not _is_of_a_record(exc):
                    raise
                refused = refused or exc
            else:
                self._send(route, target, record, batch, leaving.row, rows)
        if isinstance(refused, EventError):
            self._bury(route, "cannot-encode", str(refused), batch, leaving.row, rows)
        elif refused is not None:
            self._bury(route, _INTERNAL, _bug(refused), batch, leaving.row, rows)

    def _send(
        self,
        route: StageRoute | None,
        target: Target,
        record: KafkaRecord,
        batch: pa.RecordBatch,
        row: int,
        rows: _Rows,
    ) -> None:
        refusal = self._refusal(target, record, batch, row, rows)
        if refusal is None:
            rows.add(target, record, row)
            rows.counts["n_out"] += 1
        else:
            self._bury(route, *refusal, batch, row, rows)

    def _refusal(
        self, target: Target, record: KafkaRecord, batch: pa.RecordBatch, row: int, rows: _Rows
    ) -> tuple[str, str] | None:
        """Give code and reason if a topic does not take a record, by its settings or because it said so."""
        if not fits(record, target.limit):
            return _TOO_LARGE, f"{batch_bytes(record)} bytes; {target.topic} takes {target.limit}"
        if target.compacted and record.key is None:
            return "no-key", f"{target.topic} is compacted: it takes no record without a key"
        return rows.refused.get(_place(target, batch, row)) if rows.refused else None

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
        """Put a record aside: one letter for each record and route, whatever the number of reasons."""
        name, target = (route.plan.name, route.dead) if route else (None, self.dead)
        known = rows.dead.get((name, row))
        if known is None:
            server = self.servers[0] if self.servers else None
            letter = DeadLetter(
                record=_record(batch, row),
                code=code,
                reason=reason,
                route=name,
                attempt=attempt,
                server=server,
            )
            rows.counts["n_dead"] += 1
        else:
            letter = known[1].also(reason, attempt)
        rows.dead[name, row] = (target, letter)

    def _write_letters(self, batch: pa.RecordBatch, rows: _Rows) -> None:
        for (_, row), (target, letter) in rows.dead.items():
            binding = target.binding(EventMode.BINARY)
            event = dead_letter_event(letter, self.pipeline)
            own = event.id.encode() if target.compacted else None
            written = binding.encode(event, key=own if letter.record.key is None else letter.record.key)
            code, _ = rows.refused.get(_place(target, batch, row), ("", "")) if rows.refused else ("", "")
            if not fits(written, target.limit) or code == _TOO_LARGE:
                # A dead letter that cannot be written would stop the job: this one says where the record is.
                written = binding.encode(
                    dead_letter_event(replace(letter, kept=False), self.pipeline), key=own
                )
            rows.add(target, written, row)


def _place(target: Target, batch: pa.RecordBatch, row: int) -> tuple[int, int, str]:
    """Give a row and a target as `Refused` names them."""
    return batch.column("offset")[row].as_py(), target.sink, target.topic


def _is_of_a_record(exc: Exception) -> bool:
    """Whether an exception is about one record: not the machine, not one that stops a job on purpose."""
    return isinstance(exc, EventError) or not isinstance(exc, PenstockError | OSError | MemoryError)


def _bug(exc: Exception) -> str:
    """Say what was raised and where, for the reason of a dead letter."""
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return f"a bug in Penstock: {type(exc).__name__} at {place}: {exc!s:.500}"


def _as_emitted(routed: Routed, invoked: Invoked, number: int) -> Routed:
    """Give the key and the headers with which the n-th event leaves."""
    if invoked.keys is None and invoked.headers is None:
        return routed
    key = routed.key if invoked.keys is None else invoked.keys[number]
    headers = routed.headers if invoked.headers is None else invoked.headers[number]
    return replace(routed, key=key, headers=headers)


def _places(batch: pa.RecordBatch, rows: pa.IntegerArray) -> Iterator[KafkaRecord]:
    """Give key and origin of records, column by column."""
    names = ("key", "topic", "partition", "offset", "timestamp")
    columns = (batch.column(name).take(rows).to_pylist() for name in names)
    for key, topic, partition, offset, timestamp in zip(*columns, strict=True):
        yield KafkaRecord(key=key, topic=topic, partition=partition, offset=offset, timestamp=timestamp)


def _record(batch: pa.RecordBatch, row: int) -> KafkaRecord:
    values = {name: batch.column(name)[row].as_py() for name in INPUT}
    return KafkaRecord(**{**values, "headers": _pairs(values["headers"])})


def _pairs(headers: Sequence[Mapping[str, Any]] | None) -> Headers:
    return tuple((pair["key"], pair["value"]) for pair in headers or ())
