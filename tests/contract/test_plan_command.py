"""`penstock plan`, `apply` and `drift` on real servers, plain and secured, and on servers that fail."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.pulsar_admin import PulsarAdmin, Retention
from penstock.brokers.schema_registry import SchemaRegistry
from penstock.cli.app import main
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry
from penstock.errors import ClusterError

pytestmark = pytest.mark.server

HOME = os.environ.get("PENSTOCK_HOME")
"""Where the jars are, before a test hides it."""
SHOP = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"


class Project:
    """A folder with a contract and a context; commands run in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex[:8]
        self._capsys = capsys

    def contract(self, document: dict[str, Any] | str) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        (self.folder / "asyncapi.yaml").write_text(text)

    def context(self, **servers: Any) -> None:
        registry = servers.pop("registry", None)
        made: dict[str, Any] = {"servers": servers}
        made |= {"registry": registry} if registry else {}
        (self.folder / "penstock.yaml").write_text(
            json.dumps({"context": "test", "contexts": {"test": made}})
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main(list(words))
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err


@pytest.fixture
def project(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> Project:
    (isolated_home / ".git").mkdir()
    return Project(isolated_home, capsys)


def shop(mark: str) -> str:
    """The shop with names of its own, so that tests can share servers."""
    text = re.sub(r"(?m)^(    address: )(\S+)$", rf"\g<1>{mark}.\g<2>", SHOP.read_text())
    return re.sub(r"(?m)^(        namespace: )(\S+)$", rf"\g<1>{mark}-\g<2>", text)


def small(mark: str, *topics: str, **binding: Any) -> dict[str, Any]:
    channels = {
        t: {"address": f"{mark}.{t}", "bindings": {"kafka": {"replicas": 1, **binding}}} for t in topics
    }
    servers = {"kafka": {"host": "kafka.example:9092", "protocol": "kafka"}}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "small", "version": "1"},
        "servers": servers,
        "channels": channels,
    }


def marks(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if re.match(r"[+~!-] ", line)]


@pytest.fixture
def plain(project: Project, kafka: Kafka, pulsar: Pulsar, registry: Registry) -> Project:
    project.context(
        kafka={"address": kafka.bootstrap, "security": {"protocol": "plaintext"}},
        pulsar={"address": pulsar.service_url, "admin": pulsar.admin_url},
        registry={"address": registry.url},
    )
    return project


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, secured_kafka: Kafka, secured_pulsar: Pulsar) -> dict[str, str]:
    found = {
        "ADMIN_PASSWORD": secured_kafka.password("admin"),
        "GUEST_PASSWORD": secured_kafka.password("guest"),
        "ADMIN_TOKEN": secured_pulsar.token("admin"),
        "GUEST_TOKEN": secured_pulsar.token("guest"),
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def secured(
    project: Project,
    secured_kafka: Kafka,
    secured_pulsar: Pulsar,
    registry: Registry,
    secrets: dict[str, str],
) -> Callable[[str], Project]:
    def make(user: str) -> Project:
        variable = user.upper()
        project.context(
            kafka={
                "address": secured_kafka.bootstrap,
                "security": {
                    "protocol": "sasl_ssl",
                    "mechanism": "scram-sha-512",
                    "username": user,
                    "password": f"${{env:{variable}_PASSWORD}}",
                    "ca_file": str(secured_kafka.ca_file),
                },
            },
            pulsar={
                "address": secured_pulsar.service_url,
                "admin": secured_pulsar.admin_url,
                "security": {"token": f"${{env:{variable}_TOKEN}}", "ca_file": str(secured_pulsar.ca_file)},
            },
            registry={"address": registry.url},
        )
        return project

    return make


def accept(project: Project) -> None:
    """Plan, apply the saved plan, plan again: nothing is left."""
    project.contract(shop(project.mark))
    code, shown, _ = project.run("plan", "--env", "dev", "--exit-code", "--out", "shop.plan")
    assert code == 3
    assert len(marks(shown)) == 15
    assert {line[0] for line in marks(shown)} == {"+"}
    code, shown, talk = project.run("apply", "shop.plan", "--yes")
    assert (code, len(marks(shown))) == (0, 15), talk
    code, shown, _ = project.run("plan", "--env", "dev", "--exit-code")
    assert (code, marks(shown)) == (0, [])
    assert "11 unchanged" in shown
    assert project.run("drift", "--env", "dev")[0] == 0


def test_the_shop_on_plain_servers(plain: Project, kafka: Kafka, pulsar: Pulsar, registry: Registry) -> None:
    accept(plain)
    mark = plain.mark
    kafka_admin = KafkaAdmin(kafka.client_options())
    assert kafka_admin.cluster().topics[f"{mark}.orders.placed"].partitions == 4
    kafka_admin.change_settings(f"{mark}.orders.placed", {"retention.ms": "1234567"})
    kafka_admin.add_partitions(f"{mark}.orders.dead", 2)
    with PulsarAdmin({"url": pulsar.admin_url}) as pulsar_admin:
        pulsar_admin.set_policy(f"public/{mark}-shop", "retention", Retention(minutes=20000, megabytes=2000))
    with SchemaRegistry({"url": registry.url}) as subjects:
        assert {name for name in subjects.subjects() if name.startswith(mark)} == {
            f"{mark}.orders.placed-value",
            f"{mark}.orders.large-value",
            f"{mark}.payments.received-value",
        }
    code, shown, _ = plain.run("drift", "--env", "dev")
    assert code == 3
    assert [re.sub(" +", " ", line) for line in marks(shown)] == [
        f"~ namespace public/{mark}-shop pulsar retention 20000 min, 2000 MB -> 10080 min, 1024 MB "
        "! older events are deleted; refused without --allow "
        f"change-policy:pulsar/public/{mark}-shop:retention",
        f"~ topic {mark}.orders.placed kafka retention.ms 1234567 -> 86400000",
        f"! topic {mark}.orders.dead kafka partitions 2, contract says 1 refused, see --explain",
    ]
    code, _, talk = plain.run("apply", "--env", "dev", "--yes")
    assert code == 4
    assert "2 steps are refused" in talk
    allowed = f"change-policy:pulsar/public/{mark}-shop:retention"
    for _ in range(2):
        code, _, talk = plain.run("apply", "--env", "dev", "--yes", "--allow", allowed)
        assert code == 4
        assert "1 step is refused" in talk
    code, shown, _ = plain.run("drift", "--env", "dev")
    assert [line[:7] for line in marks(shown)] == ["! topic"]


def test_the_shop_on_secured_servers(
    secured: Callable[[str], Project], secrets: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    project = secured("admin")
    accept(project)
    everything = "".join(path.read_text() for path in project.folder.iterdir() if path.is_file())
    for form in ("json", "yaml", "markdown", "table"):
        code, shown, talk = project.run("-v", "-v", "plan", "-o", form, "--explain")
        assert code == 0
        everything += shown + talk
    assert [name for name, secret in secrets.items() if secret in everything] == []


def test_somebody_without_rights_is_told_so(
    secured: Callable[[str], Project], secrets: dict[str, str]
) -> None:
    project = secured("guest")
    project.contract(shop(project.mark))
    code, shown, talk = project.run("plan", "--env", "dev", "--explain")
    assert (code, {line.split()[1] for line in marks(shown)}) == (0, {"schema"})  # the registry asks nobody
    assert re.search(r"\? topic +\S+orders.placed +kafka +it may not be seen by this user", shown)
    assert "Unauthorized" in shown
    assert "next: give the user of this context the right" in shown
    code, alone, more = project.run("drift", "--env", "dev", "--server", "pulsar")
    assert code == 1
    assert "nothing to do in what may be seen" in alone
    assert "of what the contract declares may not be seen" in more
    assert not [secret for secret in secrets.values() if secret in shown + talk + more]


def test_a_reader_plans_what_it_may_see(
    secured: Callable[[str], Project], secured_kafka: Kafka, secured_pulsar: Pulsar
) -> None:
    project = secured("admin")
    mark = project.mark
    document = small(mark, "a", "b", topicConfiguration={"retention.ms": 1000})
    document["servers"]["pulsar"] = {"host": "pulsar.example:6650", "protocol": "pulsar"}
    for channel in document["channels"].values():
        channel["servers"] = [{"$ref": "#/servers/kafka"}]
    binding = {"namespace": mark, "persistence": "persistent", "ttl": 60, "deduplication": True}
    on_pulsar = {"servers": [{"$ref": "#/servers/pulsar"}], "bindings": {"pulsar": binding}}
    document["channels"]["p"] = {"address": "p", **on_pulsar}
    project.contract(document)
    assert project.run("apply", "--yes")[0] == 0
    may_read(secured_kafka, secured_pulsar, f"{mark}.a", f"public/{mark}")
    project = secured("guest")
    code, shown, _ = project.run("plan")
    assert (code, marks(shown)) == (0, [])
    assert [re.sub(" +", " ", line) for line in shown.splitlines() if line.startswith("?")] == [
        f"? topic {mark}.b kafka it may not be seen by this user",
        f"? namespace public/{mark} pulsar it may not be seen by this user",
        f"? topic public/{mark}/p pulsar ttl, deduplication may not be seen by this user",
    ]
    assert "1 unchanged" in shown
    assert project.run("drift")[0] == 1
    document["channels"]["q"] = {"address": "q", **on_pulsar}
    project.contract(document)
    code, shown, _ = project.run("drift")
    assert code == 3
    assert "+ topic" in marks(shown)[0] and f"public/{mark}/q" in marks(shown)[0]
    _, _, talk = project.run("topics")
    assert f"may not be seen by this user: {mark}.b (kafka)" in talk
    assert f"not there, though in the contract: public/{mark}/q (pulsar)" in talk


def may_read(kafka: Kafka, pulsar: Pulsar, topic: str, namespace: str) -> None:
    """Let guest describe a Kafka topic and consume from a namespace of Pulsar."""
    from confluent_kafka import admin

    rights = [
        admin.AclBinding(
            admin.ResourceType.TOPIC,
            topic,
            admin.ResourcePatternType.LITERAL,
            "User:guest",
            "*",
            operation,
            admin.AclPermissionType.ALLOW,
        )
        for operation in (admin.AclOperation.DESCRIBE, admin.AclOperation.DESCRIBE_CONFIGS)
    ]
    granting = admin.AdminClient(kafka.client_options())
    for future in granting.create_acls(rights).values():
        future.result(30)
    options = {"url": pulsar.admin_url, "ca_file": str(pulsar.ca_file)}
    with PulsarAdmin({**options, "authorization": f"Bearer {pulsar.token()}"}) as client:
        path = f"/namespaces/{namespace}/permissions/guest"
        assert client._rest.call("POST", path, ["consume"]).ok


def test_wrong_credentials_are_told_at_once(
    secured: Callable[[str], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = secured("admin")
    monkeypatch.setenv("ADMIN_PASSWORD", "wr0ng-passw0rd")
    project.contract(shop(project.mark))
    code, _, talk = project.run("plan", "--env", "dev")
    assert code == 1
    assert "authentication" in talk.lower()
    assert "wr0ng-passw0rd" not in talk


def test_changes_need_a_yes_when_nobody_can_be_asked(plain: Project, kafka: Kafka) -> None:
    plain.contract(small(plain.mark, "a"))
    code, shown, talk = plain.run("apply")
    assert code == 2
    assert marks(shown)
    assert "add --yes" in talk
    assert f"{plain.mark}.a" not in KafkaAdmin(kafka.client_options()).cluster().topics


def test_a_stale_plan_is_refused(plain: Project, kafka: Kafka) -> None:
    plain.contract(small(plain.mark, "a", "b"))
    assert plain.run("plan", "--out", "x.plan")[0] == 0
    KafkaAdmin(kafka.client_options()).create_topic(f"{plain.mark}.a", partitions=3, replicas=1, settings={})
    code, shown, talk = plain.run("apply", "x.plan", "--yes")
    assert (code, shown) == (4, "")
    assert "x.plan is stale: the clusters changed" in talk
    plain.contract(small(plain.mark, "a", "b", "c"))
    assert "the contract changed" in plain.run("apply", "x.plan", "--yes")[2]


def test_removing_a_topic_needs_its_name(plain: Project, kafka: Kafka) -> None:
    admin = KafkaAdmin(kafka.client_options())
    plain.contract(small(plain.mark, "a", "b"))
    assert plain.run("apply", "--yes")[0] == 0
    (plain.folder / "old.yaml").write_text((plain.folder / "asyncapi.yaml").read_text())
    plain.contract(small(plain.mark, "a"))
    assert plain.run("plan", "--exit-code")[0] == 0
    code, shown, _ = plain.run("plan", "--previous", "old.yaml", "--out", "x.plan")
    assert [line[0] for line in marks(shown)] == ["-"]
    assert plain.run("apply", "x.plan", "--yes")[0] == 4
    assert f"{plain.mark}.b" in admin.cluster().topics
    code, _, talk = plain.run("apply", "x.plan", "--yes", "--allow", f"{plain.mark}.typo")
    assert code == 2
    assert f"dangerous here: delete-topic:kafka/{plain.mark}.b" in " ".join(talk.split())
    for _ in range(2):
        assert plain.run("apply", "x.plan", "--yes", "--allow", f"delete-topic:kafka/{plain.mark}.b")[0] == 0
    assert f"{plain.mark}.b" not in admin.cluster().topics


def test_a_registry_that_refuses(plain: Project, registry: Registry) -> None:
    def document(*fields: str) -> dict[str, Any]:
        record = {"type": "record", "name": "A", "fields": [{"name": f, "type": "int"} for f in fields]}
        payload = {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": record}
        made = small(plain.mark, "a")
        made["servers"]["kafka"]["bindings"] = {"kafka": {"schemaRegistryUrl": "http://registry.example"}}
        made["channels"]["a"]["messages"] = {"a": {"payload": payload}}
        return made

    plain.contract(document("x"))
    assert plain.run("apply", "--yes")[0] == 0
    subject = f"{plain.mark}.a-value"
    import httpx

    httpx.put(f"{registry.url}/config/{subject}", json={"compatibility": "BACKWARD"}).raise_for_status()
    plain.contract(document("x", "y"))
    code, shown, _ = plain.run("plan", "--explain", "--exit-code")
    assert code == 3
    assert [re.sub(" +", " ", line) for line in marks(shown)][0] == (
        f"! schema {subject} registry v1, BACKWARD refused refused, see --explain"
    )
    assert "y at /fields/1" in shown
    code, _, talk = plain.run("apply", "--yes")
    assert code == 4
    with SchemaRegistry({"url": registry.url}) as client:
        latest = client.latest(subject)
        assert latest is not None
        assert latest.version == 1
        with pytest.raises(ClusterError, match="Incompatible"):
            client.register(subject, "AVRO", json.dumps({"type": "record", "name": "B", "fields": []}))


def test_a_broker_that_stops_in_the_middle(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third topic meets a broker that is gone; the same command goes on when it is back."""
    if HOME is not None:
        monkeypatch.setenv("PENSTOCK_HOME", HOME)
    else:
        monkeypatch.delenv("PENSTOCK_HOME")
    project.contract(small(project.mark, "a", "b", "c", "d"))
    monkeypatch.setattr("penstock.contract.clusters.KafkaAdmin", impatient(KafkaAdmin))
    with Kafka(data=project.folder / "kafka") as first:
        project.context(kafka={"address": first.bootstrap})
        assert project.run("plan", "--out", "x.plan")[0] == 0
        create = KafkaAdmin.create_topic

        def stop_before_c(self: KafkaAdmin, topic: str, **rest: Any) -> None:
            if topic.endswith(".c"):
                first.close()
            create(self, topic, **rest)

        monkeypatch.setattr(KafkaAdmin, "create_topic", stop_before_c)
        code, _, talk = project.run("apply", "x.plan", "--yes")
        monkeypatch.setattr(KafkaAdmin, "create_topic", create)
        port = int(first.bootstrap.rpartition(":")[2])
    assert code == 5
    assert "stopped at step 3 of 4: cannot reach kafka" in talk
    assert re.findall(rf"(\w[\w ]*): +[+] topic {project.mark}\.(\w)", talk) == [
        ("done", "a"),
        ("done", "b"),
        ("failed", "c"),
        ("not done", "d"),
    ]
    with Kafka(data=project.folder / "kafka", port=port) as again:
        code, shown, talk = project.run("apply", "x.plan", "--yes")
        assert code == 0, talk
        assert [line.split()[2] for line in marks(shown)] == [f"{project.mark}.c", f"{project.mark}.d"]
        assert len(KafkaAdmin(again.client_options()).cluster().topics) == 4


def impatient(real: type[KafkaAdmin]) -> Callable[..., KafkaAdmin]:
    return lambda options, name, timeout, connect_timeout: real(
        options, name=name, timeout=3, connect_timeout=connect_timeout
    )


@pytest.fixture
def deaf() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=5)
        for connection in taken:
            connection.close()


def test_a_broker_that_does_not_answer(project: Project, deaf: str) -> None:
    project.contract(small(project.mark, "a"))
    project.context(kafka={"address": deaf})
    code, shown, talk = project.run("-X", "connect_timeout=1s", "plan")
    assert (code, shown) == (5, "")
    assert "cannot reach kafka" in talk


def test_a_server_that_is_not_there(project: Project) -> None:
    project.contract(small(project.mark, "a"))
    project.context(kafka={"address": "127.0.0.1:1"})
    code, _, talk = project.run("-X", "connect_timeout=1s", "drift")
    assert code == 5
    assert "Connection refused" in talk
