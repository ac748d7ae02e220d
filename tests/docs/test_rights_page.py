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
from typing import Any, NamedTuple

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
from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_records import publish, scan
from penstock.brokers.rest import Rest
from penstock.brokers.tls import tls_context
from penstock.cli.app import main
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery.progress import TOPIC as PROGRESS
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
    "run": ["run", "--once"],
    "doctor": ["doctor"],
    "routes --sample": ["routes", "--explain", "--sample", "10"],
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
    "routes --sample": ["routes", "--explain", "--sample", "10", "from-pulsar.yaml"],
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
    return with_topics(secured_kafka)


@pytest.fixture
def own_prefix(secured_kafka: Kafka) -> str:
    """One for a test whose pipeline is another one, to which the group of the others does not belong."""
    return with_topics(secured_kafka)


def with_topics(kafka: Kafka) -> str:
    """Make topics for a project, and give what their names begin with."""
    made = f"r{uuid.uuid4().hex[:8]}"
    admin = KafkaAdmin(kafka.client_options())
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


@pytest.mark.parametrize("verb", WORDS)
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
            "onStream": {"action": "receive", "channel": {"$ref": "#/channels/stream"}},
            "toIn": {"action": "send", "channel": {"$ref": "#/channels/in"}},
        },
    }
    back = {"routes": {"r": {"receive": "onStream", "send": "toIn", "delivery": {"deadLetterSink": "in"}}}}
    pipeline = {"routes": {"r": {"receive": "onIn", "send": "toStream"}}}
    security = {"token": pulsar.token(role), "ca_file": str(pulsar.ca_file)}
    servers = {
        "p": {"address": pulsar.service_url, "admin": pulsar.admin_url, "security": security},
        "k": {"kind": "kafka", "address": kafka.bootstrap},
    }
    settings = {"context": "c", "contexts": {"c": {"servers": servers}}}
    files = {"asyncapi": contract, "penstock": settings, "pipeline": pipeline, "from-pulsar": back}
    for file, content in files.items():
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def test_a_platform_team_makes_the_progress_topic_and_a_job_runs_without_create(
    kafka: Kafka,
    secured_kafka: Kafka,
    admin: AdminClient,
    prefix: str,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = KafkaAdmin(secured_kafka.client_options())
    if PROGRESS in own.cluster([PROGRESS]).topics:
        own.delete_topic(PROGRESS)
    KafkaAdmin(kafka.client_options()).create_topic(f"{prefix}-in", partitions=1, replicas=1, settings={})
    grant(admin, prefix, between_rows()["always"] + rows()["run --engine loop"])
    write_between(isolated_home, kafka, secured_kafka, prefix, "guest")
    produce(kafka, prefix)
    assert main(["run", "--engine", "loop", "--once"]) == 1
    assert "penstock apply --pipeline FILE" in " ".join(capsys.readouterr().err.split())

    write_between(isolated_home, kafka, secured_kafka, prefix, "admin")
    assert main(["plan", "--pipeline", "pipeline.yaml", "--out", "saved.plan"]) == 0
    assert f"topic {PROGRESS}" in capsys.readouterr().out
    assert main(["apply", "saved.plan", "--yes"]) == 0, capsys.readouterr().err
    for words in (["plan", "--pipeline", "pipeline.yaml", "--exit-code"], ["plan", "--exit-code"], ["drift"]):
        assert main(words) == 0, capsys.readouterr()

    write_between(isolated_home, kafka, secured_kafka, prefix, "guest")
    assert main(["run", "--engine", "loop", "--once"]) == 0, capsys.readouterr().err
    assert len(list(scan(secured_kafka.client_options(), f"{prefix}-out"))) >= 1
    assert KafkaOffsets(secured_kafka.client_options()).latest(PROGRESS)[0] > 0
    # What the job made of the topic is what a plan wants of it.
    write_between(isolated_home, kafka, secured_kafka, prefix, "admin")
    assert main(["drift", "--pipeline", "pipeline.yaml"]) == 0, capsys.readouterr()


def between_rows() -> dict[str, list[Right]]:
    """Read the table for a cluster that is only written: | when | resource | operations |."""
    text = PAGE.read_text(encoding="utf-8").partition("### Between clusters")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| topic (\S+) \| (.+?) \|$", text, re.M)
    return {
        when: [
            Right(ResourceType.TOPIC, name, getattr(AclOperation, _upper(each))) for each in words.split(", ")
        ]
        for when, name, words in found
    }


def write_between(folder: Path, source: Kafka, target: Kafka, prefix: str, user: str) -> None:
    """Write a project that reads one cluster and writes everything to the other one."""
    write(folder, target, prefix, user)
    for name in ("asyncapi", "penstock"):
        path = folder / f"{name}.yaml"
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        if name == "asyncapi":
            found["servers"]["source"] = {"host": source.bootstrap, "protocol": "kafka"}
            found["channels"]["in"]["servers"] = [{"$ref": "#/servers/source"}]
        else:
            found["contexts"]["c"]["servers"]["source"] = {"kind": "kafka", "address": source.bootstrap}
        path.write_text(yaml.safe_dump(found), encoding="utf-8")


# The delivery with the rights of the page and no more: from where to where, and what the role has on Pulsar

OF_A_LOOP = {
    "k-p": (
        ("the source", "the group", "transactional ids that begin with the group"),
        ["produce", "consume"],
    ),
    "p-k": (
        ("the target", "the dead-letter topic", "transactional ids that begin with the group"),
        ["consume"],
    ),
    "p-p": ((), ["produce", "consume"]),
}


@pytest.mark.parametrize("way", OF_A_LOOP)
def test_a_loop_moves_events_with_the_rights_of_the_page_and_no_more(
    way: str,
    tenant: tuple[str, Rest],
    secured_kafka: Kafka,
    secured_pulsar: Pulsar,
    admin: AdminClient,
    own_prefix: str,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resources, needed = OF_A_LOOP[way]
    name, rest = tenant
    role, mark = f"role-{uuid.uuid4().hex[:6]}", uuid.uuid4().hex[:6]
    for channel in ("in", "out", "dead"):
        assert rest.call("PUT", f"/persistent/{name}/shop/{mark}-{channel}/partitions", 1).ok
    known = {_RESOURCES[each] for each in resources}
    rights = [right for right in rows()["run --engine loop"] if (right.kind, right.name) in known]
    if way == "p-k":
        rights += [right for each in between_rows().values() for right in each]
    if rights:
        grant(admin, own_prefix, rights)
    write_way(isolated_home, way, secured_kafka, secured_pulsar, own_prefix, f"{name}/{mark}", role)
    words = ["run", "--engine", "loop", "--once"]
    produce_both(secured_kafka, secured_pulsar, own_prefix, f"{name}/{mark}")

    def run(*more: str) -> tuple[int, str]:
        code = main([*words, *more])
        return code, " ".join(capsys.readouterr().err.split())

    code, said = run()
    assert (code, "may not do this" in said) == (1, True), said
    assert f"{name}/shop" in said and "127.0.0.1:" in said and "docs/rights.md" in said
    assert rest.call("POST", f"/namespaces/{name}/shop/permissions/{role}", needed).ok
    if "produce" in needed:
        code, said = run()
        assert (code, f"{mark}-out deduplicates has to be read" in said) == (1, True), said
        assert f"make the role an administrator of tenant {name}" in said
        code, said = run("--at-least-once")
        assert (code, "at least once on p" in said) == (0, True), said
        assert "2 in · 1 out · 1 dead" in said
        body = {"adminRoles": [role], "allowedClusters": ["standalone"]}
        assert rest.call("POST", f"/tenants/{name}", body).ok
        produce_both(secured_kafka, secured_pulsar, own_prefix, f"{name}/{mark}")
    code, said = run()
    assert (code, "exactly once on" in said) == (0, True), said
    assert "2 in · 1 out · 1 dead" in said


def write_way(
    folder: Path, way: str, kafka: Kafka, pulsar: Pulsar, prefix: str, place: str, role: str
) -> None:
    """Write a project that reads and writes as `way` says: k is Kafka, p is Pulsar."""
    write(folder, kafka, prefix)
    tenant, _, mark = place.partition("/")
    contract, context = (
        yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("asyncapi", "penstock")
    )
    host = pulsar.service_url.partition("://")[2]
    bindings = {"pulsar": {"tenant": tenant}}
    contract["servers"]["p"] = {"host": host, "protocol": "pulsar+ssl", "bindings": bindings}
    source, _, target = way.partition("-")
    for name in [*(("in",) if source == "p" else ()), *(("out", "dead") if target == "p" else ())]:
        contract["channels"][name] |= {
            "address": f"{mark}-{name}",
            "servers": [{"$ref": "#/servers/p"}],
            "bindings": {"pulsar": {"namespace": "shop", "persistence": "persistent"}},
        }
    security = {"token": pulsar.token(role), "ca_file": str(pulsar.ca_file)}
    servers = context["contexts"]["c"]["servers"]
    servers["p"] = {"address": pulsar.service_url, "admin": pulsar.admin_url, "security": security}
    for name, content in (("asyncapi", contract), ("penstock", context)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def produce_both(kafka: Kafka, pulsar: Pulsar, prefix: str, place: str) -> None:
    """Write an event, and what is none, to the source on either side."""
    produce(kafka, prefix)
    tenant, _, mark = place.partition("/")
    client = pulsar_client(pulsar)
    producer = client.create_producer(f"persistent://{tenant}/shop/{mark}-in")
    for properties in ({f"ce_{each}": "1.0" for each in ("specversion", "id", "source", "type")}, {}):
        producer.send(b"{}", properties=properties)
    client.close()


def pulsar_client(server: Pulsar) -> Any:
    import pulsar

    return pulsar.Client(
        server.service_url,
        authentication=pulsar.AuthenticationToken(server.token()),
        tls_trust_certs_file_path=str(server.ca_file),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
