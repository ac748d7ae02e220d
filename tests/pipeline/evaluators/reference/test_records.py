"""Records through the reference, without Spark: each ends in an output or a dead letter, and is counted."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routed import rows_of

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent
from penstock.events import Mode as EventMode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import DeadLetter, dead_letter_event, read_dead_letter, restore
from penstock.pipeline.plan.cesql import parse_cesql
from penstock.pipeline.plan.route import Mode, RoutePlan, Tombstones
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import Headers, KafkaRecord

PLAN = RoutePlan(name="large", where=parse_sql("type = 'placed' AND data.total >= 100"), mode=Mode.STRUCTURED)


def stage(plan: RoutePlan = PLAN) -> Stage:
    return Stage(
        pipeline="shop",
        routes=(StageRoute(plan=plan, targets=(Target(topic="out"),), dead=Target(topic="dead.route")),),
        dead=Target(topic="dead.source"),
    )


def run(records: list[KafkaRecord], plan: RoutePlan = PLAN) -> tuple[list[dict[str, object]], dict[str, int]]:
    return rows_of(stage(plan), records)


def order(total: object, type: str = "placed", **more: str) -> KafkaRecord:
    event = CloudEvent(
        {"id": "1", "source": "/shop", "type": type, "datacontenttype": "application/json", **more},
        b'{"total": %s}' % str(total).encode(),
    )
    return KafkaBinding().encode(event, key=b"k", headers=(("app", b"\xff"), ("app", None)))


def test_an_event_that_matches_is_written_with_key_and_foreign_headers() -> None:
    (row,), counts = run([order(150)])
    assert row["topic"] == "out"
    assert row["key"] == b"k"
    assert row["headers"][-2:] == [{"key": "app", "value": b"\xff"}, {"key": "app", "value": None}]
    written = KafkaRecord(value=row["value"], headers=tuple((h["key"], h["value"]) for h in row["headers"]))
    event = KafkaBinding().decode(written)
    assert (event.id, event.json()) == ("1", {"total": 150})
    assert {name: count for name, count in counts.items() if count} == {"n_in": 1, "n_out": 1}


def test_others_are_counted_as_unmatched() -> None:
    rows, counts = run([order(50), order(150, type="cancelled")])
    assert rows == []
    assert (counts["n_in"], counts["n_unmatched"]) == (2, 2)


@pytest.mark.parametrize(
    ("record", "code", "topic"),
    [
        (KafkaRecord(value=b"plain"), "not-a-cloudevent", "dead.source"),
        (KafkaRecord(value=b"{}", headers=(("ce_id", b"1"),)), "invalid-event", "dead.source"),
        (
            KafkaRecord(value=b"<x/>", headers=(("content-type", b"application/cloudevents+xml"),)),
            "unsupported-format",
            "dead.source",
        ),
        (order("{"), "data-invalid", "dead.route"),
    ],
)
def test_what_fails_becomes_a_dead_letter_that_holds_the_record(
    record: KafkaRecord, code: str, topic: str
) -> None:
    (row,), counts = run([record])
    assert row["topic"] == topic
    headers = tuple((h["key"], h["value"]) for h in row["headers"])
    letter = read_dead_letter(KafkaBinding().decode(KafkaRecord(value=row["value"], headers=headers)))
    assert letter.code == code
    assert (letter.record.key, letter.record.value, letter.record.headers) == (
        record.key,
        record.value,
        record.headers,
    )
    assert (letter.record.topic, letter.record.offset) == ("in", 0)
    assert counts["n_dead"] == 1


@pytest.mark.parametrize(
    ("policy", "rows", "counted"),
    [("pass", 1, "n_out"), ("drop", 0, "n_dropped"), ("reject", 1, "n_dead")],
)
def test_a_null_that_is_no_event_follows_the_routes_policy(policy: str, rows: int, counted: str) -> None:
    plan = RoutePlan(name="r", tombstones=Tombstones(policy))
    written, counts = run([KafkaRecord(key=b"k")], plan)
    assert len(written) == rows
    assert counts[counted] == 1


def test_an_event_without_data_stays_a_tombstone_on_a_structured_route() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "placed"})
    (row,), _ = run([KafkaBinding().encode(event)], RoutePlan(name="r", mode=Mode.STRUCTURED))
    assert row["value"] is None
    assert {"key": "ce_id", "value": b"1"} in row["headers"]


def test_the_mode_in_which_an_event_came_is_kept() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "placed"}, b"x")
    structured = KafkaBinding(mode=EventMode.STRUCTURED).encode(event)
    rows, _ = run([structured, KafkaBinding().encode(event)], RoutePlan(name="r"))
    assert [row["headers"][0]["key"] for row in rows] == ["content-type", "ce_specversion"]


def numbered(key: bytes) -> KafkaRecord:
    return replace(order(150), key=key)


def test_an_event_that_makes_a_writer_raise_is_a_dead_letter_of_its_route() -> None:
    def write(event: CloudEvent, key: bytes | None, headers: Headers, **more: object) -> KafkaRecord:
        if key == b"bad":
            raise IndexError("in a writer")
        return KafkaRecord(key=key)

    wanted = stage()
    routes = tuple(replace(r, targets=(replace(r.targets[0], writer=write),)) for r in wanted.routes)
    records = [numbered(b"bad" if n == 3 else b"%d" % n) for n in range(6)]
    rows, _ = rows_of(replace(wanted, routes=routes), records)
    assert [row["topic"] for row in rows] == ["out"] * 3 + ["dead.route"] + ["out"] * 2


@pytest.mark.parametrize("number", ["0" * 5000 + "1", "1" * 5000])
def test_a_number_of_any_length_does_not_end_a_batch(number: str) -> None:
    plan = RoutePlan(name="cesql", where=parse_cesql("n = 1"))
    rows, counts = run([order(1, n="1"), order(1, n=number), order(1, n="1")], plan)
    assert [row["topic"] for row in rows] == ["out"] * (3 if number.startswith("0") else 2)
    assert counts["n_dead"] == 0


def record_of(row: dict[str, Any]) -> KafkaRecord:
    headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])
    return KafkaRecord(key=row["key"], value=row["value"], headers=headers)


def test_the_stage_travels_to_workers() -> None:
    again = pickle.loads(pickle.dumps(stage()))
    assert again == stage()


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=50),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(
        tuple
    ),
)
def test_a_restored_record_equals_the_original(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    record = KafkaRecord(key=key, value=value, headers=headers, topic="t", partition=3, offset=7, timestamp=9)
    try:
        event = dead_letter_event(DeadLetter(record=record, code="c", reason="r", route="x"), "shop")
    except InvalidEvent:
        raise AssertionError("a dead letter must always be possible") from None
    sent = KafkaBinding().encode(event)
    assert restore(KafkaBinding().decode(sent)) == record


def test_an_event_that_is_no_dead_letter_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="no dead letter"):
        restore(CloudEvent({"id": "1", "source": "/s", "type": "t"}))


def structured(**more: object) -> KafkaRecord:
    members = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **more}
    return KafkaRecord(
        value=json.dumps(members).encode(), headers=(("content-type", b"application/cloudevents+json"),)
    )


def test_only_a_record_with_a_null_value_is_written_as_one() -> None:
    """Kafka 3.3.2: an event without data in structured mode is no tombstone."""
    told: list[bool] = []

    def writer(event: CloudEvent, key: bytes | None, headers: Headers, **more: Any) -> KafkaRecord:
        told.append(more["null_value"])
        return KafkaBinding().encode(event, key=key, headers=headers)

    binary = KafkaBinding().encode(CloudEvent({"id": "1", "source": "/s", "type": "t"}))
    assert binary.value is None
    target = Target(topic="out", writer=writer)
    route = StageRoute(plan=RoutePlan(name="all"), targets=(target,), dead=Target(topic="dead.route"))
    made = replace(stage(), routes=(route,))
    rows_of(made, [structured(), binary, structured(data=None)])
    assert told == [False, True, False]


def test_an_extension_that_is_renamed_keeps_its_type() -> None:
    (row,), _ = run([structured(old=5)], RoutePlan(name="r", rename=(("old", "new"),), mode=Mode.STRUCTURED))
    assert json.loads(row["value"])["new"] == 5  # type: ignore[arg-type]
