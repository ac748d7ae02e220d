"""The page about rights: each verb runs with exactly the ACLs of its row, and not without any."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.kafka_records import publish, scan
from penstock.brokers.rest import Rest
from penstock.brokers.tls import tls_context
from penstock.cli.app import main
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"
WORDS = {
    "publish": ["publish", "in", "--type", "t", "--data", "{}"],
    "tail": ["tail", "in", "--from", "beginning", "--until-end"],
    "dlq list": ["dlq", "list"],
    "topics": ["topics", "--server", "k"],
    "plan": ["plan"],
    "drift": ["drift"],
    "apply": ["apply", "--yes"],
    "run --engine loop": ["run", "--engine", "loop", "--once"],
    "doctor": ["doctor"],
}
HARMLESS = {"topics", "plan"}
"""Without any right they show that there is something that may not be seen, and end with 0."""


class Right(NamedTuple):
    kind: ResourceType
    name: str
    operation: AclOperation


ON_PULSAR = {
    "publish": ["publish", "stream", "--type", "t", "--data", "{}"],
    "tail": ["tail", "stream", "--from", "beginning", "--until-end"],
    "doctor": ["doctor"],
}


def permissions() -> dict[str, list[str]]:
    """Read the table for Pulsar: | verb | permissions |."""
    text = PAGE.read_text(encoding="utf-8").partition("## Pulsar")[2]
    return {verb: words.split(", ") for verb, words in re.findall(r"^\| `(.+?)` \| (.+?) \|$", text, re.M)}


def rows() -> dict[str, list[Right]]:
    """Read the table for Kafka: | verb | resource | operations |, one line a resource."""
    text = PAGE.read_text(encoding="utf-8").partition("## Kafka")[2].partition("\n## ")[0]
    found: dict[str, list[Right]] = {}
    for verbs, resource, operations in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text, re.M):
        if "`" not in verbs:
            continue
        kind, name = _RESOURCES[resource]
        for verb in re.findall(r"`(.+?)`", verbs):
            found.setdefault(verb, []).extend(
                Right(kind, name, getattr(AclOperation, _upper(each))) for each in operations.split(", ")
            )
    return found


def _upper(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()


_RESOURCES = {
    "the topic": (ResourceType.TOPIC, "PREFIX-in"),
    "the source": (ResourceType.TOPIC, "PREFIX-in"),
    "the target": (ResourceType.TOPIC, "PREFIX-out"),
    "the dead-letter topic": (ResourceType.TOPIC, "PREFIX-dead"),
    "the topics of the contract": (ResourceType.TOPIC, "PREFIX"),
    "the group": (ResourceType.GROUP, "PREFIX-group"),
    "transactional ids that begin with the group": (ResourceType.TRANSACTIONAL_ID, "PREFIX-group"),
    "the cluster": (ResourceType.BROKER, "kafka-cluster"),
}


@pytest.fixture(scope="module")
def prefix(secured_kafka: Kafka) -> str:
    made = f"r{uuid.uuid4().hex[:8]}"
    admin = KafkaAdmin(secured_kafka.client_options())
    for name in ("in", "out", "dead"):
        admin.create_topic(f"{made}-{name}", partitions=1, replicas=1, settings={})
    return made


@pytest.fixture
def admin(secured_kafka: Kafka) -> Iterator[AdminClient]:
    client = AdminClient(secured_kafka.client_options())
    yield client
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:guest",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    client.delete_acls([every])[every].result(30)


def grant(admin: AdminClient, prefix: str, rights: list[Right]) -> None:
    made = [
        AclBinding(
            right.kind,
            right.name.replace("PREFIX", prefix),
            ResourcePatternType.PREFIXED if "PREFIX" in right.name else ResourcePatternType.LITERAL,
            "User:guest",
            "*",
            right.operation,
            AclPermissionType.ALLOW,
        )
        for right in rights
    ]
    for future in admin.create_acls(made).values():
        future.result(30)


def write(folder: Path, kafka: Kafka, prefix: str) -> None:
    (folder / ".git").mkdir()
    server = [{"$ref": "#/servers/k"}]
    dead = {"$ref": "#/channels/dead"}
    names = {
        "in": {"address": f"{prefix}-in", "servers": server, "x-penstock-dead-letter": dead},
        "out": {"address": f"{prefix}-out", "servers": server},
        "dead": {"address": f"{prefix}-dead", "servers": server},
    }
    group = {"bindings": {"kafka": {"groupId": {"type": "string", "const": f"{prefix}-group"}}}}
    files = {
        "asyncapi": {
            "asyncapi": "3.0.0",
            "info": {"title": "t", "version": "1"},
            "servers": {"k": {"host": kafka.bootstrap, "protocol": "kafka-secure"}},
            "channels": names,
            "operations": {
                "onIn": {"action": "receive", "channel": {"$ref": "#/channels/in"}, **group},
                "toOut": {"action": "send", "channel": {"$ref": "#/channels/out"}},
            },
        },
        "pipeline": {"routes": {"r": {"receive": "onIn", "send": "toOut"}}},
        "penstock": {
            "context": "c",
            "contexts": {
                "c": {
                    "servers": {
                        "k": {
                            "kind": "kafka",
                            "address": kafka.bootstrap,
                            "security": {
                                "protocol": "sasl_ssl",
                                "mechanism": "scram-sha-512",
                                "username": "guest",
                                "password": kafka.password("guest"),
                                "ca_file": str(kafka.ca_file),
                            },
                        }
                    }
                }
            },
        },
    }
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


@pytest.mark.parametrize("verb", WORDS)
def test_a_verb_runs_with_the_rights_of_its_row(
    verb: str,
    prefix: str,
    admin: AdminClient,
    secured_kafka: Kafka,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(isolated_home, secured_kafka, prefix)
    if verb not in HARMLESS:
        assert main(WORDS[verb]) == 1
        assert re.search(r"may not (do this|be seen)", " ".join("".join(capsys.readouterr()).split()))
    grant(admin, prefix, rows()[verb])
    if verb.startswith("run"):
        headers = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type"))
        records = [KafkaRecord(value=b"{}", headers=each, topic=f"{prefix}-in") for each in (headers, ())]
        publish(secured_kafka.client_options(), records)
    code = main(WORDS[verb])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    if verb.startswith("run"):
        assert all(list(scan(secured_kafka.client_options(), f"{prefix}-{name}")) for name in ("out", "dead"))


@pytest.fixture(scope="module")
def tenant(secured_pulsar: Pulsar) -> Iterator[tuple[str, Rest]]:
    """Make a tenant with a namespace and a topic, and give a client that may do everything."""
    tls = tls_context(ca_file=str(secured_pulsar.ca_file), cert_file=None, key_file=None, key_password=None)
    token = f"Bearer {secured_pulsar.token()}"
    rest = Rest(f"{secured_pulsar.admin_url}/admin/v2", name="p", authorization=token, tls=tls)
    name = f"r{uuid.uuid4().hex[:8]}"
    assert rest.call("PUT", f"/tenants/{name}", {"adminRoles": [], "allowedClusters": ["standalone"]}).ok
    assert rest.call("PUT", f"/namespaces/{name}/shop", {}).ok
    assert rest.call("PUT", f"/persistent/{name}/shop/stream/partitions", 1).ok
    yield name, rest
    rest.close()


@pytest.mark.parametrize("verb", ON_PULSAR)
def test_a_verb_runs_with_the_permissions_of_its_row(
    verb: str,
    tenant: tuple[str, Rest],
    secured_pulsar: Pulsar,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert permissions().keys() == ON_PULSAR.keys()
    name, rest = tenant
    role = f"role-{uuid.uuid4().hex[:6]}"
    (isolated_home / ".git").mkdir()
    binding = {"pulsar": {"namespace": "shop", "persistence": "persistent"}}
    channel = {"address": "stream", "servers": [{"$ref": "#/servers/p"}], "bindings": binding}
    host = secured_pulsar.service_url.partition("://")[2]
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {"p": {"host": host, "protocol": "pulsar+ssl", "bindings": {"pulsar": {"tenant": name}}}},
        "channels": {"stream": channel},
    }
    security = {"token": secured_pulsar.token(role), "ca_file": str(secured_pulsar.ca_file)}
    server = {"address": secured_pulsar.service_url, "admin": secured_pulsar.admin_url, "security": security}
    settings = {"context": "c", "contexts": {"c": {"servers": {"p": server}}}}
    for file, content in (("asyncapi", contract), ("penstock", settings)):
        (isolated_home / f"{file}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert main(ON_PULSAR[verb]) == 1
    assert "may not do this" in " ".join("".join(capsys.readouterr()).split())
    assert rest.call("POST", f"/namespaces/{name}/shop/permissions/{role}", permissions()[verb]).ok
    code = main(ON_PULSAR[verb])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
