"""Examples against Avro payloads: bare and tagged unions, the place that is wrong, and what must not hang."""

from __future__ import annotations

import io
import json

import pytest

from penstock.contract import validate
from penstock.contract.avro_values import AvroValues

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}
GOOD = {
    "id": "1",
    "total": 2,
    "note": None,
    "state": "OPEN",
    "hash": "\u0000\u00ff",
    "lines": [{"a": 1}],
    "parent": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"note": "bare"},
        {"note": {"string": "tagged"}},
        {"count": 2**31 - 1},
        {"parent": GOOD},
        {"parent": {"com.shop.Order": GOOD}},
    ],
)
def test_a_value_fits(change: dict[str, object]) -> None:
    assert AvroValues(ORDER).first_error({**GOOD, **change}) is None  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("change", "path", "what"),
    [
        ({"id": 1}, ("id",), "1 is no string"),
        ({"total": "2"}, ("total",), "'2' is no double"),
        ({"total": True}, ("total",), "True is no double"),
        ({"count": 2**31}, ("count",), "2147483648 is no int"),
        ({"note": 7}, ("note",), "7 fits none of null, string"),
        ({"note": {"string": 7}}, ("note", "string"), "7 is no string"),
        ({"state": "LOST"}, ("state",), "'LOST' is no symbol of com.shop.State"),
        ({"hash": "abc"}, ("hash",), "'abc' is not 2 bytes of com.shop.Hash"),
        ({"hash": "a\u0100"}, ("hash",), "'aĀ' is not 2 bytes of com.shop.Hash"),
        ({"lines": {}}, ("lines",), "{} is no array"),
        ({"lines": [{"a": 1.5}]}, ("lines", 0, "a"), "1.5 is no long"),
        ({"parent": {**GOOD, "id": None}}, ("parent", "id"), "None is no string"),
        ({"more": 1}, ("more",), "record com.shop.Order has no field 'more'"),
    ],
)
def test_a_value_does_not_fit(change: dict[str, object], path: tuple[str | int, ...], what: str) -> None:
    problem = AvroValues(ORDER).first_error({**GOOD, **change})  # type: ignore[dict-item]
    assert problem is not None
    assert (problem.path, problem.message) == (path, what)


def test_a_missing_field() -> None:
    problem = AvroValues(ORDER).first_error({name: value for name, value in GOOD.items() if name != "id"})
    assert problem is not None
    assert problem.message == "field 'id' of record com.shop.Order is missing"


def test_the_json_encoding_of_fastavro_fits() -> None:
    import fastavro

    schema = fastavro.parse_schema(ORDER)
    datum = {**GOOD, "hash": b"\x00\xff", "count": 3, "parent": {**GOOD, "hash": b"ab", "count": 1}}
    written = io.StringIO()
    fastavro.json_writer(written, schema, [datum])
    assert AvroValues(ORDER).first_error(json.loads(written.getvalue())) is None


def test_a_union_that_grows_with_its_depth_ends() -> None:
    branches = [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "x", "type": [f"R{m}" for m in range(n)]}]}
        for n in range(1, 12)
    ]
    first = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "null"}]}
    value: object = 1
    for _ in range(12):
        value = {"x": value}
    problem = AvroValues([first, *branches]).first_error(value)  # type: ignore[arg-type]
    assert problem is not None


DOCUMENT = """asyncapi: 3.0.0
info: {title: shop, version: 1.0.0}
channels:
  orders:
    address: orders
    messages:
      placed:
        payload:
          schemaFormat: application/vnd.apache.avro;version=1.9.0
          schema:
            type: record
            name: Order
            fields: [{name: id, type: string}]
        examples:
          - payload: {id: EXAMPLE}
"""


def test_the_finding_points_at_the_value() -> None:
    result = validate("asyncapi.yaml", raw=DOCUMENT.replace("EXAMPLE", "7").encode())
    (finding,) = [finding for finding in result.findings if finding.rule.id == "PK270"]
    assert finding.message == "example does not fit the payload schema: 7 is no string"
    assert (finding.position.line, finding.position.column) == (15, 27)
    assert not validate("asyncapi.yaml", raw=DOCUMENT.replace("EXAMPLE", "'7'").encode()).errors
