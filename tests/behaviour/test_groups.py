"""Consumer groups, classic protocol, on twin, Kafka and gateway: by librdkafka and by the wire."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

COMMIT, FETCH_OFFSETS, FIND, JOIN, BEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE = 15, 16, 42, 47
NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, INVALID_GROUP = 0, 22, 25, 27, 24
INCONSISTENT, INVALID_SESSION, NON_EMPTY, NOT_FOUND, MEMBER_ID_REQUIRED = 23, 26, 68, 69, 79
FENCED_INSTANCE, SUBSCRIBED, UNKNOWN_TOPIC, METADATA_TOO_LARGE = 82, 86, 3, 12
NOT_YET = {14, 15, 16}
"""Loading, not available, not the coordinator: what every client tries again."""
WITHIN = 30.0
_names = itertools.count()


@pytest.fixture
def group(wire: Any) -> str:
    """Name a group whose coordinator is there: a fresh Kafka makes its offsets topic when asked for it."""
    name = f"group-{uuid.uuid4().hex[:8]}-{next(_names)}"
    ready(lambda: wire.ask(FIND, 3, key=name, key_type=0))
    return name


@pytest.fixture
def admin(cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


@pytest.fixture
def consumers(cluster: Any, group: str) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(*topics: str, **options: Any) -> Consumer:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
        }
        given = {key.replace("_", "."): value for key, value in options.items()}
        consumer = Consumer({**settings, **given})
        made.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def filled(wire: Any, batch: Any, records: int, partitions: int = 1) -> str:
    """Make a topic with so many records in each partition."""
    topic: str = wire.create(partitions)
    for partition in range(partitions):
        produced = wire.produce(
            topic, batch([{"value": b"%d" % number} for number in range(records)]), partition=partition
        )
        assert produced.error_code == NONE
    return topic


def take(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + WITHIN
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def until(check: Callable[[], Any], *consumers: Consumer, within: float = WITHIN) -> Any:
    """Let consumers work until something is true."""
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is None
        if not consumers:
            time.sleep(0.05)
    return found


# By librdkafka


def test_a_group_goes_on_where_it_stopped(wire: Any, batch: Any, consumers: Callable[..., Consumer]) -> None:
    topic = filled(wire, batch, 10)
    first = consumers(topic)
    read = take(first, 4)
    first.commit(message=read[-1], asynchronous=False)
    first.close()
    assert [message.offset() for message in take(consumers(topic), 6)] == list(range(4, 10))


def test_what_was_not_committed_comes_again(
    wire: Any, batch: Any, consumers: Callable[..., Consumer]
) -> None:
    topic = filled(wire, batch, 5)
    first = consumers(topic)
    take(first, 5)
    first.close()
    assert [message.offset() for message in take(consumers(topic), 5)] == list(range(5))


def test_a_second_member_takes_its_share_and_gives_it_back(
    wire: Any, batch: Any, consumers: Callable[..., Consumer]
) -> None:
    topic = filled(wire, batch, 1, partitions=4)
    first = consumers(topic)
    until(lambda: len(first.assignment()) == 4, first)
    second = consumers(topic)
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    parts = {each.partition for each in first.assignment()} | {each.partition for each in second.assignment()}
    assert parts == {0, 1, 2, 3}
    second.close()
    until(lambda: len(first.assignment()) == 4, first)


def test_cooperative_members_keep_what_stays_theirs(
    wire: Any, batch: Any, consumers: Callable[..., Consumer]
) -> None:
    topic = filled(wire, batch, 1, partitions=4)
    revoked: list[int] = []
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    first = consumers(**options)
    first.subscribe([topic], on_revoke=lambda _, parts: revoked.extend(each.partition for each in parts))
    until(lambda: len(first.assignment()) == 4, first)
    second = consumers(topic, **options)
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert len(revoked) == 2, revoked


def test_a_static_member_comes_back_to_its_partitions(
    wire: Any, batch: Any, consumers: Callable[..., Consumer], admin: AdminClient, group: str
) -> None:
    topic = filled(wire, batch, 1, partitions=4)
    other = consumers(topic, group_instance_id="one")
    first = consumers(topic, group_instance_id="two")
    until(lambda: len(first.assignment()) == len(other.assignment()) == 2, first, other)
    had = {each.partition for each in first.assignment()}
    kept = {each.partition for each in other.assignment()}
    first.close()
    again = consumers(topic, group_instance_id="two")
    until(again.assignment, again, other)
    assert {each.partition for each in again.assignment()} == had
    assert {each.partition for each in other.assignment()} == kept
    found = admin.describe_consumer_groups([group])[group].result(WITHIN)
    assert sorted(member.group_instance_id for member in found.members) == ["one", "two"]


def test_administrators_see_and_delete_groups(
    wire: Any, batch: Any, consumers: Callable[..., Consumer], admin: AdminClient, group: str
) -> None:
    topic = filled(wire, batch, 3)
    consumer = consumers(topic, client_id="reader")
    consumer.commit(message=take(consumer, 3)[-1], asynchronous=False)
    found = admin.describe_consumer_groups([group])[group].result(WITHIN)
    assert (found.state, found.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    [member] = found.members
    assert (member.client_id, member.host) == ("reader", "/127.0.0.1")
    assert [each.topic for each in member.assignment.topic_partitions] == [topic]
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(WITHIN).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    stable = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WITHIN).valid
    assert group not in {each.group_id for each in stable}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(WITHIN)
    consumer.close()
    assert committed(admin, group) == {(topic, 0): 3}
    admin.delete_consumer_groups([group])[group].result(WITHIN)
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(WITHIN).valid}
    assert group not in listed
    assert committed(admin, group) == {}
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result(WITHIN)


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in future.result(WITHIN).topic_partitions}


def test_an_administrator_resets_offsets_of_an_empty_group_only(
    wire: Any, batch: Any, consumers: Callable[..., Consumer], admin: AdminClient, group: str
) -> None:
    topic = filled(wire, batch, 6)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    consumer = consumers(topic)
    consumer.commit(message=take(consumer, 6)[-1], asynchronous=False)
    [future] = admin.alter_consumer_group_offsets([wanted]).values()
    refused = future.exception(WITHIN) or future.result().topic_partitions[0].error
    assert "UNKNOWN_MEMBER_ID" in str(refused)
    consumer.close()
    [future] = admin.alter_consumer_group_offsets([wanted]).values()
    assert future.result(WITHIN).topic_partitions[0].error is None
    assert [message.offset() for message in take(consumers(topic), 4)] == [2, 3, 4, 5]


# By the wire


def ready(ask: Callable[[], Any]) -> Any:
    """Ask until the coordinator is there: a fresh Kafka makes its offsets topic first."""
    deadline = time.monotonic() + WITHIN
    while (found := ask()).error_code in NOT_YET:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def join(wire: Any, group: str, member: str = "", *, version: int = 9, **more: Any) -> Any:
    fields = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription()}],
    }
    return ready(lambda: wire.ask(JOIN, version, **(fields | more)))


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def sync(wire: Any, group: str, joined: Any, assignments: Any = (), **more: Any) -> Any:
    rows = [{"member_id": name, "assignment": data} for name, data in assignments]
    fields = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": rows,
    }
    return wire.ask(SYNC, 5, **(fields | more))


def beat(wire: Any, group: str, generation: int, member: str, instance: str | None = None) -> int:
    found = wire.ask(
        BEAT, 4, group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return int(found.error_code)


def alone(wire: Any, group: str, **more: Any) -> Any:
    """Become the only member, with an assignment."""
    first = join(wire, group, **more)
    joined = first
    if first.error_code == MEMBER_ID_REQUIRED:
        joined = join(wire, group, first.member_id, **more)
    assert joined.error_code == NONE
    assert joined.leader == joined.member_id
    synced = sync(wire, group, joined, [(joined.member_id, b"mine")])
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    return joined


def commit(
    wire: Any, group: str, topic: str, offset: int, *, version: int = 9, joined: Any = None, **more: Any
) -> int:
    row = {
        "partition_index": more.pop("partition", 0),
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": more.pop("metadata", "words"),
    }
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": joined.generation_id if joined else -1,
        "member_id": joined.member_id if joined else "",
        "topics": [{"name": topic, "partitions": [row]}],
    }
    deadline = time.monotonic() + WITHIN
    while True:
        found = wire.ask(COMMIT, version, **(fields | more))
        error = int(found.topics[0].partitions[0].error_code)
        if error not in NOT_YET:
            return error
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fetch(wire: Any, group: str, topic: str, version: int = 7) -> tuple[int, str, int]:
    asked = [{"name": topic, "partition_indexes": [0]}]
    if version >= 8:
        found = wire.ask(FETCH_OFFSETS, version, groups=[{"group_id": group, "topics": asked}])
        found = found.groups[0]
    else:
        found = wire.ask(FETCH_OFFSETS, version, group_id=group, topics=asked)
    one = found.topics[0].partitions[0]
    return one.committed_offset, one.metadata, one.error_code


def test_a_new_member_is_told_its_id_first(wire: Any, group: str) -> None:
    told = join(wire, group)
    assert told.error_code == MEMBER_ID_REQUIRED
    assert told.member_id.startswith("test-")
    joined = join(wire, group, told.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.protocol_type == "consumer"
    assert [member.member_id for member in joined.members] == [told.member_id]


def test_an_old_client_joins_at_once(wire: Any, group: str) -> None:
    fields = {"group_instance_id": None}
    joined = join(wire, group, version=3, **fields)
    assert (joined.error_code, joined.generation_id) == (NONE, 1)


def test_what_nobody_may_join_with(wire: Any, group: str) -> None:
    assert join(wire, "").error_code == INVALID_GROUP
    assert join(wire, group, "nobody").error_code == UNKNOWN_MEMBER
    assert join(wire, group, session_timeout=1).error_code == INVALID_SESSION
    assert join(wire, group, session_timeout=10_000_000).error_code == INVALID_SESSION
    assert join(wire, group, protocols=[]).error_code == INCONSISTENT
    assert join(wire, group, protocol_type="").error_code == INCONSISTENT
    alone(wire, group)
    assert join(wire, group, protocol_type="connect").error_code == INCONSISTENT
    other = [{"name": "other", "metadata": b""}]
    assert join(wire, group, protocols=other).error_code == INCONSISTENT


def test_generations_are_fenced(wire: Any, group: str) -> None:
    topic = wire.create()
    joined = alone(wire, group)
    member, generation = joined.member_id, joined.generation_id
    assert beat(wire, group, generation, member) == NONE
    assert beat(wire, group, generation + 1, member) == ILLEGAL_GENERATION
    assert beat(wire, group, generation, "nobody") == UNKNOWN_MEMBER
    assert beat(wire, "never-made", generation, member) == UNKNOWN_MEMBER
    assert commit(wire, group, topic, 5, joined=joined) == NONE
    assert commit(wire, group, topic, 6, generation_id_or_member_epoch=generation + 1, member_id=member) == 22
    assert commit(wire, group, topic, 6, generation_id_or_member_epoch=generation, member_id="x") == 25
    assert commit(wire, group, topic, 6) == UNKNOWN_MEMBER
    stale = sync(wire, group, joined, generation_id=generation + 1)
    assert stale.error_code == ILLEGAL_GENERATION
    assert sync(wire, group, joined, protocol_name="other").error_code == INCONSISTENT
    assert sync(wire, group, joined, protocol_name=None).error_code == INCONSISTENT
    assert sync(wire, group, joined).assignment == b"mine"
    assert fetch(wire, group, topic) == (5, "words", NONE)


@contextmanager
def another(cluster: Any) -> Iterator[Any]:
    connection = cluster.connect()
    try:
        yield connection
    finally:
        connection.close()


def test_a_rebalance_is_told_to_everybody(cluster: Any, wire: Any, group: str) -> None:
    first = alone(wire, group)
    with another(cluster) as other:
        told = join(other, group)
        fields = {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": told.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"new"}],
        }
        other.send(JOIN, 9, **fields)
        until(lambda: beat(wire, group, first.generation_id, first.member_id) == REBALANCING)
        assert sync(wire, group, first).error_code == REBALANCING
        again = join(wire, group, first.member_id)
        _, joined = other.answer()
        assert again.generation_id == joined.generation_id == first.generation_id + 1
        assert again.leader == joined.leader == first.member_id
        assert {member.member_id for member in again.members} == {first.member_id, told.member_id}
        assert {bytes(member.metadata) for member in again.members} == {subscription(), b"new"}
        assert joined.members == ()
        other.send(
            SYNC,
            5,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        given = [(first.member_id, b"a"), (joined.member_id, b"b")]
        assert sync(wire, group, again, given).assignment == b"a"
        assert other.answer()[1].assignment == b"b"


@pytest.mark.slow
def test_a_member_that_falls_silent_is_dropped(cluster: Any, wire: Any, group: str) -> None:
    joined = alone(wire, group, session_timeout=6_000)
    assert state_of(wire, group) == "Stable"
    until(lambda: state_of(wire, group) == "Empty")
    assert beat(wire, group, joined.generation_id, joined.member_id) == UNKNOWN_MEMBER


def state_of(wire: Any, group: str, version: int = 5) -> str:
    found = wire.ask(DESCRIBE, version, groups=[group], include_authorized_operations=False)
    return str(found.groups[0].group_state)


def test_several_members_leave_in_one_request(wire: Any, group: str) -> None:
    joined = alone(wire, group, group_instance_id="one")
    leavers = [
        {"member_id": "nobody", "group_instance_id": None},
        {"member_id": "other", "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": "two"},
        {"member_id": "", "group_instance_id": "one"},
    ]
    found = wire.ask(LEAVE, 5, group_id=group, members=leavers)
    codes = [member.error_code for member in found.members]
    assert (found.error_code, codes) == (NONE, [UNKNOWN_MEMBER, FENCED_INSTANCE, UNKNOWN_MEMBER, NONE])
    assert state_of(wire, group) == "Empty"
    assert beat(wire, group, joined.generation_id, joined.member_id) == UNKNOWN_MEMBER
    assert wire.ask(LEAVE, 2, group_id=group, member_id=joined.member_id).error_code == UNKNOWN_MEMBER


def test_a_static_member_takes_its_old_place(wire: Any, group: str) -> None:
    first = alone(wire, group, group_instance_id="one")
    second = join(wire, group, group_instance_id="one")
    assert second.error_code == NONE
    assert second.member_id != first.member_id
    assert second.generation_id == first.generation_id
    assert second.skip_assignment is True
    assert sync(wire, group, second, group_instance_id="one").assignment == b"mine"
    assert beat(wire, group, first.generation_id, first.member_id, "one") == FENCED_INSTANCE
    assert beat(wire, group, first.generation_id, second.member_id, "one") == NONE
    assert join(wire, group, first.member_id, group_instance_id="one").error_code == FENCED_INSTANCE


@pytest.mark.parametrize("version", [2, 5, 8, 9])
def test_offsets_without_members(wire: Any, group: str, version: int) -> None:
    topic = wire.create()
    assert commit(wire, group, topic, 7, version=version) == NONE
    assert fetch(wire, group, topic) == (7, "words", NONE)
    assert fetch(wire, group, topic, version=9) == (7, "words", NONE)
    assert commit(wire, group, topic, 3, version=version) == NONE
    assert fetch(wire, group, topic, version=1) == (3, "words", NONE)
    assert fetch(wire, f"{group}-other", topic) == (-1, "", NONE)
    stranger = {"generation_id_or_member_epoch": 3, "member_id": "x", "version": version}
    # KIP-848: since 9 a group that is not there is told as such.
    assert commit(wire, f"{group}-other", topic, 1, **stranger) == (69 if version >= 9 else 22)
    everything = wire.ask(FETCH_OFFSETS, 8, groups=[{"group_id": group, "topics": None}]).groups[0]
    assert [each.name for each in everything.topics] == [topic]


def test_what_cannot_be_committed(wire: Any, group: str) -> None:
    topic = wire.create()
    assert commit(wire, group, topic, 1, metadata="x" * 4097) == METADATA_TOO_LARGE
    assert commit(wire, group, topic, 1, metadata="x" * 4096) == NONE
    assert commit(wire, group, "never-made", 1) == UNKNOWN_TOPIC
    assert commit(wire, group, topic, 1, partition=9) == UNKNOWN_TOPIC


def test_topics_by_id(wire: Any, group: str) -> None:
    topic = wire.create()
    asked = [{"topic_id": uuid.UUID(int=0), "name": topic}]
    topic_id = wire.ask(3, 12, topics=asked, allow_auto_topic_creation=False).topics[0].topic_id
    row = {"partition_index": 0, "committed_offset": 4, "committed_metadata": ""}
    wanted = [{"topic_id": topic_id, "partitions": [row]}, {"topic_id": uuid.uuid4(), "partitions": [row]}]
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    until(lambda: commit(wire, group, topic, 1) == NONE)
    found = wire.ask(COMMIT, 10, **fields, topics=wanted)
    by_id = {each.topic_id: each.partitions[0].error_code for each in found.topics}
    assert by_id == {topic_id: NONE, wanted[1]["topic_id"]: 100}
    asked = [{"topic_id": topic_id, "partition_indexes": [0, 5]}]
    group_row = wire.ask(FETCH_OFFSETS, 10, groups=[{"group_id": group, "topics": asked}]).groups[0]
    [one] = group_row.topics
    assert one.topic_id == topic_id
    assert [each.committed_offset for each in one.partitions] == [4, -1]


def test_offsets_are_deleted_unless_they_are_in_use(wire: Any, group: str) -> None:
    topic, other = wire.create(), wire.create()

    def delete(name: str) -> tuple[int, int | None]:
        asked = [{"name": name, "partitions": [{"partition_index": 0}]}]
        found = wire.ask(OFFSET_DELETE, 0, group_id=group, topics=asked)
        rows = [each.error_code for row in found.topics for each in row.partitions]
        return found.error_code, rows[0] if rows else None

    joined = alone(wire, group, protocols=[{"name": "range", "metadata": subscription(topic)}])
    assert commit(wire, group, topic, 1, joined=joined) == NONE
    assert commit(wire, group, other, 1, joined=joined) == NONE
    assert delete(topic) == (NONE, SUBSCRIBED)
    assert delete(other) == (NONE, NONE)
    assert fetch(wire, group, topic)[0] == 1
    assert fetch(wire, group, other)[0] == -1
    found = wire.ask(OFFSET_DELETE, 0, group_id=f"{group}-none", topics=[])
    assert found.error_code == NOT_FOUND


def test_groups_are_listed_by_state_and_type(wire: Any, group: str) -> None:
    topic = wire.create()
    assert commit(wire, group, topic, 1) == NONE

    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        found = wire.ask(LIST, 5, **({"states_filter": [], "types_filter": []} | filters))
        assert found.error_code == NONE
        return [(e.protocol_type, e.group_state, e.group_type) for e in found.groups if e.group_id == group]

    assert listed() == [("", "Empty", "classic")]
    assert listed(states_filter=["empty"], types_filter=["CLASSIC"]) == [("", "Empty", "classic")]
    assert listed(states_filter=["Stable"]) == []
    assert listed(types_filter=["consumer"]) == []
    assert group in {each.group_id for each in wire.ask(LIST, 0).groups}


def test_a_group_that_is_not_there_is_dead(wire: Any, group: str) -> None:
    topic = wire.create()
    assert commit(wire, f"{group}-other", topic, 1) == NONE
    assert state_of(wire, group) == "Dead"
    found = wire.ask(DESCRIBE, 6, groups=[group], include_authorized_operations=False).groups[0]
    assert (found.error_code, found.group_state) == (NOT_FOUND, "Dead")
    assert wire.ask(DELETE, 2, groups_names=[group]).results[0].error_code == NOT_FOUND


def test_every_version_finds_the_coordinator(wire: Any, group: str) -> None:
    nodes = {broker.node_id: broker for broker in wire.ask(3, 9, topics=[]).brokers}
    for version in range(4):
        fields = {"key": group} | ({"key_type": 0} if version else {})
        found = ready(lambda fields=fields, version=version: wire.ask(FIND, version, **fields))
        assert (found.host, found.port) == (nodes[found.node_id].host, nodes[found.node_id].port)
    several = wire.ask(FIND, 6, key_type=0, coordinator_keys=[group, f"{group}-b"]).coordinators
    assert [each.key for each in several] == [group, f"{group}-b"]
    assert all(each.error_code == NONE and each.node_id in nodes for each in several)


# By several clients in one group


# kafka-python reads its schemas by functions that Python 3.11 has deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_different_clients_share_one_group(cluster: Any, wire: Any, batch: Any, group: str) -> None:
    """librdkafka, aiokafka, kafka-python and Java's client in one group: each has its share, all is read."""
    readers = {"librdkafka": by_librdkafka, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python}
    if cluster.name != "memory":  # the twin is for tests without servers, and those need no Java
        readers["java"] = by_java
    parts = 2 * len(readers)
    topic = filled(wire, batch, 10, partitions=parts)
    stop = threading.Event()
    read: dict[str, Seen] = {name: set() for name in readers}
    owned: dict[str, set[int]] = {name: set() for name in readers}
    threads = [
        threading.Thread(target=reader, args=(cluster.bootstrap, topic, group, read[name], owned[name], stop))
        for name, reader in readers.items()
    ]
    for thread in threads:
        thread.start()
    try:
        # The console consumer does not tell what it owns: what the others leave is its own.
        shares = [owned[name] for name in readers if name != "java"]
        until(lambda: [len(each) for each in shares] == [2, 2, 2] and len(set.union(*shares)) == 6, within=90)
        owned.setdefault("java", set()).update(set(range(parts)) - set.union(*shares))
        until(lambda: len(set.union(*read.values())) == 10 * parts, within=90)
        for partition in range(parts):
            assert wire.produce(topic, batch([{"value": b"more"}]), partition=partition).error_code == NONE
        for name in readers:
            until(lambda name=name: {(part, 10) for part in owned[name]} <= read[name], within=90)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WITHIN)
    assert not any(thread.is_alive() for thread in threads)
    until(lambda: state_of(wire, group) == "Empty")


Seen = set[tuple[int, int]]


def by_librdkafka(
    bootstrap: str, topic: str, group: str, read: Seen, owned: set[int], stop: threading.Event
) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    settings |= {"partition.assignment.strategy": "roundrobin", "log_level": 0}
    consumer = Consumer({**settings, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 300})
    consumer.subscribe([topic])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.add((message.partition(), message.offset()))
        replace(owned, (each.partition for each in consumer.assignment()))
    consumer.close()


def by_aiokafka(
    bootstrap: str, topic: str, group: str, read: Seen, owned: set[int], stop: threading.Event
) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for part, messages in (await consumer.getmany(timeout_ms=100)).items():
                    read.update((part.partition, message.offset) for message in messages)
                replace(owned, (each.partition for each in consumer.assignment()))
        finally:
            await consumer.stop()

    asyncio.run(work())


def by_kafka_python(
    bootstrap: str, topic: str, group: str, read: Seen, owned: set[int], stop: threading.Event
) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        session_timeout_ms=10_000,
        heartbeat_interval_ms=300,
    )
    while not stop.is_set():
        for part, messages in consumer.poll(timeout_ms=100).items():
            read.update((part.partition, message.offset) for message in messages)
        replace(owned, (each.partition for each in consumer.assignment()))
    consumer.close()


def by_java(
    bootstrap: str, topic: str, group: str, read: Seen, owned: set[int], stop: threading.Event
) -> None:
    """Let Kafka's console consumer be a member; it ends in order when it is asked to."""
    from penstock.embedded.kafka_tools import tool_command

    settings = {
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "session.timeout.ms": "10000",
        "heartbeat.interval.ms": "300",
    }
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    for name, value in settings.items():
        words += ["--command-property", f"{name}={value}"]
    for name in ("print.partition", "print.offset"):
        words += ["--formatter-property", f"{name}=true"]
    with subprocess.Popen(tool_command("console-consumer", words), stdout=subprocess.PIPE, text=True) as java:
        threading.Thread(target=lambda: (stop.wait(), java.terminate()), daemon=True).start()
        assert java.stdout is not None
        for line in java.stdout:
            found = re.match(r"Partition:(\d+)\tOffset:(\d+)\t", line)
            assert found, line
            read.add((int(found[1]), int(found[2])))


def replace(owned: set[int], now: Iterable[int]) -> None:
    found = set(now)
    owned &= found
    owned |= found
