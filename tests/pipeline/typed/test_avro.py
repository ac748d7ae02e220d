"""Avro as JSON and back: every type, schema resolution, and bytes that are not what they claim."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.codecs import SchemaProblem
from penstock.errors import CannotEncode, InvalidEvent
from penstock.pipeline.typed.avro import avro_from_json, avro_to_json
from penstock.pipeline.typed.avro_schema import is_recursive, parsed

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "count", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "method", "type": {"type": "enum", "name": "Method", "symbols": ["CARD", "CASH"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "int", "string"]}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
DATA: dict[str, Any] = {
    "order": "o-1",
    "total": 12.50,
    "count": 1 << 60,
    "ratio": 0.1,
    "paid": True,
    "raw": "/wA=",
    "hash": "AQI=",
    "method": "CARD",
    "at": "2026-05-04T10:00:00.123000Z",
    "day": "2026-05-04",
    "tags": ["a", "b"],
    "more": {"x": None, "y": 5, "z": "t"},
    "next": None,
}


def text(*schemas: object) -> tuple[str, ...]:
    return tuple(json.dumps(schema) for schema in schemas)


def avro(schema: object, value: object) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def test_every_type_goes_there_and_back() -> None:
    whole = {**DATA, "next": {**DATA}}
    raw = avro_from_json(whole, text(ORDER))
    written = avro_to_json(raw, text(ORDER), text(ORDER))
    assert json.loads(written) == whole
    assert b'"total":12.50' in written
    assert avro_from_json(json.loads(written), text(ORDER)) == raw
    assert schemaless_reader(io.BytesIO(raw), parse_schema(ORDER), None)["raw"] == b"\xff\x00"


def test_the_contract_is_the_readers_schema() -> None:
    old = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
    }
    new = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "a", "type": "long"}, {"name": "c", "type": "string", "default": "x"}],
    }
    assert avro_to_json(avro(old, {"a": 1, "b": 2}), text(old), text(new)) == b'{"a":1,"c":"x"}'
    none = {"type": "record", "name": "O", "fields": [{"name": "d", "type": "string"}]}
    with pytest.raises(InvalidEvent, match="not Avro of its schema"):
        avro_to_json(avro(old, {"a": 1, "b": 2}), text(old), text(none))


def test_a_branch_of_a_union_is_read_and_written_by_its_name() -> None:
    a = {"type": "record", "name": "n.A", "fields": [{"name": "x", "type": "int"}]}
    b = {"type": "record", "name": "n.B", "fields": [{"name": "x", "type": "int"}]}
    raw = avro_from_json({"x": 1}, text([a, b]), "n.B")
    assert raw == b"\x02\x02"
    assert avro_to_json(raw, text([a, b]), text(b)) == b'{"x":1}'
    with pytest.raises(InvalidEvent):
        avro_to_json(raw, text([a, b]), text(a))


def test_a_schema_may_refer_to_others() -> None:
    inner = {"type": "record", "name": "n.Line", "fields": [{"name": "sku", "type": "string"}]}
    outer = {"type": "record", "name": "n.Order", "fields": [{"name": "line", "type": "n.Line"}]}
    raw = avro_from_json({"line": {"sku": "tea"}}, text(inner, outer))
    assert avro_to_json(raw, text(inner, outer), None) == b'{"line":{"sku":"tea"}}'


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"count": 1 << 63}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": True}, "count"),
        ({"order": 5}, "order"),
        ({"paid": "yes"}, "paid"),
        ({"raw": "*"}, "raw"),
        ({"hash": "AQ=="}, "hash"),
        ({"method": "BARTER"}, "method"),
        ({"at": "yesterday"}, "at"),
        ({"day": "2026-02-30"}, "day"),
        ({"total": "much"}, "total"),
        ({"tags": [1]}, "tags.0"),
        ({"more": {"q": []}}, "more.q"),
        ({"next": {"order": "x"}}, "next.total"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_place(change: dict[str, object], where: str) -> None:
    with pytest.raises(CannotEncode, match=rf"{where}: "):
        avro_from_json({**DATA, **change}, text(ORDER))


def test_a_number_with_more_digits_than_its_decimal_is_refused() -> None:
    with pytest.raises(CannotEncode):
        avro_from_json({**DATA, "total": 1.005}, text(ORDER))


_PRIMITIVES: dict[str, st.SearchStrategy[object]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
}
Typed = tuple[object, st.SearchStrategy[object]]


def _containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    some = inner.filter(lambda each: each[0] != "null")
    return st.one_of(
        some.map(lambda each: ({"type": "array", "items": each[0]}, st.lists(each[1], max_size=3))),
        inner.map(
            lambda each: ({"type": "map", "values": each[0]}, st.dictionaries(st.text(max_size=4), each[1]))
        ),
        some.filter(lambda each: not isinstance(each[0], list)).map(
            lambda each: (["null", each[0]], st.none() | each[1])
        ),
        st.lists(inner, max_size=4).map(_record),
    )


def _record(fields: list[Typed]) -> Typed:
    named = [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(fields)]
    values = st.fixed_dictionaries({f"f{number}": value for number, (_, value) in enumerate(fields)})
    return {"type": "record", "name": "R", "fields": named}, values


def _is_sound(typed: Typed) -> bool:
    written = json.dumps(typed[0])
    return written.count('"R"') < 2 and '"items": {"type": "record"' not in written


_SCHEMAS = st.recursive(
    st.sampled_from(sorted(_PRIMITIVES)).map(lambda name: (name, _PRIMITIVES[name])),
    _containers,
    max_leaves=4,
).filter(_is_sound)


@given(_SCHEMAS.flatmap(lambda typed: st.tuples(st.just(typed[0]), typed[1])))
def test_any_value_goes_to_json_and_back_bit_for_bit(case: tuple[object, object]) -> None:
    schema, value = case
    raw = avro(schema, value)
    data = avro_to_json(raw, text(schema), text(schema))
    assert avro_from_json(json.loads(data), text(schema)) == raw


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\xff" * 30, avro("string", "x" * 9)[:-1], b"\x02a!"])
def test_bytes_that_are_no_avro_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidEvent):
        avro_to_json(raw, text("string"), None)


FEW = {
    "type": "record",
    "name": "Few",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "many", "type": {"type": "array", "items": ["null", "boolean"]}},
    ],
}


@pytest.mark.parametrize("schema", [FEW, ORDER])
@given(st.data())
def test_any_bytes_end_in_json_or_a_typed_error(schema: dict[str, Any], data: st.DataObject) -> None:
    value = {
        "n": data.draw(st.integers(-9, 9)),
        "raw": data.draw(st.binary(max_size=4)),
        "many": [None, True],
    }
    start = bytearray(avro(FEW, value))
    for _ in range(data.draw(st.integers(0, 2))):
        start[data.draw(st.integers(0, len(start) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(start) if schema is FEW else data.draw(st.binary(max_size=60))
    try:
        found = json.loads(avro_to_json(raw, text(schema), None))
    except InvalidEvent:
        return
    # All of the bytes were read, and what was read says the same when it is written.
    stream = io.BytesIO(raw)
    schemaless_reader(stream, parse_schema(schema), None)
    assert stream.read() == b""
    assert json.loads(avro_to_json(avro_from_json(found, text(schema)), text(schema), None)) == found


@pytest.mark.parametrize("depth", [300, 2000, 1_000_000])
def test_values_that_nest_too_deep_end_in_a_typed_error(depth: int) -> None:
    """The compiled reader of fastavro takes the whole process down with the last of them."""
    chain = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
    with pytest.raises(InvalidEvent):
        avro_to_json(b"\x02" * depth + b"\x00", text(chain), None)


@pytest.mark.parametrize(
    ("schema", "recursive"),
    [
        ("string", False),
        (ORDER, True),
        ({"type": "array", "items": ORDER}, True),
        ([{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}, "null"], False),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [
                    {
                        "name": "b",
                        "type": {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]},
                    }
                ],
            },
            True,
        ),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [
                    {"name": "b", "type": {"type": "fixed", "name": "F", "size": 2}},
                    {"name": "c", "type": "F"},
                ],
            },
            False,
        ),
    ],
)
def test_schemas_that_hold_themselves_are_known(schema: object, recursive: bool) -> None:
    assert is_recursive(text(schema)) is recursive


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="NaN"):
        avro_to_json(avro("double", float("nan")), text("double"), None)


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_an_array_of_nothing_is_refused_before_it_is_read(items: object) -> None:
    with pytest.raises(SchemaProblem, match="no bounds"):
        parsed(text({"type": "array", "items": items}))
