"""Kafka Streams on `penstock gateway`: a word count, at least once, with repartitioning and a changelog."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
from penstock.embedded.java import find_java

pytestmark = [pytest.mark.server, pytest.mark.slow]

HERE = Path(__file__).parent
LINES = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
COUNTS = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 3, "hello": 1, "join": 1, "summit": 1}


@contextmanager
def word_count(*arguments: str) -> Iterator[list[str]]:
    """Runs it; gives what it says, as it says it."""
    lock = HERE / "kafka-streams.lock"
    jars = ensure_artifacts(parse_lock(lock.read_text(encoding="utf-8"), origin=lock.name))
    small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words = [str(find_java().executable), *small, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    words += ["-cp", os.pathsep.join(map(str, jars)), str(HERE / "WordCount.java"), *arguments]
    said: list[str] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        listener = threading.Thread(target=said.extend, args=(process.stdout,))
        listener.start()
        try:
            yield said
            process.stdin.close()
            assert process.wait(60) == 0, said
        finally:
            process.kill()
            listener.join()


def counted(bootstrap: str, topic: str, wanted: dict[str, int], said: list[str]) -> dict[str, int]:
    """Read the counts until they are those that are wanted, or time is up."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    found: dict[str, int] = {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reads-{topic}"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    deadline = time.monotonic() + 120
    try:
        while found != wanted and time.monotonic() < deadline and "state ERROR\n" not in said:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[message.key().decode()] = int(message.value())
    finally:
        consumer.close()
    return found


def test_a_word_count(process: Any, tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    name = f"streams-{uuid.uuid4().hex[:8]}"
    given, result = f"{name}-lines", f"{name}-counts"
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    for future in admin.create_topics([NewTopic(given, 2, 1), NewTopic(result, 1, 1)]).values():
        future.result(30)

    def produce() -> None:
        producer = Producer({"bootstrap.servers": process.bootstrap})
        for line in LINES:
            producer.produce(given, line)
        assert producer.flush(30) == 0

    produce()
    places = [process.bootstrap, name, given, result, str(tmp_path)]
    with word_count(*places) as said:
        assert counted(process.bootstrap, result, COUNTS, said) == COUNTS, said
    # It goes on where it has stopped, with the counts that are in its changelog.
    produce()
    twice = {word: 2 * count for word, count in COUNTS.items()}
    with word_count(*places) as said:
        assert counted(process.bootstrap, result, twice, said) == twice, said
    changelog = f"{name}-counts-changelog"
    resource = ConfigResource(ResourceType.TOPIC, changelog)
    configs = admin.describe_configs([resource])[resource].result(30)
    assert configs["cleanup.policy"].value == "compact"
    assert configs["message.timestamp.type"].value == "CreateTime"
