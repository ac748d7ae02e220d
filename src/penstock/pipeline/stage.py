"""What happens to one Arrow batch of records: decoded once, every route of its source, written as records.

The stage runs inside Spark's Python workers and knows nothing of Spark. One row of its output is one record
to write; the last row of each batch has no topic and counts what was read, dropped and rejected.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.errors import CannotEncode
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Mode as EventMode
from penstock.events.reading import Verdict as Reading
from penstock.pipeline.arrow.decode import CODES, HEADERS, decode_batch
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.plan.verdict import KEEP, REASONS, UNMATCHED, Decision, Verdict
from penstock.pipeline.reference.route import Output, route_event, route_null
from penstock.record import Headers, KafkaRecord

__all__ = ["COUNTERS", "INPUT", "OUTPUT", "OUTPUT_DDL", "Stage", "StageRoute"]

INPUT: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
COUNTERS: Final = ("n_in", "n_out", "n_dead", "n_unmatched", "n_dropped")
OUTPUT: Final = pa.schema(
    [
        ("topic", pa.utf8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        *((name, pa.int64()) for name in COUNTERS),
    ]
)
OUTPUT_DDL: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, "
    + ", ".join(f"{name} bigint" for name in COUNTERS)
)
_FOREIGN: Final = CODES[Reading.FOREIGN]
_BINARY, _STRUCTURED = KafkaBinding(mode=EventMode.BINARY), KafkaBinding(mode=EventMode.STRUCTURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRoute:
    """One route as the workers need it."""

    plan: RoutePlan
    topics: tuple[str, ...]
    dead_topic: str


@dataclass(slots=True)
class _Rows:
    """The records that a batch becomes."""

    topics: list[str | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, topic: str | None, record: KafkaRecord) -> None:
        self.topics.append(topic)
        self.keys.append(record.key)
        self.values.append(record.value)
        self.headers.append(list(record.headers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All routes of one source."""

    pipeline: str
    routes: tuple[StageRoute, ...]
    dead_topic: str
    """Where records go that fail before any route."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do what `mapInArrow` asks for."""
        for batch in batches:
            yield self.process(batch, now=time.time_ns() // 1000)

    def process(self, batch: pa.RecordBatch, *, now: int) -> pa.RecordBatch:
        """Route one batch; `now` is the moment in microseconds."""
        events = decode_batch(batch.column("value"), batch.column("headers"))
        rows = _Rows()
        rows.counts["n_in"] = batch.num_rows
        codes, reasons, structured = (
            events.code.to_pylist(),
            events.reason.to_pylist(),
            events.structured.to_pylist(),
        )
        keys = batch.column("key").to_pylist()
        for row in range(batch.num_rows):
            if codes[row] is None:
                foreign = tuple((h["key"], h["value"]) for h in events.foreign[row].as_py())
                self._route(event_at(events, row), keys[row], foreign, structured[row], batch, row, now, rows)
            else:
                self._not_an_event(codes[row], reasons[row], batch, row, rows)
        return self._written(rows)

    # Events

    def _route(
        self,
        event: CloudEvent,
        key: bytes | None,
        foreign: Headers,
        structured: bool,
        batch: pa.RecordBatch,
        row: int,
        now: int,
        rows: _Rows,
    ) -> None:
        verdicts = []
        for route in self.routes:
            routed = route_event(route.plan, event, key=key, now=now)
            verdicts.append(routed.verdict)
            for output in routed.outputs:
                self._write(route, output, foreign, structured, batch, row, rows)
            self._account(route, routed.verdict, batch, row, rows)
        if all(verdict == UNMATCHED for verdict in verdicts):
            rows.counts["n_unmatched"] += 1

    def _write(
        self,
        route: StageRoute,
        output: Output,
        foreign: Headers,
        structured: bool,
        batch: pa.RecordBatch,
        row: int,
        rows: _Rows,
    ) -> None:
        wanted = route.plan.mode is Mode.STRUCTURED or (route.plan.mode is Mode.KEEP and structured)
        # A tombstone stays one: no data is a null value, which only binary mode can say.
        binding = _STRUCTURED if wanted and not output.null_value else _BINARY
        try:
            record = binding.encode(output.event, key=output.key, headers=foreign)
        except CannotEncode as exc:
            self._bury(route, "cannot-encode", str(exc), batch, row, rows)
            return
        for topic in route.topics:
            rows.add(topic, record)
            rows.counts["n_out"] += 1

    def _account(
        self, route: StageRoute, verdict: Verdict, batch: pa.RecordBatch, row: int, rows: _Rows
    ) -> None:
        if verdict.decision is Decision.REJECT:
            self._bury(route, verdict.code, REASONS[verdict], batch, row, rows)
        elif verdict.decision is Decision.DROP and verdict != UNMATCHED:
            rows.counts["n_dropped"] += 1

    # Everything else

    def _not_an_event(self, code: str, reason: str, batch: pa.RecordBatch, row: int, rows: _Rows) -> None:
        if code == _FOREIGN and not batch.column("value")[row].is_valid:
            self._route_null(batch, row, rows)
        else:
            self._bury(None, code, reason, batch, row, rows)

    def _route_null(self, batch: pa.RecordBatch, row: int, rows: _Rows) -> None:
        record = _record(batch, row)
        for route in self.routes:
            verdict = route_null(route.plan)
            if verdict == KEEP:
                for topic in route.topics:
                    rows.add(topic, record)
                    rows.counts["n_out"] += 1
            self._account(route, verdict, batch, row, rows)

    def _bury(
        self, route: StageRoute | None, code: str, reason: str, batch: pa.RecordBatch, row: int, rows: _Rows
    ) -> None:
        name, topic = (route.plan.name, route.dead_topic) if route else (None, self.dead_topic)
        letter = DeadLetter(record=_record(batch, row), code=code, reason=reason, route=name)
        rows.add(topic, _BINARY.encode(dead_letter_event(letter, self.pipeline), key=letter.record.key))
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
            **counters,
        }
        return pa.RecordBatch.from_pydict(columns, schema=OUTPUT)


def _record(batch: pa.RecordBatch, row: int) -> KafkaRecord:
    values = {name: batch.column(name)[row].as_py() for name in INPUT}
    headers = tuple((pair["key"], pair["value"]) for pair in values["headers"] or ())
    return KafkaRecord(**{**values, "headers": headers})
