"""Random documents: applied, a second plan is empty; after random drift, the plan names exactly it.

In memory many documents, on the real brokers a few.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.pulsar_admin import PulsarAdmin, Retention
from penstock.contract import Contract
from penstock.contract.actual import read_actual
from penstock.contract.apply import execute
from penstock.contract.desired import Desired, desired_state
from penstock.contract.memory import MemoryClusters
from penstock.contract.plan import Plan, make_plan
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.steps import ChangePolicy, ChangeSettings, Step, name_of, step_id
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import InternalError

MakeContract = Callable[..., Contract]
KAFKA = {"host": "kafka.example:9092", "protocol": "kafka"}
PULSAR = {"host": "pulsar.example:6650", "protocol": "pulsar"}

names = st.from_regex(r"[a-z]{1,4}(\.[a-z]{1,4})?", fullmatch=True)
topic_settings = st.fixed_dictionaries(
    {},
    optional={
        "cleanup.policy": st.sampled_from(
            [["delete"], ["compact"], ["delete", "compact"], ["compact", "delete"]]
        ),
        "retention.ms": st.sampled_from([-1, 3_600_000, 604_800_000, 10_000_000_000]),
        "max.message.bytes": st.sampled_from([1_000_000, 1_048_588, 2_000_000]),
        "segment.bytes": st.sampled_from([1_048_576, 1_073_741_824]),
    },
)
kafka_bindings = st.fixed_dictionaries(
    {},
    optional={"partitions": st.integers(1, 4), "replicas": st.just(1), "topicConfiguration": topic_settings},
)
pulsar_bindings = st.fixed_dictionaries(
    {"namespace": st.just("model"), "persistence": st.just("persistent")},
    optional={
        "x-penstock-partitions": st.integers(0, 3),
        "deduplication": st.booleans(),
        "compaction": st.integers(0, 3),
    },
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "retention": st.fixed_dictionaries(
            {}, optional={"time": st.integers(0, 9), "size": st.integers(0, 9)}
        ),
        "ttl": st.integers(0, 9),
    },
)


@dataclass(frozen=True)
class Document:
    kafka: dict[str, dict[str, Any]]
    pulsar: dict[str, dict[str, Any]]
    policies: dict[str, Any]

    def contract(self, contract_of: MakeContract, prefix: str = "", tenant: str = "acme") -> Contract:
        channels: dict[str, Any] = {}
        for name, binding in self.kafka.items():
            channels[f"k-{name}"] = {
                "servers": [{"$ref": "#/servers/kafka"}],
                "address": prefix + name,
                "bindings": {"kafka": binding},
            }
        for name, binding in self.pulsar.items():
            channels[f"p-{name}"] = {
                "servers": [{"$ref": "#/servers/pulsar"}],
                "address": prefix + name,
                "bindings": {"pulsar": {**binding, **self.policies}},
            }
        servers = {"kafka": KAFKA, "pulsar": {**PULSAR, "bindings": {"pulsar": {"tenant": tenant}}}}
        return contract_of(channels, servers=servers)


documents = st.builds(
    Document,
    kafka=st.dictionaries(names, kafka_bindings, max_size=4),
    pulsar=st.dictionaries(names, pulsar_bindings, max_size=2),
    policies=policies,
)


def planned(desired: Desired, clusters: Clusters) -> Plan:
    return make_plan(desired, read_actual(desired, clusters))


def converge(desired: Desired, clusters: Clusters) -> None:
    """Apply, and wait until the brokers agree; what never agrees is a finding."""
    outcome = execute(planned(desired, clusters).steps, clusters)
    assert outcome.error is None
    end = monotonic() + 15
    while (left := planned(desired, clusters).steps) and monotonic() < end:
        sleep(0.05)
    assert left == ()


@dataclass(frozen=True)
class Drift:
    """One change by hand: what it does, and the step that must name it."""

    name: str
    do: Callable[[Clusters], None]
    kind: str
    key: str = ""


def possible_drifts(desired: Desired) -> list[Drift]:
    found: list[Drift] = []
    for topic in desired.kafka_topics:
        for key, _ in topic.settings:
            found.append(_setting_drift(topic.topic, key))
        found.append(_lost_topic(topic.topic))
        if topic.partitions is not None:
            found.append(_grown_topic(topic.topic, topic.partitions))
    for namespace in desired.namespaces:
        if namespace.ttl is not None:
            found.append(_policy_drift(namespace.namespace, "ttl", 77))
        if namespace.retention is not None:
            found.append(_policy_drift(namespace.namespace, "retention", Retention(minutes=77, megabytes=77)))
    return found


DRIFTED = {
    "cleanup.policy": "none",
    "retention.ms": "1234567",
    "max.message.bytes": "1111111",
    "segment.bytes": "2222222",
}


def _setting_drift(topic: str, key: str) -> Drift:
    def do(clusters: Clusters) -> None:
        kafka = clusters.kafka("kafka")
        value = DRIFTED[key]
        if key == "cleanup.policy":
            now = kafka.settings([topic])[topic][key].value
            value = "compact" if now == "delete" else "delete"
        kafka.change_settings(topic, {key: value})

    return Drift(topic, do, "change-settings", key)


def _lost_topic(topic: str) -> Drift:
    return Drift(topic, lambda clusters: clusters.kafka("kafka").delete_topic(topic), "create-topic")


def _grown_topic(topic: str, partitions: int) -> Drift:
    def do(clusters: Clusters) -> None:
        clusters.kafka("kafka").add_partitions(topic, partitions + 1)

    return Drift(topic, do, "blocked")


def _policy_drift(namespace: str, policy: str, value: Retention | int) -> Drift:
    def do(clusters: Clusters) -> None:
        clusters.pulsar("pulsar").set_policy(namespace, policy, value)

    return Drift(namespace, do, "change-policy", policy)


def named(steps: tuple[Step, ...]) -> set[tuple[str, str, str]]:
    found = set()
    for step in steps:
        keys = [""]
        if isinstance(step, ChangeSettings):
            keys = [change.key for change in step.changes]
        elif isinstance(step, ChangePolicy):
            keys = [step.change.key]
        found |= {(name_of(step), step.kind, key) for key in keys}
    return found


def drift(data: st.DataObject, desired: Desired, clusters: Clusters) -> set[tuple[str, str, str]]:
    """Change a few things by hand, at most one way per thing; give what a plan must say."""
    possible = possible_drifts(desired)
    if not possible:
        return set()
    chosen = data.draw(st.lists(st.sampled_from(possible), max_size=3, unique_by=lambda drift: drift.name))
    for one in chosen:
        one.do(clusters)
    return {(one.name, one.kind, one.key) for one in chosen}


@given(document=documents, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_in_memory(contract_of: MakeContract, document: Document, data: st.DataObject) -> None:
    clusters = MemoryClusters()
    desired = desired_state(document.contract(contract_of))
    converge(desired, clusters)
    expected = drift(data, desired, clusters)
    plan = planned(desired, clusters)
    assert named(plan.steps) == expected
    allowed = [step_id(step) for step in plan.dangerous]
    execute(plan.accepted(allowed), clusters)
    assert named(planned(desired, clusters).steps) == {one for one in expected if one[1] == "blocked"}


@dataclass(frozen=True)
class RealClusters:
    kafka_admin: KafkaAdmin
    pulsar_admin: PulsarAdmin

    def kafka(self, server: str) -> KafkaPort:
        return self.kafka_admin

    def pulsar(self, server: str) -> PulsarPort:
        return self.pulsar_admin

    def registry(self, server: str) -> RegistryPort:
        raise InternalError(f"no registry beside {server}")


@pytest.mark.server
@given(document=documents, data=st.data())
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_on_real_brokers(
    contract_of: MakeContract, kafka: Kafka, pulsar: Pulsar, document: Document, data: st.DataObject
) -> None:
    prefix = f"m{uuid.uuid4().hex[:8]}-"
    desired = desired_state(document.contract(contract_of, prefix, tenant=f"t{prefix[:-1]}"))
    with PulsarAdmin({"url": pulsar.admin_url}) as pulsar_admin:
        clusters = RealClusters(KafkaAdmin(kafka.client_options()), pulsar_admin)
        converge(desired, clusters)
        expected = drift(data, desired, clusters)
        end = monotonic() + 15
        while named(planned(desired, clusters).steps) != expected and monotonic() < end:
            sleep(0.05)
        assert named(planned(desired, clusters).steps) == expected
