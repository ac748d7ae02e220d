"""Schemas: Avro parsed and written out, JSON Schema compiled, headers found, extras that are missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
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


STATUS = {
    "oneOf": [
        {"required": ["channel"], "properties": {"event": {"const": "subscribed"}}},
        {
            "required": ["event"],
            "properties": {"event": {"const": "status"}, "status": {"enum": ["up", "down"]}},
        },
    ]
}


@pytest.mark.parametrize(
    ("schema", "value", "message", "path"),
    [
        ({"type": "integer"}, "x" * 500, f'it is not of type "integer", here it is "{"x" * 56}...', ()),
        (
            {"enum": ["a", "b"]},
            {"long": "y" * 500},
            'it is not one of "a" or "b", here it is {"long":"yyy',
            (),
        ),
        ({"required": ["a"]}, {"b": 2}, '"a" is a required property, here it is {"b":2}', ()),
        (
            STATUS,
            {"event": "status", "status": "unsubscribed", "more": "z" * 500},
            'it fits none of oneOf, number 2 comes closest: it is not one of "up" or "down", '
            'here it is "unsubscribed"',
            ("status",),
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            [],
            "it fits none of anyOf, number 1 comes",
            (),
        ),
        (
            {
                "properties": {
                    "a": {"anyOf": [{"type": "object", "properties": {"b": STATUS}}, {"type": "null"}]}
                }
            },
            {"a": {"b": {"event": "status", "status": 5}}},
            "it fits none of anyOf, number 1 comes closest: it fits none of oneOf, number 2 comes closest: "
            'it is not one of "up" or "down", here it is 5',
            ("a", "b", "status"),
        ),
        ({"oneOf": [{}, {}]}, 1, "it is valid under more than one of the schemas", ()),
    ],
)
def test_the_reason_comes_first_and_the_value_last(
    schema: Any, value: Any, message: str, path: tuple[Any, ...]
) -> None:
    problem = first_error(compile_json_schema(schema), value)
    assert problem is not None
    assert problem.message.startswith(message)
    assert len(problem.message) < 260
    assert problem.path == path


def test_a_finding_about_a_long_example_says_why() -> None:
    example = {"aaa": "x" * 500, "event": "status", "status": "unsubscribed"}
    text = json.dumps(
        {
            "asyncapi": "3.0.0",
            "info": {"title": "t", "version": "1"},
            "components": {"messages": {"m": {"payload": STATUS, "examples": [{"payload": example}]}}},
        }
    )
    (finding,) = validate("asyncapi.json", raw=text.encode()).findings
    assert finding.message == (
        "example does not fit the payload schema: it fits none of oneOf, number 2 comes closest: "
        'it is not one of "up" or "down", here it is "unsubscribed"'
    )
    assert finding.position.path == "components.messages.m.examples[0].payload.status"


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
        (Security(), "SSL", None),
        (Security(protocol="plaintext"), "PLAINTEXT", None),
        (Security(cert_file=Path("x")), "SSL", None),
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
