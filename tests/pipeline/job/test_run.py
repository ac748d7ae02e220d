"""`penstock run --once` on real Kafka and Spark: each event ends in an output or a dead letter, by id."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.kafka import Kafka
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.record import KafkaRecord

SHOP = Path(__file__).parents[3] / "examples" / "shop"
TOPICS = ("orders.placed", "orders.large", "orders.dead")


def read_all(kafka: Kafka, topic: str) -> list[KafkaRecord]:
    consumer = Consumer({**kafka.client_options(), "group.id": "reader", "enable.auto.commit": False})
    found = []
    for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        left = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.assign([place])
        while left:
            messages = consumer.consume(left, 30)
            assert messages, f"{left} records of {topic} did not come"
            left -= len(messages)
            found += [
                KafkaRecord(value=m.value(), key=m.key(), headers=tuple(m.headers() or ())) for m in messages
            ]
    consumer.close()
    return found


def produce_orders(kafka: Kafka, count: int, first: int = 0) -> None:
    producer = Producer({**kafka.client_options(), "linger.ms": 20})
    for number in range(first, first + count):
        headers = [
            ("ce_specversion", b"1.0"),
            ("ce_id", b"order-%d" % number),
            ("ce_source", b"/shop"),
            ("ce_type", b"com.shop.order.placed"),
            ("content-type", b"application/json"),
        ]
        value = b'{"customer":"c%d","total":%d}' % (number % 7, number % 200)
        if number % 50 == 0:
            headers = headers[1:]
        elif number % 50 == 1:
            value = b"{"
        producer.produce("orders.placed", value, b"k%d" % number, headers=headers)
    assert producer.flush(30) == 0


def penstock(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.soak
def test_every_order_is_accounted_for_over_two_runs(kafka: Kafka, tmp_path: Path) -> None:
    for name in ("asyncapi.yaml", "pipeline.yaml", "functions.py"):
        (tmp_path / name).write_bytes((SHOP / name).read_bytes())
    (tmp_path / "penstock.yaml").write_text(
        "contexts:\n  test:\n    servers:\n      kafka: "
        f"{{address: '{kafka.bootstrap}', security: {{protocol: plaintext}}}}\n"
    )
    admin = AdminClient(kafka.client_options())
    for done in admin.create_topics([NewTopic(topic, 2, 1) for topic in TOPICS]).values():
        done.result(30)
    count = 2000
    try:
        for run in range(2):
            produce_orders(kafka, count, first=run * count)
            result = penstock(tmp_path, "run", "pipeline.yaml", "--once", "-o", "json")
            assert result.returncode == 0, result.stderr
            told = json.loads(result.stdout)
            assert told["total"]["in"] == count
        large = Counter(
            KafkaBinding().decode(record).get("causationid") for record in read_all(kafka, TOPICS[1])
        )
        dead = Counter(
            read_dead_letter(KafkaBinding().decode(record)).record.key
            for record in read_all(kafka, TOPICS[2])
        )
    finally:
        admin.delete_topics(list(TOPICS))
    numbers = range(2 * count)
    broken = {f"k{number}".encode() for number in numbers if number % 50 in (0, 1)}
    wanted = {f"order-{n}" for n in numbers if n % 200 >= 100 and f"k{n}".encode() not in broken}
    assert dead == Counter(broken)
    assert large == Counter(wanted)
