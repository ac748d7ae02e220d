"""Identities, ends and commits on a real Kafka."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.embedded.kafka import Kafka
from penstock.errors import ClusterError, Unreachable

pytestmark = pytest.mark.server


@pytest.fixture
def offsets(kafka: Kafka) -> KafkaOffsets:
    return KafkaOffsets(kafka.client_options())


def test_the_ends_of_a_topic_and_what_a_group_committed(kafka: Kafka, offsets: KafkaOffsets) -> None:
    offsets.create_topic("ends", partitions=2, replicas=1, settings={})
    producer = Producer(kafka.client_options())
    for number in range(5):
        producer.produce("ends", b"x", partition=number % 2)
    assert producer.flush(30) == 0
    assert offsets.earliest("ends") == {0: 0, 1: 0}
    assert offsets.latest("ends") == {0: 3, 1: 2}
    assert offsets.committed("nobody", "ends") == {}
    offsets.commit("job", "ends", {0: 3, 1: 1})
    assert offsets.committed("job", "ends") == {0: 3, 1: 1}


def await_topic(offsets: KafkaOffsets, topic: str) -> None:
    end = time.monotonic() + 30
    while not offsets.latest(topic):
        assert time.monotonic() < end


def test_a_topic_that_is_made_again_has_another_id(offsets: KafkaOffsets) -> None:
    found = []
    for _ in range(2):
        offsets.create_topic("again", partitions=1, replicas=1, settings={})
        await_topic(offsets, "again")
        found.append(offsets.topic_id("again"))
        offsets.delete_topic("again")
    assert None not in found
    assert len(set(found)) == 2
    assert offsets.cluster_id()


def test_a_topic_that_is_not_there_is_an_error(offsets: KafkaOffsets) -> None:
    with pytest.raises(ClusterError, match="missing"):
        offsets.topic_id("missing")
    assert offsets.latest("missing") == {}


ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from penstock.brokers.kafka_offsets import KafkaOffsets
offsets = KafkaOffsets({"bootstrap.servers": sys.argv[1]}, connect_timeout=60)
with ThreadPoolExecutor(16) as many:
    print(list(many.map(lambda n: dict(offsets.committed(f"group-{n}", "topic")), range(64))))
"""
COMMIT = """
import sys
from concurrent.futures import ThreadPoolExecutor
from penstock.brokers.kafka_offsets import KafkaOffsets
offsets = KafkaOffsets({"bootstrap.servers": sys.argv[1]}, connect_timeout=60)
offsets.create_topic("topic", partitions=1, replicas=1, settings={})
with ThreadPoolExecutor(16) as many:
    print(list(many.map(lambda n: offsets.commit(f"group-{n}", "topic", {0: n}), range(64))))
"""


@pytest.mark.parametrize(("program", "each"), [(ASK, {}), (COMMIT, None)], ids=["fetch", "commit"])
def test_coordinators_that_are_still_loading_end_no_process(program: str, each: object) -> None:
    with Kafka() as fresh:
        command = [sys.executable, "-c", program, fresh.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, str([each] * 64)), done.stderr


@pytest.mark.slow
def test_commits_work_again_after_a_restart() -> None:
    """librdkafka's own admin client asks the coordinator that it knew for ever."""
    with Kafka() as kafka:
        offsets = KafkaOffsets(kafka.client_options(), timeout=5.0)
        offsets.create_topic("restarted", partitions=1, replicas=1, settings={})
        offsets.commit("job", "restarted", {0: 0})
        kafka.stop()
        with pytest.raises(Unreachable):
            offsets.commit("job", "restarted", {0: 0})
        kafka.start()
        offsets.commit("job", "restarted", {0: 0})
        assert offsets.committed("job", "restarted") == {0: 0}
