"""The data of an event as routes read it: exact numbers, strict text, bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.events import CloudEvent, Json, absent
from penstock.events.jsontext import loads
from penstock.pipeline.evaluators.reference.json_data import (
    member,
    number_text,
    number_value,
    read_data,
    read_json,
    unreadable,
)
from penstock.pipeline.plan.bounds import MAX_BYTES, MAX_DEPTH, MAX_NAME, MAX_NUMBER
from penstock.pipeline.plan.numbers import read_number

EVENT = {"id": "1", "source": "/s", "type": "t"}


class Written(str):
    """A number as text."""

    __slots__ = ()


def shown(value: object) -> object:
    """Give a value with each number as it was written."""
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    text = number_text(value)
    return value if text is None else ("number", text)


@pytest.mark.parametrize(
    ("media_type", "data", "value"),
    [
        ("application/json", b'{"a": 1.0}', {"a": ("number", "1.0")}),
        ("Text/JSON; charset=utf-8", b"[true]", [True]),
        ("application/json", b"{", unreadable),
        ("application/json", b"", unreadable),
        ("application/xml", b"{", None),
        (None, b'{"a": 1}', None),
        (None, Json({"a": 1}), {"a": ("number", "1")}),
        ("application/json", absent, None),
    ],
)
def test_data_is_json_by_form_or_content_type(media_type: str | None, data: object, value: object) -> None:
    attributes = EVENT | ({"datacontenttype": media_type} if media_type else {})
    assert shown(read_data(CloudEvent(attributes, data))) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b"1 2", b"NaN", b"\xef\xbb\xbf1", b'"\xff"',
        b'"\\ud800"', b"[1,]",
        b"[" * 191 + b"]" * 191, b"1" * 4001, b'{"' + b"a" * 50_000 + b'":1}', b" " * MAX_BYTES + b"1",
        b"-" + b"1" * 4000, b"1." + b"1" * 3999, b"[1, " + b"1" * 4300 + b"]", b"1" * 4301,
        b"[" * 150 + b'{"a":' * 41 + b"1" + b"}" * 41 + b"]" * 150, b'{"' + "😀".encode() * 25_000 + b'":1}',
    ],
)  # fmt: skip
def test_unreadable(raw: bytes) -> None:
    assert read_json(raw) is unreadable


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 190 + b"]" * 190, b"1" * 4000, b'{"' + b"a" * 49_999 + b'":1}', b"-" + b"1" * 3999,
        b"[" + b"1." + b"1" * 3998 + b"]", b'"' + b"1" * 5000 + b'"', b'"' + b"[" * 5000 + b'"',
        b"[" + b"[]," * 300 + b"1]", b'{"' + "😀".encode() * 24_999 + b'":1}',
    ],
)  # fmt: skip
def test_the_bounds_themselves_are_readable(raw: bytes) -> None:
    assert read_json(raw) is not unreadable


def by_the_standard_library(raw: bytes) -> object:
    """Read JSON by another parser, with numbers as text, after the strict one has accepted it."""
    if len(raw) > MAX_BYTES:
        return unreadable
    try:
        loads(raw)
        value = json.loads(raw.decode(), parse_int=Written, parse_float=Written)
    except (ValueError, RecursionError):
        return unreadable
    return _marked(value) if _depth_in_bounds(value) else unreadable


def _depth_in_bounds(value: Any, depth: int = 0) -> bool:
    if isinstance(value, Written):
        return len(value) <= MAX_NUMBER
    if isinstance(value, dict):
        names = all(len(name.encode("utf-16-le")) // 2 <= MAX_NAME for name in value)
        return depth < MAX_DEPTH and names and all(_depth_in_bounds(v, depth + 1) for v in value.values())
    if isinstance(value, list):
        return depth < MAX_DEPTH and all(_depth_in_bounds(each, depth + 1) for each in value)
    return True


def _marked(value: Any) -> Any:
    if isinstance(value, Written):
        return ("number", "0" if value == "-0" else str(value))
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    return [_marked(each) for each in value] if isinstance(value, list) else value


_NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
_ODD_NUMBERS = st.sampled_from(
    ["-0", "01", "1.", ".5", "1e", "+1", "NaN", "-Infinity", "1e999", "0e-0", "--1"]
)
_STRINGS = st.text(max_size=8).map(json.dumps) | st.sampled_from(
    ['"a"', '"\\u0061"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', '"\x7f"', '"\t"', '"1e5"', '"\ufffe"']
)
_SPACES = st.sampled_from(["", "", "", " ", "\n", "\t", "\r", "\x0b", "\xa0"])


def _spaced(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(_SPACES, parts, _SPACES).map("".join)


_TEXTS = st.recursive(
    _spaced(
        _NUMBERS | _NUMBERS | _ODD_NUMBERS | _STRINGS | st.sampled_from(["true", "null", "false", "tru"])
    ),
    lambda inner: (
        _spaced(st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]"))
        | _spaced(
            st.lists(st.tuples(_STRINGS, inner), max_size=4).map(
                lambda pairs: "{" + ",".join(f"{name}:{value}" for name, value in pairs) + "}"
            )
        )
    ),
    max_leaves=12,
)


@given(_TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30))
@example(b'{"a":1,"a":1}')
@example(b"\xef\xbb\xbf{}")
@example(b'{"total":12.50,"total2":1e2}')
def test_one_parse_reads_what_two_parsers_agree_on(raw: bytes) -> None:
    assert shown(read_json(raw)) == by_the_standard_library(raw)


@given(
    _NUMBERS | st.integers().map(str) | st.sampled_from(["-0", "-0.0", "1" * 400, "9" * 19, "1" + "0" * 19])
)
def test_a_number_of_json_is_the_number_that_its_text_says(text: str) -> None:
    found, expected = number_value(read_json(text.encode())), read_number(text)
    assert found == expected
    assert type(found) is type(expected)


def test_paths() -> None:
    value = read_json(b'{"a": [{"b": null}, 5], "0": 1}')
    assert number_text(member(value, ("a", 1))) == "5"
    for path in (("a", 0, "b"), ("a", 2), ("a", "0"), (0,), ("a", 1, "x")):
        assert member(value, path) is None


@pytest.mark.parametrize(("depth", "is_readable"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_the_bound_of_nesting_is_the_deepest_that_is_read(depth: int, is_readable: bool) -> None:
    """With more brackets than levels, so that it is walked."""
    raw = b"[" + b"[]," * MAX_DEPTH + b"[" * (depth - 1) + b"]" * depth
    assert (read_json(raw) is not unreadable) is is_readable
