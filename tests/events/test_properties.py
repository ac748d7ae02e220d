"""Properties of the codecs: identity where the carrier can hold the event, typed errors everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.errors import CannotEncode, EventError
from penstock.events import (
    FORMATS,
    AttributeType,
    CloudEvent,
    HttpBinding,
    HttpMessage,
    Json,
    KafkaBinding,
    Level,
    Mode,
    Profile,
    PulsarBinding,
    Severity,
    Values,
    absent,
    shapes,
)
from penstock.events.bindings.pulsar import key_bytes
from penstock.events.formats.json_heads import Heads
from penstock.events.headers import to_headers, to_properties
from penstock.events.jsontext import dumps, loads, member_span
from penstock.events.media import is_json
from penstock.events.rules import findings, is_valid
from penstock.events.timestamp import read_nanoseconds, write_nanoseconds
from penstock.record import KafkaRecord, PulsarMessage

ILLEGAL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *map(chr, range(0xFDD0, 0xFDF0))]
ILLEGAL += [chr(plane * 0x10000 + last) for plane in range(17) for last in (0xFFFE, 0xFFFF)]
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=ILLEGAL), max_size=12)
tricky = st.sampled_from(
    ["5", "-1", "true", "null", '"quoted"', '"', "{}", '{"a":1}', '{"a": 1}', "[", "1.5", "é 😀"]
)
strings = texts | tricky
names = st.from_regex(r"\A[a-z][a-z0-9]{0,8}\Z").filter(lambda n: n not in RESERVED)
RESERVED = {"data", "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
RESERVED |= {"partitionkey", "extensionnames", "schemaurl", "eventtypeversion"}
references = st.sampled_from(
    ["/s", "urn:x:y", "https://host:8080/a/b?c=d#e", "#f", "1-555-123-4567", "//a/b", "a%20b"]
)
uris = st.sampled_from(["https://host/schema", "urn:x", "mailto:a@b"])
times = st.builds(
    "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}{}{}".format,
    st.integers(1, 9999),
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.sampled_from(["", ".5", ".000", ".123", ".123456", ".123456789", ".1234567891"]),
    st.sampled_from(["Z", "z", "+02:00", "-00:00", "-23:59"]),
)
media_types = st.sampled_from(
    [
        "application/json",
        "application/vnd.x+json; v=1",
        "text/plain",
        "text/plain; charset=iso-8859-1",
        "application/xml",
        "application/octet-stream",
        "application/protobuf",
    ]
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
typed = (
    strings
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.binary(max_size=6)
    | st.datetimes(timezones=st.just(UTC))
)


@st.composite
def events(draw: st.DrawFn, *, extension_values: st.SearchStrategy[Any] = typed) -> CloudEvent:
    attributes: dict[str, Any] = {
        "id": draw(strings.filter(bool)),
        "source": draw(references),
        "type": draw(strings.filter(bool)),
    }
    for name, strategy in (
        ("subject", strings.filter(bool)),
        ("time", times),
        ("dataschema", uris),
        ("datacontenttype", media_types),
        ("partitionkey", strings.filter(bool)),
        ("eventtypeversion", strings),
    ):
        if draw(st.booleans()):
            attributes[name] = draw(strategy)
    attributes |= draw(st.dictionaries(names, extension_values, max_size=3))
    media_type = attributes.get("datacontenttype")
    kinds = [st.just(absent), st.binary(max_size=20), json_values.map(dumps)]
    if media_type is None or is_json(media_type):
        kinds.append(json_values.map(Json))
    return CloudEvent(attributes, draw(st.one_of(kinds)))


@dataclass(frozen=True)
class Way:
    """One way for an event through bytes and back, and the types of extensions that it keeps."""

    name: str
    there: Callable[[CloudEvent], Any]
    back: Callable[[Any], CloudEvent]
    types: frozenset[AttributeType] = frozenset()
    implied_json: bool = False
    canonical_times: bool = False
    may_refuse: bool = False


PLAIN_JSON = frozenset({AttributeType.INTEGER, AttributeType.BOOLEAN})
AVRO = PLAIN_JSON | {AttributeType.BINARY}
FORMAT_TYPES = {"json": PLAIN_JSON, "avro": AVRO, "protobuf": frozenset(AttributeType)}


def kafka(**options: Any) -> tuple[Any, Any]:
    binding = KafkaBinding(**options)
    return binding.encode, binding.decode


def pulsar(**options: Any) -> tuple[Any, Any]:
    binding = PulsarBinding(**options)
    return binding.encode, binding.decode


def http(**options: Any) -> tuple[Any, Any]:
    binding = HttpBinding(**options)
    return binding.encode, binding.decode


def http_batch(name: str) -> tuple[Any, Any]:
    binding = HttpBinding(mode=Mode.BATCH, format=name)
    return binding.encode, lambda message: binding.read_batch(message)[0].event


def structured(binding: str, make: Callable[..., tuple[Any, Any]], name: str, **options: Any) -> Way:
    return Way(
        f"{binding} structured {name}",
        *make(mode=Mode.STRUCTURED, format=name, **options),
        types=FORMAT_TYPES[name],
        implied_json=name == "json",
        canonical_times=name == "protobuf",
    )


WAYS = [
    Way("kafka binary", *kafka()),
    *(structured("kafka", kafka, each.name) for each in FORMATS),
    structured("kafka with headers", kafka, "json", repeat_headers=True),
    *(
        Way(f"pulsar 0.1 binary {v.value}", *pulsar(values=v), types=PLAIN_JSON)
        for v in (Values.AUTO, Values.JSON)
    ),
    Way("pulsar 0.1 binary raw", *pulsar(values=Values.RAW)),
    Way("pulsar 0.1 structured", *pulsar(mode=Mode.STRUCTURED), types=PLAIN_JSON, may_refuse=True),
    Way("pulsar 1.0 binary", *pulsar(profile=Profile.V1_0)),
    *(structured("pulsar 1.0", pulsar, each.name, profile=Profile.V1_0) for each in FORMATS),
    Way("http binary", *http()),
    *(structured("http", http, each.name) for each in FORMATS),
    Way("http batch json", *http_batch("json"), types=PLAIN_JSON, implied_json=True),
    Way("http batch protobuf", *http_batch("protobuf"), types=frozenset(AttributeType), canonical_times=True),
]


def canonical_time(event: CloudEvent) -> bool:
    """Whether `time` and every Timestamp is spelled as Protobuf gives it back."""
    stamps = [name for name, kind in event.types.items() if kind is AttributeType.TIMESTAMP]
    stamped = [event.attributes[name] for name in ("time", *stamps) if name in event.attributes]
    return all(text == respelled(text) for text in stamped)


def respelled(text: str) -> str | None:
    try:
        return write_nanoseconds(*divmod(read_nanoseconds(text), 10**9))
    except ValueError:
        return None


def can_carry(way: Way, event: CloudEvent) -> bool:
    implied = isinstance(event.data, Json) and event.datacontenttype is None
    lost_body = way.name == "http binary" and event.data == b"" and event.datacontenttype is None
    return (
        set(event.types.values()) <= way.types
        and (way.implied_json or not implied)
        and (not way.canonical_times or canonical_time(event))
        and not lost_body
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@settings(max_examples=settings().max_examples // 2)
@given(st.data())
def test_encode_then_decode_is_identity(way: Way, data: st.DataObject) -> None:
    values = typed if way.types else strings
    event = data.draw(events(extension_values=values))
    assume(can_carry(way, event))
    try:
        encoded = way.there(event)
    except CannotEncode:
        assert way.may_refuse
        return
    decoded = way.back(encoded)
    assert decoded == event
    assert decoded.data_bytes == event.data_bytes or way.name == "http batch json"


@given(events(extension_values=strings), st.none() | st.binary(max_size=8), st.sampled_from(Profile))
def test_kafka_to_pulsar_to_kafka(event: CloudEvent, key: bytes | None, profile: Profile) -> None:
    on_kafka, on_pulsar = KafkaBinding(), PulsarBinding(profile=profile)
    sent = on_kafka.encode(event, key=key, headers=(("app", "é".encode()),))
    message = on_pulsar.encode(
        on_kafka.decode(sent), key=sent.key, properties=to_properties(on_kafka.foreign(sent))
    )
    back = on_kafka.encode(
        on_pulsar.decode(message), key=key_bytes(message), headers=to_headers(on_pulsar.foreign(message))
    )
    assert (back.value, back.key) == (sent.value, sent.key)
    assert sorted(back.headers) == sorted(sent.headers)


header_names = st.sampled_from(
    [
        *(
            "ce_id",
            "ce_source",
            "ce_type",
            "ce_specversion",
            "ce_time",
            "ce_",
            "ce_data",
            "ce_datacontenttype",
        ),
        *(
            "content-type",
            "Content-Type",
            "CE_ID",
            "ce-id",
            "CE-EventID",
            "CE-CloudEventsVersion",
            "CE-X-Foo",
        ),
        *("CE-Specversion", "CE-Id", "CE-Source", "CE-EventType", "CE-ContentType", "app"),
    ]
)
header_texts = st.sampled_from(
    [
        *("1.0", "0.1", "0.3", "1", "/s", "t", "", '"x"', "application/json", "application/cloudevents+json"),
        *(
            "application/cloudevents+avro",
            "application/cloudevents+protobuf",
            "application/cloudevents-batch+json",
        ),
        *("application/cloudevents", "2018-04-05T17:31:00Z", "\x00", "%", "%C0", "\ud800"),
    ]
)
header_values = (
    st.none() | st.binary(max_size=8) | header_texts.map(lambda t: t.encode("utf-8", "surrogatepass"))
)
member_names = st.sampled_from(
    [
        "specversion",
        "id",
        "source",
        "type",
        "data",
        "data_base64",
        "datacontenttype",
        "time",
        "ext",
        "Ext",
        "extensions",
    ]
    + ["cloudEventsVersion", "eventID", "eventType", "contentType", "schemaURL", "datacontentencoding"]
)
objects = st.dictionaries(member_names, json_values | header_texts.filter(str.isprintable), max_size=9)
bodies = (
    st.none()
    | st.binary(max_size=40)
    | objects.map(lambda value: json.dumps(value).encode())
    | st.lists(objects, max_size=2).map(lambda value: json.dumps(value).encode())
    | events().map(FORMATS.named("avro").encode)
    | events().filter(canonical_time).map(FORMATS.named("protobuf").encode)
)


def only_typed_errors(read: Callable[[Level], Any]) -> None:
    """strict and lenient may raise our errors, forensic nothing, and it always has a verdict."""
    strict, lenient = (
        answer(lambda level=level: read(level).event) for level in (Level.STRICT, Level.LENIENT)
    )
    reading = read(Level.FORENSIC)
    assert (reading.event is None) != (reading.verdict.value in ("event", "tolerated"))
    assert (reading.error is None) == (reading.verdict.value == "event")
    # The levels are of one mind: what strict reads lenient reads as well; forensic has what lenient has.
    if reading.verdict.value == "event":
        assert strict == lenient == reading.event
        assert CloudEvent(reading.event.attributes, reading.event.data).attributes == reading.event.attributes
    else:
        # A warning of lenient may be about what strict does not look at: then both read the same.
        assert isinstance(strict, tuple) or strict == lenient
        assert lenient == reading.event if reading.event is not None else isinstance(lenient, tuple)


@given(
    st.lists(st.tuples(header_names | st.text(max_size=5), header_values), max_size=8), bodies, st.booleans()
)
def test_any_kafka_record_gives_a_verdict(
    headers: list[tuple[str, Any]], body: bytes | None, dash: bool
) -> None:
    binding, record = KafkaBinding(dash=dash), KafkaRecord(value=body, headers=tuple(headers))
    only_typed_errors(lambda level: binding.read(record, level))
    assert answer(lambda: binding.decode(record)) == answer(lambda: binding.read(record).event)
    assert set(binding.foreign(record)) <= set(headers)


@given(
    st.lists(st.tuples(header_names | st.text(max_size=5), header_texts), max_size=8), bodies, st.booleans()
)
def test_any_pulsar_message_gives_a_verdict(
    properties: list[tuple[str, str]], body: bytes | None, odd: bool
) -> None:
    binding = PulsarBinding(bridged=odd, sniff=odd, keep_case=odd, values=Values.JSON if odd else Values.AUTO)
    message = PulsarMessage(payload=body, properties=tuple(properties))
    only_typed_errors(lambda level: binding.read(message, level))


@given(st.lists(st.tuples(header_names | st.just("ce-subject"), header_texts), max_size=8), bodies)
def test_any_http_message_gives_a_verdict(headers: list[tuple[str, str]], body: bytes | None) -> None:
    message = HttpMessage(headers=tuple(headers), body=body)
    only_typed_errors(lambda level: HttpBinding().read(message, level))
    for reading in HttpBinding().read_batch(message, Level.FORENSIC):
        assert reading.verdict


@pytest.mark.parametrize("name", [each.name for each in FORMATS])
@given(st.data())
def test_any_bytes_give_a_verdict(name: str, data: st.DataObject) -> None:
    raw = data.draw(bodies.filter(lambda body: body is not None))
    at = data.draw(st.integers(0, len(raw)))
    broken = raw[:at] + data.draw(st.binary(max_size=2)) + raw[at + data.draw(st.integers(0, 2)) :]
    only_typed_errors(lambda level: FORMATS.named(name).read(broken, level))


def answer(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except EventError as error:
        return type(error), str(error)


plain = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
anything = st.dictionaries(
    st.sampled_from(
        ["specversion", "id", "source", "type", "time", "dataschema", "datacontenttype", "ext", "Bad"]
    ),
    strings | times | references | media_types | st.sampled_from(["1.0", "", "a\x00", "\ufffe", "a\nb"]),
    max_size=4,
).map(lambda changes: plain | changes)


@given(anything)
def test_the_fast_answer_is_the_thorough_one(attributes: dict[str, str]) -> None:
    errors = [each for each in findings(attributes) if each.severity is not Severity.WARNING]
    assert is_valid(attributes) == (not errors)
    for _ in range(20):  # often enough for the names to become a known shape
        assert (shapes.index_of(attributes) is not None) == (not errors)


@given(anything, st.sampled_from([(), (("app", b"\xff"),), (("app", None), ("b", b""))]))
def test_a_known_shape_is_read_as_an_unknown_one(attributes: dict[str, str], foreign: Any) -> None:
    attributes = {name: text for name, text in attributes.items() if name != "datacontenttype"}
    headers = tuple((f"ce_{n}", t.encode("utf-8", "surrogatepass")) for n, t in attributes.items())
    shape = tuple(
        (n, t.encode())
        for n, t in (plain | dict.fromkeys(attributes, "1") | PLAIN_TIMES).items()
        if n in attributes
    )
    binding = KafkaBinding()
    for _ in range(20):
        answer(
            lambda: binding.decode(
                KafkaRecord(value=b"", headers=(*[(f"ce_{n}", t) for n, t in shape], *foreign))
            )
        )
    record = KafkaRecord(value=b"", headers=(*headers, *foreign))
    assert answer(lambda: binding.decode(record)) == answer(lambda: binding.read(record).event)


HEAD = '{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"x"'
HEAD += ',"datacontenttype":"application/json"'


@given(
    st.sampled_from(["1.0", "/s", "application/json", "subject"]),
    strings | st.sampled_from(["", '"', "\\"]),
    st.data(),
)
def test_a_known_head_is_read_as_an_unknown_one(old: str, new: str, data: st.DataObject) -> None:
    tail = data.draw(
        json_values.map(lambda v: json.dumps(v, separators=(",", ":")))
        | st.sampled_from(['{"a":1,"a":2}', "1 ", "", '1,"id":"2"', '{"data":2}', "1.50", "1},{"])
    )
    raw = (HEAD.replace(old, new, 1) + ',"data":' + tail + "}").encode()
    read = FORMATS.named("json")
    with patch("penstock.events.formats.json._heads", Heads()) as heads:
        for _ in range(20):
            read.decode((HEAD + ',"data":{"a":1}}').encode())
        assert heads.decode((HEAD + ',"data":{"a":1}}').encode()) is not None
        fast = answer(lambda: (e := read.decode(raw)) and (e, e.data, e.data_bytes))
    assert fast == answer(lambda: (e := read.read(raw).event) and (e, e.data, e.data_bytes))


PLAIN_TIMES = {"time": "2018-04-05T17:31:00Z", "dataschema": "urn:x", **plain}


@given(json_values, st.sampled_from([None, 1]), st.booleans())
def test_json_text_is_read_exactly(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert repr(loads(text)) == repr(json.loads(text))
    assert repr(loads(dumps(value))) == repr(value)


@given(st.dictionaries(texts, json_values, min_size=1, max_size=4), st.sampled_from([None, 1]), st.data())
def test_the_span_of_a_member_is_its_text(
    members: dict[str, Any], indent: int | None, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(members)))
    text = json.dumps(members, indent=indent).encode()
    assert repr(loads(member_span(text, name))) == repr(members[name])
