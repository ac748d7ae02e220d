"""Doing a plan: step by step, each told when it is done, stopped by the first failure.

What was done, what failed and what is left are data, not an exception. Another apply may run at the same
time: a step that a cluster refuses because what it aims at is there already counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final, assert_never

from penstock.brokers.pulsar_admin import PulsarSchema
from penstock.brokers.schema_registry import SchemaReference
from penstock.contract.plan_pulsar import parse_policy
from penstock.contract.ports import Clusters, PulsarPort, RegistryPort
from penstock.contract.pulsar_schemas import AVRO
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
    SetPulsarSchema,
    Step,
)
from penstock.errors import AccessDenied, ClusterError, InternalError, Unreachable

__all__ = ["Outcome", "execute"]

AGREEING_SECONDS: Final = 2.0
"""So long the brokers of a cluster may take to show what one of them refused to make again."""
BETWEEN_LOOKS_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far an execution came."""

    done: tuple[Step, ...]
    left: tuple[Step, ...] = ()
    """What was not done; the first of them failed."""
    error: ClusterError | None = None


def execute(
    steps: Sequence[Step],
    clusters: Clusters,
    on_done: Callable[[Step], None] = lambda _step: None,
    *,
    agreeing: float = AGREEING_SECONDS,
) -> Outcome:
    """Do the steps in their order; stop at one that fails, unless its aim is reached in `agreeing` s."""
    for number, step in enumerate(steps):
        try:
            _do(step, clusters)
        except ClusterError as exc:
            if not _was_done(step, clusters, exc, agreeing):
                return Outcome(done=tuple(steps[:number]), left=tuple(steps[number:]), error=exc)
        on_done(step)
    return Outcome(done=tuple(steps))


def _was_done(step: Step, clusters: Clusters, error: ClusterError, seconds: float) -> bool:
    """Say whether somebody else did a step that was refused; a cluster that fails again has not."""
    if isinstance(error, Unreachable | AccessDenied):
        return False
    end = monotonic() + seconds
    try:
        while (reached := _is_reached(step, clusters)) is False and monotonic() < end:
            sleep(BETWEEN_LOOKS_SECONDS)
    except ClusterError:
        return False
    return bool(reached)


def _is_reached(step: Step, clusters: Clusters) -> bool | None:
    """Say whether a cluster shows what a step makes or removes; None for a step of another kind."""
    match step:
        case CreateTopic() | AddPartitions() | DeleteTopic():
            layout = clusters.kafka(step.server).cluster([step.topic]).topics.get(step.topic)
            if isinstance(step, DeleteTopic) or layout is None:
                return (layout is None) == isinstance(step, DeleteTopic)
            return not isinstance(step, AddPartitions) or layout.partitions >= step.after
        case CreateTenant():
            return clusters.pulsar(step.server).has_tenant(step.tenant)
        case CreateNamespace():
            return clusters.pulsar(step.server).namespace(step.namespace, ()) is not None
        case CreatePulsarTopic() | AddPulsarPartitions() | DeletePulsarTopic():
            state = clusters.pulsar(step.server).topics([step.topic], ())[step.topic]
            if isinstance(state, AccessDenied):
                return False
            if isinstance(step, DeletePulsarTopic) or state is None:
                return (state is None) == isinstance(step, DeletePulsarTopic)
            return not isinstance(step, AddPulsarPartitions) or state.partitions >= step.after
    return None


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


_PulsarTopicStep = (
    CreatePulsarTopic
    | AddPulsarPartitions
    | CreateMissedPartitions
    | ChangeTopicPolicy
    | RemoveTopicPolicy
    | SetPulsarSchema
    | DeletePulsarTopic
)


def _do_pulsar(
    step: CreateTenant | CreateNamespace | ChangePolicy | _PulsarTopicStep, clusters: Clusters
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
        case _:
            _do_pulsar_topic(step, pulsar)


def _do_pulsar_topic(step: _PulsarTopicStep, pulsar: PulsarPort) -> None:
    match step:
        case CreatePulsarTopic():
            pulsar.create_topic(step.topic, step.partitions)
        case AddPulsarPartitions():
            pulsar.add_partitions(step.topic, step.after)
        case CreateMissedPartitions():
            pulsar.create_missed_partitions(step.topic)
        case RemoveTopicPolicy():
            pulsar.remove_topic_policy(step.topic, step.policy)
        case SetPulsarSchema():
            pulsar.set_schema(step.topic, PulsarSchema(type=AVRO, definition=step.schema))
        case ChangeTopicPolicy():
            key, after = step.change.key, step.change.after
            pulsar.set_topic_policy(
                step.topic, key, after == "true" if key == "deduplication" else int(after)
            )
        case DeletePulsarTopic():
            pulsar.delete_topic(step.topic)
        case _:
            assert_never(step)
