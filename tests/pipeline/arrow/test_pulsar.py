"""The columns against penstock.events on Pulsar: every dialect, both profiles, both ways, row by row."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from routed import check_reading

from penstock.errors import CannotEncode, EventError
from penstock.events import CloudEvent, Level, Mode
from penstock.events.bindings.pulsar import Profile, PulsarBinding, Values
from penstock.events.content import Json
from penstock.events.draft import failed
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.bindings import PulsarRecords, binding_of
from penstock.pipeline.arrow.decode import CODES, HEADERS, decode_batch
from penstock.pipeline.arrow.encode import encode_batch, event_at
from penstock.pipeline.pulsar import PulsarReader
from penstock.record import Headers, KafkaRecord, PulsarMessage

_PLAIN_01 = {
    "CE-CloudEventsVersion": b"0.1",
    "CE-EventID": b"id-1",
    "CE-Source": b"/shop",
    "CE-EventType": b"order.placed",
    "CE-EventTime": b"2026-01-01T10:00:00.5Z",
    "CE-EventTypeVersion": b"2",
    "CE-ContentType": b"application/json",
    "CE-SchemaURL": b"http://shop.example/order",
    "CE-X-Subject": b"customer",
    "CE-X-TestExtension": b"text",
}
_PLAIN_10 = {
    "ce_specversion": b"1.0",
    "ce_id": b"id-1",
    "ce_source": b"/shop",
    "ce_type": b"order.placed",
    "ce_time": b"2026-01-01T10:00:00.5Z",
    "content-type": b"application/json",
    "ce_subject": b"customer",
}
_DASHED_10 = {
    "CE-Specversion": b"1.0",
    "CE-Id": b"id-1",
    "CE-Source": b"/shop",
    "CE-Type": b"order.placed",
    "CE-X-Other": b"x",
}
_NEEDED = ("version", "EventID", "Source", "EventType", "_id", "_source", "_type", "-Id", "-Type")
_NAMES = [
    *_PLAIN_01,
    *_PLAIN_10,
    *_DASHED_10,
    *(
        "CE-SchemaURI",
        "CE-X-SchemaURL",
        "CE-X-ExtensionNames",
        "CE-X-Time",
        "CE-X-",
        "CE-X-My_Ext",
        "CE-X-URL",
    ),
    *("CE-Nonsense", "ce-id", "ce_", "app", "kafka~b~ce_id"),
]
_TEXTS = [
    *(b"0.1", b"1.0", b'"0.1"', b"", b"5", b"-7", b"007", b"-0", b"99999999999", b"true", b"false", b"True"),
    *(b"text", b'"quoted"', b'"5"', b'"half', b'{"a":1}', b"[1]", b"null", b"1.5", b"/shop", b"rel/ative"),
    *(b"http://shop.example/s", b"2026-02-28T23:59:59Z", b"2026-01-01T24:00:00Z", b"1990-12-31T23:59:60Z"),
    *("grüße 😀".encode(), b"a\nb", b"\xff\xfe", None, b"application/json", b"text/plain", b"nonsense"),
    *(b"application/cloudevents+json", b'"application/cloudevents+json"', b"Application/CloudEvents"),
    *(b"application/cloudevents-batch+json", b"application/cloudevents+xml"),
    *(base64.b64encode(b"1.0"), base64.b64encode(b"id")),
]
_EVENT_01 = {"cloudEventsVersion": "0.1", "eventID": "1", "source": "/s", "eventType": "t"}
_EVENT_10 = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
_VALUES = [
    *(None, b"", b"{}", b'{"a": 1.10}', b'"text"', b"{", b"\xff"),
    *(
        json.dumps(event | more).encode()
        for event in (_EVENT_01, _EVENT_10)
        for more in (
            {},
            {"data": {"a": 1}},
            {"data": "AAEC", "contentType": "application/octet-stream"},
            {"extensions": {"n": 5, "b": True, "m": {"x": 1}}},
            {"extensions": {}},
        )
    ),
]


@st.composite
def _plain(draw: st.DrawFn) -> KafkaRecord:
    """A message of one dialect, of which a value may be odd."""
    spelled = draw(st.sampled_from([_PLAIN_01, _PLAIN_10, _DASHED_10]))
    optional = [name for name in spelled if not name.lower().endswith(tuple(map(str.lower, _NEEDED)))]
    left_out = draw(st.sets(st.sampled_from(optional), max_size=3)) if optional else set()
    headers = [(name, raw) for name, raw in spelled.items() if name not in left_out]
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(headers)))
        headers.insert(at, ("app", draw(st.sampled_from([b"x", b"\xff", None]))))
    if draw(st.booleans()):
        spot = draw(st.integers(0, len(headers) - 1))
        headers[spot] = (headers[spot][0], draw(st.sampled_from(_TEXTS)))
    return KafkaRecord(value=draw(st.sampled_from(_VALUES)), headers=tuple(headers))


_nasty = st.builds(
    KafkaRecord,
    value=st.sampled_from(_VALUES),
    headers=st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_TEXTS)), max_size=8).map(tuple),
)
_marked = st.builds(
    KafkaRecord,
    value=st.sampled_from(_VALUES),
    headers=st.sampled_from(
        [
            (("CE-ContentType", b"application/cloudevents+json; charset=UTF-8"),),
            (("CE-ContentType", b'"Application/CloudEvents+JSON"'), ("CE-EventID", b"other"), ("app", b"x")),
            (("content-type", b"application/cloudevents+json"), ("ce_id", b"other")),
        ]
    ),
)
BATCHES = st.lists(_plain() | _plain() | _nasty | _marked, min_size=1, max_size=30)
READERS = [
    PulsarBinding(),
    PulsarBinding(sniff=True),
    PulsarBinding(bridged=True, sniff=True),
]


def columns_of(records: list[KafkaRecord]) -> tuple[pa.Array, pa.Array]:
    values = pa.array([record.value for record in records], pa.binary())
    headers = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    return values, pa.array(headers, HEADERS)


def as_message(record: KafkaRecord) -> PulsarMessage | None:
    """The message on Pulsar that the gateway shows as this record; None if none has such headers."""
    try:
        texts = tuple((name, raw.decode()) for name, raw in record.headers if raw is not None)
    except UnicodeDecodeError:
        return None
    return PulsarMessage(payload=record.value, properties=texts)


def check_row(record: KafkaRecord, columns: EventColumns, row: int, binding: PulsarBinding) -> None:
    message = as_message(record)
    try:
        reading = PulsarRecords(pulsar=binding).read(record) if message is None else binding.read(message)
    except EventError as error:
        assert columns.code[row].as_py() == CODES[failed(error, Level.FORENSIC).verdict]
        assert columns.reason[row].as_py() == str(error)
        return
    assert columns.code[row].as_py() is None, columns.reason[row].as_py()
    expected, got = reading.event, event_at(columns, row)
    assert expected is not None
    assert dict(got.attributes) == dict(expected.attributes)
    assert {n: t for n, t in got.types.items() if t.value in ("Integer", "Boolean")} == {
        n: t for n, t in expected.types.items() if t.value in ("Integer", "Boolean")
    }
    assert raw_of(got) == raw_of(expected)
    assert columns.structured[row].as_py() == (reading.mode is Mode.STRUCTURED)
    foreign = tuple((pair["key"], pair["value"]) for pair in columns.foreign[row].as_py())
    assert foreign == tuple(h for h in record.headers if h[0] in ("app", "ce-id", "kafka~b~ce_id"))


def raw_of(event: CloudEvent) -> object:
    return event.data.raw if isinstance(event.data, Json) else event.data


@pytest.mark.parametrize("binding", READERS, ids=["plain", "sniffed", "bridged"])
def test_decoding_gives_the_verdict_of_the_reference_on_every_row(binding: PulsarBinding) -> None:
    @given(BATCHES)
    def law(records: list[KafkaRecord]) -> None:
        columns = decode_batch(*columns_of(records), PulsarRecords(pulsar=binding))
        for row, record in enumerate(records):
            check_row(record, columns, row, binding)

    law()


@given(
    BATCHES,
    st.builds(
        PulsarReader,
        sniffed=st.booleans(),
        bridged=st.booleans(),
        level=st.sampled_from([Level.STRICT, Level.LENIENT]),
        keep_case=st.booleans(),
        values=st.sampled_from(Values),
    ),
)
def test_records_and_columns_are_read_alike(records: list[KafkaRecord], reader: PulsarReader) -> None:
    check_reading(reader, records)


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("mode", [Mode.BINARY, Mode.STRUCTURED])
def test_encoding_gives_what_the_reference_writes(profile: Profile, mode: Mode) -> None:
    reference, binding = PulsarBinding(profile=profile, mode=mode), binding_of(profile, mode)

    @given(BATCHES)
    def law(records: list[KafkaRecord]) -> None:
        decoded = decode_batch(*columns_of(records), PulsarRecords())
        good = [row for row in range(len(records)) if decoded.code[row].as_py() is None]
        events = decoded.take(pa.array(good, pa.int64()))
        written = encode_batch(events, binding)
        for row in range(events.rows):
            foreign = events.foreign[row].as_py()
            try:
                expected = reference.encode(event_at(events, row))
            except CannotEncode as exc:
                assert written.reason[row].as_py() == str(exc)
                continue
            headers = [(pair["key"], pair["value"]) for pair in written.headers[row].as_py()]
            assert written.code[row].as_py() is None
            assert written.value[row].as_py() == expected.payload
            beside = [(pair["key"], pair["value"]) for pair in foreign]
            assert headers == [(name, text.encode()) for name, text in expected.properties] + beside

    law()


@pytest.mark.parametrize("profile", list(Profile))
def test_an_event_comes_back_from_either_profile(profile: Profile) -> None:
    @given(BATCHES)
    def law(records: list[KafkaRecord]) -> None:
        decoded = decode_batch(*columns_of(records), PulsarRecords())
        good = [row for row in range(len(records)) if decoded.code[row].as_py() is None]
        events = decoded.take(pa.array(good, pa.int64()))
        written = encode_batch(events, binding_of(profile, Mode.BINARY))
        again = decode_batch(written.value, written.headers, PulsarRecords())
        for row in range(events.rows):
            before, after = event_at(events, row), event_at(again, row)
            assert again.code[row].as_py() is None, again.reason[row].as_py()
            implied = {"datacontenttype": "application/json"} if isinstance(before.data, Json) else {}
            assert dict(after.attributes) == {**implied, **before.attributes}
            assert after.data_bytes == before.data_bytes

    law()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the exact binding."""
    found: list[str] = []
    read, encode = PulsarBinding.read, PulsarBinding.encode

    def reading(self: PulsarBinding, message: PulsarMessage, level: Level = Level.STRICT) -> object:
        found.append("read")
        return read(self, message, level)

    def encoding(self: PulsarBinding, event: CloudEvent, **beside: object) -> object:
        found.append("encode")
        return encode(self, event, **beside)  # type: ignore[arg-type]

    monkeypatch.setattr(PulsarBinding, "read", reading)
    monkeypatch.setattr(PulsarBinding, "encode", encoding)
    return found


@pytest.mark.parametrize("spelled", [_PLAIN_01, _PLAIN_10], ids=["0.1", "1.0"])
@pytest.mark.parametrize("profile", list(Profile))
def test_plain_messages_never_take_the_slow_way(
    asked: list[str], spelled: dict[str, bytes], profile: Profile
) -> None:
    headers: Headers = (*((name, raw) for name, raw in spelled.items()), ("app", b"\xff"))
    if spelled is _PLAIN_01:
        headers += (("CE-X-N", b"5"), ("CE-X-B", b"true"))
    records = [KafkaRecord(value=b"{}", headers=headers)] * 20
    columns = decode_batch(*columns_of(records), PulsarRecords())
    written = encode_batch(columns, binding_of(profile, Mode.BINARY))
    assert (columns.code.null_count, written.code.null_count) == (20, 20)
    assert asked == []


def test_an_implied_version_is_the_one_of_the_profile() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "n": "5", "subject": "who"})
    record = binding_of(Profile.V0_1, Mode.BINARY).encode(event, key=b"\xff", headers=(("app", None),))
    assert (record.key, record.value) == (b"\xff", None)
    assert dict(record.headers) == {
        "CE-CloudEventsVersion": b"0.1",
        "CE-EventID": b"1",
        "CE-Source": b"/s",
        "CE-EventType": b"t",
        "CE-X-N": b'"5"',  # A4: bare it would be read as a number
        "CE-X-Subject": b"who",
        "app": None,
    }


def test_a_header_that_pulsar_would_misread_is_refused_and_never_dropped() -> None:
    headers = (*((name, raw) for name, raw in _PLAIN_10.items()), ("CE-Trace", b"x"))
    records = [KafkaRecord(value=b"{}", headers=headers), KafkaRecord(value=b"{}", headers=headers[:-1])]
    events = decode_batch(*columns_of(records))
    for profile in Profile:
        for mode in (Mode.BINARY, Mode.STRUCTURED):
            written = encode_batch(events, binding_of(profile, mode))
            assert written.code.to_pylist() == ["cannot-encode", None]
            assert "'CE-Trace'" in written.reason[0].as_py()
