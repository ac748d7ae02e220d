"""DataFrames of events: the exact decode and encode through Spark, data in every form, conditions in SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PipelineError, UsageError
from penstock.events import CloudEvent, Json, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import COUNTERS, INPUT, OUTPUT_DDL, Stage, StageRoute
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
    rows: list[Any] = with_conditions(records.coalesce(1), stage).mapInArrow(stage, OUTPUT_DDL).collect()
    found: dict[str, list[str | None]] = {"out": [], "all": [], "dead": []}
    for row in rows:
        if row["topic"] is not None:
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])
            value = None if row["value"] is None else bytes(row["value"])
            event = BINARY.decode(KafkaRecord(value=value, headers=headers))
            found[row["topic"]].append(event.id if row["topic"] != "dead" else event.subject)
    counts = {name: sum(row[name] or 0 for row in rows) for name in COUNTERS}
    return found, counts


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
