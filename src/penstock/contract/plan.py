"""A plan: the steps from what is there to what the contract wants, as one frozen value.

Only declared keys are compared. Partitions only grow. What the cluster cannot do is shown and blocked.
Things that no contract names are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.brokers.pulsar_admin import (
    NAMESPACE_POLICIES,
    TOPIC_POLICIES,
    NamespaceState,
    PulsarTopicState,
)
from penstock.contract.actual import Actual, Unseen
from penstock.contract.desired import Desired, Note
from penstock.contract.fingerprint import canonical, fingerprint
from penstock.contract.plan_kafka import kafka_steps
from penstock.contract.plan_pulsar import pulsar_steps
from penstock.contract.plan_registry import registry_steps
from penstock.contract.steps import RegisterSchema, Risk, Step, identity, name_of, step_id, target_of
from penstock.contract.topics import namespace_of

__all__ = ["Plan", "allowable", "make_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done, and to what it belongs."""

    title: str
    version: str
    environment: str | None = None
    context: str | None = None
    targets: tuple[str, ...] = ()
    """What the plan looked at, in words: `kafka 3 brokers`."""
    steps: tuple[Step, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    """What the contract declares and this user may not see: it is not compared."""
    unchanged: int = 0
    notes: tuple[Note, ...] = ()
    document: str = field(default="", compare=False)
    """Fingerprint of the contract."""
    actual: str = field(default="", compare=False)
    """Fingerprint of what was there when the plan was made."""

    def refused(self, allow: Iterable[str] = ()) -> tuple[Step, ...]:
        """The steps that will not be done: impossible ones, and dangerous ones that are not allowed."""
        allowed = frozenset(allow)
        return tuple(step for step in self.steps if not _may(step, allowed))

    def accepted(self, allow: Iterable[str] = ()) -> tuple[Step, ...]:
        """The steps that will be done."""
        allowed = frozenset(allow)
        return tuple(step for step in self.steps if _may(step, allowed))

    @property
    def dangerous(self) -> tuple[Step, ...]:
        """The steps that are done only if their identities are allowed."""
        return tuple(step for step in self.steps if step.risk is Risk.DANGEROUS)


def _may(step: Step, allowed: frozenset[str]) -> bool:
    if step.risk is Risk.DANGEROUS:
        return step_id(step) in allowed
    return step.risk is not Risk.IMPOSSIBLE


def allowable(desired: Desired) -> frozenset[str]:
    """Give the identities of all dangerous steps that a plan for this state could ever hold.

    They do not depend on what the clusters hold, so a step that was done yesterday is still known.
    """
    found = [
        identity(
            "delete-topic" if desired.servers[server] == "kafka" else "delete-pulsar-topic", server, topic
        )
        for server, topic in desired.gone
    ]
    found += [
        identity("change-settings", wanted.server, wanted.topic, key)
        for wanted in desired.kafka_topics
        for key, _ in wanted.settings
    ]
    for namespace in desired.namespaces:
        found += [
            identity("change-policy", namespace.server, namespace.namespace, policy)
            for policy in NAMESPACE_POLICIES
            if getattr(namespace, policy) is not None
        ]
    declared = {(each.server, each.namespace): each for each in desired.namespaces}
    for topic in desired.pulsar_topics:
        found += [
            identity("remove-topic-policy", topic.server, topic.topic, policy)
            for policy in NAMESPACE_POLICIES
            if getattr(declared[topic.server, namespace_of(topic.topic)], policy) is not None
        ]
        found += [
            identity("change-topic-policy", topic.server, topic.topic, policy)
            for policy in TOPIC_POLICIES
            if getattr(topic, policy) is not None
        ]
    return frozenset(found)


def make_plan(desired: Desired, actual: Actual, *, context: str | None = None) -> Plan:
    """Compare what is wanted with what is there."""
    found = [*pulsar_steps(desired, actual), *kafka_steps(desired, actual), *registry_steps(desired, actual)]
    steps = [item for item in found if not isinstance(item, Note)]
    return Plan(
        title=desired.title,
        version=desired.version,
        environment=desired.environment,
        context=context,
        targets=tuple(_targets(actual)),
        steps=tuple(sorted(steps, key=_turn)),
        unseen=actual.unseen,
        unchanged=_unchanged(desired, steps, actual.unseen),
        notes=(*desired.notes, *(item for item in found if isinstance(item, Note))),
        document=fingerprint((desired.fingerprint, desired.environment, desired.gone)),
        actual=fingerprint(_essence(actual)),
    )


def _essence(actual: Actual) -> object:
    """What a plan depends on; how full a topic is, or how many brokers are up, changes all the time."""
    return (
        {name: (kafka.topics, kafka.unknown, sorted(kafka.doomed)) for name, kafka in actual.kafka.items()},
        {
            name: (
                pulsar.tenants,
                {key: _written(state) for key, state in pulsar.namespaces.items()},
                {key: _written(state) for key, state in pulsar.topics.items()},
                sorted(pulsar.doomed),
            )
            for name, pulsar in actual.pulsar.items()
        },
        actual.registries,
    )


# How a broker is set up is no part of a state, like the number of brokers; the risk of a step follows it.
_NOT_COMPARED: Final = ("inherited", "is_empty", "hidden")
_LATER: Final = ("retention", "ttl", "replication", "missing", "schema")
"""Fields of a topic that plans of earlier versions do not have; they are left out while they are empty."""


def _written(state: NamespaceState | PulsarTopicState) -> dict[str, Any]:
    written: dict[str, Any] = canonical(state)
    for name in _NOT_COMPARED:
        written.pop(name, None)
    for name in _LATER if isinstance(state, PulsarTopicState) else ():
        if written[name] in (None, []):
            del written[name]
    return written


# What others stand on comes first, what takes away comes last; the rest goes by name.
_TURNS: Final[Mapping[str, int]] = {
    "create-tenant": 0,
    "create-namespace": 1,
    "change-policy": 2,
    "delete-topic": 4,
    "delete-pulsar-topic": 4,
    "blocked": 5,
}
_BETWEEN: Final = 3


def _turn(step: Step) -> tuple[int, int, str, str]:
    rank = step.rank if isinstance(step, RegisterSchema) else 0
    return _TURNS.get(step.kind, _BETWEEN), rank, name_of(step), step.server


def _targets(actual: Actual) -> Iterator[str]:
    for name, kafka in actual.kafka.items():
        yield f"{name} {kafka.brokers} broker{'' if kafka.brokers == 1 else 's'}"
    for name, pulsar in actual.pulsar.items():
        yield f"{name} {', '.join(pulsar.clusters)}"
    if actual.registries:
        yield "registry"


def _unchanged(desired: Desired, steps: Iterable[Step], unseen: Iterable[Unseen]) -> int:
    """Count the topics, namespaces and subjects of the contract about which there is nothing to say."""
    wanted = {(topic.server, topic.topic) for topic in desired.kafka_topics}
    wanted |= {(topic.server, topic.topic) for topic in desired.pulsar_topics}
    wanted |= {(namespace.server, namespace.namespace) for namespace in desired.namespaces}
    wanted |= {(subject.registry, subject.subject) for subject in desired.subjects}
    touched = {(step.server, target_of(step)) for step in steps}
    touched |= {(each.server, each.name) for each in unseen}
    return len(wanted - touched)
