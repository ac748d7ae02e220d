"""Steps for Pulsar: tenants, namespaces with their policies, topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.brokers.pulsar_admin import (
    NAMESPACE_POLICIES,
    SCHEMA,
    TOPIC_POLICIES,
    NamespaceState,
    PulsarSchema,
    PulsarTopicState,
    Retention,
)
from penstock.contract.actual import Actual, ActualPulsar
from penstock.contract.desired import Desired, Note, WantedNamespace, WantedPulsarTopic
from penstock.contract.pulsar_schemas import contradicts, same_definition
from penstock.contract.steps import (
    ORDER_BREAKS,
    AddPulsarPartitions,
    Blocked,
    Change,
    ChangePolicy,
    ChangeTopicPolicy,
    CreateMissedPartitions,
    CreateNamespace,
    CreatePulsarTopic,
    CreateTenant,
    DeletePulsarTopic,
    RemoveTopicPolicy,
    Risk,
    SetPulsarSchema,
    Step,
)
from penstock.contract.topics import namespace_of

__all__ = ["judge_policy", "parse_policy", "pulsar_steps", "write_policy"]

PolicyValue = Retention | int | tuple[str, ...]
_SAFE: Final = (Risk.SAFE, "")
UNLIMITED: Final = -1


def pulsar_steps(desired: Desired, actual: Actual) -> Iterator[Step | Note]:
    """Compare the namespaces and topics of all Pulsar servers."""
    for server, cluster in actual.pulsar.items():
        namespaces = [wanted for wanted in desired.namespaces if wanted.server == server]
        declared = {wanted.namespace: wanted for wanted in namespaces}
        yield from _tenants(server, namespaces, cluster)
        for namespace in namespaces:
            if (server, namespace.namespace) in actual.hidden:
                continue
            yield from _namespace(namespace, cluster.namespaces.get(namespace.namespace))
        for topic in desired.pulsar_topics:
            if topic.server == server and (server, topic.topic) not in actual.hidden:
                state = cluster.topics.get(topic.topic)
                namespace = declared[namespace_of(topic.topic)]
                yield from _topic(topic, state, namespace)
                yield from _schema(topic, state, cluster)
        yield from _doomed(server, cluster)


def _tenants(server: str, namespaces: list[WantedNamespace], cluster: ActualPulsar) -> Iterator[Step]:
    places = {wanted.namespace.partition("/")[0]: wanted.place for wanted in reversed(namespaces)}
    for tenant, place in sorted(places.items()):
        if tenant not in cluster.tenants:
            yield CreateTenant(server=server, tenant=tenant, place=place)


def _namespace(wanted: WantedNamespace, state: NamespaceState | None) -> Iterator[Step]:
    """Compare what is in effect: the policy of the namespace, else the broker's default."""
    if state is None:
        yield CreateNamespace(server=wanted.server, namespace=wanted.namespace, place=wanted.place)
    for policy in NAMESPACE_POLICIES:
        own = None if state is None else getattr(state, policy)
        old = getattr(state.inherited, policy) if state is not None and own is None else own
        new = getattr(wanted, policy)
        if new is None or new == old:
            continue
        risk, warning = _SAFE if state is None or state.is_empty else judge_policy(old, new)
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


def judge_policy(old: PolicyValue | None, new: PolicyValue) -> tuple[Risk, str]:
    """Give the risk of a policy and its warning; `old` is what is in effect, None if that is not known.

    >>> judge_policy(0, 5)
    (<Risk.DANGEROUS: 'dangerous'>, 'events that nobody acknowledged in time are dropped')
    """
    if isinstance(new, Retention):
        return _judge_retention(old if isinstance(old, Retention) else None, new)
    if isinstance(new, tuple):
        lost = sorted(set(old if isinstance(old, tuple) else ()) - set(new))
        return (Risk.DANGEROUS, f"no longer copied to {', '.join(lost)}") if lost else _SAFE
    # A time to live of 0 is none. Where it is not known what is in effect, a new one may be the first.
    shorter = bool(new) and (not isinstance(old, int) or not old or new < old)
    return (Risk.DANGEROUS, "events that nobody acknowledged in time are dropped") if shorter else _SAFE


def _judge_retention(old: Retention | None, new: Retention) -> tuple[Risk, str]:
    if old is None and new == Retention(minutes=UNLIMITED, megabytes=UNLIMITED):
        return _SAFE
    if old is None:
        return Risk.DANGEROUS, "replaces the broker's default, which may keep more; older events are deleted"
    pairs = ((old.minutes, new.minutes), (old.megabytes, new.megabytes))
    if any(_limit(after) < _limit(before) for before, after in pairs):
        return Risk.DANGEROUS, "older events are deleted"
    return _SAFE


def _limit(value: int) -> float:
    return float("inf") if value < 0 else value


def _topic(
    wanted: WantedPulsarTopic,
    state: PulsarTopicState | None,
    namespace: WantedNamespace,
) -> Iterator[Step | Note]:
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
        yield from _overrides(wanted, state, namespace)
    yield from _topic_policies(wanted, state)


def _schema(
    wanted: WantedPulsarTopic, state: PulsarTopicState | None, cluster: ActualPulsar
) -> Iterator[Step | Note]:
    """Compare the schema of a topic with what the messages of the contract say about their payloads."""
    payload = wanted.payload
    if payload.format is None or (state is not None and SCHEMA in state.hidden):
        return
    if state is None or state.schema is None:
        if payload.avro is not None:
            yield _set_schema(wanted, payload.avro, None, is_new=state is None)
        return
    there = state.schema
    if contradicts(payload.format, there):
        yield _blocked_schema(
            wanted,
            f"schema {there.type}, contract says {payload.format.name}",
            "Payloads by the contract are not what the schema of the topic describes.",
        )
    elif payload.avro is not None:
        yield from _avro_schema(wanted, payload.avro, there, cluster)
    elif there.definition:
        yield Note(name=wanted.topic, text=f"its {there.type} schema cannot be compared with the contract's")


def _avro_schema(
    wanted: WantedPulsarTopic, avro: str, there: PulsarSchema, cluster: ActualPulsar
) -> Iterator[Step | Note]:
    refusal, version = cluster.refusals.get(wanted.topic), cluster.versions.get(wanted.topic)
    if refusal is not None:
        yield _blocked_schema(wanted, f"schema v{there.version}, a new one is not compatible", refusal)
    elif version is not None:
        # Pulsar makes no new version of a schema that it has.
        if version != there.version:
            text = f"the contract has schema v{version}, the newest is v{there.version}"
            yield Note(name=wanted.topic, text=text)
    elif not same_definition(there.definition, avro):
        yield _set_schema(wanted, avro, there, is_new=False)


def _set_schema(
    wanted: WantedPulsarTopic, avro: str, there: PulsarSchema | None, *, is_new: bool
) -> SetPulsarSchema:
    return SetPulsarSchema(
        server=wanted.server,
        place=wanted.place,
        topic=wanted.topic,
        schema=avro,
        before=None if there is None else there.version,
        risk=Risk.SAFE if is_new else Risk.CAUTION,
        warning="" if is_new else "clients whose schema is not compatible are refused",
    )


def _blocked_schema(wanted: WantedPulsarTopic, difference: str, why: str) -> Blocked:
    return Blocked(
        server=wanted.server,
        place=wanted.place,
        noun="topic",
        name=wanted.topic,
        difference=difference,
        why=why,
        next="correct the payload in the contract, or delete the schema of the topic on purpose",
    )


def _overrides(
    wanted: WantedPulsarTopic, state: PulsarTopicState, namespace: WantedNamespace
) -> Iterator[Step]:
    """Remove policies of a topic that contradict what the contract says for its namespace."""
    for policy in NAMESPACE_POLICIES:
        old, new = getattr(state, policy), getattr(namespace, policy)
        if old is None or new is None or old == new:
            continue
        risk, warning = judge_policy(old, new)
        yield RemoveTopicPolicy(
            server=wanted.server,
            place=namespace.place,
            topic=wanted.topic,
            policy=policy,
            before=write_policy(old),
            after=write_policy(new),
            risk=risk,
            warning=warning,
        )


def _topic_policies(wanted: WantedPulsarTopic, state: PulsarTopicState | None) -> Iterator[Step]:
    """Compare what is in effect: the policy of the topic, else that of its namespace or of the broker."""
    for policy in TOPIC_POLICIES:
        own = None if state is None else getattr(state, policy)
        old = getattr(state.inherited, policy) if state is not None and own is None else own
        new = getattr(wanted, policy)
        if new is None or new == old or (state is not None and policy in state.hidden):
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
    if state.missing:
        yield CreateMissedPartitions(
            server=wanted.server,
            place=wanted.place,
            topic=wanted.topic,
            missing=state.missing,
            risk=Risk.CAUTION,
            warning="they begin empty; what they held is lost",
        )
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
