"""Steps for Kafka topics."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.contract.actual import Actual, ActualKafka, ActualKafkaTopic
from penstock.contract.desired import Desired, Note, WantedKafkaTopic
from penstock.contract.steps import (
    ORDER_BREAKS,
    AddPartitions,
    Blocked,
    Change,
    ChangeSettings,
    CreateTopic,
    DeleteTopic,
    Risk,
    Step,
)
from penstock.contract.topic_settings import judge, same

__all__ = ["kafka_steps"]


def kafka_steps(desired: Desired, actual: Actual) -> Iterator[Step | Note]:
    """Compare the topics of all Kafka servers."""
    for wanted in desired.kafka_topics:
        if (wanted.server, wanted.topic) in actual.hidden:
            continue
        cluster = actual.kafka[wanted.server]
        topic = cluster.topics.get(wanted.topic)
        yield from _unknown(wanted, cluster)
        if topic is None:
            yield _create(wanted, cluster)
        else:
            yield from _partitions(wanted, topic)
            yield from _replicas(wanted, topic)
            yield from _settings(wanted, topic)
    for server, cluster in actual.kafka.items():
        for name, usage in cluster.doomed.items():
            yield DeleteTopic(
                server=server,
                topic=name,
                records=usage.records,
                readers=usage.groups,
                risk=Risk.DANGEROUS,
                warning="everything in it is lost",
            )


def _create(wanted: WantedKafkaTopic, cluster: ActualKafka) -> CreateTopic | Blocked:
    if wanted.replicas is not None and wanted.replicas > cluster.brokers:
        return Blocked(
            server=wanted.server,
            place=wanted.place,
            noun="topic",
            name=wanted.topic,
            difference=f"replicas {wanted.replicas}, cluster has {_count(cluster.brokers, 'broker')}",
            why="Every replica of a partition is on another broker.",
            next="lower replicas in the contract, or use an environment with fewer (--env)",
        )
    if wanted.replicas is not None and (insync := _insync(wanted)) > wanted.replicas:
        return _too_few_replicas(wanted, insync, wanted.replicas)
    return CreateTopic(
        server=wanted.server,
        place=wanted.place,
        topic=wanted.topic,
        partitions=wanted.partitions,
        replicas=wanted.replicas,
        settings=tuple((key, value) for key, value in wanted.settings if key not in cluster.unknown),
        dead_letters_of=wanted.dead_letters_of,
    )


def _insync(wanted: WantedKafkaTopic) -> int:
    """Give min.insync.replicas of the contract; 0 if it does not say, or no number."""
    value = dict(wanted.settings).get("min.insync.replicas", "")
    return int(value) if value.strip().isdecimal() else 0


def _too_few_replicas(wanted: WantedKafkaTopic, insync: int, replicas: int) -> Blocked:
    return Blocked(
        server=wanted.server,
        place=wanted.place,
        noun="topic",
        name=wanted.topic,
        difference=f"min.insync.replicas {insync}, topic has {_count(replicas, 'replica')}",
        why="Every write with acks=all would be refused: so many replicas can never be in sync.",
        next="lower min.insync.replicas in the contract, or use an environment with a lower one (--env)",
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _unknown(wanted: WantedKafkaTopic, cluster: ActualKafka) -> Iterator[Note | Blocked]:
    """Settings of a vendor are kept for the clusters that know them; any other is a mistake."""
    for key, value in wanted.settings:
        if key not in cluster.unknown:
            continue
        if key.startswith("confluent."):
            yield Note(name=wanted.topic, text=f"{key} is not known to this broker and left out")
        else:
            yield Blocked(
                server=wanted.server,
                place=wanted.place,
                noun="topic",
                name=wanted.topic,
                difference=f"{key} {value}",
                why="This broker has no such setting.",
                next="correct its name in the contract, or remove it",
            )


def _partitions(wanted: WantedKafkaTopic, topic: ActualKafkaTopic) -> Iterator[Step]:
    if wanted.partitions is None or wanted.partitions == topic.partitions:
        return
    if wanted.may_have_more and topic.partitions > wanted.partitions:
        return
    if wanted.partitions > topic.partitions:
        yield AddPartitions(
            server=wanted.server,
            place=wanted.place,
            topic=wanted.topic,
            before=topic.partitions,
            after=wanted.partitions,
            risk=Risk.CAUTION,
            warning=ORDER_BREAKS,
        )
    else:
        yield Blocked(
            server=wanted.server,
            place=wanted.place,
            noun="topic",
            name=wanted.topic,
            difference=f"partitions {topic.partitions}, contract says {wanted.partitions}",
            why="Kafka cannot reduce partitions.",
            next=f"set partitions to {topic.partitions}, or create a new topic",
        )


def _replicas(wanted: WantedKafkaTopic, topic: ActualKafkaTopic) -> Iterator[Step]:
    if wanted.replicas is None or topic.replicas == (wanted.replicas,):
        return
    there = ",".join(map(str, topic.replicas))
    yield Blocked(
        server=wanted.server,
        place=wanted.place,
        noun="topic",
        name=wanted.topic,
        difference=f"replicas {there}, contract says {wanted.replicas}",
        why="The topic API cannot change replicas; that is a reassignment, which costs network and disk.",
        next="reassign the partitions with Kafka's own tools, or correct the contract",
    )


def _settings(wanted: WantedKafkaTopic, topic: ActualKafkaTopic) -> Iterator[Step]:
    """One step for all harmless changes, and one for each that needs a word."""
    harmless: list[Change] = []
    replicas = max(topic.replicas, default=0)
    too_few = 0 < replicas < _insync(wanted)
    if too_few:
        yield _too_few_replicas(wanted, _insync(wanted), replicas)
    for key, value in wanted.settings:
        found = topic.settings.get(key)
        if found is None or same(key, found.value, value) or (too_few and key == "min.insync.replicas"):
            continue
        change = Change(key=key, before=found.value, after=value)
        risk, warning = judge(key, found.value, value)
        if risk is Risk.SAFE:
            harmless.append(change)
        else:
            yield _change(wanted, (change,), risk, warning)
    if harmless:
        yield _change(wanted, tuple(harmless), Risk.SAFE, "")


def _change(
    wanted: WantedKafkaTopic, changes: tuple[Change, ...], risk: Risk, warning: str
) -> ChangeSettings:
    return ChangeSettings(
        server=wanted.server,
        place=wanted.place,
        topic=wanted.topic,
        changes=changes,
        risk=risk,
        warning=warning,
    )
