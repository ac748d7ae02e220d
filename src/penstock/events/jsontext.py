"""JSON text, exactly (RFC 8259): what the fast parsers hide is an error here.

Duplicate members, NaN, invalid UTF-8, lone surrogates, a byte order mark, trailing text and
nesting beyond 200 levels (250 in compact text) are refused; integers of up to 4300 digits are exact. A number
beyond the range of a double, and a longer integer, reads as infinity; its bytes are kept.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import jiter
import orjson

__all__ = ["JsonValue", "copied", "dumps", "loads", "loads_lossless", "member_span"]

JsonValue = Any
"""None, bool, int, float, str, list or dict with str keys."""

_parse = jiter.from_json
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
MAX_DEPTH = 250
"""Levels of nesting that we write."""
_SAMPLE = 64


def loads(raw: bytes) -> JsonValue:
    """Parse JSON text; ValueError says what is wrong and where."""
    # orjson hides repeated members and rounds big integers. Where writing its value gives the same
    # bytes again nothing was hidden; text that begins with spaces after colons need not try.
    if raw.find(b'": ', 0, _SAMPLE) < 0:
        try:
            value = orjson.loads(raw)
            if orjson.dumps(value) == raw:
                return value
        except (ValueError, TypeError):
            pass  # jiter says why, or knows better
    return _exactly(raw, catch_duplicate_keys=True)


def _exactly(raw: bytes, catch_duplicate_keys: bool) -> JsonValue:
    try:
        return _parse(raw, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=catch_duplicate_keys)
    except ValueError:
        shorter = _LONG_INTEGER.sub(_beyond, raw)
        if shorter == raw:
            raise
    return _parse(shorter, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=catch_duplicate_keys)


# Python makes no integer of more digits, because that takes time by their square. A string comes first, so
# that digits inside of one are left alone; a number that begins with 0 is an error for the parser to tell.
_LONG_INTEGER = re.compile(rb'"(?:[^"\\]|\\.)*+"|(-?)[1-9][0-9]{4300,}+(?![.eE])', re.DOTALL)


def _beyond(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] is None else match[1] + b"1e999"


def loads_last_wins(raw: bytes) -> JsonValue:
    """Parse as `loads`, but let the last of several equal members win (for `lenient`)."""
    return _exactly(raw, catch_duplicate_keys=False)


def loads_lossless(raw: bytes) -> JsonValue:
    """Parse as `loads`; a number with a fraction or an exponent is a jiter.LosslessFloat: as it was written.

    ValueError also for an integer of more than 4300 digits.
    """
    return _parse(
        raw, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True, float_mode="lossless-float"
    )


def copied(value: JsonValue) -> JsonValue:
    """Give a value with objects and arrays of its own; it comes from `loads`, so its depth is bounded."""
    if type(value) is dict:
        return {name: copied(each) if type(each) in _CONTAINERS else each for name, each in value.items()}
    if type(value) is list:
        return [copied(each) if type(each) in _CONTAINERS else each for each in value]
    return value


_CONTAINERS = frozenset({dict, list})


def dumps(value: JsonValue) -> bytes:
    """Write compact JSON text; ValueError for what JSON cannot hold (NaN, infinity, other types)."""
    try:
        raw = orjson.dumps(value, option=_STRICT)
    except (TypeError, RecursionError) as exc:
        return _dumps_any(value, exc)
    # orjson writes NaN and infinity as null: only where a null is written may one hide.
    if b"null" in raw:
        _refuse_non_finite(value, 0)
    return raw


def _dumps_any(value: JsonValue, cause: Exception) -> bytes:
    """Write what orjson refuses although it is JSON: integers beyond 64 bits."""
    _refuse_non_finite(value, 0)
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"not a JSON value: {cause}") from exc


def _refuse_non_finite(value: JsonValue, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if type(value) is float and not math.isfinite(value):
        # RFC 8259 6: "Numeric values that cannot be represented in the grammar (such as
        # Infinity and NaN) are not permitted."
        raise ValueError(f"{value} is not a JSON number")
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise ValueError("a member name is not a string")
        for child in value.values():
            _refuse_non_finite(child, depth + 1)
    elif type(value) in (list, tuple):
        for child in value:
            _refuse_non_finite(child, depth + 1)


_SPACE = rb"[ \t\n\r]*"
_STRING = rb'"(?:[^"\\]|\\.)*+"'
_SCALAR = _STRING + rb"|[^\"{}\[\], \t\n\r]+"
_MEMBER = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE)
_VALUE = re.compile(_SCALAR)
_BRACKET = re.compile(_STRING + rb"|([\[{])|([\]}])")
_NEXT = re.compile(_SPACE + rb"[,}]")


def member_span(raw: bytes, name: str) -> bytes:
    """Give the bytes of one member's value in an object that `loads` has accepted.

    >>> member_span(b'{"id": "1", "data" : {"a": [1,  2]} }', "data")
    b'{"a": [1,  2]}'
    """
    position = raw.index(b"{") + 1
    while match := _MEMBER.match(raw, position):
        start = match.end()
        end = _value_end(raw, start)
        if orjson.loads(match[1]) == name:
            return raw[start:end]
        closing = _NEXT.match(raw, end)
        position = closing.end() if closing else len(raw)
    raise KeyError(name)


def _value_end(raw: bytes, start: int) -> int:
    if raw[start] not in b"{[":
        match = _VALUE.match(raw, start)
        return match.end() if match else start
    depth = 0
    for token in _BRACKET.finditer(raw, start):
        depth += (token[1] is not None) - (token[2] is not None)
        if depth == 0 and token[2] is not None:
            return token.end()
    return len(raw)
