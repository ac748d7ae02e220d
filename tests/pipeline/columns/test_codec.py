"""Columns against penstock.events and the stage: the same verdict, and the same records, on every row.

Records are plain ones with something wrong, made from a seed; one Spark job judges thousands.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.contract.selection import Selector
from penstock.errors import EventError
from penstock.events import CloudEvent, Level, Mode, Reading, Verdict
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.draft import failed
from penstock.pipeline.arrow.decode import CODES, HEADERS
from penstock.pipeline.deadletter import DeadLetter, read_dead_letter
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, Expiry, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.plan.route import Mode as RouteMode
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import COUNTERS, Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.server

BINDING = KafkaBinding()
PLAIN = {
    "ce_specversion": b"1.0",
    "ce_id": b"id-1",
    "ce_source": b"/shop",
    "ce_type": b"placed",
    "ce_time": b"2026-01-01T10:00:00.5Z",
    "ce_subject": b"customer",
    "content-type": b"application/json",
    "ce_traceparent": b"00-ab-cd-01",
    "ce_partitionkey": b"p",
    "ce_expirytime": b"2020-01-01T00:00:00Z",
    "ce_dataschema": b"urn:schema:1",
}
SOURCES = [
    "/", "a", "a:b", "urn:a:b", "//host/p?q#f", "http://u:p@h:80/x?y=z#f", "a b", "%", "%4", "%41", "a%zz",
    "é", "//[::1]:5/x", "//[::1", "//[v1.x:y]/", "//h:x", "1a:b", "a1+.-:", "?", "#", "##",
    "a#b#c", "//",
    "///", "//a@b@c", "./a:b", "a:b:c", ":", "a:", "a:?", "a://h%41", "x\\y", "<x>", "a|b",
    "http://[", "//h/[",
    "~!$&'()*+,;=:@", "a^b", "`", "//h:80:80/", "//%41:1/",
]  # fmt: skip
TIMES = [
    "2026-02-28T23:59:59Z", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00+05:30", "2000-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z", "0000-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z",
    "1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "1990-12-31T15:59:60Z", "1990-12-31T23:59:61Z",
    "2026-01-01t00:00:00.123456789z", "2026-01-01 00:00:00Z", "2026-01-01T24:00:00Z", "2026-04-31T00:00:00Z",
    "2026-1-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00-00:00",
    "2026-01-01T00:00:00+24:00", "٢026-01-01T00:00:00Z", "2026-01-01T00:00:00Z\n",
    "2026-12-31T00:29:60+00:30",
]  # fmt: skip
MEDIA = [
    "application/json", "Application/JSON; charset=utf-8", "text/plain", "text/plain;charset=\"utf8\"",
    "text/xml; CHARSET=us-ascii", "text/plain; charset=iso-8859-1", "text/html;charset=koi8-r",
    "image/svg+xml",
    "application/octet-stream", "nonsense", "a/b;", "a/b; ;", "a/b;c", "a/b;c=", "a/b;c=d ;e=\"f;\\\"g\"",
    "a/b;c=\"", "a/b/c", "/b", "a/", " a/b", "a/b ", "text/json", "x/y+json ; a=b", "x/jsonp",
    "application/yaml",
    "application/cloudevents+json", "application/cloudevents-batch+json", "application/cloudevents+xml",
    "application/cloudevents+avro", "APPLICATION/cloudevents", "application/cloudeventsx", "a/b" + ";" * 600,
    "application/x-www-form-urlencoded",
]  # fmt: skip
TEXTS = [
    b"1.0", b"0.3", b"1.1", b"", b"5", b"x", b"true", "grüße 😀".encode(), b'with "quotes" and \\', b"a\nb",
    b"\x7f",     "\ufffe".encode(), "\U0001ffff".encode(), "\u0085".encode(), "\ufdd0".encode(), b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82", None, b"\x00", "\u2028".encode(), b"x" * 300,
]  # fmt: skip
TEXTS += [text.encode() for text in (*SOURCES, *TIMES, *MEDIA)]
NAMES = [
    *PLAIN, "ce_", "ce_myExt", "ce_datacontenttype", "ce_data", "CE_ID", "Content-Type", "ce-id",
    "traceparent",
    "app", "app", "ce_a_b", "ce_é", "ce_n", "ce_zzz", "content-type2", "a\nb", "ce_id\nce_x", "",
    "n" * 9000, "ce_1a",
]  # fmt: skip
VALUES = [
    None, b"", b"{}", b'{"total": 150.10, "s":"x"}', b'{"total":5}', b'{"total":1e999}', b'"text"',
    b"null", b"{",
    b'{"a":1,"a":2}', b"\xff", b"[1] garbage", b"plain text \x01", "häß".encode(), "häß".encode("latin-1"),
    b'{"total":200,"s":"\xc3\xa4 \\u00e4 \\" "}', b"\x80" * 100, b"[" * 100 + b"]" * 100,
]  # fmt: skip


def read(record: KafkaRecord) -> Reading:
    """Read at the level strict, and give what is wrong as a verdict."""
    try:
        return BINDING.read(record)
    except EventError as error:
        return failed(error, Level.FORENSIC)


class Maker:
    """Random records from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def record(self, number: int) -> KafkaRecord:
        pick = self.random.choice
        headers = [(name, raw) for name, raw in PLAIN.items() if self.random.random() < 0.8 or name < "ce_t"]
        for _ in range(pick([0, 0, 1, 1, 2])):
            place = self.random.randrange(len(headers))
            headers[place] = self.broken(headers[place])
        for _ in range(pick([0, 0, 0, 1, 2])):
            headers.insert(self.random.randrange(len(headers) + 1), (pick(NAMES), pick(TEXTS)))
        if self.random.random() < 0.1:
            headers = self.random.sample(headers, pick([0, 1, 3]))
        if self.random.random() < 0.1:
            self.random.shuffle(headers)
        key = pick([None, b"", b"k\xff"])
        place = {"topic": "in", "partition": 3, "offset": number, "timestamp": 1_700_000_000_123}
        return KafkaRecord(value=pick(VALUES), key=key, headers=tuple(headers), **place)

    def broken(self, header: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
        own = {"ce_source": SOURCES, "ce_time": TIMES, "content-type": MEDIA, "ce_dataschema": SOURCES}
        texts = own.get(header[0])
        if texts and self.random.random() < 0.8:
            return header[0], self.random.choice(texts).encode()
        return header[0], self.random.choice(TEXTS)

    def records(self, count: int) -> list[KafkaRecord]:
        return [self.record(number) for number in range(count)]


def frame_of(spark: SparkSession, records: list[KafkaRecord]) -> DataFrame:
    schema = (
        "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, "
        "partition int, offset bigint, timestamp timestamp"
    )
    moment = datetime.fromtimestamp(1_700_000_000.123, UTC)
    rows = [(r.key, r.value, r.headers or None, r.topic, r.partition, r.offset, moment) for r in records]
    return spark.createDataFrame(rows, schema)


SLOW = settings(max_examples=2, phases=[Phase.explicit, Phase.generate], deadline=None)


@SLOW
@given(seed=st.integers(0, 2**32))
def test_columns_decode_as_the_binding_does(spark: SparkSession, seed: int) -> None:
    from penstock.pipeline.columns.decode import decode

    records = Maker(seed).records(2000)
    frame = decode(frame_of(spark, records), ["traceparent", "n"])
    names = ["id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion"]
    columns = {name: name for name in names} | {name: f"_ext_{name}" for name in ("traceparent", "n")}
    rows = frame.select("offset", "_code", "_reason", "data", *columns.values()).orderBy("offset").collect()
    found = Counter[str]()
    for row, record in zip(rows, records, strict=True):
        reading = read(record)
        expected = None if reading.verdict is Verdict.EVENT else CODES[reading.verdict]
        found[str(row["_code"])] += 1
        if row["_code"] == "undecided":
            continue
        assert row["_code"] == expected, (record, row, reading)
        assert (row["_reason"] is None) == (row["_code"] is None)
        if reading.event is not None and expected is None:
            assert {name: row[column] for name, column in columns.items()} == {
                name: reading.event.get(name) for name in columns
            }
            assert row["data"] == record.value
    assert found["None"] > 200
    assert min(found[code] for code in ("invalid-event", "not-a-cloudevent", "unsupported-format")) > 2
    assert found["undecided"] < 400


def plan_of(name: str, where: str | None, assignments: dict[str, str], **more: Any) -> RoutePlan:
    set_ = tuple(Assignment(attribute, parse_sql(text, Type.TEXT)) for attribute, text in assignments.items())
    return RoutePlan(name=name, where=parse_sql(where or "TRUE"), set=set_, **more)


PLANS = (
    plan_of("as-it-is", None, {}),
    plan_of(
        "large",
        "type = 'placed' AND data.total >= 100",
        {"subject": "data.s", "partitionkey": "data.s", "new": "traceparent"},
        mode=RouteMode.STRUCTURED,
        key=SimpleKey.PARTITIONKEY,
        tombstones=Tombstones.REJECT,
    ),
    plan_of(
        "structured", None, {}, mode=RouteMode.STRUCTURED, tombstones=Tombstones.DROP, drop=("traceparent",)
    ),
    plan_of("events", None, {}, mode=RouteMode.STRUCTURED, tombstones=Tombstones.EVENT, rename=(("n", "m"),)),
    plan_of("fresh", None, {}, expiry=Expiry.DISCARD),
)


def stage_of(limit: int | None) -> Stage:
    routes = tuple(
        StageRoute(
            plan=plan,
            targets=(Target(topic=f"out.{plan.name}", limit=limit),),
            dead=Target(topic=f"dead.{plan.name}", limit=limit and limit + 300),
        )
        for plan in PLANS
    )
    forms = (
        Form(name="a", selector=Selector(types=("placed", "x")), codec="json"),
        Form(name="b", selector=Selector(), codec="json"),
        Form(name="placed", selector=Selector(dataschemas=("urn:schema:1", "a:")), codec="json"),
        Form(name="d", selector=Selector(types=("true", "5")), codec="json"),
    )
    return Stage(
        pipeline="shop",
        checks=(ContractCheck(operation="onIn", forms=forms),),
        routes=routes,
        dead=Target(topic="dead"),
        unknown=(Target(topic="unknown"),),
    )


def by_stage(stage: Stage, records: list[KafkaRecord]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in r.headers] for r in records], HEADERS),
            "topic": pa.array([r.topic for r in records]),
            "partition": pa.array([r.partition for r in records], pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
        }
    )
    *rows, counts = stage.process(batch, now=time.time_ns() // 1000).to_pylist()
    return rows, counts


def meaning(row: Any) -> tuple[Any, ...]:
    """Give what a record says, whatever the order of its attributes and the spelling of its JSON."""
    headers = tuple((pair["key"], pair["value"] and bytes(pair["value"])) for pair in row["headers"] or ())
    value = None if row["value"] is None else bytes(row["value"])
    key = None if row["key"] is None else bytes(row["key"])
    record = KafkaRecord(value=value, key=key, headers=headers)
    if row["topic"].startswith("dead"):
        event = BINDING.decode(record)
        letter = read_dead_letter(event)
        return (
            row["topic"],
            key,
            letter.code,
            letter.route,
            letter.record,
            event.id,
            event.subject,
            letter.kept,
        )
    reading = read(record)
    if reading.verdict is not Verdict.EVENT or reading.event is None:
        return row["topic"], record
    event = reading.event
    if reading.mode is Mode.STRUCTURED:
        assert json.loads(value or b"") is not None
    return (
        row["topic"],
        key,
        reading.mode,
        sorted(event.attributes.items()),
        event.data_bytes,
        BINDING.foreign(record),
    )


@pytest.mark.parametrize(("limit", "seed"), [(None, 20), (700, 21)])
def test_columns_write_what_the_stage_writes(spark: SparkSession, limit: int | None, seed: int) -> None:
    from pyspark.sql import Observation

    from penstock.pipeline.columns.decode import decode
    from penstock.pipeline.columns.outputs import outputs_of

    made = Maker(seed).records(600)
    codes = decode(frame_of(spark, made)).orderBy("offset").select("_code").collect()
    records = [record for record, code in zip(made, codes, strict=True) if code[0] != "undecided"]
    stage = stage_of(limit)
    expected, counts = by_stage(stage, records)
    observation = Observation("counts")
    frame = outputs_of(frame_of(spark, records).coalesce(1), stage, observation)
    found = [meaning(row.asDict(recursive=True)) for row in frame.collect()]
    wanted = [meaning(row) for row in expected]
    assert len(found) > len(records)
    for topic in sorted({row[0] for row in wanted}):
        ours, theirs = ([row for row in rows if row[0] == topic] for rows in (found, wanted))
        assert len(ours) == len(theirs), topic
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other
    assert observation.get == {name: counts[name] for name in COUNTERS}


def test_every_undecided_record_becomes_a_dead_letter(spark: SparkSession) -> None:
    from penstock.pipeline.columns.outputs import outputs_of

    event = CloudEvent({"id": "1", "source": "/s", "type": "placed"}, b"x")
    structured = KafkaBinding(mode=Mode.STRUCTURED).encode(event, key=b"k")
    origin = {"topic": "in", "partition": 3, "offset": 0, "timestamp": 1_700_000_000_123}
    record = KafkaRecord(value=structured.value, key=b"k", headers=structured.headers, **origin)
    (row,) = outputs_of(frame_of(spark, [record]), stage_of(None), "counts").collect()
    headers = tuple((pair["key"], bytes(pair["value"])) for pair in row["headers"])
    letter = read_dead_letter(BINDING.decode(KafkaRecord(value=bytes(row["value"]), headers=headers)))
    assert letter == DeadLetter(record=record, code="undecided", reason=letter.reason)
