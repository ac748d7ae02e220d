"""Doing a plan: step by step, each told when it is done, stopped by the first failure.

What was done, what failed and what is left are data, not an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from penstock.brokers.schema_registry import SchemaReference
from penstock.contract.plan_pulsar import parse_policy
from penstock.contract.ports import Clusters, RegistryPort
from penstock.contract.steps import (
    AddPartitions,
    AddPulsarPartitions,
    Blocked,
    ChangePolicy,
    ChangeSettings,
    ChangeTopicPolicy,
    CreateMissedPartitions,
    CreateNamespace,
    CreatePulsarTopic,
    CreateTenant,
    CreateTopic,
    DeletePulsarTopic,
    DeleteTopic,
    RegisterSchema,
    RemoveTopicPolicy,
    Step,
)
from penstock.errors import ClusterError, InternalError

__all__ = ["Outcome", "execute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far an execution came."""

    done: tuple[Step, ...]
    left: tuple[Step, ...] = ()
    """What was not done; the first of them failed."""
    error: ClusterError | None = None


def execute(
    steps: Sequence[Step], clusters: Clusters, on_done: Callable[[Step], None] = lambda _step: None
) -> Outcome:
    """Do the steps in their order; stop at the first that fails."""
    for number, step in enumerate(steps):
        try:
            _do(step, clusters)
        except ClusterError as exc:
            return Outcome(done=tuple(steps[:number]), left=tuple(steps[number:]), error=exc)
        on_done(step)
    return Outcome(done=tuple(steps))


def _do(step: Step, clusters: Clusters) -> None:
    """Each kind of step is one call."""
    match step:
        case CreateTopic():
            clusters.kafka(step.server).create_topic(
                step.topic, partitions=step.partitions, replicas=step.replicas, settings=dict(step.settings)
            )
        case AddPartitions():
            clusters.kafka(step.server).add_partitions(step.topic, step.after)
        case ChangeSettings():
            changes = {change.key: change.after for change in step.changes}
            clusters.kafka(step.server).change_settings(step.topic, changes)
        case DeleteTopic():
            clusters.kafka(step.server).delete_topic(step.topic)
        case RegisterSchema():
            registry = clusters.registry(step.server)
            registry.register(step.subject, step.schema_type, step.schema, _references(step, registry))
        case Blocked():
            raise InternalError(f"a blocked step was to be executed: {step.name}")
        case _:
            _do_pulsar(step, clusters)


def _references(step: RegisterSchema, registry: RegistryPort) -> tuple[SchemaReference, ...]:
    """Name the versions to which a schema refers, now that the steps before are done."""
    found = []
    for at, subject in enumerate(step.uses):
        version = step.versions[at] if at < len(step.versions) else None
        latest = registry.latest(subject) if version is None else None
        if version is None and latest is None:
            raise ClusterError(
                f"{step.subject} refers to {subject}, which the registry does not hold", next="penstock plan"
            )
        number = latest.version if latest is not None else version or 0
        found.append(SchemaReference(name=subject, subject=subject, version=number))
    return tuple(found)


def _do_pulsar(
    step: CreateTenant
    | CreateNamespace
    | ChangePolicy
    | CreatePulsarTopic
    | AddPulsarPartitions
    | CreateMissedPartitions
    | ChangeTopicPolicy
    | RemoveTopicPolicy
    | DeletePulsarTopic,
    clusters: Clusters,
) -> None:
    pulsar = clusters.pulsar(step.server)
    match step:
        case CreateTenant():
            pulsar.create_tenant(step.tenant)
        case CreateNamespace():
            pulsar.create_namespace(step.namespace)
        case ChangePolicy():
            value = parse_policy(step.change.key, step.change.after)
            pulsar.set_policy(step.namespace, step.change.key, value)
        case CreatePulsarTopic():
            pulsar.create_topic(step.topic, step.partitions)
        case AddPulsarPartitions():
            pulsar.add_partitions(step.topic, step.after)
        case CreateMissedPartitions():
            pulsar.create_missed_partitions(step.topic)
        case RemoveTopicPolicy():
            pulsar.remove_topic_policy(step.topic, step.policy)
        case ChangeTopicPolicy():
            after = step.change.after
            pulsar.set_topic_policy(
                step.topic,
                step.change.key,
                after == "true" if step.change.key == "deduplication" else int(after),
            )
        case DeletePulsarTopic():
            pulsar.delete_topic(step.topic)
        case _:
            assert_never(step)
