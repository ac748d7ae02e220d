"""What the bindings can be asked to do, beyond the behaviour list."""

from __future__ import annotations

import base64
import json
from time import process_time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.events
from penstock.errors import CannotEncode, InvalidEvent, NotACloudEvent, UnsupportedFormat, UsageError
from penstock.events import (
    FORMATS,
    CloudEvent,
    Format,
    Formats,
    HttpBinding,
    HttpMessage,
    Json,
    KafkaBinding,
    Level,
    Mode,
    Profile,
    PulsarBinding,
    Values,
    Verdict,
    absent,
    partitionkey,
)
from penstock.events.bindings.pulsar import key_bytes
from penstock.events.draft import Draft
from penstock.events.formats import JsonFormat
from penstock.events.headers import to_headers, to_properties
from penstock.events.shapes import Shapes
from penstock.record import KafkaRecord, PulsarMessage

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
EVENT = CloudEvent({**REQUIRED, "subject": "x", "partitionkey": "p"}, b"body")


def test_all_names_the_public_surface() -> None:
    public = {
        n
        for n, v in vars(penstock.events).items()
        if not n.startswith("_") and not isinstance(v, type(base64))
    }
    assert public - {"annotations"} == set(penstock.events.__all__)
    assert penstock.events.__all__ == sorted(
        penstock.events.__all__, key=lambda n: (not n.isupper(), n.islower(), n)
    )


# CloudEvent


def test_an_event_cannot_be_changed() -> None:
    for name in ("id", "data", "attributes", "anything"):
        with pytest.raises(AttributeError):
            setattr(EVENT, name, "other")
    given = dict(REQUIRED)
    event = CloudEvent(given)
    given["id"] = "2"
    assert event.id == "1"
    event.attributes["id"] = "2"  # type: ignore[index]
    assert event.id == "1"


def test_replace_changes_adds_and_removes() -> None:
    event = CloudEvent({**REQUIRED, "n": 5, "subject": "x"}, Json(1))
    changed = event.replace({"subject": None, "n": 6, "flag": True}, data=absent)
    assert dict(changed.attributes) == {**REQUIRED, "n": "6", "flag": "true"}
    assert (changed.value("n"), changed.value("flag"), changed.data) == (6, True, absent)
    assert event.value("n") == 5 and event.replace() == event


def test_typed_views_and_their_errors() -> None:
    event = CloudEvent({**REQUIRED, "n": "5", "b": "true", "blob": "TWE=", "at": "2018-04-05T17:31:00Z"})
    assert (event.integer("n"), event.boolean("b"), event.binary("blob")) == (5, True, b"Ma")
    assert event.timestamp("at") is not None and event.integer("none") is None
    for read in (event.integer, event.boolean, event.timestamp):
        with pytest.raises(InvalidEvent, match="blob does not hold"):
            read("blob")
    with pytest.raises(InvalidEvent) as caught:
        event.integer("b")
    assert (caught.value.attribute, caught.value.clause) == ("b", "core, Type System, Integer")


@pytest.mark.parametrize("data", ["text", {"a": 1}, None, 5])
def test_data_of_another_type_is_a_mistake_of_the_caller(data: Any) -> None:
    with pytest.raises(UsageError):
        CloudEvent(REQUIRED, data)


@pytest.mark.parametrize("value", [1.5, None, {"a": 1}, 2**31])
def test_an_attribute_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEvent):
        CloudEvent({**REQUIRED, "ext": value})


def test_a_core_attribute_has_its_own_type() -> None:
    with pytest.raises(InvalidEvent, match="id is a String, not a Integer"):
        CloudEvent({**REQUIRED, "id": 5})


# Kafka


def test_a_target_without_headers_gets_structured_mode_only() -> None:
    with pytest.raises(CannotEncode, match=r"Kafka 1\.3"):
        KafkaBinding(target_has_headers=False).encode(EVENT)
    record = KafkaBinding(target_has_headers=False, mode=Mode.STRUCTURED, repeat_headers=True).encode(EVENT)
    assert record.headers == () and record.value


def test_structured_mode_may_repeat_the_headers() -> None:
    record = KafkaBinding(mode=Mode.STRUCTURED, repeat_headers=True).encode(EVENT)
    assert [name for name, _ in record.headers] == [
        "content-type",
        *(f"ce_{name}" for name in EVENT.attributes),
    ]
    reading = KafkaBinding().read(record)
    assert (reading.mode, reading.findings) == (Mode.STRUCTURED, ())


def test_no_batch_on_kafka_and_pulsar() -> None:
    for binding in (KafkaBinding(mode=Mode.BATCH), PulsarBinding(mode=Mode.BATCH)):
        with pytest.raises(CannotEncode):
            binding.encode(EVENT)


def test_a_record_of_an_unknown_format_can_be_forwarded() -> None:
    record = KafkaRecord(value=b"<x/>", headers=(("content-type", b"application/cloudevents+xml"),))
    reading = KafkaBinding().read(record, Level.FORENSIC)
    assert reading.verdict is Verdict.UNSUPPORTED
    assert isinstance(reading.error, UnsupportedFormat) and reading.error.record is record


class ShoutFormat(Format):
    """A format of a user: the id in capitals."""

    name = "shout"

    def encode(self, event: CloudEvent) -> bytes:
        return event.id.upper().encode()

    def draft(self, raw: bytes) -> Draft:
        return Draft(attributes={**REQUIRED, "id": raw.decode("ascii").lower()})


def test_a_user_can_register_a_format() -> None:
    formats = Formats(*FORMATS)
    binding = KafkaBinding(mode=Mode.STRUCTURED, format="shout", formats=formats)
    with pytest.raises(UnsupportedFormat):
        binding.encode(EVENT)
    formats.register(ShoutFormat())
    record = binding.encode(CloudEvent({**REQUIRED, "id": "abc"}))
    assert record.headers == (("content-type", b"application/cloudevents+shout"),)
    assert binding.decode(record).id == "abc"
    with pytest.raises(UnsupportedFormat):
        HttpBinding(mode=Mode.BATCH, format="shout", formats=formats).read_batch(
            HttpMessage(headers=(("content-type", "application/cloudevents-batch+shout"),))
        )


# Pulsar

DIALECTS = {
    "CE-* 0.1": [
        ("CE-CloudEventsVersion", "0.1"),
        ("CE-EventID", "1"),
        ("CE-Source", "/s"),
        ("CE-EventType", "t"),
    ],
    "CE-* 1.0": [("CE-Specversion", "1.0"), ("CE-Id", "1"), ("CE-Source", "/s"), ("CE-Type", "t")],
    "ce_*": [("ce_specversion", "1.0"), ("ce_id", "1"), ("ce_source", "/s"), ("ce_type", "t")],
}


@pytest.mark.parametrize("properties", DIALECTS.values(), ids=DIALECTS.keys())
def test_the_reader_knows_every_dialect(properties: list[tuple[str, str]]) -> None:
    foreign = (("app", "x"),)
    message = PulsarMessage(payload=b"x", properties=(*properties, *foreign))
    assert PulsarBinding().decode(message) == CloudEvent(REQUIRED, b"x")
    assert PulsarBinding().foreign(message) == foreign


def test_values_that_a_bridge_put_in_base64() -> None:
    properties = [(n, base64.b64encode(v.encode()).decode()) for n, v in DIALECTS["ce_*"]]
    message = PulsarMessage(payload=b"x", properties=(*properties, ("__kafka_topic", "orders")))
    assert PulsarBinding(bridged=True).decode(message) == CloudEvent(REQUIRED, b"x")
    with pytest.raises(InvalidEvent):
        PulsarBinding().decode(message)


def test_mixed_prefixes() -> None:
    message = PulsarMessage(payload=b"x", properties=(*DIALECTS["CE-* 0.1"], ("ce_id", "2")))
    with pytest.raises(InvalidEvent, match="A19"):
        PulsarBinding().decode(message)
    reading = PulsarBinding().read(message, Level.LENIENT)
    assert reading.event is not None and reading.event.id == "1"


def test_property_names_in_another_case_are_for_lenient() -> None:
    message = PulsarMessage(payload=b"x", properties=tuple((n.lower(), v) for n, v in DIALECTS["CE-* 0.1"]))
    with pytest.raises(NotACloudEvent):
        PulsarBinding().decode(message)
    assert PulsarBinding().read(message, Level.LENIENT).verdict is Verdict.TOLERATED


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (Values.AUTO, {"CE-X-Text": "a", "CE-X-Number": "5", "CE-X-Digits": '"5"', "CE-EventID": "1"}),
        (Values.JSON, {"CE-X-Text": '"a"', "CE-X-Number": "5", "CE-X-Digits": '"5"', "CE-EventID": '"1"'}),
        (Values.RAW, {"CE-X-Text": "a", "CE-X-Number": "5", "CE-X-Digits": "5", "CE-EventID": "1"}),
    ],
)
def test_the_three_ways_to_write_values(values: Values, want: dict[str, str]) -> None:
    event = CloudEvent({**REQUIRED, "text": "a", "number": 5, "digits": "5"})
    written = dict(PulsarBinding(values=values).encode(event).properties)
    assert {name: written[name] for name in want} == want


def test_strict_json_values_refuse_bare_text() -> None:
    message = PulsarMessage(payload=b"x", properties=tuple(DIALECTS["CE-* 0.1"]))
    with pytest.raises(InvalidEvent, match=r"3\.1\.2\.2"):
        PulsarBinding(values=Values.JSON).decode(message)


def test_keys_and_event_time() -> None:
    timed = EVENT.replace({"time": "1970-01-01T00:00:01.5Z"})
    message = PulsarBinding(key_mapper=partitionkey, mirror_time=True).encode(timed)
    assert (message.key, message.key_is_base64, message.event_time) == ("p", False, 1500)
    message = PulsarBinding(key_mapper=partitionkey).encode(timed, key=b"\xff")
    assert (message.key, message.key_is_base64, message.event_time) == ("/w==", True, None)
    assert key_bytes(message) == b"\xff"
    assert key_bytes(PulsarMessage(key="k", ordering_key=b"o")) == b"o"
    assert key_bytes(PulsarMessage()) is None
    with pytest.raises(InvalidEvent):
        key_bytes(PulsarMessage(key="?", key_is_base64=True))


def test_structured_mode_may_repeat_the_properties_and_the_marker_wins() -> None:
    event = EVENT.replace({"datacontenttype": "text/plain"})
    message = PulsarBinding(mode=Mode.STRUCTURED, repeat_properties=True).encode(event)
    assert dict(message.properties)["CE-ContentType"].startswith("application/cloudevents+json")
    assert ("CE-EventID", "1") in message.properties
    assert PulsarBinding().decode(message) == event


def test_what_json_01_cannot_carry() -> None:
    structured = PulsarBinding(mode=Mode.STRUCTURED)
    for event in (
        EVENT,
        EVENT.replace({"datacontenttype": "application/json"}, data=b"{"),
        EVENT.replace({"datacontenttype": "text/plain"}, data=b"\xff"),
    ):
        with pytest.raises(CannotEncode):
            structured.encode(event)
    with pytest.raises(CannotEncode, match="JSON format only"):
        PulsarBinding(mode=Mode.STRUCTURED, format="avro").encode(EVENT)


@pytest.mark.parametrize(
    "change",
    [{"cloudEventsVersion": "0.2"}, {"eventID": 5}, {"type": "x"}, {"extensions": [1]}, {"eventID": None}],
)
def test_json_01_that_breaks_its_rules(change: dict[str, Any]) -> None:
    members = {"cloudEventsVersion": "0.1", "eventID": "1", "eventType": "t", "source": "/s"} | change
    message = PulsarMessage(
        payload=Json(members).raw, properties=(("CE-ContentType", "application/cloudevents+json"),)
    )
    with pytest.raises(InvalidEvent):
        PulsarBinding().decode(message)


def test_a_relative_schema_keeps_its_place() -> None:
    message = PulsarMessage(payload=None, properties=(*DIALECTS["CE-* 0.1"], ("CE-SchemaURL", "/schema")))
    event = PulsarBinding().decode(message)
    assert (event.dataschema, event.get("schemaurl")) == (None, "/schema")
    assert dict(PulsarBinding().encode(event).properties)["CE-SchemaURL"] == "/schema"


def test_extensions_that_clash_in_lower_case() -> None:
    message = PulsarMessage(
        payload=None, properties=(*DIALECTS["CE-* 0.1"], ("CE-X-Ab", "1"), ("CE-X-AB", "2"), ("CE-X-Id", "3"))
    )
    with pytest.raises(InvalidEvent, match="clashes"):
        PulsarBinding().decode(message)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "kafka~", "kafka~n~a", "kafka~b~a", "kafka~t~a", "kafka~N~YQ=="])
            | st.text(max_size=4),
            st.none() | st.binary(max_size=4) | st.sampled_from([b"", b"YQ==", b"YR=="]),
        ),
        max_size=6,
    )
)
def test_any_headers_become_properties_and_come_back(headers: list[tuple[str, bytes | None]]) -> None:
    properties = to_properties(headers)
    assert len(properties) == len(headers)
    assert to_headers(properties) == tuple(headers)


@pytest.mark.parametrize(
    "item",
    [
        ("kafka~n~a", "x"),
        ("kafka~b~a", "no base64"),
        ("kafka~b~a", "YR=="),
        ("kafka~x~a", ""),
        ("kafka~", ""),
        ("kafka~B~YQ==", "YQ=="),
    ],
)
def test_properties_that_only_look_escaped_are_taken_as_they_are(item: tuple[str, str]) -> None:
    assert to_headers((item,)) == ((item[0], item[1].encode()),)


def test_profile_10_writes_what_a_kafka_header_becomes() -> None:
    message = PulsarBinding(profile=Profile.V1_0).encode(EVENT)
    assert message.properties == to_properties(KafkaBinding().encode(EVENT).headers)


# HTTP


def test_http_header_names_ignore_case_and_a_body_without_type_is_no_data() -> None:
    headers = tuple((f"CE-{name.title()}", value) for name, value in REQUIRED.items())
    assert HttpBinding().decode(HttpMessage(headers=headers, body=b"")).data is absent
    typed = (*headers, ("Content-Type", "text/plain"))
    assert HttpBinding().decode(HttpMessage(headers=typed, body=b"")).data == b""


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ((), NotACloudEvent),
        ((("content-type", "application/cloudevents-batch+json"),), InvalidEvent),
        ((("content-type", "application/cloudevents+json"),), InvalidEvent),
        ((("ce-id", "%zz"),), InvalidEvent),
        (
            (("ce-datacontenttype", "text/plain"), *((f"ce-{n}", v) for n, v in REQUIRED.items())),
            InvalidEvent,
        ),
        ((("ce-id", "1"), *((f"ce-{n}", v) for n, v in REQUIRED.items())), InvalidEvent),
    ],
)
def test_http_messages_that_are_refused(headers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        HttpBinding().decode(HttpMessage(headers=headers))


def test_only_a_batch_is_read_as_one() -> None:
    message = HttpBinding(mode=Mode.STRUCTURED).encode(EVENT)
    with pytest.raises(NotACloudEvent):
        HttpBinding().read_batch(message)
    (reading,) = HttpBinding().read_batch(message, Level.FORENSIC)
    assert reading.verdict is Verdict.FOREIGN


@pytest.mark.parametrize(
    ("elements", "problem"),
    [
        (["text"], "an element of the batch is not an object"),
        ([{}], "specversion"),
        ([{"specversion": "0.3"}], "the events of the batch differ in specversion"),
    ],
)
def test_what_is_wrong_in_a_batch_is_said_of_its_element(elements: list[object], problem: str) -> None:
    good = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    body = json.dumps([good, *elements]).encode()
    message = HttpMessage(headers=(("content-type", "application/cloudevents-batch+json"),), body=body)
    with pytest.raises(InvalidEvent) as found:
        HttpBinding().read_batch(message)
    assert problem in str(found.value)
    if problem == "specversion":
        assert "differ" not in str(found.value)


def test_avro_has_no_batch() -> None:
    with pytest.raises(CannotEncode, match="no batch"):
        HttpBinding(mode=Mode.BATCH, format="avro").encode(EVENT)


# JSON


def test_a_charset_that_we_do_not_know() -> None:
    raw = Json({**REQUIRED, "datacontenttype": "text/plain; charset=koi8-r", "data": "x"}).raw
    with pytest.raises(InvalidEvent, match="koi8-r"):
        JsonFormat().decode(raw)
    reading = JsonFormat().read(raw, Level.LENIENT)
    assert reading.event is not None and reading.event.data == b"x"
    encoded = JsonFormat().encode(EVENT.replace({"datacontenttype": "text/plain; charset=koi8-r"}))
    assert b'"data_base64"' in encoded


def test_an_event_that_lenient_let_pass_is_not_written_as_something_else() -> None:
    raw = Json({**REQUIRED, "datacontenttype": "text/xml", "data": {"a": 1}}).raw
    event = JsonFormat().read(raw, Level.LENIENT).event
    assert event is not None
    with pytest.raises(CannotEncode):
        JsonFormat().encode(event)


# What hostile or unlucky producers cost


@pytest.mark.parametrize(
    "attributes",
    [
        {"datacontenttype": "a/b" + ";  " * 20_000 + "\x00"},
        {"datacontenttype": "a/b;c=" + '"\\"' * 20_000},
        {"source": "a" * 50_000 + " "},
        {"source": "//" + "a@" * 20_000 + " "},
        {"source": "http://[" + ":" * 50_000},
        {"time": "2018-04-05T17:31:00." + "0" * 50_000},
        {"dataschema": "a+" * 30_000 + " "},
    ],
)
def test_long_hostile_text_is_refused_in_one_pass(attributes: dict[str, str]) -> None:
    began = process_time()
    with pytest.raises(InvalidEvent):
        CloudEvent({**REQUIRED, **attributes})
    assert process_time() - began < 0.5


def test_text_that_is_not_plain_does_not_make_a_shape_again_and_again() -> None:
    record = KafkaBinding().encode(CloudEvent({**REQUIRED, "churn": "ü"}))
    raw = json.dumps({**REQUIRED, "churn": "ü", "data": 1}, ensure_ascii=False).encode()
    for _ in range(20):
        KafkaBinding().decode(record)
        JsonFormat().decode(raw)
    with patch("re.compile", side_effect=AssertionError("compiled once more")):
        for _ in range(100):
            assert KafkaBinding().decode(record).get("churn") == "ü"
            assert JsonFormat().decode(raw).get("churn") == "ü"


def test_shapes_are_bounded() -> None:
    shapes = Shapes(lambda name: name)
    for number in range(300):
        for _ in range(20):
            shapes.meet((*REQUIRED, f"ext{number}"))
    assert len(shapes.by_names) == 256


@pytest.mark.parametrize("binding", [KafkaBinding, PulsarBinding])
def test_a_key_that_is_no_key_is_a_clear_error(binding: Any) -> None:
    with pytest.raises(UsageError, match="a key is a int"):
        binding(key_mapper=lambda event: 5).encode(EVENT)
    with pytest.raises(UsageError, match="a key is a tuple"):
        binding().encode(EVENT, key=(1,))


def test_the_charset_of_the_json_formats_is_written_in_lower_case() -> None:
    """One SDK takes `application/cloudevents+json; charset=utf-8` and no other spelling of the charset."""
    wanted = "application/cloudevents+json; charset=utf-8"
    structured = Mode.STRUCTURED
    assert HttpBinding(mode=structured).encode(EVENT).headers == (("content-type", wanted),)
    batch = HttpBinding().encode_batch((EVENT,)).headers
    assert batch == (("content-type", wanted.replace("cloudevents", "cloudevents-batch")),)
    assert KafkaBinding(mode=structured).encode(EVENT).headers == (("content-type", wanted.encode()),)
    event = EVENT.replace({"datacontenttype": "application/json"}, data=b"{}")
    for profile, name in ((Profile.V0_1, "CE-ContentType"), (Profile.V1_0, "content-type")):
        message = PulsarBinding(mode=structured, profile=profile).encode(event)
        assert message.properties == ((name, wanted),)
    upper = wanted.replace("utf", "UTF").encode()
    record = KafkaBinding(mode=structured).encode(EVENT)
    assert KafkaBinding().decode(KafkaRecord(value=record.value, headers=(("content-type", upper),))) == EVENT
