"""The page about rights: each verb runs with exactly the ACLs of its row, and not without any."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
    "dlq show": ["dlq", "show", "LETTER"],
    "dlq restore": ["dlq", "restore", "--id", "LETTER", "--yes"],
    "groups": ["groups", "--server", "k"],
    "groups reset": ["groups", "reset", "PREFIX-group", "--topic", "PREFIX-in", "--to", "earliest", "--yes"],
    "topics": ["topics", "--server", "k"],
    "plan": ["plan"],
    "drift": ["drift"],
    "apply": ["apply", "--yes"],
    "run --engine loop": ["run", "--engine", "loop", "--once"],
    "run": ["run", "--engine", "fused", "--once"],
    "run --engine columns": ["run", "--engine", "columns", "--once"],
    "doctor": ["doctor"],
}
HARMLESS = {"topics", "plan", "groups", "groups reset"}
"""Without any right they show that there is something that may not be seen, or do not find it."""
HOME = os.environ.get("PENSTOCK_HOME")


class Right(NamedTuple):
    kind: ResourceType
    name: str
    operation: AclOperation


ON_PULSAR = {
    "publish": ["publish", "stream", "--type", "t", "--data", "{}"],
    "tail": ["tail", "stream", "--from", "beginning", "--until-end"],
    "doctor": ["doctor"],
    "topics": ["topics", "--server", "p"],
    "groups": ["groups", "--server", "p"],
    "groups reset": [
        *("groups", "reset", "reader", "--server", "p", "--topic", "persistent://TENANT/shop/stream"),
        *("--to", "earliest", "--yes"),
    ],
    "plan": ["plan", "--server", "p"],
    "drift": ["drift", "--server", "p"],
    "apply": ["apply", "--server", "p", "--yes"],
    "run": ["run", "--once"],
}
ADMINISTRATOR = "administrator of the tenant"


def permissions() -> dict[str, list[str]]:
    """Read the table for Pulsar: | verb | permissions |."""
    text = PAGE.read_text(encoding="utf-8").partition("## Pulsar")[2]
    table = re.findall(r"^\| (`.+?`) \| (.+?) \|$", text, re.M)
    return {verb: words.split(", ") for verbs, words in table for verb in re.findall(r"`(.+?)`", verbs)}


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
    "groups that begin with the group": (ResourceType.GROUP, "PREFIX-group"),
    "groups that begin with `penstock.`": (ResourceType.GROUP, "penstock."),
    "transactional ids that begin with `penstock.`": (ResourceType.TRANSACTIONAL_ID, "penstock."),
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
            ResourcePatternType.LITERAL
            if right.kind is ResourceType.BROKER
            else ResourcePatternType.PREFIXED,
            "User:guest",
            "*",
            right.operation,
            AclPermissionType.ALLOW,
        )
        for right in rights
    ]
    for future in admin.create_acls(made).values():
        future.result(30)


def write(folder: Path, kafka: Kafka, prefix: str, user: str = "guest") -> None:
    (folder / ".git").mkdir(exist_ok=True)
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
                                "username": user,
                                "password": kafka.password(user),
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


@pytest.mark.parametrize(
    "verb",
    [pytest.param(verb, marks=pytest.mark.soak if verb == "run --engine columns" else ()) for verb in WORDS],
)
def test_a_verb_runs_with_the_rights_of_its_row(
    verb: str,
    prefix: str,
    admin: AdminClient,
    secured_kafka: Kafka,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    letter = ""
    if verb.startswith(("dlq", "groups")):
        letter = read_before(isolated_home, secured_kafka, prefix, capsys)
    words = [word.replace("PREFIX", prefix).replace("LETTER", letter) for word in WORDS[verb]]
    write(isolated_home, secured_kafka, prefix)
    if verb not in HARMLESS:
        assert main(words) == 1
        assert re.search(r"may not (do this|be seen)", " ".join("".join(capsys.readouterr()).split()))
    grant(admin, prefix, rows()[verb])
    before = [len(list(scan(secured_kafka.client_options(), f"{prefix}-{name}"))) for name in ("out", "dead")]
    if verb.startswith("run"):
        produce(secured_kafka, prefix)
    run = main if verb == "run --engine loop" or not verb.startswith("run") else apart
    code = run(words)
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    if verb == "groups":
        assert f"{prefix}-group" in said.out
    if verb.startswith("run"):
        found = [
            len(list(scan(secured_kafka.client_options(), f"{prefix}-{name}"))) for name in ("out", "dead")
        ]
        assert all(now > then for now, then in zip(found, before, strict=True))
        assert "not committed" not in said.err


def produce(kafka: Kafka, prefix: str) -> None:
    """Write an event, and a record that is none and becomes a dead letter."""
    headers = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type"))
    records = [KafkaRecord(value=b"{}", headers=each, topic=f"{prefix}-in") for each in (headers, ())]
    publish(kafka.client_options(), records)


def read_before(folder: Path, kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Let an administrator run the route, so that there are a group and a dead letter; give its id."""
    write(folder, kafka, prefix, user="admin")
    produce(kafka, prefix)
    assert main(WORDS["run --engine loop"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["dlq", "list", "--each", "-o", "json"]) == 0
    return str(json.loads(capsys.readouterr().out)[-1]["id"])


def apart(words: list[str]) -> int:
    """Run a verb that starts Spark in a process of its own, with the jars of this machine."""
    environment = {name: text for name, text in os.environ.items() if name != "PENSTOCK_HOME"}
    environment |= {"PENSTOCK_HOME": HOME} if HOME is not None else {}
    command = [sys.executable, "-m", "penstock.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


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
    assert rest.call("PUT", f"/persistent/{name}/shop/stream-partition-0/subscription/reader").ok
    yield name, rest
    rest.close()


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.soak if verb == "run" else ()) for verb in ON_PULSAR]
)
def test_a_verb_runs_with_the_permissions_of_its_row(
    verb: str,
    tenant: tuple[str, Rest],
    secured_pulsar: Pulsar,
    kafka: Kafka,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert permissions().keys() == ON_PULSAR.keys()
    name, rest = tenant
    role = f"role-{uuid.uuid4().hex[:6]}"
    source = f"{name}-{role}"
    KafkaAdmin(kafka.client_options()).create_topic(source, partitions=1, replicas=1, settings={})
    write_pulsar(isolated_home, secured_pulsar, kafka, name, role, source)
    words = [word.replace("TENANT", name) for word in ON_PULSAR[verb]]
    code = main(words)
    said = " ".join("".join(capsys.readouterr()).split())
    assert code == (0 if verb == "plan" else 1), said
    assert re.search(r"may not (do this|be seen)", said)
    allow(rest, name, role, permissions()[verb])
    if verb == "run":
        headers = tuple((f"ce_{each}", b"1.0") for each in ("specversion", "id", "source", "type"))
        publish(kafka.client_options(), [KafkaRecord(value=b"{}", headers=headers, topic=source)])
    code = (apart if verb == "run" else main)(words)
    shown = capsys.readouterr()
    assert code == 0, shown.out + shown.err
    assert "may not" not in shown.out + shown.err


def allow(rest: Rest, tenant: str, role: str, permissions: list[str]) -> None:
    if permissions != [ADMINISTRATOR]:
        assert rest.call("POST", f"/namespaces/{tenant}/shop/permissions/{role}", permissions).ok
        return
    body = {"adminRoles": [role], "allowedClusters": ["standalone"]}
    assert rest.call("POST", f"/tenants/{tenant}", body).ok


def write_pulsar(folder: Path, pulsar: Pulsar, kafka: Kafka, tenant: str, role: str, source: str) -> None:
    (folder / ".git").mkdir()
    binding = {"pulsar": {"namespace": "shop", "persistence": "persistent"}}
    host = pulsar.service_url.partition("://")[2]
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {
            "p": {"host": host, "protocol": "pulsar+ssl", "bindings": {"pulsar": {"tenant": tenant}}},
            "k": {"host": kafka.bootstrap, "protocol": "kafka"},
        },
        "channels": {
            "stream": {"address": "stream", "servers": [{"$ref": "#/servers/p"}], "bindings": binding},
            "in": {
                "address": source,
                "servers": [{"$ref": "#/servers/k"}],
                "x-penstock-dead-letter": {"$ref": "#/channels/stream"},
            },
        },
        "operations": {
            "onIn": {"action": "receive", "channel": {"$ref": "#/channels/in"}},
            "toStream": {"action": "send", "channel": {"$ref": "#/channels/stream"}},
        },
    }
    pipeline = {"routes": {"r": {"receive": "onIn", "send": "toStream"}}}
    security = {"token": pulsar.token(role), "ca_file": str(pulsar.ca_file)}
    servers = {
        "p": {"address": pulsar.service_url, "admin": pulsar.admin_url, "security": security},
        "k": {"kind": "kafka", "address": kafka.bootstrap},
    }
    settings = {"context": "c", "contexts": {"c": {"servers": servers}}}
    for file, content in (("asyncapi", contract), ("penstock", settings), ("pipeline", pipeline)):
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
