"""Schemas: Avro parsed and written out, JSON Schema compiled, headers found, extras that are missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from penstock.config import Security
from penstock.contract import Contract, validate
from penstock.contract.codecs import SchemaProblem, compile_json_schema, first_error, parse_avro
from penstock.contract.connections import _from_context
from penstock.contract.effort import MAX_EFFORT, effort
from penstock.contract.selection import selector_of
from penstock.errors import MissingExtra

HEAD = "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\n"
AVRO = "application/vnd.apache.avro;version=1.9.0"


def read(text: str) -> tuple[Contract, list[str]]:
    result = validate("asyncapi.yaml", raw=(HEAD + text).encode())
    assert result.contract is not None
    return result.contract, [finding.rule.id for finding in result.findings]


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "string"],
        {"type": "array", "items": "long"},
        {"type": "map", "values": {"type": "string"}},
        {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"], "default": None}]},
        {"type": "fixed", "name": "F", "size": 16},
        {"type": "long", "logicalType": "timestamp-millis"},
    ],
    ids=str,
)
def test_avro_that_is_valid(schema: Any) -> None:
    parse_avro(schema)


@pytest.mark.parametrize(
    ("schema", "problem", "path"),
    [
        ("strng", "the type strng is not known", ()),
        (5, "a schema is a name, an object or a list", ()),
        (None, "a schema is a name, an object or a list", ()),
        ({}, "the field type is missing", ()),
        ({"type": "record", "name": "K"}, "record needs the field fields", ()),
        ({"type": "record", "fields": []}, "record needs the field name", ()),
        ({"type": "record", "name": "K", "fields": [5]}, "a field is an object", ("fields", 0)),
        ({"type": "record", "name": "K", "fields": [{"name": "a"}]}, "type is missing", ("fields", 0)),
        (
            {"type": "array", "items": {"type": "enum", "name": "E"}},
            "enum needs the field symbols",
            ("items",),
        ),
        (["null", {"type": "map"}], "map needs the field values", (1,)),
        ({"type": {"type": "fixed", "name": "f"}}, "fixed needs the field size", ("type",)),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "symbol", ()),
        (
            {"type": "record", "name": "K", "fields": [{"name": "a", "type": "int", "default": "x"}]},
            "Default",
            (),
        ),
    ],
    ids=str,
)
def test_avro_that_is_not(schema: Any, problem: str, path: tuple[Any, ...]) -> None:
    with pytest.raises(SchemaProblem, match=problem) as found:
        parse_avro(schema)
    assert found.value.path == path


def test_references_inside_avro_are_written_out() -> None:
    contract, findings = read(
        f"components: {{messages: {{m: {{payload: {{schemaFormat: '{AVRO}', schema: {{type: record, name: R, "
        "fields: [{name: a, type: {$ref: '#/components/schemas/x'}}]}}}}, "
        f"schemas: {{x: {{schemaFormat: '{AVRO}', schema: {{type: fixed, name: F, size: 2}}}}}}}}\n"
    )
    assert findings == []
    payload = contract.components.messages["m"].payload
    assert payload is not None
    assert payload.definition == {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}}],
    }


def test_a_circle_of_references_inside_avro_is_a_finding() -> None:
    _, findings = read(
        f"components: {{messages: {{m: {{payload: {{schemaFormat: '{AVRO}', "
        "schema: {$ref: '#/x-avro/f'}}}}}\nx-avro: {f: {type: array, items: {$ref: '#/x-avro/f'}}}\n"
    )
    assert "PK222" in findings


def test_a_type_behind_a_reference_selects_the_message() -> None:
    contract, findings = read(
        "components: {schemas: {t: {type: string, const: placed}}, messages: {m: {headers: {type: object, "
        "properties: {ce_type: {$ref: '#/components/schemas/t'}}}}}}\n"
    )
    assert findings == []
    assert selector_of(contract.components.messages["m"]).types == ("placed",)


def test_json_schema_compiles_and_judges() -> None:
    validator = compile_json_schema({"properties": {"a": {"type": "integer"}}})
    assert first_error(validator, {"a": 1}) is None
    problem = first_error(validator, {"a": "x"})
    assert problem is not None and problem.path == ("a",)
    with pytest.raises(SchemaProblem) as found:
        compile_json_schema({"properties": {"a": {"type": "int"}}})
    assert found.value.path == ("properties", "a", "type")


def test_a_reference_that_was_not_bundled_never_leaves_the_machine() -> None:
    with pytest.raises(SchemaProblem):
        compile_json_schema({"$ref": "http://127.0.0.1:9/schema.json"})


def test_effort_of_a_long_chain_is_too_much() -> None:
    definitions: dict[str, Any] = {f"p{n}": {"$ref": f"#/definitions/p{n + 1}"} for n in range(3_000)}
    assert effort({"$ref": "#/definitions/p0", "definitions": definitions}, 1) > MAX_EFFORT


@pytest.mark.parametrize(
    ("module", "call"), [("jsonschema_rs", compile_json_schema), ("fastavro.schema", parse_avro)]
)
def test_a_missing_extra_says_how_to_install_it(
    module: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"penstock\[contract\]"):
        call({})


@pytest.mark.parametrize(
    ("security", "protocol", "mechanism"),
    [
        (Security(), "PLAINTEXT", None),
        (Security(username="u"), "SASL_SSL", "SCRAM-SHA-512"),
        (Security(username="u", mechanism="plain"), "SASL_SSL", "PLAIN"),
        (Security(protocol="ssl"), "SSL", None),
        (Security(protocol="sasl_plaintext", username="u"), "SASL_PLAINTEXT", "SCRAM-SHA-512"),
        (Security(protocol="plaintext", username="u"), "PLAINTEXT", None),
    ],
    ids=str,
)
def test_what_the_context_makes_of_a_secure_server(
    security: Security, protocol: str, mechanism: str | None
) -> None:
    connection = _from_context(security, True, "SCRAM-SHA-512")
    assert (connection.protocol, connection.mechanism) == (protocol, mechanism)
