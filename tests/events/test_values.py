"""Values as a Python engineer gives and edits them: subclasses, scalars of numpy and pandas, JSON."""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum as PlainEnum
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pandas as pd
import pytest

from penstock.errors import CannotEncode, InvalidEvent, UsageError
from penstock.events import CloudEvent, Json, KafkaBinding, Mode, PulsarBinding
from penstock.events.bindings.http import HttpBinding
from penstock.events.event import Event
from penstock.events.formats import FORMATS
from penstock.events.jsontext import loads, loads_last_wins

CORE = {"id": "1", "source": "/s", "type": "t"}


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


class Color(StrEnum):
    RED = "red"


class Old(str, PlainEnum):  # noqa: UP042 - as it was before Python 3.11
    RED = "red"


class Number(IntEnum):
    FIVE = 5


class Moment(datetime):
    pass


@pytest.mark.parametrize(
    ("value", "text", "native"),
    [
        (Text("x"), "x", "x"),
        (Color.RED, "red", "red"),
        (Old.RED, "red", "red"),
        (np.str_("x"), "x", "x"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000005"),
        (Number.FIVE, "5", 5),
        (np.int64(-7), "-7", -7),
        (np.uint8(7), "7", 7),
        (np.bool_(True), "true", True),
        (np.bytes_(b"\x01"), "AQ==", b"\x01"),
        (Moment(2031, 5, 6, tzinfo=UTC), "2031-05-06T00:00:00Z", datetime(2031, 5, 6, tzinfo=UTC)),
        (pd.Timestamp("2031-05-06T07:08:09.000000001Z"), "2031-05-06T07:08:09.000000001Z", None),
        (pd.Timestamp("2031-05-06T07Z"), "2031-05-06T07:00:00Z", datetime(2031, 5, 6, 7, tzinfo=UTC)),
    ],
)
def test_a_value_of_a_subclass_is_a_value(value: Any, text: str, native: Any) -> None:
    event = CloudEvent({**CORE, "ext": value})
    assert event.attributes["ext"] == text
    assert type(event.attributes["ext"]) is str
    if native is not None:
        assert event.value("ext") == native
    assert KafkaBinding().decode(KafkaBinding().encode(event)).get("ext") == text
    for each in FORMATS:
        assert each.decode(each.encode(event)).get("ext") == text


@pytest.mark.parametrize(
    "attributes",
    [{"id": uuid.UUID(int=5)}, {"type": Color.RED}, {"subject": np.str_("x")}, {"source": Text("/x")}],
)
def test_core_attributes_may_be_of_a_subclass(attributes: Mapping[str, Any]) -> None:
    event = CloudEvent({**CORE, **attributes})
    assert not event.types
    assert all(type(text) is str for text in event.attributes.values())


@pytest.mark.parametrize("time", [pd.Timestamp("2031-05-06", tz="UTC"), Moment(2031, 5, 6, tzinfo=UTC)])
def test_a_time_may_be_of_a_subclass(time: datetime) -> None:
    assert CloudEvent({**CORE, "time": time}).attributes["time"] == "2031-05-06T00:00:00Z"


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        np.float64(1.5),
        np.int64(2**31),
        np.array([1, 2]),
        pd.NaT,
        pd.Timestamp("2031-05-06"),
        np.datetime64("2031-05-06"),
        2**31,
        ["x"],
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_type_of_cloudevents_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEvent, match="attribute ext"):
        CloudEvent({**CORE, "ext": value})


RAW = b'{"a":{"b":[1,{"c":2}]}}'
STRUCTURED = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":%s}' % RAW


@pytest.mark.parametrize(
    "event",
    [
        CloudEvent(CORE, Json(loads(RAW))),
        CloudEvent(CORE, Json.parse(RAW)),
        CloudEvent({**CORE, "datacontenttype": "application/json"}, RAW),
        FORMATS.named("json").decode(STRUCTURED),
    ],
)
def test_to_edit_json_changes_nothing_of_the_event(event: CloudEvent) -> None:
    value = event.json()
    value["a"]["b"][1]["c"] = "edited"
    value["a"]["b"].append(3)
    assert event.json() == loads(RAW)
    assert event.data_bytes == RAW
    assert KafkaBinding().encode(event).value == RAW
    for again in (copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert again == event
        assert again.data_bytes == RAW


def test_to_edit_what_json_was_made_of_changes_nothing() -> None:
    value: dict[str, Any] = {"a": [1]}
    made = Json(value)
    value["a"].append(2)
    assert (made.value, made.raw, made == Json({"a": [1]})) == ({"a": [1]}, b'{"a":[1]}', True)


def test_to_edit_attributes_of_a_body_changes_nothing() -> None:
    event = Event("orders", {"content-type": "application/json"}, RAW)
    event.attribute("a")["b"].append(3)
    event.attributes()["a"]["b"].append(3)
    event.attributes("a")["b"].append(3)
    assert event.attribute("a") == {"b": [1, {"c": 2}]}


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": object()}, {1: 2}, {"a": {1, 2}}])
def test_what_is_no_json_is_refused_when_it_is_made(value: Any) -> None:
    with pytest.raises(CannotEncode, match="JSON"):
        Json(value)


@pytest.mark.parametrize("headers", [[("a", b"1"), ("b", None)], {"a": b"1", "b": None}])
def test_foreign_headers_may_be_any_pairs(headers: Any) -> None:
    record = KafkaBinding().encode(CloudEvent(CORE), headers=headers)
    assert record.headers[-2:] == (("a", b"1"), ("b", None))
    given = (pair for pair in headers) if isinstance(headers, list) else headers
    assert KafkaBinding().encode(CloudEvent(CORE), headers=given) == record


@pytest.mark.parametrize("properties", [[("a", "1")], {"a": "1"}])
def test_foreign_properties_may_be_any_pairs(properties: Any) -> None:
    assert PulsarBinding().encode(CloudEvent(CORE), properties=properties).properties[-1] == ("a", "1")


@pytest.mark.parametrize("wrong", [["a"], [("a", "text")], [("a", b"1", 2)], [(1, b"1")]])
def test_what_is_no_header_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="header"):
        KafkaBinding().encode(CloudEvent(CORE), headers=wrong)


@pytest.mark.parametrize("wrong", [["a"], [("a", b"bytes")]])
def test_what_is_no_property_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="property"):
        PulsarBinding().encode(CloudEvent(CORE), properties=wrong)


@pytest.mark.parametrize("binding", [KafkaBinding, PulsarBinding, HttpBinding])
def test_bindings_can_be_keys(binding: Any) -> None:
    assert {binding(): 1}[binding()] == 1
    assert {binding(mode=Mode.STRUCTURED): 1}.get(binding()) is None


@pytest.mark.parametrize("parse", [loads, loads_last_wins])
def test_integers_beyond_what_python_makes_read_as_infinity(parse: Any) -> None:
    longest, longer = b"9" * 4300, b"9" * 4301
    assert parse(b"[%s]" % longest) == [int(longest)]
    assert parse(b'{"a": [%s, -%s]}' % (longer, longer)) == {"a": [float("inf"), -float("inf")]}
    assert parse(b'["%s\\"", 1]' % longer) == [longer.decode() + '"', 1]
    for wrong in (b"0%s", b"%sx", b"-0%s", b"[%s", b"%s 1"):
        with pytest.raises(ValueError):
            parse(wrong % longer)
    with pytest.raises(ValueError):
        parse(b'{"a": NaN, "b": %s}' % longer)


def test_an_event_with_a_long_integer_is_an_event_and_keeps_its_bytes() -> None:
    raw = b'{"n":%s}' % (b"1" * 5000)
    event = FORMATS.named("json").decode(STRUCTURED.replace(RAW, raw))
    assert event.json() == {"n": float("inf")}
    for mode in (Mode.BINARY, Mode.STRUCTURED):
        record = KafkaBinding(mode=mode).encode(event)
        assert raw in (record.value or b"")
        assert KafkaBinding().decode(record).data_bytes == raw
