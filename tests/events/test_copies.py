"""Events that are pickled and copied, as Spark, multiprocessing and caches do it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events import CloudEvent, Json, KafkaBinding, Level, absent
from penstock.events.batch import EventBatch
from penstock.events.body_decoders import DECODERS
from penstock.events.event import Event
from penstock.events.event_headers import Provenance
from penstock.events.jsontext import loads
from penstock.record import KafkaRecord

CORE = {"id": "1", "source": "/s", "type": "t"}
Copy = Callable[[Any], Any]
COPIES = [
    pytest.param(lambda event: pickle.loads(pickle.dumps(event)), id="pickle"),
    pytest.param(lambda event: pickle.loads(pickle.dumps(event, protocol=2)), id="pickle 2"),
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(copy.copy, id="copy"),
]


def structured() -> CloudEvent:
    value = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","num":5,"data": {"total": 10.50} }'
    record = KafkaRecord(value=value, headers=(("content-type", b"application/cloudevents+json"),))
    return KafkaBinding().decode(record)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(
    "event",
    [
        CloudEvent(CORE),
        CloudEvent(CORE, b""),
        CloudEvent({**CORE, "num": 5, "flag": True, "raw": b"\0"}, b"\xff"),
        CloudEvent(CORE, Json(None)),
        CloudEvent({**CORE, "datacontenttype": "application/json"}, b'{"a": 1}'),
        structured(),
    ],
)
def test_a_copy_of_a_cloudevent_is_the_event(event: CloudEvent, copied: Copy) -> None:
    again = copied(event)
    assert again == event
    assert (again.attributes, dict(again.types)) == (event.attributes, dict(event.types))
    assert (again.data is absent) == (event.data is absent)
    assert again.data_bytes == event.data_bytes
    assert KafkaBinding().encode(again) == KafkaBinding().encode(event)


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_what_lenient_read_is_not_taken_for_valid(copied: Copy) -> None:
    headers = tuple((f"ce_{name}", text.encode()) for name, text in {**CORE, "specversion": "1.0"}.items())
    record = KafkaRecord(headers=(*headers, ("ce_time", b"2026-01-01")))
    event = KafkaBinding().read(record, Level.LENIENT).event
    again = copied(event)
    assert (again, again.get("time")) == (event, "2026-01-01")
    with pytest.raises(InvalidEvent, match="time"):
        _ = again.time


def views() -> list[Event]:
    headers = {"event-id": "7", "event-type": "kind=order", "content-type": "application/json"}
    made = Event("orders", headers, b'{"total": 12}', source_address="orders/0/1")
    read = Event("orders", headers, b'{"total": 12}')
    assert read.attribute_int("total") == 12
    stamped = made.appended({"source-identity": "ada"}, by=Provenance.GATEWAY)
    given = Event(
        "orders", headers, attributes={"total": 12, "raw": b"\0"}, arrived=datetime(2031, 1, 1, tzinfo=UTC)
    )
    return [made, read, stamped, given, Event.from_cloudevent(structured(), headers=(("app", b"x"),))]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("event", views())
def test_a_copy_of_an_event_is_the_event(event: Event, copied: Copy) -> None:
    again = copied(event)
    assert again == event
    assert again.header_fields == event.header_fields
    assert (again.source_identity, again.source_address) == (event.source_identity, event.source_address)
    assert (again.has_attributes, again.is_view) == (event.has_attributes, event.is_view)
    assert again.attributes() == event.attributes()
    with pytest.raises(TypeError):
        again.attributes()["total"] = 13
    assert again.to_cloudevent(source="/s") == event.to_cloudevent(source="/s")


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_batch_is_the_batch(copied: Copy) -> None:
    batch = EventBatch.of(views()[:3], id="b-1")
    again = copied(batch)
    assert again == batch
    assert again.encode() == batch.encode()


def test_the_usual_decoders_stay_one_object() -> None:
    assert pickle.loads(pickle.dumps(DECODERS)) is DECODERS
    assert copy.deepcopy(DECODERS) is DECODERS
    own = DECODERS.with_decoder("application/x", bytes.decode)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(own)).find("application/x") is own.find("application/x")


# as_json of structured attributes: what databases and calls give


def test_attributes_of_databases_as_json() -> None:
    event = Event(
        "rows",
        attributes={
            "raw": b"\0\xff",
            "at": datetime(2031, 5, 6, 7, 8, 9, 500, tzinfo=UTC),
            "there": datetime(2031, 5, 6, tzinfo=timezone(timedelta(hours=2))),
            "day": date(2031, 5, 6),
            "price": Decimal("10.50"),
            "key": UUID(int=1),
            "many": ({"raw": bytearray(b"a")}, [memoryview(b"b")]),
            "plain": [1, 2.5, None, True, "text"],
        },
    )
    assert loads(event.as_json())["attributes"] == {
        "raw": "AP8=",
        "at": "2031-05-06T07:08:09.000500Z",
        "there": "2031-05-06T00:00:00+02:00",
        "day": "2031-05-06",
        "price": "10.50",
        "key": "00000000-0000-0000-0000-000000000001",
        "many": [{"raw": "YQ=="}, ["Yg=="]],
        "plain": [1, 2.5, None, True, "text"],
    }


def test_the_same_as_data_of_a_cloudevent_but_not_in_a_batch() -> None:
    """A batch is read back as it was, which text for bytes would not be."""
    headers = {"event-id": "1", "event-type": "kind=row", "source": "/db"}
    event = Event("rows", headers, attributes={"raw": b"\0"})
    assert event.to_cloudevent().data_bytes == b'{"raw":"AA=="}'
    with pytest.raises(CannotEncode):
        EventBatch.of([event], id="b").encode()


@pytest.mark.parametrize(
    "value", [datetime(2031, 1, 1, tzinfo=UTC).replace(tzinfo=None), object(), {"a": {1: 2}}, float("nan")]
)
def test_what_has_no_form_in_json_is_refused(value: object) -> None:
    with pytest.raises(CannotEncode):
        Event("rows", attributes={"value": value}).as_json()


def test_attributes_that_nest_too_deep_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(CannotEncode, match="nested deeper"):
        Event("rows", attributes={"value": deep}).as_json()
