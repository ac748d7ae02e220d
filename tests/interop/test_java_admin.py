"""Kafka's tools that look at and change settings, clusters, rights; and what refuses transactions at once."""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.embedded.artifacts import classpath
from penstock.embedded.kafka_tools import java_command

pytestmark = [pytest.mark.server, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def java(process: Any, run_tool: Callable[..., subprocess.CompletedProcess[str]]) -> Run:
    """Runs a Java class of Kafka 4.3.1 to its end; its code and what it said."""
    jars = os.pathsep.join((classpath("kafka-tools"), classpath("kafka")))

    def run(main: str, *arguments: str, given: str = "") -> tuple[int, str]:
        words = java_command(jars, main, arguments)
        done = run_tool(words, given=given, within=120, records=True)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def fresh() -> str:
    return f"admin-{uuid.uuid4().hex[:8]}"


def test_settings_of_topics_and_brokers(process: Any, java: Run, fresh: str) -> None:
    def configs(*arguments: str) -> str:
        code, said = java("kafka.admin.ConfigCommand", "--bootstrap-server", process.bootstrap, *arguments)
        assert code == 0, said
        return said

    topic = ["--entity-type", "topics", "--entity-name", fresh]
    made = ["--create", "--topic", fresh, "--config", "min.insync.replicas=2"]
    code, said = java(f"{TOOLS}.TopicCommand", "--bootstrap-server", process.bootstrap, *made)
    assert code == 0, said
    configs(*topic, "--alter", "--add-config", "cleanup.policy=[compact,delete],segment.ms=600000")
    configs(*topic, "--alter", "--delete-config", "min.insync.replicas")
    said = configs(*topic, "--describe")
    # Those that were set, and no others.
    assert set(re.findall(r"^\s+(\S+)=(\S+) sensitive=false", said, re.MULTILINE)) == {
        ("cleanup.policy", "compact,delete"),
        ("segment.ms", "600000"),
    }
    said = configs(*topic, "--describe", "--all")
    assert re.search(r"min\.insync\.replicas=1 .*DEFAULT_CONFIG:min\.insync\.replicas=1", said), said
    assert "segment.ms=600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=600000" in said
    said = configs("--entity-type", "brokers", "--describe", "--all")
    assert re.search(r"num\.partitions=1 ", said), said


def test_the_cluster_id_is_its_own(process: Any, java: Run) -> None:
    from confluent_kafka.admin import AdminClient

    code, said = java(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", process.bootstrap)
    told = AdminClient({"bootstrap.servers": process.bootstrap}).list_topics(timeout=30).cluster_id
    assert code == 0
    assert said.strip() == f"Cluster ID: {told}"
    assert re.fullmatch(r"[\w-]{22}", told)


def test_rights_are_told_to_be_disabled(process: Any, java: Run) -> None:
    _, said = java(f"{TOOLS}.AclCommand", "--bootstrap-server", process.bootstrap, "--list")
    assert "SecurityDisabledException" in said


def test_kafkas_own_test_of_compatibility(process: Any, java: Run, fresh: str) -> None:
    code, said = java(
        f"{TOOLS}.TopicCommand", "--bootstrap-server", process.bootstrap, "--create", "--topic", fresh
    )
    assert code == 0, said
    features = ["offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs"]
    features += ["idempotent-producer"]
    words = [word for name in features for word in (f"--{name}-supported", "true")]
    words += ["--expect-record-too-large-exception", "false"]
    words = ["--bootstrap-server", process.bootstrap, "--topic", fresh, "--num-cluster-nodes", "1", *words]
    code, said = java(f"{TOOLS}.ClientCompatibilityTest", *words)
    assert code == 0, said


def test_a_transactional_program_is_refused_at_once(process: Any, java: Run, fresh: str) -> None:
    words = ["--broker-list", process.bootstrap, "--transactional-id", fresh, "--input-topic", fresh]
    words += ["--input-partition", "0", "--output-topic", f"{fresh}-out", "--consumer-group", fresh]
    began = time.monotonic()
    code, said = java(f"{TOOLS}.TransactionalMessageCopier", *words)
    assert code != 0
    assert "TransactionalIdAuthorizationException" in said
    assert time.monotonic() - began < 50


def test_librdkafka_is_told_of_a_namespace_that_does_not_exist(process: Any) -> None:
    from confluent_kafka import KafkaError, Producer

    told: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": process.bootstrap, "message.timeout.ms": 120_000})
    producer.produce("no-tenant/no-namespace/orders", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert [error.code() for error in told] == [KafkaError.TOPIC_EXCEPTION]


def test_a_java_producer_is_told_of_a_namespace_that_does_not_exist(process: Any, java: Run) -> None:
    words = ["--bootstrap-server", process.bootstrap, "--topic", "no-tenant/no-namespace/orders"]
    began = time.monotonic()
    _, said = java(f"{TOOLS}.ConsoleProducer", *words, given="one\n")
    assert "InvalidTopicException" in said
    assert time.monotonic() - began < 50
