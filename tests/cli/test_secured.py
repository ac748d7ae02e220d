"""Secured clusters, conditions x verbs: each gives the sentence, code, address and next of the table."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.brokers.conditions import Condition, row_of
from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.pulsar_admin import PulsarAdmin
from penstock.cli.app import main
from penstock.embedded.certificates import make_certificates
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar

pytestmark = [pytest.mark.server, pytest.mark.slow]

SOON = 30.0
"""Seconds for a verb to say it; most of them are for a machine that has other things to do."""
ALIAS = "127.1"
"""Another way to write 127.0.0.1, which is in no certificate."""
PIPELINE = {
    "kafka": {"routes": {"r": {"receive": "onIn", "send": "toOut"}}},
    "pulsar": {"routes": {"r": {"receive": "onIn", "send": "toStream"}}},
}


@dataclass
class World:
    """Both servers, topics on them, and a project whose context is written for each test."""

    kafka: Kafka
    pulsar: Pulsar
    other_authority: Path
    prefix: str

    def kafka_server(self, **changes: Any) -> dict[str, Any]:
        security = {
            "protocol": "sasl_ssl",
            "mechanism": "scram-sha-512",
            "username": "admin",
            "password": self.kafka.password(),
            "ca_file": str(self.kafka.ca_file),
        }
        address = changes.pop("address", self.kafka.bootstrap)
        return {"kind": "kafka", "address": address, "security": security | changes}

    def pulsar_server(self, **changes: Any) -> dict[str, Any]:
        security = {"token": self.pulsar.token(), "ca_file": str(self.pulsar.ca_file)} | changes
        host = security.pop("host", "127.0.0.1")
        return {
            "kind": "pulsar",
            "address": self.pulsar.service_url.replace("127.0.0.1", host),
            "admin": self.pulsar.admin_url.replace("127.0.0.1", host),
            "security": security,
        }

    def contract(self, pulsar: bool = True) -> dict[str, Any]:
        def channel(name: str, server: str, **more: Any) -> dict[str, Any]:
            made = {"address": f"{self.prefix}-{name}", "servers": [{"$ref": f"#/servers/{server}"}]}
            return {**made, **more}

        dead = {"x-penstock-dead-letter": {"$ref": "#/channels/dead"}}
        namespace = {"bindings": {"pulsar": {"namespace": "shop", "persistence": "persistent"}}}
        channels = {
            "in": channel("in", "k", **dead),
            "out": channel("out", "k"),
            "dead": channel("dead", "k"),
        }
        sends = {"toOut": "out"}
        servers = {"k": {"host": self.kafka.bootstrap, "protocol": "kafka-secure"}}
        if pulsar:
            channels["stream"] = channel("stream", "p", **namespace)
            sends["toStream"] = "stream"
            address = self.pulsar.service_url.partition("://")[2]
            tenant = {"bindings": {"pulsar": {"tenant": self.prefix}}}
            servers["p"] = {"host": address, "protocol": "pulsar+ssl", **tenant}
        operations: dict[str, Any] = {"onIn": {"action": "receive", "channel": {"$ref": "#/channels/in"}}}
        for name, target in sends.items():
            operations[name] = {"action": "send", "channel": {"$ref": f"#/channels/{target}"}}
        return {
            "asyncapi": "3.0.0",
            "info": {"title": "t", "version": "1"},
            "servers": servers,
            "channels": channels,
            "operations": operations,
        }

    def write(self, folder: Path, servers: Mapping[str, Any], family: str) -> None:
        (folder / ".git").mkdir(exist_ok=True)
        files = {
            "asyncapi": self.contract(pulsar="p" in servers),
            "penstock": {"context": "c", "contexts": {"c": {"servers": dict(servers)}}},
            "pipeline": PIPELINE[family],
        }
        for name, content in files.items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


@pytest.fixture(scope="module")
def world(
    secured_kafka: Kafka, secured_pulsar: Pulsar, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    other = make_certificates(tmp_path_factory.mktemp("other")).authority
    made = World(secured_kafka, secured_pulsar, other, f"t{uuid.uuid4().hex[:8]}")
    prepare(made)
    yield made


def prepare(world: World) -> None:
    admin = KafkaAdmin(world.kafka.client_options())
    for name in ("in", "out", "dead"):
        admin.create_topic(f"{world.prefix}-{name}", partitions=1, replicas=1, settings={})
    options = {
        "url": world.pulsar.admin_url,
        "ca_file": str(world.pulsar.ca_file),
        "authorization": f"Bearer {world.pulsar.token()}",
    }
    with PulsarAdmin(options) as pulsar:
        pulsar.create_tenant(world.prefix)
        pulsar.create_namespace(f"{world.prefix}/shop")
        pulsar.create_topic(f"persistent://{world.prefix}/shop/{world.prefix}-stream", 1)


Make = Callable[[World], dict[str, Any]]

ON_KAFKA: Mapping[str, tuple[Condition, Make]] = {
    "wrong password": (Condition.WRONG_LOGIN, lambda w: w.kafka_server(password="x")),
    "wrong mechanism": (Condition.WRONG_MECHANISM, lambda w: w.kafka_server(mechanism="plain")),
    "wrong authority": (
        Condition.UNKNOWN_AUTHORITY,
        lambda w: w.kafka_server(ca_file=str(w.other_authority)),
    ),
    "other host name": (
        Condition.OTHER_HOST,
        lambda w: w.kafka_server(address=w.kafka.bootstrap.replace("127.0.0.1", ALIAS)),
    ),
    "missing right": (
        Condition.MISSING_RIGHT,
        lambda w: w.kafka_server(username="guest", password=w.kafka.password("guest")),
    ),
}
ON_PULSAR: Mapping[str, tuple[Condition, Make]] = {
    "forged token": (Condition.WRONG_TOKEN, lambda w: w.pulsar_server(token=w.pulsar.token()[:-4] + "AAAA")),
    "expired token": (
        Condition.EXPIRED_TOKEN,
        lambda w: w.pulsar_server(token=w.pulsar.token(expires_at=1_000_000_000)),
    ),
    "empty token": (Condition.EMPTY_TOKEN, lambda w: w.pulsar_server(token="${env:EMPTY_TOKEN}")),
    "no token": (Condition.NO_CREDENTIALS, lambda w: w.pulsar_server(token=None)),
    "wrong authority": (
        Condition.UNKNOWN_AUTHORITY,
        lambda w: w.pulsar_server(ca_file=str(w.other_authority)),
    ),
    "other host name": (Condition.OTHER_HOST, lambda w: w.pulsar_server(host=ALIAS)),
    "missing right": (Condition.MISSING_RIGHT, lambda w: w.pulsar_server(token=w.pulsar.token("guest"))),
}
VERBS_ON_KAFKA = [
    ["publish", "in", "--type", "t", "--data", "{}"],
    ["tail", "in", "--from", "beginning", "--until-end"],
    ["dlq", "list"],
    ["groups", "--server", "k"],
    ["topics", "--server", "k"],
    ["plan"],
    ["apply", "--yes"],
    ["drift"],
    ["run", "--engine", "loop", "--once"],
    ["run", "--once"],
    ["doctor"],
]
VERBS_ON_PULSAR = [
    ["publish", "stream", "--type", "t", "--data", "{}"],
    ["tail", "stream", "--from", "beginning", "--until-end"],
    ["groups", "--server", "p"],
    ["topics", "--server", "p"],
    ["plan"],
    ["apply", "--yes"],
    ["drift"],
    ["run", "--once"],
    ["gateway", "--listen", "127.0.0.1:0", "--trust-clients"],
    ["doctor"],
]


SHOWS_WHAT_IS_HIDDEN = frozenset({"topics", "plan", "apply", "drift"})


def check(condition: Condition, words: list[str], address: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    code = main(words)
    took = time.monotonic() - began
    captured = capsys.readouterr()
    said = captured.out + captured.err if words == ["doctor"] else captured.err
    row = row_of(condition)
    assert code == row.kind.exit_code == 1, said
    flat = " ".join(said.split())
    assert row.what in flat, said
    assert row.next in flat, said
    assert address in flat, said
    if words != ["doctor"]:
        assert f"error[{row.kind.code}]" in flat, said
    assert took < SOON


def check_hidden(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A plan shows what may not be seen beside the rest; what would depend on it is refused."""
    code = main(words)
    said = "".join(capsys.readouterr())
    assert code == (0 if words[0] in ("plan", "topics") else 1), said
    assert "may not be seen" in said


@pytest.mark.parametrize("words", VERBS_ON_KAFKA, ids=" ".join)
@pytest.mark.parametrize("case", ON_KAFKA)
def test_every_verb_says_what_is_wrong_with_kafka(
    case: str, words: list[str], world: World, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if case == "missing right" and words[0] == "groups":
        return  # Kafka lists those groups that a user may see, and no error
    seen = case == "missing right" and words[0] in SHOWS_WHAT_IS_HIDDEN
    condition, make = ON_KAFKA[case]
    server = make(world)
    world.write(isolated_home, {"k": server}, "kafka")
    if seen:
        check_hidden(words, capsys)
    else:
        check(condition, words, server["address"], capsys)


@pytest.mark.parametrize("words", VERBS_ON_PULSAR, ids=" ".join)
@pytest.mark.parametrize("case", ON_PULSAR)
def test_every_verb_says_what_is_wrong_with_pulsar(
    case: str,
    words: list[str],
    world: World,
    isolated_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY_TOKEN", "")
    condition, make = ON_PULSAR[case]
    server = make(world)
    world.write(isolated_home, {"k": world.kafka_server(), "p": server}, "pulsar")
    if case == "missing right" and words[0] in SHOWS_WHAT_IS_HIDDEN - {"topics"}:
        check_hidden(words, capsys)
        return
    # The binary protocol and the admin API have a port each on the same host.
    check(condition, words, server["address"].partition("://")[2].partition(":")[0], capsys)
