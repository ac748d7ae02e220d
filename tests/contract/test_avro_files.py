"""Avro schemas that use named types of other files: found, made whole, and registered with references."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from time import process_time
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import schemaless_reader, schemaless_writer

from penstock.brokers.schema_registry import SchemaRegistry
from penstock.contract import Validation, load, resolve, validate
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.avro_types import AvroImport, imports_of
from penstock.contract.codecs import parse_avro
from penstock.contract.desired import Desired, desired_state
from penstock.contract.memory import MemoryClusters
from penstock.contract.plan import Plan, make_plan
from penstock.contract.plan_text import short
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.schema import Schema
from penstock.contract.schema_ids import decode_payload, encode_payload
from penstock.embedded.registry import Registry
from penstock.pipeline.typed.avro_schema import parsed
from penstock.pipeline.typed.schemas import Schemas

CART: dict[str, Any] = {
    "type": "record",
    "name": "ShoppingCart",
    "namespace": "com.shop",
    "fields": [{"name": "lines", "type": {"type": "array", "items": "com.shop.parts.Line"}}],
}
LINE: dict[str, Any] = {
    "type": "record",
    "name": "com.shop.parts.Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "kind", "type": ["null", "Kind"], "default": None},
    ],
}
KIND = {"type": "enum", "name": "Kind", "namespace": "com.shop.parts", "symbols": ["BOOK", "TOY"]}
CHECKED_OUT = {
    "type": "record",
    "name": "CheckedOut",
    "namespace": "com.shop",
    "fields": [
        {"name": "cart", "type": "ShoppingCart"},
        {"name": "before", "type": ["null", "com.shop.ShoppingCart"], "default": None},
        {"name": "kind", "type": "com.shop.parts.Kind"},
    ],
}
FILES = {"CheckedOut": CHECKED_OUT, "ShoppingCart": CART, "Line": LINE, "Kind": KIND}
VALUE = {"cart": {"lines": [{"sku": "a", "kind": {"com.shop.parts.Kind": "TOY"}}]}, "kind": "BOOK"}


def document(*paths: str, example: Any = VALUE) -> dict[str, Any]:
    messages = {}
    for number, path in enumerate(paths):
        payload = {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": {"$ref": path}}
        binding = {"kafka": {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "4"}}
        messages[f"m{number}"] = {"payload": payload, "bindings": binding, "x-penstock-type": f"t{number}"}
    messages["m0"]["examples"] = [{"payload": example}]
    registry = {"schemaRegistryUrl": "http://registry.example"}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {"k": {"host": "k:9092", "protocol": "kafka", "bindings": {"kafka": registry}}},
        "channels": {"c": {"address": "carts", "messages": messages}},
        "operations": {
            name: {"action": action, "channel": {"$ref": "#/channels/c"}}
            for name, action in (("on", "receive"), ("to", "send"))
        },
    }


def write(folder: Path, files: dict[str, Any], *paths: str, **more: Any) -> Path:
    for name, content in files.items():
        path = folder / f"{name}.avsc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    path = folder / "asyncapi.json"
    path.write_text(json.dumps(document(*(paths or ("CheckedOut.avsc",)), **more)))
    return path


def payload_of(result: Validation, message: str = "m0") -> Schema:
    assert result.contract is not None
    payload = result.contract.channels["c"].messages[message].payload
    assert payload is not None
    return payload


@pytest.mark.parametrize(
    "files",
    [
        FILES,
        # One file for several types, with a name of its own; a type that is defined inside another one.
        {
            "CheckedOut": CHECKED_OUT,
            "types": {**CART, "fields": [{"name": "lines", "type": LINE}]},
            "Kind": KIND,
        },
        # A file that nobody needs and that cannot be read is nobody's business.
        {**FILES, "Broken": "{"},
        # Names in full, as some tools call the files.
        {"CheckedOut": CHECKED_OUT, "com.shop.ShoppingCart": CART, "com.shop.parts.Line": LINE, "Kind": KIND},
    ],
    ids=["beside", "inside", "broken sibling", "full names"],
)
def test_types_of_files_beside_are_found(tmp_path: Path, files: dict[str, Any]) -> None:
    example: Any = VALUE
    if "types" in files:
        files = json.loads(json.dumps(files))
        files["types"]["fields"][0]["type"] = {"type": "array", "items": files["types"]["fields"][0]["type"]}
    result = validate(write(tmp_path, files, example=example))
    assert [finding.message for finding in result.findings] == []
    payload = payload_of(result)
    parse_avro(payload.definition)  # it is complete in itself
    assert payload.written == CHECKED_OUT


def test_a_type_inside_another_one_keeps_its_namespace(tmp_path: Path) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "a.b", "fields": [{"name": "i", "type": inner}]}
    main = {
        "type": "record",
        "name": "Main",
        "namespace": "com.shop",
        "fields": [{"name": "one", "type": "a.b.Inner"}, {"name": "all", "type": "a.b.Outer"}],
    }
    example = {"one": {"n": 1}, "all": {"i": {"n": 2}}}
    result = validate(write(tmp_path, {"Main": main, "Outer": outer}, "Main.avsc", example=example))
    assert [finding.message for finding in result.findings] == []
    payload = payload_of(result)
    names: dict[str, Any] = {}
    parse_avro(payload.definition, names)
    assert set(names) == {"com.shop.Main", "a.b.Inner", "a.b.Outer"}
    assert [each.name for each in payload.imports] == ["a.b.Outer"]


def test_what_is_referred_to_comes_first(tmp_path: Path) -> None:
    payload = payload_of(validate(write(tmp_path, FILES)))
    names = [each.name for each in payload.imports]
    assert set(names) == {"com.shop.ShoppingCart", "com.shop.parts.Line", "com.shop.parts.Kind"}
    assert names.index("com.shop.parts.Kind") < names.index("com.shop.parts.Line")
    assert names.index("com.shop.parts.Line") < names.index("com.shop.ShoppingCart")
    uses = {each.name: each.uses for each in payload.imports}
    assert uses["com.shop.ShoppingCart"] == ("com.shop.parts.Line",)
    known: dict[str, Any] = {}
    for each in payload.imports:
        parse_avro(each.definition, known)
    parse_avro(payload.written, known)


def test_types_of_files_that_the_document_refers_to_are_found(tmp_path: Path) -> None:
    files = {"a/CheckedOut": CHECKED_OUT, "b/ShoppingCart": CART, "b/Line": LINE, "b/Kind": KIND}
    result = validate(write(tmp_path, files, "a/CheckedOut.avsc", "b/ShoppingCart.avsc", "b/Kind.avsc"))
    assert [finding.message for finding in result.findings] == []
    fingerprint = result.contract.fingerprint if result.contract else ""
    (tmp_path / "b" / "Line.avsc").write_text(json.dumps({**LINE, "doc": "changed"}))
    changed = validate(tmp_path / "asyncapi.json").contract
    assert changed is not None and changed.fingerprint != fingerprint


def test_a_type_that_is_nowhere_is_named_with_its_field_and_message(tmp_path: Path) -> None:
    path = write(tmp_path, {"CheckedOut": CHECKED_OUT, "ShoppingCart": CART, "Kind": KIND})
    (tmp_path / "CheckedOut.avsc").write_text(json.dumps(CHECKED_OUT, indent=1))
    (finding,) = validate(path).errors
    assert finding.message == (
        "the schema is not valid Avro: the type com.shop.parts.Line is not known, which "
        "cart.ShoppingCart.lines uses (message m0 of channel c)"
    )
    assert "Line.avsc in the same folder" in finding.fix
    assert finding.position.file == str(tmp_path / "CheckedOut.avsc")
    assert finding.position.line > 1  # the field, not the file


def test_a_file_named_like_the_type_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    found = validate(write(tmp_path, {**FILES, "Line": "{"})).errors
    assert {(each.rule.id, Path(each.position.file).name) for each in found} == {
        ("PK201", "Line.avsc"),
        ("PK272", "CheckedOut.avsc"),
    }


def test_types_outside_the_root_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "contract"
    path = write(folder, {"CheckedOut": CHECKED_OUT, "ShoppingCart": CART, "Kind": KIND})
    (tmp_path / "Line.avsc").write_text(json.dumps(LINE))
    (folder / "Line.avsc").symlink_to(tmp_path / "Line.avsc")
    assert "PK272" in {each.rule.id for each in validate(path).errors}


def test_files_that_use_each_other_are_one_schema(tmp_path: Path) -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "leaves", "type": {"type": "array", "items": "Leaf"}}],
    }
    leaf = {"type": "record", "name": "Leaf", "fields": [{"name": "up", "type": ["null", "Tree"]}]}
    result = validate(write(tmp_path, {"Tree": tree, "Leaf": leaf}, "Tree.avsc", example={"leaves": []}))
    assert [finding.message for finding in result.findings] == []
    payload = payload_of(result)
    parse_avro(payload.definition)
    assert (payload.written, payload.imports) == (None, ())


def record(name: str, **fields: Any) -> dict[str, Any]:
    made = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": made}


MONEY = record("a.Money", cents="long")


@pytest.mark.parametrize(
    "types",
    [
        [MONEY, {"type": "enum", "name": "a.Currency", "symbols": ["EUR"]}],
        {"type": "array", "items": MONEY},
        {"type": "array", "name": "a.Money", "items": MONEY},
        {"type": "map", "values": MONEY},
        {"type": MONEY},
    ],
    ids=["union", "array", "named array", "map", "nested"],
)
def test_types_of_a_file_without_a_name_are_a_part_of_the_schema(tmp_path: Path, types: Any) -> None:
    files = {"Order": record("a.Order", price="a.Money"), "types": types}
    path = write(tmp_path, files, "Order.avsc", example={"price": {"cents": 1}})
    result = validate(path)
    assert [finding.message for finding in result.findings] == []
    payload = payload_of(result)
    parse_avro(payload.definition)
    assert (payload.written, payload.imports) == (None, ())
    assert [each.subject for each in desired_of(path).subjects] == ["carts-value"]


def test_a_type_that_two_files_define_is_a_part_of_the_schema(tmp_path: Path) -> None:
    files = {
        "Order": record("a.Order", note="a.Note", lines="a.Line"),
        "Line": record("a.Line", price=MONEY),
        "Money": record("a.Money", cents="long", note=record("a.Note", text="string")),
    }
    example = {"note": {"text": "x"}, "lines": {"price": {"cents": 1}}}
    result = validate(write(tmp_path, files, "Order.avsc", example=example))
    assert [finding.message for finding in result.findings] == []
    payload = payload_of(result)
    parse_avro(payload.definition)
    assert (payload.written, payload.imports) == (None, ())


def test_an_import_has_the_definition_of_its_own_file(tmp_path: Path) -> None:
    inner = record("a.Money", cents="long")
    files: dict[str, Any] = {"a.Note": record("a.Money", note=record("a.Note", text="string"))}
    files["a.Money"] = files["a.Line"] = record("a.Line", price=inner)
    assert imports_of(record("a.Order", note="a.Note"), files) == (
        AvroImport(name="a.Money", definition=files["a.Note"]),
    )
    assert imports_of(record("a.Order", note="a.Note", line="a.Line"), files) is None
    assert imports_of(record("a.Order", own=inner, line="a.Line"), files) is None


@pytest.mark.parametrize(("length", "rules"), [(20, {"PK270"}), (60, {"PK203"}), (600, {"PK203"})])
def test_a_chain_of_many_files_is_bounded(tmp_path: Path, length: int, rules: set[str]) -> None:
    chain: dict[str, Any] = {
        f"T{n}": {"type": "record", "name": f"T{n}", "fields": [{"name": "next", "type": f"T{n + 1}"}]}
        for n in range(length)
    }
    chain[f"T{length}"] = {"type": "fixed", "name": f"T{length}", "size": 1}
    result = validate(write(tmp_path, chain, "T0.avsc", example={}))
    assert {finding.rule.id for finding in result.errors} == rules


def test_many_unknown_names_are_looked_for_once(tmp_path: Path) -> None:
    fields = [{"name": f"f{n}", "type": f"Unknown{n}"} for n in range(5_000)]
    files: dict[str, Any] = {f"T{n}": {"type": "fixed", "name": f"T{n}", "size": 1} for n in range(200)}
    files["Main"] = {"type": "record", "name": "Main", "fields": fields}
    path = write(tmp_path, files, "Main.avsc", example={})
    started = process_time()
    result = validate(path)
    assert {finding.rule.id for finding in result.errors} == {"PK272"}
    assert process_time() - started < 20


def desired_of(path: Path) -> Desired:
    return desired_state(load(path))


def planned(desired: Desired, clusters: Clusters) -> Plan:
    return make_plan(desired, read_actual(desired, clusters))


def schemas_of(plan: Plan) -> list[str]:
    return [short(step) for step in plan.steps if step.kind == "register-schema"]


def test_types_are_registered_before_those_that_use_them(tmp_path: Path) -> None:
    path, clusters = write(tmp_path, FILES), MemoryClusters()
    plan = planned(desired_of(path), clusters)
    assert schemas_of(plan) == [
        "+ schema com.shop.parts.Kind v1, AVRO",
        "+ schema com.shop.parts.Line v1, AVRO, refers to com.shop.parts.Kind",
        "+ schema com.shop.ShoppingCart v1, AVRO, refers to com.shop.parts.Line",
        "+ schema carts-value v1, AVRO, refers to com.shop.ShoppingCart and com.shop.parts.Kind",
    ]
    assert execute(plan.steps, clusters).error is None
    held = clusters.registry("k").state
    assert json.loads(held["carts-value"][0].schema) == CHECKED_OUT
    assert set(held["carts-value"][0].references) == {
        ("com.shop.ShoppingCart", 1),
        ("com.shop.parts.Kind", 1),
    }
    assert planned(desired_of(path), clusters).steps == ()


def test_a_new_version_of_a_type_is_one_of_its_users_too(tmp_path: Path) -> None:
    path, clusters = write(tmp_path, FILES), MemoryClusters()
    execute(planned(desired_of(path), clusters).steps, clusters)
    changed = {**LINE, "fields": [*LINE["fields"], {"name": "note", "type": "string", "default": ""}]}
    (tmp_path / "Line.avsc").write_text(json.dumps(changed))
    plan = planned(desired_of(path), clusters)
    assert [line.split()[2] for line in schemas_of(plan)] == [
        "com.shop.parts.Line",
        "com.shop.ShoppingCart",
        "carts-value",
    ]
    # Stopped after the first step, the rest of the same plan is still the same.
    execute(plan.steps[:1], clusters)
    assert set(planned(desired_of(path), clusters).steps) == set(plan.steps[1:])
    execute(planned(desired_of(path), clusters).steps, clusters)
    assert planned(desired_of(path), clusters).steps == ()
    newest = clusters.registry("k").state["com.shop.ShoppingCart"][-1]
    assert newest.references == (("com.shop.parts.Line", 2),)


def test_messages_of_one_subject_refer_to_the_types_of_all(tmp_path: Path) -> None:
    fields = [{"name": "line", "type": "com.shop.parts.Line"}]
    other = {"type": "record", "name": "Left", "namespace": "com.shop", "fields": fields}
    path = write(tmp_path, {**FILES, "Left": other}, "CheckedOut.avsc", "Left.avsc")
    (wanted,) = [each for each in desired_of(path).subjects if each.subject == "carts-value"]
    assert json.loads(wanted.schema) == [CHECKED_OUT, other]
    assert set(wanted.uses) == {"com.shop.ShoppingCart", "com.shop.parts.Kind", "com.shop.parts.Line"}


def test_two_files_that_define_a_type_differently_are_refused(tmp_path: Path) -> None:
    files = {
        "a/CheckedOut": CHECKED_OUT,
        "a/ShoppingCart": CART,
        "a/Line": LINE,
        "a/Kind": KIND,
        "b/Toy": {
            "type": "record",
            "name": "Toy",
            "fields": [{"name": "kind", "type": "com.shop.parts.Kind"}],
        },
        "b/Kind": {**KIND, "symbols": ["TOY"]},
    }
    path = write(tmp_path, files, "a/CheckedOut.avsc", "b/Toy.avsc")
    document_ = json.loads(path.read_text())
    messages = document_["channels"]["c"]["messages"]
    document_["channels"]["d"] = {"address": "toys", "messages": {"m1": messages.pop("m1")}}
    path.write_text(json.dumps(document_))
    problems = {each.subject: each.problem for each in desired_of(path).subjects}
    assert problems["com.shop.parts.Kind"] == "two files define the type differently"
    assert all("com.shop.parts.Kind" in problems[name] for name in ("carts-value", "toys-value"))


@dataclass(frozen=True)
class WithRegistry:
    """Kafka in memory beside a real registry."""

    memory: MemoryClusters
    schemas: SchemaRegistry

    def kafka(self, server: str) -> KafkaPort:
        return self.memory.kafka(server)

    def pulsar(self, server: str) -> PulsarPort:
        return self.memory.pulsar(server)

    def registry(self, server: str) -> RegistryPort:
        return self.schemas


@pytest.mark.server
def test_on_a_real_registry(tmp_path: Path, registry: Registry) -> None:
    mark = f"m{uuid4().hex[:8]}"

    def own(content: Any) -> Any:
        """Give every type and topic of this test a name of its own."""
        text = content if isinstance(content, str) else json.dumps(content)
        renamed = text.replace("com.shop", f"com.{mark}").replace('"carts"', f'"{mark}.carts"')
        return json.loads(renamed.replace("http://registry.example", registry.url))

    path = write(tmp_path, {name: own(content) for name, content in FILES.items()})
    path.write_text(json.dumps(own(path.read_text())))
    with SchemaRegistry({"url": registry.url}) as client:
        clusters = WithRegistry(MemoryClusters(), client)
        plan = planned(desired_of(path), clusters)
        assert len(schemas_of(plan)) == 4
        outcome = execute(plan.steps, clusters)
        assert outcome.error is None, outcome.error
        assert planned(desired_of(path), clusters).steps == ()
        main = client.latest(f"{mark}.carts-value")
        assert main is not None and json.loads(main.schema) == own(CHECKED_OUT)
        assert set(main.references) == {(f"com.{mark}.ShoppingCart", 1), (f"com.{mark}.parts.Kind", 1)}

        # What a route writes, a client that knows nothing of Penstock reads, and Penstock too.
        contract = load(path)
        operation, schemas = resolve(contract, "to"), Schemas()
        written = schemas.written(contract, operation, operation.messages[0])
        assert written is not None
        value = {"cart": {"lines": [{"sku": "a", "kind": "TOY"}]}, "before": None, "kind": "BOOK"}
        body = BytesIO()
        schemaless_writer(body, parsed(written.schema), value)
        payload = encode_payload(written.schema_id, body.getvalue())
        with SchemaRegistryClient({"url": registry.url}) as other:
            foreign = AvroDeserializer(other)
            assert foreign(payload, SerializationContext("x", MessageField.VALUE)) == value
        known = schemas.table(resolve(contract, "on")).get(decode_payload(payload)[0])
        assert schemaless_reader(BytesIO(body.getvalue()), parsed(known), None) == value
        assert planned(desired_of(path), clusters).steps == ()

        changed = own(
            {**LINE, "fields": [{"name": "note", "type": "string", "default": ""}, *LINE["fields"]]}
        )
        (tmp_path / "Line.avsc").write_text(json.dumps(changed))
        plan = planned(desired_of(path), clusters)
        assert len(schemas_of(plan)) == 3
        outcome = execute(plan.steps, clusters)
        assert outcome.error is None, outcome.error
        assert planned(desired_of(path), clusters).steps == ()
        # An event that was written before is read as the contract has it now.
        late = Schemas().table(resolve(load(path), "on"))
        assert parsed(late.get(written.schema_id)) == parsed(known)
