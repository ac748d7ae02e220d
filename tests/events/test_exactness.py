"""JSON exactly: what the fast parsers hide is seen, what they change is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events import CloudEvent, Json, KafkaBinding, Level, Mode
from penstock.events.formats import JsonFormat
from penstock.events.jsontext import MAX_DEPTH, dumps, loads, member_span
from penstock.record import KafkaRecord

HEAD = b'{"specversion":"1.0","id":"1","source":"/s","type":"t"'


def with_data(text: bytes) -> bytes:
    return HEAD + b',"data":' + text + b"}"


NOT_JSON = {
    "repeated member": b'{"a":1,"a":2}',
    "repeated member, escaped": b'{"\\u0061":1,"a":2}',
    "repeated member, nested and spaced": b'{"x": {"a": 1, "a": 1}}',
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "invalid UTF-8": b'"\xff"',
    "overlong UTF-8": b'"\xc0\xa0"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "lone surrogate escape": b'"\\ud800"',
    "lone low surrogate escape": b'"\\udc00"',
    "trailing text": b"{} x",
    "trailing comma": b"[1,]",
    "comment": b"/**/1",
    "control character": b'"a\nb"',
    "leading zero": b"01",
    "nothing": b"",
    "a space only": b" ",
    "too deep": b"[" * 400 + b"]" * 400,
    "byte order mark": b"\xef\xbb\xbf{}",
    "single quotes": b"'a'",
    "form feed": b"\x0c1",
}


@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_not_json(text: bytes) -> None:
    with pytest.raises(ValueError):
        loads(text)
    with pytest.raises(InvalidEvent):
        JsonFormat().decode(with_data(text))
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json"}, text)
    with pytest.raises(InvalidEvent, match="data is not JSON"):
        event.json()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b"-9223372036854775809", -9223372036854775809),
        (b"18446744073709551616", 18446744073709551616),
        (b'{"a":18446744073709551616}', {"a": 18446744073709551616}),
        (b"10.50", 10.5),
        (b"-0", 0),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\u0000"', "\x00"),
        (b"null", None),
        (b' {"a" : [ 1 , 2 ] } ', {"a": [1, 2]}),
        (b"1e400", float("inf")),
    ],
)
def test_exact_values_and_their_bytes(text: bytes, value: Any) -> None:
    event = JsonFormat().decode(with_data(text))
    assert repr(event.json()) == repr(value)
    record = KafkaBinding().encode(event)
    assert record.value == text.strip()
    again = KafkaBinding(mode=Mode.STRUCTURED).encode(KafkaBinding().decode(record)).value
    assert again is not None and again.endswith(b',"data":' + text.strip() + b"}")


@pytest.mark.parametrize("depth", [10, 190])
def test_both_parsers_read_what_we_write(depth: int) -> None:
    value: Any = []
    for _ in range(depth):
        value = [value]
    assert loads(dumps(value)) == value == loads(json.dumps(value, indent=1).encode())


def test_nesting_beyond_the_bound_is_not_written() -> None:
    for value in ([None], [1]):
        for _ in range(MAX_DEPTH + 5):
            value = [value]  # noqa: PLW2901
        with pytest.raises(ValueError, match="nested deeper"):
            dumps(value)


@pytest.mark.parametrize(
    "value", [float("nan"), [float("inf")], {"a": {"b": float("-inf")}}, {1: 2}, {"a"}, b"x", object()]
)
def test_not_a_json_value(value: Any) -> None:
    with pytest.raises(CannotEncode):
        Json(value).raw  # noqa: B018


def test_big_integers_are_written() -> None:
    assert Json([2**70, None, "ä"]).raw == '[1180591620717411303424,null,"ä"]'.encode()


def test_repeated_members_in_lenient_keep_the_last_and_its_bytes() -> None:
    raw = HEAD + b',"data":{"a":1},"data":{"b":2}}'
    reading = JsonFormat().read(raw, Level.LENIENT)
    assert reading.event is not None
    assert reading.event.json() == {"b": 2}
    assert KafkaBinding().encode(reading.event).value == b'{"b":2}'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"data":1}', b"1"),
        (b'{ "x" : "}\\"," , "data" : "a\\\\" , "y" : [ { } ] }', b'"a\\\\"'),
        (b'{"x":{"data":0},"data":{"a":["]"]},"y":1}', b'{"a":["]"]}'),
        (b'{"d\\u0061ta":true}', b"true"),
    ],
)
def test_span_of_data(text: bytes, want: bytes) -> None:
    assert member_span(text, "data") == want


def test_json_data_compares_by_value_and_not_by_spelling() -> None:
    assert Json.parse(b'{"a": 1, "b": 2}') == Json({"b": 2, "a": 1})
    assert Json(1) != Json(True) and Json(1) != Json(1.0)
    assert hash(Json([1])) == hash(Json.parse(b"[ 1 ]"))
    binary = {"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    assert CloudEvent(binary, b'{"a": 1}') == CloudEvent(binary, Json({"a": 1}))
    assert CloudEvent(binary, b"{") != CloudEvent(binary, b"}")


def test_a_hostile_number_in_an_extension_is_a_finding() -> None:
    record = KafkaRecord(
        value=HEAD + b',"ext":1e400}', headers=(("content-type", b"application/cloudevents+json"),)
    )
    reading = KafkaBinding().read(record, Level.FORENSIC)
    assert reading.verdict.value == "tolerated"
