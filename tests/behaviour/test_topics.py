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


def test_a_topic_that_is_made_again(cluster: Any, wire: Any, batch: Any) -> None:
    topic = wire.create()
    first = metadata(wire, topic).topic_id
    assert wire.produce(topic, batch([{}] * 4)).base_offset == 0
    assert delete_code(wire, topic) == 0
    assert settled(lambda: metadata(wire, topic).error_code == 3)
    assert settled(lambda: create_code(wire, topic) in (0, 36))
    second = settled(lambda: metadata(wire, topic).topic_id)
    assert (first == second) == cluster.expects("topic-id-after-recreation")
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


def test_a_setting_of_kafka_alone(cluster: Any, wire: Any) -> None:
    config = [{"name": "segment.bytes", "value": "1048576"}]
    code = create_code(wire, f"{wire.create()}-segments", configs=config)
    assert code == cluster.expects("unknown-setting")


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
