"""Plans and records by chance, the bytes of batches, and the reference as what is right."""

from __future__ import annotations

import json
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from routed import arrow_of, placed, rows_of

from penstock.contract.selection import Selector
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.evaluators.kernel.batch_builder import Output, record_bytes
from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter
from penstock.pipeline.evaluators.kernel.program import parts_left, program_of, reference_program_of, stops
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference.batch_router import Bounds, ReferenceBatchRouter
from penstock.pipeline.plan.nodes import And, Node, Not, Or, Type
from penstock.pipeline.plan.route import Assignment, Expiry, ExpressionKey, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.plan.route import Mode as RouteMode
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form
from penstock.record import Header, KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.records import record_starts

NOW = 1_767_744_000_000_000
"""2026-01-07T00:00:00Z, for kernel and stage."""
CONDITIONS = [
    *(
        "type = 'a'",
        "type <> 'a'",
        "'b' > type",
        "type IN ('a', 'b', NULL)",
        "type LIKE 'a%'",
        "type LIKE '_'",
    ),
    *(
        "subject LIKE '%\"%'",
        "subject LIKE 'x_y%z'",
        "subject LIKE '%b%b%'",
        "subject IS NULL",
        "subject >= 'm'",
    ),
    *("type = subject", "startswith(subject, 'x')", "endswith(subject, 'z')", "contains(subject, '€')"),
    *(
        "hop < 5",
        "hop BETWEEN 1 AND 3.5",
        "5 >= hop",
        "hop IN (1, 3.5)",
        "hop IS NULL",
        "flag = true",
        "flag",
    ),
    *("data.total >= 100", "data.total = 12.5", "data.total < 0", "data.total <> 12.5", "data.total IS NULL"),
    *(
        "data.total IS NOT NULL AND data.name IS NULL",
        "data.name = 'x'",
        "data.name < 'é'",
        "data.name LIKE 'x%'",
    ),
    *("data.name IN ('x', 'y')", "data.ok", "NOT data.ok", "data.ok = false", "data.ok <> data.items[0].ok"),
    *("data.items[1].n = 2", "data.inner.name = 'x'", "data.name = subject", "data.inner IS NULL"),
    *("true", "true", "NULL", "data.name > data.inner.name", "data.total IN (150, 12.5)"),
    *("(type = 'a') IS TRUE", "(data.total > 5) IS NOT TRUE", "coalesce(data.ok, data.items[0].ok, false)"),
    *("coalesce(data.name, subject, 'x') = 'x'", "coalesce(data.total, 12.5) = 12.5"),
    *("coalesce(subject, type) LIKE 'a%'", "coalesce(data.name, data.inner.name) IS NULL"),
    "coalesce(subject, old, data.name, data.inner.name, type) > 'b'",
    *("coalesce(coalesce(subject, old), data.name) IN ('x', 'm')", "NOT coalesce(subject = 'm', hop < 5)"),
    *("startswith(coalesce(data.inner.name, data.name), 'x')", "coalesce(data.total, 1, 2) IS NOT NULL"),
]
TEXTS = [
    *(
        "data.name",
        "subject",
        "type",
        "'constant'",
        "data.inner.name",
        "concat(type, '-', data.name)",
        "NULL",
    ),
    *("data.total", "concat(subject, subject)", "data.ok", "old", "'quo\"te'"),
]
BODIES = [
    *(b"{}", b'{"total": 150}', b'{"total":12.5,"name":"x"}', b'{"total":12.50,"name":"y","ok":true}'),
    *(
        b'{"total":-0,"ok":false}',
        b'{"total":-0.0}',
        b'{"total":1e2,"name":null}',
        b'{"total":"150","name":5}',
    ),
    *(b'{"total":0.1000000000000000055511151231257827}', b'{"total":123456789012345678}', b'{"total":-12.5}'),
    *(
        b'{"name":"x\\u00e9","inner":{"name":"x"}}',
        '{"name":"é","total":1}'.encode(),
        b'{"name":"x","name":"y"}',
    ),
    *(b'{"items":[{"n":1,"ok":true},{"n":2}],"ok":1}', b'{"items":[1],"inner":[]}', b'{"name":""}'),
    *(b'{"name":"a\\nb"}', b'{"name":"\x7f"}', b'"text"', b"5", b"null", b"{", b"[1] x", b"\xff", b"", None),
    *(b' {"name" : "xb" , "inner":{"name":"q\\"q"}} ', b'{"na\\u006de":"x"}', b'\xef\xbb\xbf{"name":"x"}'),
    *("\ufffe".encode(), '{"name":"\u00a0\ufffe"}'.encode(), b'{"name":"\\ud800"}', b"[" * 70 + b"]" * 70),
    *(
        b'{"total":100}',
        b'{"total":99.99,"name":"x","ok":true}',
        b'{"a":{"total":1}}',
        b'{"inner":{"name":"m"}}',
    ),
    *(b'plain text "quoted" \\ \t\x01\x1f', b"\x00\x01\x02\xff", "grüße".encode()),
]
USUAL_BODIES = [
    body for body in BODIES if body is not None and body[:2] in (b"{}", b'{"') and b"\\" not in body
]
ATTRIBUTES: dict[str, list[Any]] = {
    "specversion": ["1.0"] * 30 + ["0.3", "1.1", ""],
    "id": ["1", "2", "ü", 'i"d'] * 8 + ["", "a\nb", b"\xff"],
    "source": ["/s", "/shop/orders", "https://h.example/a", "urn:a:b", "//host:80/p?q#f"] * 4
    + ["", "a b", "1:x"],
    "type": ["a", "b", "abc", "c"] * 8 + [None, ""],
    "subject": [
        *("xy", "ÄB", "äb", "m", 'q"q', "x\\y z", "x€y..z", "abba", "x\u00a0y"),
        "",
        "\ufdd0",
        "\x85",
        "x" * 300,
    ],
    "time": [
        *(
            "2026-01-01T00:00:00Z",
            "2025-12-31T23:59:59.999999Z",
            "2026-06-01T00:00:00+02:00",
            "2024-02-29T00:00:00Z",
        ),
        *(
            "2026-02-29T00:00:00Z",
            "2024-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-01t00:00:00z",
            "2026-01-01T00:00:00.Z",
            "later",
        ),
    ],
    "datacontenttype": [
        *["application/json"] * 12,
        *("text/plain", "application/x+json; charset=utf-8", "TEXT/JSON", "text/plain; charset=iso-8859-1"),
        *(
            "application/octet-stream",
            "text/xml;charset=UTF8",
            "nonsense",
            "application/cloudevents+xml",
            None,
        ),
    ],
    "dataschema": ["https://x.example/s", "https://x.example/s#f", "not a uri"],
    "hop": ["1", "3.5", "05", "1e0", "x", "7", "123456789012345678901", "", "-1", "5"],
    "flag": ["true", "false", "TRUE"],
    "expirytime": ["2025-01-01T00:00:00Z", "2127-01-01T00:00:00Z"],
    "causationid": ["earlier"],
    "partitionkey": ["p", "q", ""],
    "old": ["o", "x"],
    "new": ["n"],
    "zeta": ["z"],
    "m" * 60: ["the longest name that is written in one piece"],
    "n" * 61: ["longer"],
    "0": ["digit"],
    "data": ["no"],
    "Upper": ["no"],
    "": ["empty"],
}
USUAL = ("specversion", "id", "source", "type")
RARE = ("expirytime", "data", "Upper", "")


def header_name(attribute: str) -> str:
    return "content-type" if attribute == "datacontenttype" else f"ce_{attribute}"


def as_bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def names_by(dice: random.Random) -> list[str]:
    names = [name for name in USUAL if dice.random() < 0.97]
    return names + [
        name for name in ATTRIBUTES if name not in USUAL and dice.random() < (0.05 if name in RARE else 0.3)
    ]


# Every order of names is a shape of its own, which the stage decodes by itself: there are not too many.
SHAPES = [
    [*USUAL, *(name for name in names_by(random.Random(n)) if name not in (*USUAL, *RARE))] for n in range(40)
]


def attributes_by(dice: random.Random) -> dict[str, Any]:
    names = dice.choice(SHAPES) if dice.random() < 0.97 else names_by(dice)
    # The first half of the texts of an attribute is legal.
    halves = 2 if dice.random() < 0.9 else 1
    texts = {name: ATTRIBUTES[name] for name in names}
    return {name: dice.choice(each[: max(1, len(each) // halves)]) for name, each in texts.items()}


def record_by(dice: random.Random) -> KafkaRecord:
    key = dice.choice([None, b"k", b"\xff", b"", b"customer-1", b"customer-2"])
    kind = dice.random()
    if kind < 0.03:
        headers = dice.choice([(), (("app", b"x"), ("app", None)), (("content-type", b"text/plain"),)])
        return KafkaRecord(key=key, value=dice.choice([None, None, b"plain"]), headers=headers)
    attributes = attributes_by(dice)
    if kind < 0.25:
        return structured_by(dice, attributes, key)
    named = [(header_name(name), as_bytes(text)) for name, text in attributes.items()]
    foreign: list[Header] = [("app", b"\xff"), ("app", None), ("trace", b"t")]
    media = attributes.get("datacontenttype")
    if isinstance(media, str) and dice.random() < 0.05:
        again = media if dice.random() < 0.8 else media.upper()
        named.insert(dice.randrange(len(named) + 1), ("ce_datacontenttype", again.encode()))
    nasty: list[Header] = [("ce_datacontenttype", b"x"), ("ce_id", b"again"), ("ce_myExt", b"x")]
    named += foreign[: dice.choice([0, 0, 1, 3])] + (
        nasty[: dice.randrange(4)] if dice.random() < 0.02 else []
    )
    if dice.random() < 0.03:
        dice.shuffle(named)
    return KafkaRecord(key=key, value=body_by(dice), headers=tuple(named))


def body_by(dice: random.Random) -> bytes | None:
    return dice.choice(USUAL_BODIES if dice.random() < 0.9 else BODIES)


def structured_by(dice: random.Random, attributes: dict[str, Any], key: bytes | None) -> KafkaRecord:
    members: dict[str, Any] = {n: t if isinstance(t, str | None) else "bytes" for n, t in attributes.items()}
    for name in ("hop", "flag", "zeta", "subject"):
        if name in members and dice.random() < 0.2:
            members[name] = dice.choice([5, -7, 0, True, False, 1.5, 2**31, None, {}, 123456789])
    text = json.dumps(members, ensure_ascii=dice.random() < 0.3).encode("utf-8", "replace")
    data = body_by(dice) or b'"d"'
    odd = [b"", b',"data_base64":"AAEC"', b',"id":"twice"']
    extra = dice.choice(odd if dice.random() < 0.1 else [b', "data": ' + data, b',"data":' + data])
    text = text[:-1] + extra + b"}" if members else text
    if dice.random() < 0.02:
        place = dice.randrange(len(text))
        text = text[:place] + bytes([dice.randrange(256)]) + text[place + 1 :]
    marks = [b"application/cloudevents+json", b"application/cloudevents+json; charset=UTF-8"] * 8
    mark = dice.choice([*marks, b"application/cloudevents-batch+json", b"Application/CloudEvents+JSON"])
    headers = [("content-type", mark), *dice.choice([[], [], [("app", b"x")], [("ce_id", b"1")]])]
    return KafkaRecord(key=key, value=text if dice.random() < 0.99 else None, headers=tuple(headers))


def condition_by(dice: random.Random) -> Node:
    parts = [parse_sql(dice.choice(CONDITIONS)) for _ in range(dice.choice([1, 1, 2, 3]))]
    parts = [Not(part) if dice.random() < 0.25 else part for part in parts]
    if len(parts) == 1:
        return parts[0]
    return And(tuple(parts)) if dice.random() < 0.5 else Or(tuple(parts))


def plan_by(dice: random.Random, number: int) -> RoutePlan:
    names = dice.sample(
        ["subject", "type", "partitionkey", "extra", "source", "dataschema", "old", "m" * 60, "n" * 61],
        dice.choice([0, 0, 1, 2]),
    )
    assigned = [Assignment(name, parse_sql(dice.choice(TEXTS), Type.TEXT)) for name in names if name != "old"]
    assigned = [
        each
        for each in assigned
        if each.attribute not in ("source", "dataschema") or "'" not in str(each.value)
    ]
    if dice.random() < 0.15:
        assigned.append(Assignment("time", parse_sql("timestamp'2026-01-01T00:00:00Z'", Type.TIME)))
    return RoutePlan(
        name=f"route-{number}",
        where=condition_by(dice),
        set=tuple(assigned),
        drop=dice.choice([(), (), ("flag",), ("new",), ("time",)]),
        rename=dice.choice(
            [
                (),
                (),
                (("old", "new"),),
                (("hop", "jump"), ("old", "zeta")),
                (("old", "zeta"), ("zeta", "old")),
            ]
        ),
        key=dice.choice([*SimpleKey, ExpressionKey(parse_sql(dice.choice(TEXTS), Type.TEXT))]),
        mode=dice.choice(list(RouteMode)),
        tombstones=dice.choice(list(Tombstones)),
        expiry=dice.choice(list(Expiry)),
    )


def stage_by(dice: random.Random) -> Stage:
    """Give a stage of one to three routes that nothing keeps from the kernel."""
    limit = dice.choice([*[None] * 18, 250, 500])
    plans: list[RoutePlan] = []
    while len(plans) < dice.choice([1, 1, 2, 3]):
        plan = plan_by(dice, len(plans))
        stage = stage_of([plan], limit)
        if not stops(stage) and not parts_left(stage):
            plans.append(plan)
    return replace(stage_of(plans, limit), checks=checks_by(dice))


def checks_by(dice: random.Random) -> tuple[ContractCheck, ...]:
    """Give no check mostly, else one of a contract that has messages for some types."""
    chosen = dice.choice([[], [], ["a"], ["abc", "b"], ["a", "a b"]])
    forms = tuple(
        Form(name=name, selector=Selector(types=tuple(name.split())), codec="json") for name in chosen
    )
    return (ContractCheck(operation="onEvent", forms=forms),) if forms else ()


def stage_of(plans: Sequence[RoutePlan], limit: int | None = None) -> Stage:
    routes = tuple(
        StageRoute(
            plan=plan,
            targets=(
                Target(topic=f"out-{number}", sink=number, limit=limit),
                *[Target(topic="all")] * (number % 2),
            ),
            dead=Target(topic="dead", sink=number % 2),
        )
        for number, plan in enumerate(plans)
    )
    return Stage(pipeline="p", routes=routes, dead=Target(topic="dead"), unknown=(Target(topic="unknown"),))


def batch_bytes_of(records: Sequence[KafkaRecord], base: int = 0, compression: str = "none") -> bytes:
    rows = [_numbered(record_bytes(r.key, r.value, r.headers), n) for n, r in enumerate(records)]
    batch = framed(BatchBody(b"".join(rows), len(records), 1000, 1000), compression=compression)
    struct.pack_into(">q", batch, 0, base)
    return bytes(batch)


def _numbered(rest: bytes, offset: int) -> bytes:
    from penstock.pipeline.evaluators.kernel import batch_builder

    return batch_builder.numbered(rest, offset)


Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Sink:
    """Takes what a machine puts, record by record."""

    rows: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    batches: int = 0

    def __call__(self, output: Output) -> None:
        raw = as_array(bytes(output.body.records))
        starts = np.empty(output.body.count, np.int64)
        assert record_starts(raw, output.body.count, 0, output.body.count, starts) == output.body.count
        body = Body(
            records=raw,
            count=len(starts),
            base_offset=0,
            base_timestamp=0,
            append_timestamp=None,
            first=0,
            end=1 << 31,
        )
        for record in body.kafka_records(starts, "out", output.partition):
            row = (record.key, record.value, record.headers)
            self.rows[output.target, output.partition].append(row)
        self.batches += 1


def _in_order(found: Mapping[Any, list[Row]]) -> dict[Any, list[Row]]:
    """Put the letters of one record by routes: which of two routes is told first is not promised."""

    def of(row: Row) -> tuple[str, bytes | None]:
        headers = dict(row[2])
        return ("letter", headers["ce_subject"]) if "ce_deadlettercode" in headers else ("", None)

    return {
        place: [
            row
            for (kind, _), same in groupby(rows, key=of)
            for row in (sorted(same, key=lambda row: str(dict(row[2]))) if kind else same)
        ]
        for place, rows in found.items()
    }


@dataclass
class Trial:
    """One stage, by the kernel and by the reference."""

    stage: Stage
    partitions: int = 3
    slow: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        self.program = program_of(self.stage)

    def sink(self) -> Sink:
        return Sink()

    def machine(self, sink: Sink, **options: Any) -> BatchRouter:
        counts = [self.partitions] * len(self.program.targets)
        return BatchRouter(self.program, self.stage, counts, sink, pick=lambda target, count: 0, **options)

    def routed(
        self, records: Sequence[KafkaRecord], **options: Any
    ) -> tuple[dict[Any, list[Row]], dict[str, int]]:
        sink = Sink()
        machine = self.machine(sink, **options)
        third = len(records) // 3
        data = b"".join(
            batch_bytes_of(records[start:end], start, compression)
            for start, end, compression in (
                (0, third, "none"),
                (third, 2 * third, "lz4"),
                (2 * third, len(records), "none"),
            )
            if end > start
        )
        with patch("penstock.pipeline.evaluators.kernel.batch_router.time.time_ns", lambda: NOW * 1000):
            machine.feed(data, topic="in", partition=0, first=0, end=len(records))
        machine.flush()
        self.slow += machine.counts["n_slow"]
        self.seen += len(records)
        return _in_order(sink.rows), {name: machine.counts[name] for name in COUNTERS}

    def by_reference(
        self, records: Sequence[KafkaRecord], bounds: Bounds
    ) -> tuple[dict[Any, list[Row]], dict[str, int]]:
        """Route records by the reference alone, in as many flushes as the bounds want."""
        sink, program = Sink(), reference_program_of(self.stage)
        assert program.targets == self.program.targets
        counts = [self.partitions] * len(program.targets)
        router = ReferenceBatchRouter(
            program, self.stage, counts, sink, bounds=bounds, pick=lambda target, count: 0
        )
        half = len(records) // 2
        for start, end, compression in ((0, half, "none"), (half, len(records), "lz4")):
            if end > start:
                data = batch_bytes_of(records[start:end], start, compression)
                router.feed(data, topic="in", partition=0, first=0, end=len(records))
        with patch("time.time_ns", lambda: NOW * 1000):
            while router.holds:
                before = router.held[0]
                router.flush()
                assert router.held.get(0, len(records)) > before
        return dict(sink.rows), {name: router.counts[name] for name in COUNTERS}

    def expected(self, records: Sequence[KafkaRecord]) -> tuple[dict[Any, list[Row]], dict[str, int]]:
        rows, counts = rows_of(self.stage, records, now=NOW)
        numbers = {(target.sink, target.topic): n for n, target in enumerate(self.program.targets)}
        found: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])
            key = row["key"]
            partition = 0 if key is None else partition_of(as_array(key), 0, len(key), self.partitions)
            found[numbers[row["sink"], row["topic"]], partition].append((key, row["value"], headers))
        return _in_order(found), {name: counts[name] for name in COUNTERS}

    def check(self, records: Sequence[KafkaRecord], **options: Any) -> None:
        got, counted = self.routed(records, **options)
        wanted, wanted_counts = self.expected(records)
        if got == wanted and counted == wanted_counts:
            return
        for record in records:  # one by one, so that a failure shows the record
            assert (record, self.routed([record], **options)) == (record, self.expected([record]))
        assert (got, counted) == (wanted, wanted_counts)


@pytest.fixture
def trial_by() -> Callable[[random.Random], Trial]:
    return lambda dice: Trial(stage_by(dice))


@pytest.fixture
def trial_of() -> Callable[..., Trial]:
    return lambda *plans, limit=None: Trial(stage_of(plans, limit))


@pytest.fixture
def records_by() -> Callable[[random.Random, int], list[KafkaRecord]]:
    return lambda dice, count: [record_by(dice) for _ in range(count)]


@pytest.fixture
def batch_of_records() -> Callable[[Sequence[KafkaRecord]], pa.RecordBatch]:
    return lambda records: arrow_of(placed(records))


@pytest.fixture
def trial_on() -> Callable[[Stage], Trial]:
    return Trial
