"""The data of an event as routes read it: exact numbers, strict text, bounds."""

from __future__ import annotations

import pytest

from penstock.events import CloudEvent, Json, absent
from penstock.pipeline.plan.bounds import MAX_BYTES
from penstock.pipeline.reference.data import JsonNumber, member, read_data, read_json, tagged, unreadable

EVENT = {"id": "1", "source": "/s", "type": "t"}


@pytest.mark.parametrize(
    ("media_type", "data", "value"),
    [
        ("application/json", b'{"a": 1.0}', {"a": JsonNumber("1.0")}),
        ("Text/JSON; charset=utf-8", b"[true]", [True]),
        ("application/json", b"{", unreadable),
        ("application/json", b"", unreadable),
        ("application/xml", b"{", None),
        (None, b'{"a": 1}', None),
        (None, Json({"a": 1}), {"a": JsonNumber("1")}),
        ("application/json", absent, None),
    ],
)
def test_data_is_json_by_form_or_content_type(media_type: str | None, data: object, value: object) -> None:
    attributes = EVENT | ({"datacontenttype": media_type} if media_type else {})
    assert read_data(CloudEvent(attributes, data)) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b"1 2", b"NaN", b"\xef\xbb\xbf1", b'"\xff"',
        b'"\\ud800"', b"[1,]",
        b"[" * 191 + b"]" * 191, b"1" * 4001, b'{"' + b"a" * 50_000 + b'":1}', b" " * MAX_BYTES + b"1",
    ],
)  # fmt: skip
def test_unreadable(raw: bytes) -> None:
    assert read_json(raw) is unreadable


@pytest.mark.parametrize("raw", [b"[" * 190 + b"]" * 190, b"1" * 4000, b'{"' + b"a" * 49_999 + b'":1}'])
def test_the_bounds_themselves_are_readable(raw: bytes) -> None:
    assert read_json(raw) is not unreadable


def test_paths() -> None:
    value = read_json(b'{"a": [{"b": null}, 5], "0": 1}')
    assert member(value, ("a", 1)) == JsonNumber("5")
    for path in (("a", 0, "b"), ("a", 2), ("a", "0"), (0,), ("a", 1, "x")):
        assert member(value, path) is None
    assert tagged(member(value, ("a",))) == "["
