"""A Pulsar that demands certificates of its clients: every verb shows that of the context, and works."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulsar_rows import batch_of, values_in

from penstock.cli.app import main
from penstock.config import Security
from penstock.contract.credentials import Connection
from penstock.embedded.kafka import Kafka
from penstock.embedded.ports import ask
from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkSource
from penstock.pipeline.delivery.pulsar.sink import PulsarSink

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
def pulsar() -> Iterator[Pulsar]:
    with Pulsar(mutual_tls=True, durable=False) as server:
        yield server


def server_of(pulsar: Pulsar, role: str | None = "admin", **more: Any) -> dict[str, Any]:
    security: dict[str, Any] = {"ca_file": str(pulsar.ca_file), **more}
    if role is not None:
        cert_file, key_file = pulsar.client_certificate(role)
        security |= {"cert_file": str(cert_file), "key_file": str(key_file)}
    return {"kind": "pulsar", "address": pulsar.service_url, "admin": pulsar.admin_url, "security": security}


@pytest.fixture
def project(pulsar: Pulsar, kafka: Kafka, isolated_home: Path) -> Path:
    """A contract with a channel on each broker; tenant and topics are new."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {
            "k": {"host": kafka.bootstrap, "protocol": "kafka"},
            "p": {
                "host": pulsar.service_url.partition("://")[2],
                "protocol": "pulsar+ssl",
                "bindings": {"pulsar": {"tenant": tenant}},
            },
        },
        "channels": {
            "in": {"address": f"{tenant}-in", "servers": [{"$ref": "#/servers/k"}]},
            "stream": {
                "address": "stream",
                "servers": [{"$ref": "#/servers/p"}],
                "bindings": {"pulsar": {"namespace": "shop", "persistence": "persistent"}},
            },
        },
        "operations": {
            "onIn": {"action": "receive", "channel": {"$ref": "#/channels/in"}},
            "toStream": {"action": "send", "channel": {"$ref": "#/channels/stream"}},
        },
    }
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(yaml.safe_dump(contract))
    write_context(isolated_home, kafka, server_of(pulsar))
    return isolated_home


def write_context(folder: Path, kafka: Kafka, pulsar: dict[str, Any]) -> None:
    servers = {"k": {"kind": "kafka", "address": kafka.bootstrap}, "p": pulsar}
    (folder / "penstock.yaml").write_text(yaml.safe_dump({"contexts": {"c": {"servers": servers}}}))


def test_every_verb_works_by_certificate_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        code = main(list(words))
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    assert "stream" in said("plan")
    said("apply", "--yes")
    said("drift")
    said("publish", "stream", "--type", "t", "--source", "/s", "--data", '{"n": 1}')
    read = said("tail", "stream", "--from", "beginning", "--until-end", "-o", "json")
    assert json.loads(read.splitlines()[0])["event"]["data"] == {"n": 1}
    assert "stream" in said("topics", "--server", "p")
    said("groups", "--server", "p")
    said("doctor")


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["publish", "stream", "--type", "t", "--data", "{}"],
        ["tail", "stream", "--until-end"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_a_context_without_a_certificate_is_told_that_one_is_missing(
    words: list[str], project: Path, kafka: Kafka, pulsar: Pulsar, capsys: pytest.CaptureFixture[str]
) -> None:
    write_context(project, kafka, server_of(pulsar, None, token=pulsar.token()))
    assert main(words) == 1
    assert "certificate" in "".join(capsys.readouterr())


def test_a_gateway_shows_its_certificate(project: Path, pulsar: Pulsar, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer

    from penstock.embedded.ports import choose_port

    port, metrics = choose_port(0, setting="port"), choose_port(0, setting="metrics")
    words = ["gateway", "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{metrics}"]
    log = tmp_path / "gateway.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "penstock.cli", *words, "--trust-clients"]
        gateway = subprocess.Popen(command, cwd=project, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 60
        while ask(f"http://127.0.0.1:{metrics}/readyz") is None:
            assert gateway.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        topic = f"t-{uuid.uuid4().hex[:8]}"
        address = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": "0"}
        producer = Producer(address)
        producer.produce(topic, b"x")
        assert producer.flush(30) == 0, log.read_text()
        consumer = Consumer({**address, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None and message.value() == b"x", log.read_text()
        consumer.close()
    finally:
        gateway.terminate()
        gateway.wait(60)


def test_the_delivery_of_a_pipeline_shows_its_certificate(pulsar: Pulsar) -> None:
    cert_file, key_file = pulsar.client_certificate("admin")
    security = Security(ca_file=pulsar.ca_file, cert_file=cert_file, key_file=key_file)
    connection = Connection(address=pulsar.service_url, admin=pulsar.admin_url, tls=True, security=security)
    topic = f"persistent://public/default/t-{uuid.uuid4().hex}"
    source = SinkSource(run="r", topic="in", incarnation="", partition=0, first=0)
    with PulsarCluster(PulsarSettings.of(connection)) as cluster:
        cluster.call(cluster.admin.create_topic(topic))
        sink = PulsarSink(cluster, [PulsarTarget(topic=topic, partitions=0)], source)
        sink.put(batch_of([b"a"], 0))
        sink.flush()
        sink.close()
        assert values_in(cluster, topic) == [b"a"]
