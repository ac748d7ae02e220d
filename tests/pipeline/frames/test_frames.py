"""DataFrames of events: the exact decode and encode through Spark, data in every form, conditions in SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PipelineError, UsageError
from penstock.events import CloudEvent, Json, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.evaluators.reference.router import ReferenceRouter
from penstock.pipeline.plan.nodes import Attribute, Call
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import INPUT, IS_EVENT, Stage, StageRoute, condition_column
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.server

BINARY, STRUCTURED = KafkaBinding(), KafkaBinding(mode=Mode.STRUCTURED)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, "
    "offset bigint, timestamp timestamp"
)


def order(id: str, total: object, **more: str) -> CloudEvent:
    attributes = {"id": id, "source": "/shop", "type": "placed", "datacontenttype": "application/json"}
    raw = total if isinstance(total, bytes) else json.dumps({"total": total}).encode()
    return CloudEvent({**attributes, **more}, raw)


def frame_of(spark: SparkSession, records: list[KafkaRecord]) -> DataFrame:
    rows = [
        (record.key, record.value, record.headers or None, "orders", 0, number, MOMENT)
        for number, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, SCHEMA)


RECORDS = [
    BINARY.encode(order("0", 150, subject="s", n="5", time="2026-01-01T10:00:00.5Z"), key=b"k\xff"),
    STRUCTURED.encode(CloudEvent({"id": "1", "source": "/s", "type": "t"}, Json({"total": "many"}))),
    BINARY.encode(
        CloudEvent({"id": "2", "source": "/s", "type": "t"}), headers=(("app", None), ("app", b"x"))
    ),
    KafkaRecord(value=b"plain"),
    KafkaRecord(value=b"{}", headers=(("ce_id", b"3"),)),
    BINARY.encode(order("5", b'{"total":1} x')),
    BINARY.encode(order("6", b'1,"end"')),
]


def test_events_and_rejects_are_the_two_outputs(spark: SparkSession) -> None:
    from penstock.spark import events_from, rejects_from

    records = frame_of(spark, RECORDS)
    events = [row.asDict(recursive=True) for row in events_from(records).orderBy("id").collect()]
    assert [event["id"] for event in events] == ["0", "1", "2", "5", "6"]
    first, second, third = events[:3]
    assert (first["subject"], first["extensions"], bytes(first["key"])) == ("s", {"n": "5"}, b"k\xff")
    assert first["time_ts"].replace(tzinfo=UTC) == datetime(2026, 1, 1, 10, 0, 0, 500_000, UTC)
    assert first["origin"]["topic"] == "orders"
    assert first["origin"]["timestamp"].replace(tzinfo=UTC) == MOMENT
    assert (second["mode"], second["datacontenttype"]) == ("structured", "application/json")
    assert bytes(second["data"]) == b'{"total":"many"}'
    assert third["data"] is None
    assert third["headers"] == [{"key": "app", "value": None}, {"key": "app", "value": bytearray(b"x")}]
    rejects = rejects_from(records).orderBy("origin.offset").collect()
    assert [(row["code"], bytes(row["value"])) for row in rejects] == [
        ("not-a-cloudevent", b"plain"),
        ("invalid-event", b"{}"),
    ]
    assert all(row["reason"] for row in rejects)


@pytest.mark.parametrize(
    ("form", "expression", "expected"),
    [
        ("variant", "data:total::string", ["150", "many", None, None, None]),
        ("total int", "data.total", [150, None, None, 1, None]),
        ("string", "length(data)", [14, 16, None, 13, 7]),
    ],
)
def test_data_in_every_form(spark: SparkSession, form: str, expression: str, expected: list[object]) -> None:
    from penstock.spark import events_from

    events = events_from(frame_of(spark, RECORDS), data=form).orderBy("id")
    assert [row[0] for row in events.selectExpr(expression).collect()] == expected


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_what_is_written_reads_back(spark: SparkSession, mode: str) -> None:
    from penstock.spark import events_from, to_records

    events = events_from(frame_of(spark, RECORDS))
    again = events_from(to_records(events, mode=mode))
    columns = ["id", "source", "type", "subject", "time", "datacontenttype", "extensions", "data", "key"]
    before, after = (frame.select(*columns, "headers").orderBy("id").collect() for frame in (events, again))
    assert before == after
    assert {row["mode"] for row in again.select("mode").collect()} == {mode}


def test_a_frame_of_ones_own_becomes_records(spark: SparkSession) -> None:
    from penstock.spark import events_from, to_records

    made = spark.sql(
        "SELECT '1' AS id, '/s' AS source, 't' AS type, 'application/json' AS datacontenttype, "
        "named_struct('total', 5) AS data, map('n', '7') AS extensions"
    )
    (row,) = events_from(to_records(made, key="concat(id, '!')")).collect()
    assert (bytes(row["data"]), bytes(row["key"]), row["extensions"]) == (b'{"total":5}', b"1!", {"n": "7"})


def test_an_event_that_breaks_a_rule_is_told(spark: SparkSession) -> None:
    from penstock.spark import to_records

    made = spark.sql("SELECT explode(array('1', '')) AS id, '/s' AS source, 't' AS type, 'x' AS data")
    rows = to_records(made, keep_errors=True).collect()
    assert [row["code"] for row in rows] == [None, "invalid-event"]
    assert "id is empty" in rows[1]["reason"]
    with pytest.raises(Exception, match="id is empty"):
        to_records(made).collect()


def test_a_frame_without_values_is_refused(spark: SparkSession) -> None:
    from penstock.spark import events_from

    with pytest.raises(UsageError, match="no column value"):
        events_from(spark.range(1))


def stage_of(sql: str) -> Stage:
    target = Target(topic="out")
    routes = (
        StageRoute(plan=RoutePlan(name="asked"), targets=(target,), dead=target, sql=sql),
        StageRoute(plan=RoutePlan(name="all"), targets=(Target(topic="all"),), dead=target),
    )
    return Stage(pipeline="shop", routes=routes, dead=Target(topic="dead"))


def run(spark: SparkSession, sql: str) -> tuple[dict[str, list[str | None]], dict[str, int]]:
    from pyspark.sql import functions as F

    from penstock.pipeline.frames.conditions import with_conditions

    records = frame_of(spark, RECORDS).withColumn("timestamp", F.unix_millis("timestamp")).select(*INPUT)
    stage = stage_of(sql)
    rows: list[Any] = with_conditions(records.coalesce(1), stage).collect()
    given = [record_of(row) for row in rows]
    answers = [(row[condition_column(0)], True) for row in rows]
    routing = ReferenceRouter(stage, has_answers=True).route(given, now=0, answers=answers)
    found: dict[str, list[str | None]] = {"out": [], "all": [], "dead": []}
    for target, record in chain.from_iterable(routing.written):
        event = BINARY.decode(record)
        found[target.topic].append(event.id if target.topic != "dead" else event.subject)
    assert [row[IS_EVENT] for row in rows] == [number not in (3, 4) for number in range(len(rows))]
    return found, dict(routing.counts)


def record_of(row: Any) -> KafkaRecord:
    headers = tuple((pair["key"], pair["value"] and bytes(pair["value"])) for pair in row["headers"] or ())
    taken = {name: row[name] for name in INPUT if name not in ("headers", "key", "value")}
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    return KafkaRecord(key=key, value=value, headers=headers, **taken)


@pytest.mark.parametrize(
    ("sql", "taken"),
    [
        ("data:total::int > 100", ["0"]),
        ("size(headers) = 2 AND data IS NULL", ["2"]),
        ("extensions['n'] = '5' OR origin.offset = 1 OR hour(time_ts) = 10", ["0", "1"]),
        ("octet_length(data_bytes) > 13", ["0", "1"]),
        ("1 / (length(id) - 1) > 0 OR CAST(type AS INT) = 1 OR id = '2'", ["2"]),
    ],
)
def test_a_condition_in_sql_chooses_events_and_cannot_stop_the_job(
    spark: SparkSession, sql: str, taken: list[str]
) -> None:
    found, counts = run(spark, sql)
    assert found["out"] == taken
    assert found["all"] == ["0", "1", "2", "5", "6"]
    assert found["dead"] == ["orders/0/3", "orders/0/4"]
    assert (counts["n_in"], counts["n_out"], counts["n_dead"]) == (7, len(taken) + 5, 2)
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


@pytest.mark.parametrize(
    ("sql", "why"), [("no_such > 1", "no_such"), ("id ||", ""), ("size(headers)", "int")]
)
def test_a_condition_that_spark_cannot_take_is_our_error(spark: SparkSession, sql: str, why: str) -> None:
    with pytest.raises(PipelineError, match="route asked has a condition") as caught:
        run(spark, sql)
    assert why in str(caught.value.why)


TIMES = [
    "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "2024-02-29T12:00:00.123456+05:30",
    "2023-02-29T12:00:00Z", "1990-12-31T15:59:60-08:00", "1990-12-31T15:59:60Z", "0001-01-01T00:00:00+01:00",
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59.9Z", "2024-01-01t00:00:00z",
    "2024-01-01T00:00:00+23:59", "2024-01-01T00:00:00-00:00", "1582-10-10T00:00:00Z", "2024-01-01T24:00:00Z",
    "2024-01-01T00:00:00.1Z", "2024-01-01T00:00:00", "2024-13-01T00:00:00Z", "", "x",
]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_times_are_those_of_the_plan_in_any_time_zone(spark: SparkSession, zone: str) -> None:
    from pyspark.sql import functions as F

    from penstock.pipeline.frames.decode import _micros_of

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame([(text,) for text in TIMES], "text string")
        found = [row[0] for row in frame.select(_micros_of(F.col("text"))).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    moment = Call("time_of_text", (Attribute("xa"),))
    assert found == [evaluate(moment, Scope({"xa": text})) for text in TIMES]
    assert sum(each is not None for each in found) == len(TIMES) / 2


UNFIT = [
    BINARY.encode(order("0", b'{"total":"five","more":1}')),
    BINARY.encode(order("1", b'{ "total": 5, "more": 1 }')),
    BINARY.encode(order("2", b"not JSON")),
    BINARY.encode(order("3", b"\xff", datacontenttype="application/octet-stream")),
    BINARY.encode(CloudEvent({"id": "4", "source": "/s", "type": "t"})),
    BINARY.encode(order("5", b"{}")),
]


@pytest.mark.parametrize("form", ["total int", "variant", "string", "map<string,int>"])
@pytest.mark.parametrize("mode", ["binary", pytest.param("structured", marks=pytest.mark.soak)])
def test_data_that_is_not_changed_leaves_as_it_came(spark: SparkSession, form: str, mode: str) -> None:
    """Also what the form does not hold: a value of another type, members without a column, no JSON at all."""
    from penstock.spark import events_from, to_records

    records = frame_of(spark, UNFIT)
    came = {row["id"]: row["data"] for row in events_from(records).collect()}
    written = to_records(events_from(records, data=form).where("id <> 'none'"), mode=mode)
    left = {row["id"]: row["data"] for row in events_from(written).collect()}
    assert left == came
    assert (bytes(left["0"]), left["4"]) == (b'{"total":"five","more":1}', None)


def test_changed_data_that_would_lose_something_is_refused(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from penstock.spark import events_from, to_records

    events = events_from(frame_of(spark, UNFIT), data="total int, more int")
    changed = events.withColumn("data", F.col("data").withField("seen", F.lit(True)))
    told = to_records(changed.orderBy("id"), keep_errors=True).collect()
    assert [(row["code"], row["value"] and bytes(row["value"])) for row in told] == [
        ("cannot-encode", None),
        (None, b'{"total":5,"more":1,"seen":true}'),
        ("cannot-encode", None),
        ("cannot-encode", None),
        (None, None),
        (None, b'{"seen":true}'),
    ]
    assert "data_bytes still has it" in told[0]["reason"]
    with pytest.raises(Exception, match="not all of it fits its type"):
        to_records(changed).collect()
    # Who drops the bytes wants data as it is.
    kept = to_records(changed.where("id = '0'").drop("data_bytes")).collect()
    assert [bytes(row["value"]) for row in kept] == [b'{"more":1,"seen":true}']


def test_data_that_is_made_anew_is_written(spark: SparkSession) -> None:
    from penstock.spark import events_from, to_records

    events = events_from(frame_of(spark, UNFIT), data="variant")
    columns = ("id", "source", "type", "datacontenttype", "named_struct('n', id) AS data")
    for made in (events.selectExpr(*columns, "data_bytes").where("id < '2'"), events.selectExpr(*columns)):
        written = events_from(to_records(made)).orderBy("id").collect()
        assert [bytes(row["data"]) for row in written][:2] == [b'{"n":"0"}', b'{"n":"1"}']


SECRET = [
    BINARY.encode(order("0", b'{ "total": 5, "ssn": "123" }')),
    BINARY.encode(order("1", b'{"total":"five","ssn":"123"}')),
    BINARY.encode(order("2", b'{"total":5,"ssn":"123\xff"}')),
    BINARY.encode(order("3", b"")),
    BINARY.encode(CloudEvent({"id": "4", "source": "/s", "type": "t"})),
]
REFUSED = ("cannot-encode", None)
EDITS = {
    "a field is removed": ("total int, ssn string", lambda data: data.dropFields("ssn"), b'{"total":5}'),
    "a type is changed": (
        "total int, ssn string",
        lambda data: data.cast("struct<total:string,ssn:string>"),
        b'{"total":"5","ssn":"123"}',
    ),
    "no data": ("total int, ssn string", lambda data: None, None),
    "a field is null": ("total int", lambda data: data.withField("total", 0 * data["total"]), b'{"total":0}'),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_removed_from_data_does_not_leave_with_the_bytes(spark: SparkSession, edit: str) -> None:
    """What cannot be told from a value that does not fit is refused."""
    from pyspark.sql import functions as F

    from penstock.spark import events_from, to_records

    form, made, left = EDITS[edit]
    events = events_from(frame_of(spark, SECRET), data=form)
    column = made(F.col("data"))
    if column is None:
        column = F.lit(None).cast(events.schema["data"].dataType)
    changed = events.where("id <> 'none'").withColumn("data", column).select("*").orderBy("id")
    told = to_records(changed, keep_errors=True).collect()
    assert [(row["code"], row["value"] and bytes(row["value"])) for row in told] == [
        (None, left),
        REFUSED,
        REFUSED,
        (None, b""),
        (None, None),
    ]


@pytest.mark.parametrize("form", ["string", "variant"])
def test_no_data_in_place_of_bytes_that_cannot_be_read_is_refused(spark: SparkSession, form: str) -> None:
    from pyspark.sql import functions as F

    from penstock.spark import events_from, to_records

    events = events_from(frame_of(spark, SECRET), data=form).where("id = '0' OR id = '2'").orderBy("id")
    for column, second in ((F.lit(None).cast(form), REFUSED), (F.lit("x").cast(form), (None, b"x"))):
        told = to_records(events.withColumn("data", column), keep_errors=True).collect()
        assert (told[1]["code"], told[1]["value"] and bytes(told[1]["value"]).strip(b'"')) == second
        assert told[0]["code"] is None
        assert told[0]["value"] is None or b"ssn" not in told[0]["value"]


def test_a_frame_that_lost_how_it_was_read_is_compared_by_its_values(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from penstock.spark import events_from, to_records

    events = events_from(frame_of(spark, SECRET), data="total int, ssn string").orderBy("id")
    bare = events.withMetadata("data", {}).withMetadata("data_bytes", {})
    assert [row["value"] and bytes(row["value"]) for row in to_records(bare).collect()] == [
        record.value for record in SECRET
    ]
    changed = bare.where("id = '0'").withColumn("data", F.col("data").withField("total", F.lit(6)))
    assert bytes(to_records(changed).collect()[0]["value"]) == b'{"total":6,"ssn":"123"}'
