"""The JSON scanner against Python's parsers: certain or silent, never wrong."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.events.jsontext import loads
from penstock.wire.buffer import as_array
from penstock.wire.kernels import json as scanner
from penstock.wire.kernels.json import FIELDS, STACK_SIZE, VALID, scan_json
from penstock.wire.kernels.json_tokens import NOT_JSON, UNSURE
from penstock.wire.kernels.json_values import gather, read_decimal

PATHS: tuple[tuple[str | int, ...], ...] = ((), ("a",), ("a", "b"), ("a", 1), ("é",), (0,), ("a", 1, "b"))
NAMES = "abé".encode()
# Nodes: root 0, a 2, a.b 4, a[1] 6, é 8, [0] 10, a[1].b 12; then the edges, five numbers each.
TRIE = [14, 0, 29, 1, -1, 2, 44, 3, -1, 4, -1, 5, -1, 6]
TRIE += [0, 0, 1, 2, 19, 0, 2, 2, 8, 24, 1, 0, 0, 10, -1]
TRIE += [0, 1, 1, 4, 34, 1, 1, 0, 6, -1, -1, -1, -1, -1, -1]
TRIE += [0, 1, 1, 12, -1]


def scan(*texts: bytes) -> tuple[list[int], list[list[tuple[int, bytes]]]]:
    """Scan texts as one array; give the verdicts, and kind and text of each path by row."""
    joined, count = b"".join(texts), len(texts)
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    status = np.full(count, 9, dtype=np.int64)
    found = np.zeros(len(PATHS) * FIELDS * count, dtype=np.int64)
    trie, stack = np.array(TRIE, dtype=np.int64), np.zeros(STACK_SIZE, dtype=np.int64)
    rows = np.arange(count, dtype=np.int64)
    valid = scan_json(as_array(joined), offsets, rows, trie, as_array(NAMES), status, found, stack)
    assert valid == (status == VALID).sum()
    cells = found.reshape(len(PATHS), FIELDS, count)
    rows_found = [
        [(int(kind), joined[start : start + size]) for kind, start, size in cells[:, :, row].tolist()]
        for row in range(count)
    ]
    return status.tolist(), rows_found


def verdict(text: bytes) -> int:
    return scan(text)[0][0]


def parsed(text: bytes) -> Any:
    try:
        return loads(text)
    except ValueError:
        return ...


def member(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        holds = dict(enumerate(value)) if isinstance(value, list) else value
        value = holds.get(step, ...) if isinstance(holds, dict) else ...
    return value


def kind_of(value: Any) -> set[int]:
    kinds: dict[type, set[int]] = {
        str: {scanner.STRING, scanner.ESCAPED},
        int: {scanner.NUMBER},
        float: {scanner.NUMBER},
        dict: {scanner.OBJECT},
        list: {scanner.ARRAY},
        type(None): {scanner.NULL},
        type(...): {scanner.ABSENT},
    }
    if isinstance(value, bool):
        return {scanner.TRUE if value else scanner.FALSE}
    return kinds[type(value)]


def check(text: bytes) -> None:
    (status,), (cells,) = scan(text)
    value = parsed(text)
    if status == NOT_JSON:
        assert value is ...
    if status != VALID:
        return
    assert value is not ...
    for path, (kind, raw) in zip(PATHS, cells, strict=True):
        expected = member(value, path)
        assert kind in kind_of(expected), path
        if kind == scanner.STRING:
            assert raw.decode() == expected
        elif kind == scanner.ESCAPED:
            assert json.loads(b'"' + raw + b'"') == expected
        elif kind != scanner.ABSENT:
            assert loads(raw) == expected


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "é", "c", "A", 'q"', ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, st.booleans(), st.booleans())
def test_every_path_of_real_json_is_found(value: Any, ascii_only: bool, spaced: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if spaced else None).encode("utf-8", "replace")
    check(text)


@given(values, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255), st.booleans()), max_size=4))
def test_broken_json_is_never_called_valid(value: Any, changes: list[tuple[int, int, bool]]) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    for place, byte, insert in changes:
        at = place % (len(text) + 1)
        text[at : at + (not insert)] = bytes([byte])
    check(bytes(text))


@given(
    st.binary(max_size=40)
    | st.text(alphabet='{}[]",:\\u0123456789abtrnflse.+-E \t\n', max_size=30).map(str.encode)
)
@example(b'{"a":{"b":[1,2],"a":1}}')
@example(b"")
def test_noise_is_never_called_valid(text: bytes) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        *(b"1", b"-0", b"0.5e-3", b'""', b"null", b" true ", b"[]", b"{}", b"[[],{}]", b'{"a":1,"b":2}'),
        *(b'"\\u00e9\\n"', "\U0001f600".join('""').encode(), b'{"a":{"a":1}}', b'[{"a":1},{"a":1}]'),
    ],
)
def test_plain_json_is_certain(text: bytes) -> None:
    assert verdict(text) == VALID


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b" ",
            b"01",
            b"1.",
            b".5",
            b"+1",
            b"1e",
            b"-",
            b"NaN",
            b"nul",
            b"truex",
            b"1 2",
            b"[1,]",
            b"[,]",
        ),
        *(
            b"{,}",
            b'{"a"}',
            b'{"a":}',
            b'{"a":1,}',
            b"{a:1}",
            b"[",
            b"{",
            b"]",
            b"[}",
            b'{"a":1]',
            b'"',
            b'"\\"',
        ),
        *(b'"\\x"', b'"\\u12"', b'"\n"', b'"\xff"', b"\xef\xbb\xbf1", b"'a'", b'{"a":1 "b":2}', b"[1 2]"),
    ],
)
def test_what_breaks_the_grammar_is_not_json(text: bytes) -> None:
    assert verdict(text) == NOT_JSON


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"\\u0061":1}',
        b'"\\ud83d\\ude00"',
        b"[" * 65 + b"]" * 65,
        b"1" * 4001,
        json.dumps({f"name{n}": n for n in range(300)}).encode(),
    ],
)
def test_what_needs_a_full_parser_is_unsure(text: bytes) -> None:
    assert verdict(text) == UNSURE


def test_rows_are_scanned_by_themselves() -> None:
    status, cells = scan(b'{"a":1}', b"\xc3", b'{"a":', b'{"a":{"b":"x"}}')
    assert status == [VALID, NOT_JSON, NOT_JSON, VALID]
    assert cells[0][1] == (scanner.NUMBER, b"1")
    assert cells[3][2] == (scanner.STRING, b"x")


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**13), max_value=10**13)
    | st.integers()
)
def test_decimals_are_exact_or_unsure(number: Decimal | int) -> None:
    text = str(number).encode()
    digits = np.zeros(1, dtype=np.int64)
    scale = read_decimal(as_array(text), 0, len(text), digits, 0)
    if scale == UNSURE:
        assert len(text.strip(b"-").replace(b".", b"")) > 15
    else:
        assert Decimal(int(digits[0])).scaleb(-scale) == number


@pytest.mark.parametrize(
    ("text", "scale"), [(b"x", NOT_JSON), (b"", NOT_JSON), (b"1e5", UNSURE), (b"01", NOT_JSON)]
)
def test_other_texts_are_no_decimals(text: bytes, scale: int) -> None:
    assert read_decimal(as_array(text), 0, len(text), np.zeros(1, dtype=np.int64), 0) == scale


def test_ranges_are_gathered_and_checked() -> None:
    out = np.zeros(4, dtype=np.uint8)
    assert gather(as_array(b"abcdef"), np.array([4, 0]), np.array([2, 2]), out) == 4
    assert bytes(out) == b"efab"
    with pytest.raises(IndexError):
        gather(as_array(b"abc"), np.array([2]), np.array([2]), out)
