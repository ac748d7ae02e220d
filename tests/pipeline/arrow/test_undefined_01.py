"""Attributes that CloudEvents 0.1 does not define are carried and come back (spec 002 section 2)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent, KafkaBinding, Level, Mode, Profile, PulsarBinding
from penstock.events.types import AttributeType
from penstock.pipeline.arrow.bindings import PulsarRecords, binding_of
from penstock.pipeline.arrow.decode import HEADERS, decode_batch
from penstock.pipeline.arrow.encode import encode_batch
from penstock.record import PulsarMessage

PROPERTIES = (
    ("CE-EventID", "1"),
    ("CE-Source", "/s"),
    ("CE-EventType", "t"),
    ("CE-CloudEventsVersion", "0.1"),
)
MEMBERS = {"cloudEventsVersion": "0.1", "eventID": "1", "eventType": "t", "source": "/s"}
MARK = (("CE-ContentType", "application/cloudevents+json"),)


def message(*more: tuple[str, str]) -> PulsarMessage:
    return PulsarMessage(payload=b"x", properties=(*PROPERTIES, *more))


@pytest.mark.parametrize("level", [Level.STRICT, Level.LENIENT])
def test_an_undefined_property_is_an_extension_and_comes_back(level: Level) -> None:
    came = message(("CE-Foo", "bar"), ("CE-FooBar", "5"), ("CE-X-Mine", "true"), ("CE-Subject", "s"))
    event = PulsarBinding().read(came, level).event
    assert event is not None
    assert {name: event.get(name) for name in ("foo", "foobar", "mine", "subject")} == {
        "foo": "bar",
        "foobar": "5",
        "mine": "true",
        "subject": "s",
    }
    assert event.types == {"foobar": AttributeType.INTEGER, "mine": AttributeType.BOOLEAN}
    assert event.get("attributenames") == "foo fooBar subject"
    assert sorted(PulsarBinding().encode(event).properties) == sorted(came.properties)


def test_an_undefined_member_is_an_extension_and_comes_back() -> None:
    more: dict[str, Any] = {"foo": "bar", "fooBar": 5, "Flag": True, "map": {"a": [1]}}
    members = {**MEMBERS, **more, "extensions": {"mine": "m"}}
    came = PulsarMessage(payload=json.dumps(members).encode(), properties=MARK)
    event = PulsarBinding().decode(came)
    assert (event.get("foo"), event.value("foobar"), event.value("flag"), event.get("map")) == (
        "bar",
        5,
        True,
        '{"a":[1]}',
    )
    back = PulsarBinding(mode=Mode.STRUCTURED).encode(event)
    assert json.loads(back.payload or b"") == members


def test_over_kafka_and_back() -> None:
    event = PulsarBinding().decode(message(("CE-Foo", "bar")))
    again = KafkaBinding().decode(KafkaBinding().encode(event))
    assert dict(PulsarBinding().encode(again).properties)["CE-Foo"] == "bar"


@pytest.mark.parametrize(
    "item",
    [
        ("CE-Type", "x"),
        ("CE-Id", "x"),
        ("CE-Datacontenttype", "a/b"),
        ("CE-Attributenames", "x"),
        ("CE-Data", "x"),
        ("CE-Foo_bar", "x"),
    ],
)
def test_what_would_come_to_mean_something_else_is_refused(item: tuple[str, str]) -> None:
    with pytest.raises(InvalidEvent):
        PulsarBinding().decode(message(item))


def test_one_name_as_attribute_and_as_extension_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="clashes"):
        PulsarBinding().decode(message(("CE-Foo", "1"), ("CE-X-Foo", "2")))


@pytest.mark.parametrize("names", ["type", "eventType source", "id data extensions", "missing", "Ünder"])
def test_names_of_others_are_no_way_into_attributes_of_01(names: str) -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "attributenames": names})
    assert sorted(PulsarBinding().encode(event).properties) == sorted(PROPERTIES)


@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_the_columns_carry_them_too(mode: Mode) -> None:
    came = [
        PulsarBinding().decode(message(("CE-Foo", "bar"), ("CE-X-Mine", "5"), ("CE-ContentType", "a/b"))),
        PulsarBinding().decode(message(("CE-X-Mine", "6"), ("CE-ContentType", "a/b"))),
    ]
    records = [binding_of(Profile.V0_1, mode).encode(event) for event in came]
    value = pa.array([record.value for record in records], pa.binary())
    headers = [[{"key": name, "value": text} for name, text in record.headers] for record in records]
    events = decode_batch(value, pa.array(headers, HEADERS), PulsarRecords())
    assert events.attributes["foo"].to_pylist() == ["bar", None]
    written = encode_batch(events, binding_of(Profile.V0_1, mode))
    assert written.value.to_pylist() == value.to_pylist()
    assert [sorted(map(repr, row)) for row in written.headers.to_pylist()] == [
        sorted(map(repr, row)) for row in headers
    ]
