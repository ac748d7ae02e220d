"""The registry client against a real registry."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from penstock.brokers.rest import Answer, Rest
from penstock.brokers.schema_registry import Registered, SchemaReference, SchemaRegistry, Verdict
from penstock.embedded.registry import Registry
from penstock.errors import ClusterError, ConfigError, Unreachable


def record(*fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": "A", "fields": [{"name": field, "type": "int"} for field in fields]}
    )


@pytest.fixture
def subject() -> str:
    return f"s/{uuid.uuid4().hex[:12]}-value"


@pytest.mark.server
def test_the_life_of_a_subject(registry: Registry, subject: str) -> None:
    with SchemaRegistry({"url": registry.url}) as client:
        assert subject not in client.subjects()
        assert client.latest(subject) is None
        assert client.find(subject, "AVRO", record("x")) is None
        assert client.compatibility(subject) == "NONE"  # Apicurio's default; Confluent's is BACKWARD
        first = client.register(subject, "AVRO", record("x"))
        assert client.register(subject, "AVRO", record("x")) == first
        assert subject in client.subjects()
        assert client.latest(subject) == Registered(version=1, schema_type="AVRO", schema=record("x"))
        client.register(subject, "AVRO", record("x", "y"))
        found = client.find(subject, "AVRO", record("x"))
        assert found is not None
        assert found.version == 1


@pytest.mark.server
def test_a_schema_is_found_by_each_of_its_names(registry: Registry, subject: str) -> None:
    with SchemaRegistry({"url": registry.url}) as client:
        assert client.versions(subject) == ()
        first = client.register(subject, "AVRO", record("x"))
        second = client.register(subject, "AVRO", record("x", "y"))
        assert client.versions(subject) == (1, 2)
        assert [client.version(subject, version).id for version in (1, 2)] == [first, second]
        assert client.version(subject, 3) is None
        assert client.by_id(second).schema == record("x", "y")
        assert client.by_id(2**31 - 1) is None
        assert client.by_id(2**62) is None
        assert client.by_guid(str(uuid.uuid4())) is None
        path = f"/apis/registry/v2/groups/default/artifacts/{quote(subject, safe='')}/meta"
        number = httpx.get(f"{registry.apicurio_url}{path}").json()["globalId"]
        assert json.loads(client.by_global_id(number).schema) == json.loads(record("x", "y"))
        assert client.by_global_id(2**62) is None


@pytest.mark.server
def test_a_schema_names_those_that_it_refers_to(registry: Registry, subject: str) -> None:
    with SchemaRegistry({"url": registry.url}) as client:
        client.register(f"{subject}-inner", "AVRO", record("x"))
        outer = json.dumps({"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]})
        reference = {"name": "A", "subject": f"{subject}-inner", "version": 1}
        body = {"schema": outer, "schemaType": "AVRO", "references": [reference]}
        path = f"/subjects/{quote(subject, safe='')}/versions"
        assert httpx.post(f"{registry.url}{path}", json=body).is_success
        assert client.version(subject, 1).references == ((f"{subject}-inner", 1),)


@pytest.mark.server
@pytest.mark.parametrize(
    ("schema_type", "schema"),
    [
        ("JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "oneOf": [{"type": "object"}]}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A { string id = 1; }\n'),
    ],
)
def test_other_languages(registry: Registry, subject: str, schema_type: str, schema: str) -> None:
    with SchemaRegistry({"url": registry.url}) as client:
        client.register(subject, schema_type, schema)
        assert client.latest(subject) == Registered(version=1, schema_type=schema_type, schema=schema)


@pytest.mark.server
def test_a_refusal_carries_the_reason(registry: Registry) -> None:
    subject = f"{uuid.uuid4().hex[:12]}-value"
    with SchemaRegistry({"url": registry.url}) as client:
        client.register(subject, "AVRO", record("x"))
        httpx.put(f"{registry.url}/config/{subject}", json={"compatibility": "BACKWARD"}).raise_for_status()
        assert client.compatibility(subject) == "BACKWARD"
        assert client.check(subject, "AVRO", record("x")) == Verdict(compatible=True)
        verdict = client.check(subject, "AVRO", record("x", "y"))
        assert not verdict.compatible
        assert "y at /fields/1" in verdict.reason
        assert not client.check(subject, "AVRO", "{").compatible
        with pytest.raises(ClusterError, match=f"schema of {subject}") as refused:
            client.register(subject, "AVRO", record("x", "y"))
        assert "Incompatible" in (refused.value.why or "")


@pytest.mark.server
def test_an_address_that_is_no_registry(registry: Registry) -> None:
    with SchemaRegistry({"url": f"{registry.apicurio_url}/apis/none"}) as client:
        with pytest.raises(ClusterError) as refused:
            client.subjects()
        assert "address" in (refused.value.next or "")


def test_nobody_there() -> None:
    with SchemaRegistry({"url": "http://127.0.0.1:1"}) as client, pytest.raises(Unreachable):
        client.subjects()


def test_references_are_sent_with_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def call(_: Rest, _method: str, _path: str, value: Any = None) -> Answer:
        asked.append(value)
        return Answer(200, {"id": 1, "version": 1, "schema": record("x"), "is_compatible": True})

    monkeypatch.setattr(Rest, "call", call)
    uses = [SchemaReference(name="shop.Item", subject="shop.Item", version=3)]
    with SchemaRegistry({"url": "http://127.0.0.1:1"}) as client:
        for ask in (client.find, client.check, client.register):
            ask("s", "AVRO", record("x"), uses)
            ask("s", "AVRO", record("x"))
    named = [{"name": "shop.Item", "subject": "shop.Item", "version": 3}]
    assert [each.get("references") for each in asked] == [named, None] * 3


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigError, match="address of registry"):
        SchemaRegistry({})
