"""Spec 004, the consumer API: one row per element of the specification, at every reading level."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.errors import InvalidEvent, UsageError
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Json, absent
from penstock.events.event import Event
from penstock.events.event_headers import PREDEFINED, HeaderField, Provenance
from penstock.events.event_mapping import EVENT_TYPE_ATTRIBUTES, HEADER_ATTRIBUTES
from penstock.events.event_record import event_of_record, host_address, stream_address
from penstock.events.event_type import EventType
from penstock.events.reading import Level, Severity
from penstock.record import KafkaRecord, PulsarMessage

AT = datetime(2031, 5, 6, 7, 8, 9, 250000, UTC)
TYPE = "apiVersion=shop/v1;class=async;kind=order.placed"
HEADERS = {
    "event-id": "e-1",
    "event-type": TYPE,
    "content-type": "application/json",
    "created-at": "2031-05-06T07:08:09+02:00",
    "source": "/shop/eu",
    "source-type": "web",
    "method": "POST",
    "log-level": "debug",
    "receipt-queue": "done",
    "X-Count": "12",
    "trace": "abc",
}
BODY = b'{"total": 12, "name": "Ann", "price": 1.5, "ok": true, "none": null, "a": {"b": {"c": 7}, "d": "x"}}'
FULL = Event(
    "/orders/new?x=1",
    HEADERS,
    BODY,
    arrived=AT,
    source_address="192.0.2.7:443",
    url="https://shop.example/orders/new?x=1",
).appended({"source-identity": "ann"}, by=Provenance.GATEWAY)
EMPTY = Event()

# spec 004's Go interface: method, what the full event gives, what an empty one gives
ROWS: list[tuple[str, Callable[[Event], Any], Any, Any]] = [
    ("GetID", lambda e: e.id, "e-1", None),
    (
        "GetEventType",
        lambda e: e.event_type,
        EventType(api_version="shop/v1", class_="async", kind="order.placed"),
        None,
    ),
    ("GetSourceAddress", lambda e: e.source_address, "192.0.2.7:443", None),
    ("GetSourceIdentity", lambda e: e.source_identity, "ann", None),
    ("GetContentType", lambda e: e.content_type, "application/json", None),
    ("GetBody", lambda e: e.body, BODY, None),
    ("GetHeader", lambda e: e.header("Trace"), "abc", None),
    ("GetHeader, predefined", lambda e: e.header("EVENT-ID"), "e-1", None),
    ("GetHeaders", lambda e: e.headers.get("x-count"), "12", None),
    ("header as bytes", lambda e: e.header_bytes("x-count"), b"12", None),
    ("header as int", lambda e: e.header_int("x-count"), 12, None),
    ("GetAttribute", lambda e: e.attribute("price"), 1.5, None),
    ("GetAttribute, nested", lambda e: e.attribute("a.b.c"), 7, None),
    ("GetAttribute, not there", lambda e: e.attribute("a.x.c"), None, None),
    ("GetAttribute, null", lambda e: e.attribute("none"), None, None),
    ("GetAttributeByteSlice", lambda e: e.attribute_bytes("name"), b"Ann", None),
    ("GetAttributeString", lambda e: e.attribute_str("name"), "Ann", None),
    ("GetAttributeInt", lambda e: e.attribute_int("total"), 12, None),
    ("GetAttributes", lambda e: len(e.attributes()), 6, 0),
    ("GetAttributes, prefix", lambda e: dict(e.attributes("a")), {"b": {"c": 7}, "d": "x"}, {}),
    ("GetAttributes, prefix, deeper", lambda e: dict(e.attributes("a.b")), {"c": 7}, {}),
    ("GetAttributes, prefix of a leaf", lambda e: dict(e.attributes("name")), {}, {}),
    (
        "GetTimestamp",
        lambda e: e.timestamp and e.timestamp.isoformat(),
        "2031-05-06T07:08:09+02:00",
        None,
    ),
    ("GetPath", lambda e: e.path, "/orders/new?x=1", ""),
    (
        "GetURL",
        lambda e: e.url and (e.url.hostname, e.url.path, e.url.query),
        ("shop.example", "/orders/new", "x=1"),
        None,
    ),
    ("GetMethod", lambda e: e.method, "POST", None),
    ("AsJson", lambda e: json.loads(e.as_json()).get("event-id"), "e-1", None),
    ("source", lambda e: e.source, "/shop/eu", None),
    ("source-type", lambda e: e.source_type, "web", None),
    ("log-level", lambda e: e.log_level, "debug", None),
    ("receipt-queue", lambda e: e.receipt_queue, "done", None),
    ("who appended", lambda e: e.provenance("source-identity"), Provenance.GATEWAY, None),
    ("who sent", lambda e: e.provenance("event-id"), Provenance.CLIENT, None),
    ("arrival", lambda e: e.arrived, AT, None),
]


@pytest.mark.parametrize(("name", "read", "full", "empty"), ROWS, ids=[row[0] for row in ROWS])
def test_every_method(name: str, read: Callable[[Event], Any], full: Any, empty: Any) -> None:
    assert read(FULL) == full
    assert read(EMPTY) == empty


GOOD = {"event-id": "1", "event-type": "kind=k"}
TEXT = {"content-type": "text/plain"}

# what is wrong, headers, body, and the attribute that the finding names; None if nothing is wrong
BREACHES: list[tuple[str, Any, bytes | None, str | None]] = [
    ("nothing", GOOD, None, None),
    ("nothing, with a body", GOOD | TEXT, b"x", None),
    ("an empty body needs no content-type", GOOD, b"", None),
    ("no event-id", {"event-type": "kind=k"}, None, "event-id"),
    ("empty event-id", GOOD | {"event-id": ""}, None, "event-id"),
    ("null event-id", GOOD | {"event-id": None}, None, "event-id"),
    ("no event-type", {"event-id": "1"}, None, "event-type"),
    ("event-type without a kind", GOOD | {"event-type": "class=async"}, None, "event-type"),
    ("event-type with an unknown part", GOOD | {"event-type": "kind=k;colour=red"}, None, "event-type"),
    ("event-type with a part twice", GOOD | {"event-type": "kind=k;Kind=l"}, None, "event-type"),
    ("event-type with a broken escape", GOOD | {"event-type": "kind=%zz"}, None, "event-type"),
    ("event-type that decodes to no text", GOOD | {"event-type": "kind=%FF"}, None, "event-type"),
    ("split event-type without a kind", {"event-id": "1", "event-type-class": "async"}, None, "event-type"),
    ("body without content-type", GOOD, b"x", "content-type"),
    ("content-type that is none", GOOD | {"content-type": "json"}, b"x", "content-type"),
    ("created-at without offset", GOOD | {"created-at": "2031-05-06T07:08:09"}, None, "created-at"),
    ("created-at in words", GOOD | {"created-at": "yesterday"}, None, "created-at"),
    ("event-id twice", [*GOOD.items(), ("Event-Id", "2")], None, "event-id"),
    ("event-id that is no UTF-8", GOOD | {"event-id": b"\xff"}, None, "event-id"),
    ("event-id with a surrogate", GOOD | {"event-id": "\ud800"}, None, "event-id"),
    ("a foreign header twice", [*GOOD.items(), ("x", "1"), ("x", "2")], None, None),
    ("a foreign header that is no UTF-8", GOOD | {"x": b"\xff"}, None, None),
    ("a foreign header without a name", GOOD | {"": "1"}, None, None),
]


@pytest.mark.parametrize(("what", "headers", "body", "attribute"), BREACHES, ids=[row[0] for row in BREACHES])
def test_levels(what: str, headers: Any, body: bytes | None, attribute: str | None) -> None:
    for level in (Level.LENIENT, Level.FORENSIC):
        event = Event.read("p", headers, body, level=level)
        errors = [f.attribute for f in event.findings if f.severity is Severity.ERROR]
        assert errors == ([attribute] if attribute else [])
        json.loads(event.as_json())
    if attribute is None:
        assert Event.read("p", headers, body).path == "p"
    else:
        with pytest.raises(InvalidEvent) as caught:
            Event.read("p", headers, body)
        assert caught.value.attribute == attribute
        assert caught.value.clause


def test_lenient_falls_back_on_the_time_of_arrival() -> None:
    event = Event("p", {"created-at": "yesterday"}, arrived=AT)
    assert event.timestamp == AT
    with pytest.raises(InvalidEvent, match="created-at"):
        _ = Event("p", {"created-at": "yesterday"}).timestamp
    assert Event("p", arrived=AT).timestamp == AT


def test_the_last_of_several_headers_counts_and_all_are_kept() -> None:
    event = Event("p", [("x", "1"), ("X", b"2"), ("x", None), ("y", None), ("z", b"\xff")])
    assert event.header("x") == "2"
    assert dict(event.headers) == {"x": "2"}
    assert event.header_bytes("z") == b"\xff"
    assert [(f.name, f.value) for f in event.header_fields] == [
        ("x", b"1"),
        ("X", b"2"),
        ("x", None),
        ("y", None),
        ("z", b"\xff"),
    ]
    with pytest.raises(InvalidEvent, match="UTF-8"):
        event.header("z")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"event-type": TYPE}, EventType(api_version="shop/v1", class_="async", kind="order.placed")),
        ({"event-type": " KIND = k ; apiversion=v1 ;"}, EventType(api_version="v1", kind="k")),
        ({"event-type": "order.placed"}, EventType(kind="order.placed")),
        ({"event-type": "kind=a%3Bb%25=c"}, EventType(kind="a;b%=c")),
        ({"event-type-kind": "k", "event-type-class": "list"}, EventType(class_="list", kind="k")),
        ({"event-type-kind": "k", "Event-Type-ApiVersion": "v1"}, EventType(api_version="v1", kind="k")),
        ({"event-type": "kind=one", "event-type-kind": "split"}, EventType(kind="one")),
    ],
)
def test_event_type_in_one_header_or_three(headers: dict[str, str], expected: EventType) -> None:
    assert Event("p", headers).event_type == expected
    assert EventType.parse(str(expected)) == expected


# Entry points


def test_what_is_missing_is_appended_at_an_entry_point() -> None:
    event = Event.received("orders", {"event-type": "kind=k"}, at=AT, id="new", identity="ann")
    assert event.header_fields[1:] == (
        HeaderField("event-id", b"new", Provenance.GATEWAY),
        HeaderField("created-at", b"2031-05-06T07:08:09.250000Z", Provenance.GATEWAY),
        HeaderField("source-identity", b"ann", Provenance.GATEWAY),
    )
    assert (event.id, event.timestamp, event.arrived, event.source_identity) == ("new", AT, AT, "ann")


def test_what_is_there_is_never_replaced() -> None:
    given = GOOD | {"created-at": "2030-01-01T00:00:00Z"}
    event = Event.received("orders", given, at=AT, id="new", by=Provenance.INVOKER)
    assert [f.by for f in event.header_fields] == [Provenance.CLIENT] * 3
    assert event.id == "1"
    assert event.timestamp == datetime(2030, 1, 1, tzinfo=UTC)
    assert event.arrived == AT


def test_nothing_is_added_on_read() -> None:
    event = Event.read("p", {}, level=Level.LENIENT)
    assert (event.id, event.timestamp, event.header_fields) == (None, None, ())


def test_an_entry_point_is_strict_unless_told() -> None:
    with pytest.raises(InvalidEvent, match="event-type"):
        Event.received("p", {}, at=AT, id="1")
    assert Event.received("p", {}, at=AT, id="1", level=Level.LENIENT).id == "1"


def test_a_claimed_identity_is_not_one() -> None:
    claimed = Event.read("p", GOOD | {"source-identity": "root"})
    assert claimed.source_identity is None
    assert claimed.header("source-identity") == "root"
    assert [(f.attribute, f.severity) for f in claimed.findings] == [("source-identity", Severity.WARNING)]
    event = Event.received("p", GOOD | {"Source-Identity": "root"}, at=AT, id="x", identity="ann")
    assert event.source_identity == "ann"


def test_predefined_headers_are_appended_once() -> None:
    event = Event("p", GOOD).appended({"log-level": "debug", "x": "1"}, by=Provenance.INVOKER)
    assert (event.log_level, event.provenance("x")) == ("debug", Provenance.INVOKER)
    assert event.appended({"x": "2"}, by=Provenance.INVOKER).header("x") == "2"
    with pytest.raises(UsageError, match="Log-Level"):
        event.appended({"Log-Level": "info"}, by=Provenance.GATEWAY)
    split = Event("p", {"event-id": "1", "event-type-kind": "k"})
    with pytest.raises(UsageError, match="event-type"):
        split.appended({"event-type": "kind=other"}, by=Provenance.GATEWAY)


def test_wrong_use_is_told() -> None:
    with pytest.raises(UsageError, match="not both"):
        Event("p", {}, b"x", attributes={"a": 1})
    with pytest.raises(UsageError, match="offset"):
        Event("p", arrived=AT.replace(tzinfo=None))


# Origins


def test_origins() -> None:
    assert host_address("192.0.2.7", 80) == "192.0.2.7:80"
    assert host_address("::1", 80) == "[::1]:80"
    assert stream_address("orders") == "orders"
    assert Event("p", {"source": "/shop"}).source_address == "/shop"


def test_a_kafka_record_is_an_event() -> None:
    record = KafkaRecord(
        topic="orders",
        partition=3,
        offset=42,
        timestamp=1_000,
        headers=(("event-id", b"1"), ("n", None)),
        value=b"x",
    )
    event = event_of_record(record)
    assert (event.path, event.source_address, event.id, event.body) == ("orders", "orders/3/42", "1", b"x")
    assert event.timestamp == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)
    assert event_of_record(KafkaRecord(timestamp=2**63 - 1)).timestamp is None


def test_a_pulsar_message_is_an_event() -> None:
    message = PulsarMessage(
        topic="persistent://a/b/c",
        message_id="1:2:-1:0",
        publish_time=0,
        properties=(("event-id", "1"),),
        payload=None,
    )
    event = event_of_record(message)
    assert (event.path, event.source_address) == ("persistent://a/b/c", "persistent://a/b/c/1:2:-1:0")
    assert (event.id, event.body, event.url) == ("1", None, None)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("https://h/x", "https://h/x"),
        ("/x", None),
        ("orders", None),
        ("http://[bad", None),
        ("http://h:99999/", None),
        ("http://", None),
        ("persistent://t/n/topic", None),
        ("", None),
    ],
)
def test_url(path: str, url: str | None) -> None:
    found = Event(path).url
    assert (found and found.geturl()) == url


# JSON

GOLDEN = (
    b'{"path":"/orders/new?x=1","event-id":"e-1",'
    b'"event-type":{"apiVersion":"shop/v1","class":"async","kind":"order.placed"},'
    b'"timestamp":"2031-05-06T07:08:09+02:00","source-address":"192.0.2.7:443","source-identity":"ann",'
    b'"content-type":"application/json","created-at":"2031-05-06T07:08:09+02:00","source":"/shop/eu",'
    b'"source-type":"web","method":"POST","log-level":"debug","receipt-queue":"done",'
    b'"url":"https://shop.example/orders/new?x=1","headers":{"x-count":"12","trace":"abc"},'
    b'"body":{"total":12,"name":"Ann","price":1.5,"ok":true,"none":null,"a":{"b":{"c":7},"d":"x"}}}'
)


def test_as_json_golden() -> None:
    assert FULL.as_json() == GOLDEN


@pytest.mark.parametrize(
    ("event", "golden"),
    [
        (Event(), b"{}"),
        (Event("p", {}, b""), b'{"path":"p","body":""}'),
        (
            Event("p", TEXT, "café".encode()),
            '{"path":"p","content-type":"text/plain","body":"café"}'.encode(),
        ),
        (Event("p", {}, b"\xff\x00"), b'{"path":"p","body-base64":"/wA="}'),
        (
            Event("p", {"content-type": "application/json"}, b"{broken"),
            b'{"path":"p","content-type":"application/json","body":"{broken"}',
        ),
        (Event("p", attributes={"n": 1}), b'{"path":"p","attributes":{"n":1}}'),
        (Event("p", arrived=AT), b'{"path":"p","timestamp":"2031-05-06T07:08:09.250000Z"}'),
    ],
)
def test_as_json_of_other_contents(event: Event, golden: bytes) -> None:
    assert event.as_json() == golden


# CloudEvents

CE = CloudEvent(
    {
        "id": "1",
        "source": "/shop",
        "type": "order;placed",
        "time": "2031-05-06T07:08:09Z",
        "subject": "order-17",
        "datacontenttype": "application/json",
        "dataschema": "urn:x",
        "apiversion": "v1",
        "eventclass": "async",
        "authid": "ann",
        "authtype": "user",
        "hop": 5,
    },
    b'{"n": 1}',
)


def test_a_cloudevent_as_an_event() -> None:
    event = Event.from_cloudevent(CE, path="orders", headers={"trace": "abc"}, by=Provenance.GATEWAY)
    assert event.checked() is event
    assert (event.id, event.path, event.source, event.content_type) == (
        "1",
        "orders",
        "/shop",
        "application/json",
    )
    assert event.event_type == EventType(api_version="v1", class_="async", kind="order;placed")
    assert (event.source_identity, event.attribute_int("n")) == ("ann", 1)
    assert event.header("ce-hop") == "5"
    assert [f.name for f in event.foreign_headers] == ["trace"]
    assert event.to_cloudevent() is CE


def test_foreign_headers_do_not_hide_the_attributes() -> None:
    given = {"source": "x", "Event-Id": "9", "ce-hop": "6", "trace": "abc"}
    event = Event.from_cloudevent(CE, headers=given).checked()
    assert (event.id, event.source, event.header("ce-hop")) == ("1", "/shop", "5")
    later = event.appended({"y": "1", "log-level": "debug"}, by=Provenance.INVOKER)
    assert [f.name for f in later.foreign_headers] == [*given, "y"]
    assert event.to_cloudevent() is CE


def test_foreign_headers_of_a_plain_event() -> None:
    assert [f.name for f in FULL.foreign_headers] == ["X-Count", "trace"]


def test_the_path_of_a_cloudevent_is_its_subject_unless_told() -> None:
    assert Event.from_cloudevent(CE).path == "order-17"
    assert Event.from_cloudevent(CE).source_identity is None


def test_headers_appended_to_a_view_become_attributes() -> None:
    event = Event.from_cloudevent(CE, path="orders").appended(
        {"log-level": "debug", "ce-stage": "eu", "x": "1"}, by=Provenance.INVOKER
    )
    assert event.to_cloudevent() == CE.replace({"severitytext": "debug", "stage": "eu"})
    assert event.to_cloudevent().types == CE.types


def test_json_data_says_what_it_is() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t"}, Json({"n": 1}))
    assert Event.from_cloudevent(event).content_type == "application/json"
    assert Event.from_cloudevent(event).attribute_int("n") == 1
    assert Event.from_cloudevent(event).to_cloudevent() is event


def test_an_event_as_a_cloudevent() -> None:
    event = FULL.to_cloudevent()
    assert dict(event.attributes) == {
        "specversion": "1.0",
        "id": "e-1",
        "source": "/shop/eu",
        "time": "2031-05-06T07:08:09+02:00",
        "datacontenttype": "application/json",
        "authid": "ann",
        "authtype": "unknown",
        "sourcetype": "web",
        "method": "POST",
        "severitytext": "debug",
        "receiptqueue": "done",
        "type": "order.placed",
        "apiversion": "shop/v1",
        "eventclass": "async",
        "subject": "/orders/new?x=1",
    }
    assert event.data == BODY


def test_a_claim_of_identity_stays_a_claim() -> None:
    event = Event("", GOOD | {"source": "/s", "source-identity": "root"}).to_cloudevent()
    assert (event.get("authid"), event.get("authtype")) == ("root", "unauthenticated")


def test_structured_attributes_become_json_data() -> None:
    event = Event("", GOOD, attributes={"n": 1}).to_cloudevent(source="/default")
    assert (event.source, event.datacontenttype, event.json()) == ("/default", "application/json", {"n": 1})
    assert Event("", GOOD).to_cloudevent(source="/default").data is absent


@pytest.mark.parametrize("missing", ["event-id", "event-type", "source"])
def test_a_cloudevent_needs_id_type_and_source(missing: str) -> None:
    headers = {name: text for name, text in (GOOD | {"source": "/s"}).items() if name != missing}
    with pytest.raises(InvalidEvent, match="missing"):
        Event("p", headers).to_cloudevent()


def test_the_table_covers_every_predefined_header() -> None:
    assert set(HEADER_ATTRIBUTES) | {"event-type"} == set(PREDEFINED)
    attributes = [*HEADER_ATTRIBUTES.values(), *EVENT_TYPE_ATTRIBUTES.values()]
    assert len(set(attributes)) == len(attributes)
    assert all(name.isalnum() and name.islower() for name in attributes)


def test_events_are_values() -> None:
    assert Event("p", GOOD, b"x") == Event("p", GOOD, b"x")
    assert Event("p", GOOD, b"x") != Event("p", GOOD, b"y")
    assert Event("p") != "p"
    assert len({Event("p", GOOD), Event("p", GOOD)}) == 1
    with pytest.raises(TypeError):
        FULL.attributes()["new"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        FULL.headers["new"] = "1"  # type: ignore[index]
    with pytest.raises(AttributeError):
        FULL.id = "2"  # type: ignore[misc]
