"""Checks of the rules in `rules.schemas`: every schema compiles, every example fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from penstock.contract.avro_types import missing_types
from penstock.contract.avro_values import AvroValues
from penstock.contract.codecs import SchemaProblem, compile_json_schema, first_error
from penstock.contract.document import Contract
from penstock.contract.effort import MAX_EFFORT, effort
from penstock.contract.finding import Report
from penstock.contract.messages import Message, MessageExample, MessageTrait
from penstock.contract.node import JsonValue, Node
from penstock.contract.rules import reading
from penstock.contract.rules import schemas as rules
from penstock.contract.schema import Schema, SchemaFormat

__all__ = ["check_schemas"]

FirstError = Callable[[JsonValue], SchemaProblem | None]
"""Says why a value does not fit a schema."""


def check_schemas(contract: Contract, report: Report) -> None:
    """Report schemas that do not compile and examples that do not fit."""
    users = _users(contract)
    compiled: dict[int, FirstError | None] = {}
    for schema in contract.schemas:
        check = _CHECKS.get(schema.format, _accept)
        compiled[id(schema)] = check(schema, report, users.get(id(schema), ""))
    for message in _messages(contract):
        _check_headers(message, report)
        for example in message.examples:
            _check_example(message, example, compiled, report)


def _check_json(schema: Schema, report: Report, _used_by: str) -> FirstError | None:
    try:
        return partial(first_error, compile_json_schema(schema.definition))
    except SchemaProblem as problem:
        report.add(rules.BAD_JSON_SCHEMA, _inside(schema, problem.path), problem=problem.message)
        return None


def _check_avro(schema: Schema, report: Report, used_by: str) -> FirstError | None:
    unknown = missing_types(schema.definition)
    for each in unknown:
        problem = f"the type {each.name} is not known{_field_at(schema, each.path)}{used_by}"
        simple = each.name.rpartition(".")[2]
        fix = f"correct the name, put the type into this file, or into {simple}.avsc in the same folder"
        report.add(rules.BAD_AVRO, _descend(schema.node, each.path), problem=problem, fix=fix)
    if unknown:
        return None
    try:
        return AvroValues(schema.definition).first_error
    except SchemaProblem as problem:
        report.add(rules.BAD_AVRO, _descend(schema.node, problem.path), problem=problem.message)
        return None


def _field_at(schema: Schema, path: tuple[str | int, ...]) -> str:
    """Name the field that a path inside an Avro schema leads to."""
    at, names = schema.definition, []
    for step in path:
        at = _step(at, step)
        if isinstance(at, dict) and isinstance(at.get("name"), str):
            names.append(str(at["name"]))
    return f", which {'.'.join(names)} uses" if names else ""


def _step(value: JsonValue, step: str | int) -> JsonValue:
    if isinstance(value, dict):
        return value.get(str(step))
    return value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None


def _users(contract: Contract) -> dict[int, str]:
    """Say of each payload and key which message has it."""
    found: dict[int, str] = {}
    for channel_name, channel in contract.channels.items():
        for name, message in channel.messages.items():
            key = message.bindings.kafka.key if message.bindings.kafka is not None else None
            for schema in (message.payload, key):
                found.setdefault(id(schema), f" (message {name} of channel {channel_name})")
    return found


def _accept(_schema: Schema, _report: Report, _used_by: str) -> FirstError | None:
    return None


_CHECKS: Final = {SchemaFormat.JSON: _check_json, SchemaFormat.AVRO: _check_avro}


def _inside(schema: Schema, path: tuple[str | int, ...]) -> Node:
    """Find the node that a path inside the bundled schema means, as deep as it can be followed."""
    at = schema.node
    if path[:1] == ("definitions",) and len(path) > 1 and path[1] in schema.bundled:
        at, path = schema.bundled[str(path[1])], path[2:]
    return _descend(at, path)


def _descend(node: Node, path: tuple[str | int, ...]) -> Node:
    for step in path:
        value = node.value
        if isinstance(value, dict) and step in value:
            node = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            node = value[step]
    return node


def _messages(contract: Contract) -> Iterator[MessageTrait]:
    """Every message and message trait, each once."""
    found: dict[int, MessageTrait] = {}
    components = contract.components
    for group in (components.messages, components.message_traits):
        found |= {id(message): message for message in group.values()}
    for channel in (*contract.channels.values(), *components.channels.values()):
        found |= {id(message): message for message in channel.messages.values()}
    return iter(found.values())


def _check_headers(message: MessageTrait, report: Report) -> None:
    headers = message.headers
    if headers is None or headers.format is not SchemaFormat.JSON:
        return
    kind = headers.definition.get("type") if isinstance(headers.definition, dict) else headers.definition
    if kind not in (None, "object", True):
        report.add(rules.HEADERS_NOT_OBJECT, headers.node)


def _check_example(
    message: MessageTrait, example: MessageExample, compiled: dict[int, FirstError | None], report: Report
) -> None:
    payload = message.payload if isinstance(message, Message) else None
    parts: tuple[tuple[str, Schema | None, JsonValue], ...] = (
        ("headers", message.headers, dict(example.headers) if example.headers is not None else None),
        ("payload", payload, example.payload),
    )
    for part, schema, value in parts:
        check = compiled.get(id(schema))
        if schema is None or check is None or example.node.get(part) is None:
            continue
        if effort(schema.definition, value) > MAX_EFFORT:
            problem_text = "checking this example would take too many steps"
            report.add(reading.TOO_LARGE, example.at(part), problem=problem_text)
            continue
        problem = check(value)
        if problem is not None:
            node = _descend(example.at(part), problem.path)
            report.add(rules.EXAMPLE_BREAKS_SCHEMA, node, part=part, problem=problem.message)
