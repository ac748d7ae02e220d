"""Steps for Pulsar: tenants, namespaces with their policies, topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.brokers.pulsar_admin import NamespaceState, PulsarTopicState, Retention
from penstock.contract.actual import Actual, ActualPulsar
from penstock.contract.desired import Desired, WantedNamespace, WantedPulsarTopic
from penstock.contract.steps import (
    ORDER_BREAKS,
    AddPulsarPartitions,
    Blocked,
    Change,
    ChangePolicy,
    ChangeTopicPolicy,
    CreateNamespace,
    CreatePulsarTopic,
    CreateTenant,
    DeletePulsarTopic,
    Risk,
    Step,
)

__all__ = ["parse_policy", "pulsar_steps", "write_policy"]

PolicyValue = Retention | int | tuple[str, ...]
_SAFE: Final = (Risk.SAFE, "")


def pulsar_steps(desired: Desired, actual: Actual) -> Iterator[Step]:
    """Compare the namespaces and topics of all Pulsar servers."""
    for server, cluster in actual.pulsar.items():
        namespaces = [wanted for wanted in desired.namespaces if wanted.server == server]
        yield from _tenants(server, namespaces, cluster)
        for namespace in namespaces:
            yield from _namespace(namespace, cluster.namespaces.get(namespace.namespace))
        for topic in desired.pulsar_topics:
            if topic.server == server:
                yield from _topic(topic, cluster.topics.get(topic.topic))
        yield from _doomed(server, cluster)


def _tenants(server: str, namespaces: list[WantedNamespace], cluster: ActualPulsar) -> Iterator[Step]:
    places = {wanted.namespace.partition("/")[0]: wanted.place for wanted in reversed(namespaces)}
    for tenant, place in sorted(places.items()):
        if tenant not in cluster.tenants:
            yield CreateTenant(server=server, tenant=tenant, place=place)


def _namespace(wanted: WantedNamespace, state: NamespaceState | None) -> Iterator[Step]:
    if state is None:
        yield CreateNamespace(server=wanted.server, namespace=wanted.namespace, place=wanted.place)
    before = state or NamespaceState()
    pairs: tuple[tuple[str, PolicyValue | None, PolicyValue | None], ...] = (
        ("retention", before.retention, wanted.retention),
        ("ttl", before.ttl, wanted.ttl),
        ("replication", before.replication if state else None, wanted.replication),
    )
    for policy, old, new in pairs:
        if new is None or new == old:
            continue
        risk, warning = _SAFE if state is None else _judge(old, new)
        yield ChangePolicy(
            server=wanted.server,
            place=wanted.place,
            namespace=wanted.namespace,
            change=Change(
                key=policy, before=None if old is None else write_policy(old), after=write_policy(new)
            ),
            risk=risk,
            warning=warning,
        )


def _judge(old: PolicyValue | None, new: PolicyValue) -> tuple[Risk, str]:
    if isinstance(new, Retention):
        return _judge_retention(old if isinstance(old, Retention) else None, new)
    if isinstance(new, tuple):
        lost = sorted(set(old if isinstance(old, tuple) else ()) - set(new))
        return (Risk.DANGEROUS, f"no longer copied to {', '.join(lost)}") if lost else _SAFE
    if not new:
        return _SAFE
    if not old:
        return Risk.CAUTION, "events that nobody acknowledged in time are dropped"
    shorter = isinstance(old, int) and new < old
    return (Risk.DANGEROUS, "events that nobody acknowledged in time are dropped") if shorter else _SAFE


def _judge_retention(old: Retention | None, new: Retention) -> tuple[Risk, str]:
    if old is None:
        return Risk.CAUTION, "replaces the broker's default, which may keep more"
    pairs = ((old.minutes, new.minutes), (old.megabytes, new.megabytes))
    if any(_limit(after) < _limit(before) for before, after in pairs):
        return Risk.DANGEROUS, "older events are deleted"
    return _SAFE


def _limit(value: int) -> float:
    return float("inf") if value < 0 else value


def _topic(wanted: WantedPulsarTopic, state: PulsarTopicState | None) -> Iterator[Step]:
    if state is None:
        yield CreatePulsarTopic(
            server=wanted.server,
            place=wanted.place,
            topic=wanted.topic,
            partitions=1 if wanted.partitions is None else wanted.partitions,
            dead_letters_of=wanted.dead_letters_of,
        )
    else:
        yield from _partitions(wanted, state)
    yield from _topic_policies(wanted, state)


def _topic_policies(wanted: WantedPulsarTopic, state: PulsarTopicState | None) -> Iterator[Step]:
    before = state or PulsarTopicState(partitions=0)
    for policy in ("deduplication", "compaction"):
        old, new = getattr(before, policy), getattr(wanted, policy)
        if new is None or new == old:
            continue
        risk, warning = _TOPIC_RISKS[policy] if old and not new else _SAFE
        yield ChangeTopicPolicy(
            server=wanted.server,
            place=wanted.place,
            topic=wanted.topic,
            change=Change(key=policy, before=None if old is None else _word(old), after=_word(new)),
            risk=risk,
            warning=warning,
        )


_TOPIC_RISKS: Final = {
    "deduplication": (Risk.CAUTION, "an event that is sent twice is stored twice"),
    "compaction": (Risk.DANGEROUS, "compaction is turned off"),
}


def _partitions(wanted: WantedPulsarTopic, state: PulsarTopicState) -> Iterator[Step]:
    if wanted.partitions is None or wanted.partitions == state.partitions:
        return
    if 0 < state.partitions < wanted.partitions:
        yield AddPulsarPartitions(
            server=wanted.server,
            place=wanted.place,
            topic=wanted.topic,
            before=state.partitions,
            after=wanted.partitions,
            risk=Risk.CAUTION,
            warning=ORDER_BREAKS,
        )
        return
    between = state.partitions == 0 or wanted.partitions == 0
    yield Blocked(
        server=wanted.server,
        place=wanted.place,
        noun="topic",
        name=wanted.topic,
        difference=f"partitions {state.partitions}, contract says {wanted.partitions}",
        why="Pulsar cannot turn a topic with partitions into one without, or back."
        if between
        else "Pulsar cannot reduce partitions.",
        next=f"set x-penstock-partitions to {state.partitions}, or create a new topic",
    )


def _doomed(server: str, cluster: ActualPulsar) -> Iterator[Step]:
    for name, usage in cluster.doomed.items():
        yield DeletePulsarTopic(
            server=server,
            topic=name,
            records=usage.entries,
            readers=usage.subscriptions,
            risk=Risk.DANGEROUS,
            warning="everything in it is lost",
        )


def _word(value: bool | int) -> str:
    return str(value).lower()


def write_policy(value: PolicyValue) -> str:
    """Write the value of a namespace policy for a plan.

    >>> write_policy(Retention(minutes=60, megabytes=-1)), write_policy(("eu", "us")), write_policy(5)
    ('60 min, -1 MB', 'eu,us', '5')
    """
    if isinstance(value, Retention):
        return f"{value.minutes} min, {value.megabytes} MB"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def parse_policy(policy: str, text: str) -> PolicyValue:
    """Read a policy value that `write_policy` wrote.

    >>> parse_policy("retention", "60 min, -1 MB")
    Retention(minutes=60, megabytes=-1)
    """
    if policy == "retention":
        minutes, megabytes = (int(part.split()[0]) for part in text.split(","))
        return Retention(minutes=minutes, megabytes=megabytes)
    return tuple(word for word in text.split(",") if word) if policy == "replication" else int(text)
