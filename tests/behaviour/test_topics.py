"""Topics, their settings and the places in them; and what closes a connection."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

NOBODY = UUID(int=0)
METADATA, CREATE, DELETE, DELETE_RECORDS, DESCRIBE, GROW, ALTER = 3, 19, 20, 21, 32, 37, 44


def metadata(wire: Any, name: str, *, create: bool = False) -> Any:
    asked = [{"topic_id": NOBODY, "name": name}]
    return wire.ask(METADATA, 12, topics=asked, allow_auto_topic_creation=create).topics[0]


def create_code(wire: Any, name: str, partitions: int = 1, **more: Any) -> int:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1} | more
    return int(wire.ask(CREATE, 5, topics=[topic], timeout=30_000).topics[0].error_code)


def delete_code(wire: Any, name: str) -> int:
    return int(wire.ask(DELETE, 5, topic_names=[name], timeout=30_000).responses[0].error_code)


def settled(check: Any) -> Any:
    """Wait until something is true: both clusters tell of a change before everybody knows it."""
    deadline = time.monotonic() + 15
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_a_topic_lives_and_dies(wire: Any) -> None:
    topic = wire.create(3)
    found = settled(lambda: [t for t in [metadata(wire, topic)] if len(t.partitions) == 3])[0]
    assert found.error_code == 0
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2]
    assert all(part.leader_id >= 0 and part.error_code == 0 for part in found.partitions)
    everything = wire.ask(METADATA, 12, topics=None, allow_auto_topic_creation=False)
    assert topic in {each.name for each in everything.topics}
    assert everything.controller_id in {broker.node_id for broker in everything.brokers}
    assert delete_code(wire, topic) == 0
    assert settled(lambda: metadata(wire, topic).error_code == 3)
    assert delete_code(wire, topic) == 3


def test_a_topic_is_described_only_if_it_exists(wire: Any) -> None:
    assert metadata(wire, "never-made").error_code == 3
    by_id = wire.ask(METADATA, 12, topics=[{"topic_id": UUID(int=99), "name": None}])
    assert by_id.topics[0].error_code == 100


def test_a_topic_is_made_when_it_is_asked_for(cluster: Any, wire: Any) -> None:
    if not cluster.auto_creates:
        assert metadata(wire, "wished-for", create=True).error_code == 3
        return
    assert settled(lambda: metadata(wire, "wished-for", create=True).error_code == 0)
    assert wire.find("wished-for", -1)[:2] == (0, 0)
    assert delete_code(wire, "wished-for") == 0


def test_many_clients_ask_for_the_same_topic_at_once(cluster: Any, wire: Any) -> None:
    connections = [cluster.connect() for _ in range(12)]
    for connection in connections:
        asked = [{"topic_id": NOBODY, "name": "wished-by-many"}]
        connection.send(METADATA, 12, topics=asked, allow_auto_topic_creation=True)
    codes = {int(connection.answer()[1].topics[0].error_code) for connection in connections}
    for connection in connections:
        connection.close()
    assert codes == ({0} if cluster.auto_creates else {3})
    assert delete_code(wire, "wished-by-many") == (0 if cluster.auto_creates else 3)


@pytest.mark.parametrize(
    ("name", "partitions", "code"),
    [("", 1, 17), ("a b", 1, 17), ("..", 1, 17), ("x" * 250, 1, 17), ("fine", 0, 37), ("fine", -2, 37)],
)
def test_a_topic_that_cannot_be(wire: Any, name: str, partitions: int, code: int) -> None:
    assert create_code(wire, name, partitions) == code


def test_a_topic_cannot_be_made_twice(wire: Any) -> None:
    assert create_code(wire, wire.create()) == 36
    twice = [{"name": "same", "num_partitions": 1, "replication_factor": 1}] * 2
    answer = wire.ask(CREATE, 5, topics=twice, timeout=30_000)
    assert {topic.error_code for topic in answer.topics} == {42}


def test_a_validation_makes_nothing(wire: Any) -> None:
    topic = [{"name": "only-thought-of", "num_partitions": 2, "replication_factor": 1}]
    assert wire.ask(CREATE, 5, topics=topic, timeout=30_000, validate_only=True).topics[0].error_code == 0
    assert metadata(wire, "only-thought-of").error_code == 3


def listed(wire: Any) -> set[str]:
    return {topic.name for topic in wire.ask(METADATA, 12, topics=None).topics}


def test_a_name_with_the_mark_of_a_partition(wire: Any, batch: Any, records: Any) -> None:
    """Pulsar names partitions so: the topic and the partitions of its neighbour stay apart."""
    neighbour = wire.create(2)
    topic = wire.create(2, name=f"{neighbour}-partition-0")
    assert wire.produce(neighbour, batch([{"value": b"neighbour"}]), partition=0).base_offset == 0
    assert wire.produce(topic, batch([{"value": b"literal"}]), partition=1).base_offset == 0
    assert [r.value for r in records(wire.fetch(neighbour, 0))] == [b"neighbour"]
    assert [r.value for r in records(wire.fetch(topic, 0, partition=1))] == [b"literal"]
    assert wire.find(topic, -1, partition=0)[:2] == (0, 0)
    found = settled(lambda: [t for t in [metadata(wire, topic)] if len(t.partitions) == 2])[0]
    assert (found.error_code, found.name) == (0, topic)
    assert settled(lambda: {topic, neighbour} <= listed(wire))
    assert {name for name in listed(wire) if name.startswith(neighbour)} == {topic, neighbour}
    assert alter(wire, topic, "retention.ms", "7200000") == 0
    assert settled(lambda: configs(wire, topic)["retention.ms"] == "7200000")
    assert delete_code(wire, topic) == 0
    assert settled(lambda: topic not in listed(wire))
    assert [r.value for r in records(wire.fetch(neighbour, 0))] == [b"neighbour"]


def test_a_name_with_two_underscores(cluster: Any, wire: Any, batch: Any, records: Any) -> None:
    topic = wire.create(name=f"__{wire.create()}")
    assert wire.produce(topic, batch([{"value": b"seen"}])).base_offset == 0
    assert [r.value for r in records(wire.fetch(topic, 0))] == [b"seen"]
    assert (topic in listed(wire)) == cluster.expects("underscores")
    assert delete_code(wire, topic) == 0


@pytest.mark.server
def test_the_topics_of_pulsar_itself_are_out_of_reach(gateway: Any, connect: Any, batch: Any) -> None:
    wire = connect(gateway.bootstrap)
    wire.create(retention_ms="3600000")  # the policy of a topic is an event in __change_events
    assert create_code(wire, "__change_events") == 17
    assert metadata(wire, "__change_events", create=True).error_code == 17
    assert wire.produce("__change_events", batch([{}])).error_code == 17
    assert wire.fetch("__change_events", 0).error_code == 17
    assert delete_code(wire, "__change_events") == 17
    assert not [name for name in listed(wire) if name.startswith("__")]
    wire.close()


@pytest.mark.server
def test_topics_are_not_made_if_the_operator_says_so(start_gateway: Any, pulsar: Any, connect: Any) -> None:
    from penstock.gateway.handler import Settings

    never = start_gateway(
        pulsar.service_url,
        pulsar.admin_url,
        settings=Settings(auto_create_topics=False, default_partitions=3),
    )
    wire = connect(never.bootstrap)
    assert metadata(wire, "not-wished-for", create=True).error_code == 3
    name = f"by-default-{time.time_ns()}"
    assert create_code(wire, name, -1) == 0
    assert settled(lambda: len(metadata(wire, name).partitions) == 3)
    wire.close()
    never.close()


def test_a_topic_that_is_made_again(wire: Any, batch: Any) -> None:
    topic = wire.create()
    first = metadata(wire, topic).topic_id
    assert wire.produce(topic, batch([{}] * 4)).base_offset == 0
    assert delete_code(wire, topic) == 0
    assert settled(lambda: metadata(wire, topic).error_code == 3)
    assert settled(lambda: create_code(wire, topic) in (0, 36))
    second = settled(lambda: metadata(wire, topic).topic_id)
    assert first != second
    assert settled(lambda: wire.produce(topic, batch([{}])).base_offset == 0)
    assert wire.find(topic, -1)[:2] == (0, 1)


def test_partitions_only_grow(wire: Any, batch: Any) -> None:
    topic = wire.create(2)

    def grow(count: int) -> int:
        asked = [{"name": topic, "count": count, "assignments": None}]
        return int(wire.ask(GROW, 1, topics=asked, timeout=30_000, validate_only=False).results[0].error_code)

    assert grow(1) == 37
    assert grow(2) == 37
    assert grow(4) == 0
    assert settled(lambda: len(metadata(wire, topic).partitions) == 4)
    assert settled(lambda: wire.produce(topic, batch([{}]), partition=3).error_code == 0)
    unknown = [{"name": "never-made", "count": 4, "assignments": None}]
    assert wire.ask(GROW, 1, topics=unknown, timeout=30_000).results[0].error_code == 3


# Settings


def configs(wire: Any, topic: str) -> dict[str, str]:
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
    result = wire.ask(DESCRIBE, 2, resources=asked, include_synonyms=False).results[0]
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


def alter(wire: Any, topic: str, name: str, value: str | None, operation: int = 0) -> int:
    config = [{"name": name, "config_operation": operation, "value": value}]
    asked = [{"resource_type": 2, "resource_name": topic, "configs": config}]
    return int(wire.ask(ALTER, 1, resources=asked, validate_only=False).responses[0].error_code)


def test_settings_are_read_and_written(wire: Any) -> None:
    topic = wire.create(retention_ms="3600000", cleanup_policy="compact")
    assert settled(lambda: configs(wire, topic)["retention.ms"] == "3600000")
    assert configs(wire, topic)["cleanup.policy"] == "compact"
    assert alter(wire, topic, "retention.ms", "7200000") == 0
    assert settled(lambda: configs(wire, topic)["retention.ms"] == "7200000")
    assert alter(wire, topic, "cleanup.policy", None, operation=1) == 0
    assert settled(lambda: configs(wire, topic)["cleanup.policy"] == "delete")


@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "soon"), ("cleanup.policy", "burn"), ("no.such.setting", "1")]
)
def test_a_setting_that_cannot_be(wire: Any, name: str, value: str) -> None:
    topic = wire.create()
    assert alter(wire, topic, name, value) == 40
    assert create_code(wire, f"{topic}-new", configs=[{"name": name, "value": value}]) == 40
    assert metadata(wire, f"{topic}-new").error_code == 3


KAFKA_ALONE = {
    "message.timestamp.type": "CreateTime",
    "segment.bytes": "52428800",
    "segment.ms": "600000",
    "min.insync.replicas": "1",
    "retention.bytes": "1073741825",
    "compression.type": "producer",
    "delete.retention.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.3",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "compact,delete",
    "retention.ms": "90001",
}
"""What Kafka Streams, MirrorMaker and descriptions of infrastructure set on topics."""
DYNAMIC_TOPIC_CONFIG = 1


def described(wire: Any, topic: str, *, names: list[str] | None = None, version: int = 4) -> dict[str, Any]:
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": names}]
    more = {"include_documentation": False} if version > 2 else {}
    result = wire.ask(DESCRIBE, version, resources=asked, include_synonyms=True, **more).results[0]
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def set_on_topic(wire: Any, topic: str) -> dict[str, str]:
    """Give what is told to be set on the topic itself, and by whom nothing else is."""
    rows = described(wire, topic).values()
    return {row.name: row.value for row in rows if row.config_source == DYNAMIC_TOPIC_CONFIG}


def test_settings_of_kafka_alone_are_kept_and_given_back(wire: Any) -> None:
    topic = f"{wire.create()}-kafka"
    rows = [{"name": name, "value": value} for name, value in KAFKA_ALONE.items()]
    assert create_code(wire, topic, configs=rows) == 0
    assert settled(lambda: set_on_topic(wire, topic) == KAFKA_ALONE), set_on_topic(wire, topic)
    plain = wire.create()
    assert set_on_topic(wire, plain) == {}
    assert len(described(wire, plain)) > 30
    assert alter(wire, topic, "segment.ms", "700000") == 0
    assert alter(wire, topic, "min.insync.replicas", None, operation=1) == 0
    assert alter(wire, topic, "flush.ms", None, operation=1) == 0
    left = {name: value for name, value in KAFKA_ALONE.items() if name != "min.insync.replicas"}
    assert settled(lambda: set_on_topic(wire, topic) == left | {"segment.ms": "700000"})


def test_a_described_setting_says_where_it_comes_from(wire: Any) -> None:
    topic = wire.create(segment_ms="600000")
    found = settled(lambda: described(wire, topic, names=["segment.ms", "flush.ms", "no.such"]))
    assert set(found) == {"segment.ms", "flush.ms"}
    one = found["segment.ms"]
    assert (one.config_type, one.read_only, one.is_sensitive) == (5, False, False)
    assert (one.synonyms[0].name, one.synonyms[0].value, one.synonyms[0].source) == (
        "segment.ms",
        "600000",
        1,
    )
    assert [row.source for row in found["flush.ms"].synonyms if row.source == DYNAMIC_TOPIC_CONFIG] == []


@pytest.mark.parametrize("value", ["CreateTime", "LogAppendTime"])
def test_what_timestamps_mean(cluster: Any, wire: Any, value: str) -> None:
    config = [{"name": "message.timestamp.type", "value": value}]
    code = create_code(wire, f"{wire.create()}-{value}", configs=config)
    assert code == (0 if value == "CreateTime" else cluster.expects("log-append-time"))


def test_a_topic_for_larger_messages_than_pulsar_takes(cluster: Any, wire: Any) -> None:
    rows = [
        {"name": "max.message.bytes", "value": "67108864"},
        {"name": "cleanup.policy", "value": "compact"},
    ]
    topic = f"{wire.create()}-large"
    code = create_code(wire, topic, configs=rows)
    assert code == cluster.expects("large-messages")
    # What is refused is not half made.
    assert settled(lambda: metadata(wire, topic).error_code == (3 if code else 0))


def test_lists_grow_and_shrink(wire: Any) -> None:
    append, subtract = 2, 3
    topic = wire.create()
    assert alter(wire, topic, "cleanup.policy", "compact", append) == 0
    assert settled(lambda: set(configs(wire, topic)["cleanup.policy"].split(",")) == {"delete", "compact"})
    assert alter(wire, topic, "cleanup.policy", "delete", subtract) == 0
    assert settled(lambda: configs(wire, topic)["cleanup.policy"] == "compact")
    assert alter(wire, topic, "retention.ms", "1", append) == 40


ALTER_ALL = 33


def alter_all(wire: Any, topic: str, *, validate_only: bool = False, **values: str) -> int:
    rows = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
    asked = [{"resource_type": 2, "resource_name": topic, "configs": rows}]
    return int(wire.ask(ALTER_ALL, 2, resources=asked, validate_only=validate_only).responses[0].error_code)


def test_all_settings_are_replaced_at_once(wire: Any) -> None:
    topic = wire.create(retention_ms="3600000", segment_ms="600000")
    assert alter_all(wire, topic, validate_only=True, flush_ms="1000") == 0
    assert alter_all(wire, topic, validate_only=True, flush_ms="x") == 40
    assert settled(lambda: set_on_topic(wire, topic) == {"retention.ms": "3600000", "segment.ms": "600000"})
    assert alter_all(wire, topic, flush_ms="1000", retention_ms="7200000") == 0
    assert settled(lambda: set_on_topic(wire, topic) == {"flush.ms": "1000", "retention.ms": "7200000"})
    assert alter_all(wire, topic, no_such="1") == 40
    assert alter_all(wire, "never-made", flush_ms="1000") == 3


def test_changes_that_are_only_checked(wire: Any) -> None:
    topic = wire.create()
    for value, code in (("3600000", 0), ("soon", 40)):
        config = [{"name": "retention.ms", "config_operation": 0, "value": value}]
        asked = [{"resource_type": 2, "resource_name": topic, "configs": config}]
        answer = wire.ask(ALTER, 1, resources=asked, validate_only=True)
        assert answer.responses[0].error_code == code
    assert set_on_topic(wire, topic) == {}


def test_the_settings_of_a_broker(wire: Any) -> None:
    node = wire.ask(METADATA, 12, topics=[]).brokers[0].node_id

    def broker(name: str) -> Any:
        asked = [{"resource_type": 4, "resource_name": name, "configuration_keys": None}]
        return wire.ask(DESCRIBE, 2, resources=asked, include_synonyms=False).results[0]

    found = broker(str(node))
    assert found.error_code == 0
    values = {config.name: config.value for config in found.configs}
    assert values["node.id"] == str(node)
    assert {"num.partitions", "auto.create.topics.enable", "message.max.bytes"} <= set(values)
    assert all(config.read_only for config in found.configs if config.name == "node.id")
    assert broker("").error_code == 0
    assert broker(str(node + 1)).error_code == 42
    assert broker("x").error_code == 42


def test_rights_are_told_to_be_disabled(wire: Any) -> None:
    wanted = {"resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 1}
    wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    assert wire.ask(29, 2, **wanted).error_code == 54


def pages(wire: Any, topics: list[str], limit: int) -> list[list[tuple[str, int, list[int]]]]:
    found: list[list[tuple[str, int, list[int]]]] = []
    cursor = None
    while True:
        asked = [{"name": name} for name in topics]
        page = wire.ask(75, 0, topics=asked, response_partition_limit=limit, cursor=cursor)
        rows = [(t.name, int(t.error_code), [p.partition_index for p in t.partitions]) for t in page.topics]
        found.append(rows)
        if page.next_cursor is None:
            return found
        cursor = {
            "topic_name": page.next_cursor.topic_name,
            "partition_index": page.next_cursor.partition_index,
        }


def test_partitions_are_described_page_by_page(wire: Any) -> None:
    one, two = sorted((wire.create(3), wire.create(2)))
    [whole] = pages(wire, [two, one, "never-made"], 2000)
    sizes = {name: len(rows) for name, _, rows in whole}
    assert [(name, code) for name, code, _ in whole] == sorted([(one, 0), (two, 0), ("never-made", 3)])
    assert sorted(sizes.values()) == [0, 2, 3]
    for limit in (1, 2, 4, 0):
        split = pages(wire, [one, two], limit)
        assert [len(sum((rows for _, _, rows in page), [])) for page in split][:-1] == [max(1, limit)] * (
            len(split) - 1
        )
        found = [(name, index) for page in split for name, _, rows in page for index in rows]
        assert found == [(name, index) for name in (one, two) for index in range(sizes[name])]
    described = wire.ask(75, 0, topics=[{"name": one}], response_partition_limit=9, cursor=None).topics[0]
    told = metadata(wire, one)
    assert described.topic_id == told.topic_id
    assert [p.leader_id for p in described.partitions] == [p.leader_id for p in told.partitions]
    assert {(p.eligible_leader_replicas, p.last_known_elr) for p in described.partitions} == {((), ())}


@pytest.mark.parametrize(("kind", "code"), [(1, 53), (2, 42), (9, 42)])
def test_only_groups_have_coordinators(memory: Any, connect: Any, kind: int, code: int) -> None:
    wire = connect(memory.bootstrap)
    assert wire.ask(10, 2, key="mine", key_type=kind).error_code == code
    [found] = wire.ask(10, 5, key_type=kind, coordinator_keys=["mine"]).coordinators
    assert found.error_code == code
    wire.close()


def test_the_settings_of_a_topic_that_is_not_there(wire: Any) -> None:
    asked = [{"resource_type": 2, "resource_name": "never-made", "configuration_keys": None}]
    assert wire.ask(DESCRIBE, 2, resources=asked, include_synonyms=False).results[0].error_code == 3
    assert alter(wire, "never-made", "retention.ms", "1000") == 3


# Places


def test_offsets_are_found_by_place_and_by_time(wire: Any, batch: Any) -> None:
    topic = wire.create()
    assert wire.find(topic, -1)[:2] == (0, 0)
    assert wire.find(topic, -2)[:2] == (0, 0)
    assert wire.find(topic, -3)[:2] == (0, -1)
    assert wire.find(topic, 1)[:2] == (0, -1)
    now = int(time.time() * 1000)
    for first in (0, 3, 6):
        wire.produce(topic, batch([{"timestamp": now + 10 * (first + n)} for n in range(3)]))
    assert wire.find(topic, -1)[:2] == (0, 9)
    assert wire.find(topic, -2)[:2] == (0, 0)
    assert wire.find(topic, -3) == (0, 8, now + 80)
    assert wire.find(topic, now) == (0, 0, now)
    assert wire.find(topic, now + 41) == (0, 5, now + 50)
    assert wire.find(topic, now + 81)[:2] == (0, -1)


def test_records_are_removed(cluster: Any, wire: Any, batch: Any, records: Any) -> None:
    topic = wire.create()
    for _ in range(4):
        wire.produce(topic, batch([{}] * 5))

    def remove(offset: int) -> tuple[int, int]:
        part = [{"partition_index": 0, "offset": offset}]
        asked = [{"name": topic, "partitions": part}]
        found = wire.ask(DELETE_RECORDS, 1, topics=asked, timeout=30_000).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert remove(21)[0] == 1
    assert remove(7) == (0, 7)
    assert wire.find(topic, -2)[:2] == (0, 7)
    assert wire.find(topic, -1)[:2] == (0, 20)
    assert wire.find(topic, 0)[:2] == (0, 7)
    assert wire.fetch(topic, 6).error_code == 1
    left = [record.offset for record in records(wire.fetch(topic, 7)) if record.offset >= 7]
    assert left[0] == 7
    assert remove(3) == (0, 7)
    assert remove(-1) == (0, 20)
    assert wire.find(topic, -2)[:2] == (0, 20)
    assert wire.find(topic, -1)[:2] == (0, 20)
    assert wire.fetch(topic, 3).error_code == 1
    assert wire.produce(topic, batch([{"value": b"after"}])).base_offset == 20
    answer = wire.fetch(topic, 20)
    assert (answer.log_start_offset, answer.high_watermark) == (20, 21)
    assert [record.value for record in records(answer)] == [b"after"]


# The connection


def test_an_unknown_version_of_api_versions_is_answered_in_the_first_form(wire: Any) -> None:
    frame = struct.pack(">hhih", 18, 99, 7, -1) + b"\0"
    wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
    answer = wire.bytes(struct.unpack(">i", wire.bytes(4))[0])
    assert struct.unpack_from(">ih", answer) == (7, 35)


def test_what_is_advertised_is_served_from_the_same_version_on(cluster: Any, wire: Any) -> None:
    found = wire.ask(18, 3, client_software_name="test", client_software_version="1")
    assert found.error_code == 0
    assert {row.api_key for row in found.api_keys} >= {0, 1, 2, 3, 10, 18, 19, 20, 22, 32, 37, 44, 60}
    lowest = {row.api_key: row.min_version for row in found.api_keys}
    assert (lowest[0], lowest[1], lowest[3], lowest[19]) == (0, 4, 0, 2)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 999, 1, -1),
        struct.pack(">ihhih", 10, 0, 9, 1, -1),
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    ],
    ids=["huge", "negative", "no such api", "no such version", "truncated", "http"],
)
def test_what_is_no_request_closes_the_connection(wire: Any, frame: bytes) -> None:
    wire.socket.sendall(frame)
    assert wire.socket.recv(1) == b""


def test_the_table_of_differences_is_in_the_docs(differences: list[dict[str, Any]]) -> None:
    page = Path(__file__).parents[2] / "docs" / "gateway" / "differences.md"
    rows = [
        f"| {row['behaviour']} | {row['kafka']['text']} | {row['gateway']['text']} | {row['property']} |"
        for row in differences
    ]
    text = page.read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| What")]
    assert found == rows
