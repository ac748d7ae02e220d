"""A source whose broker is away holds up no other source of its job."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.kafka_records import publish
from penstock.embedded.kafka import Kafka
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def record(number: int) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t"}
    return KafkaBinding().encode(CloudEvent(attributes, b"{}"), key=b"k%d" % number)


def ids(records: list[KafkaRecord]) -> list[str]:
    return [KafkaBinding().decode(each).id for each in records]


@pytest.fixture
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that may be killed: nobody else uses it."""
    with Kafka(data=tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def until(channel: str, shop: Any, count: int, running: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while len(shop.read(channel)) < count:
        assert time.monotonic() < end, running.told()
        threading.Event().wait(0.5)


@pytest.mark.soak
def test_a_broker_that_is_away_stalls_only_the_source_that_needs_it(
    project: Callable[..., Any], kafka: Kafka, mortal_kafka: Kafka
) -> None:
    places = {"in2": "mortal", "out2": "mortal", "dead2": "mortal"}
    shop = project(servers={"kafka": kafka, "mortal": mortal_kafka}, places=places).create(partitions=4)
    route = {"receive": "receive-in2", "send": "send-out2"}
    shop.write(routes={"r": {"receive": "receive", "send": "send"}, "r2": route})
    contract = json.loads((shop.folder / "asyncapi.yaml").read_text())
    contract["operations"]["receive-in2"] = {"action": "receive", "channel": {"$ref": "#/channels/in2"}}
    contract["channels"]["in2"]["x-penstock-dead-letter"] = {"$ref": "#/channels/dead2"}
    (shop.folder / "asyncapi.yaml").write_text(json.dumps(contract))
    records = [record(number) for number in range(4000)]
    publish(mortal_kafka.client_options(), [replace(each, topic=shop.topic("in2")) for each in records])
    # Small batches: one is always under way, and its tasks wait when the broker goes.
    running = shop.spawn("run", "--engine", "spark", "--max-offsets", "100", "-o", "json")
    running.until(r'"source": "[^"]*in2", "batch": \d+', times=3)
    mortal_kafka.kill()
    try:
        shop.produce(records[:100])
        until("out", shop, 100, running, seconds=30)
    finally:
        mortal_kafka.start()
    until("out2", shop, len(records), running, seconds=150)
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0, running.told()
    assert sorted(ids(shop.read("out2"))) == sorted(ids(records))


def many_sources(project: Callable[..., Any], count: int) -> Any:
    """A project with so many topics and as many targets, each with a route of its own."""
    numbers = range(count)
    shop = project(places={f"{kind}{number}": "kafka" for number in numbers for kind in ("in", "out")})
    shop.create(partitions=1)
    shop.write(
        routes={
            f"r{number}": {
                "receive": f"receive-in{number}",
                "send": f"send-out{number}",
                "delivery": {"deadLetterSink": "dead"},
            }
            for number in numbers
        }
    )
    contract = json.loads((shop.folder / "asyncapi.yaml").read_text())
    for number in numbers:
        channel = {"$ref": f"#/channels/in{number}"}
        contract["operations"][f"receive-in{number}"] = {"action": "receive", "channel": channel}
    (shop.folder / "asyncapi.yaml").write_text(json.dumps(contract))
    return shop


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_a_topic_that_is_deleted_stops_only_its_source(
    project: Callable[..., Any], kafka: Kafka, count: int
) -> None:
    """50 routes read 50 topics and write to 50 others."""
    shop = many_sources(project, count)

    def send(numbers: range) -> None:
        topics = [shop.topic(f"in{number}") for number in range(count)]
        each = [replace(record(number), topic=topic) for topic in topics for number in numbers]
        publish(kafka.client_options(), each)

    send(range(5))
    words = ("--engine", "spark", "--broker-timeout", "5", "--max-failures", "0")
    running = shop.spawn("run", *words, "-o", "json")
    for number in range(count):
        until(f"out{number}", shop, 5, running, seconds=400)
    gone = shop.topic("in0")
    shop.admin().delete_topic(gone)
    running.until(rf"kafka-{gone}: a topic is not there any more; failure 2, starting it again", seconds=200)
    others = [replace(record(5), topic=shop.topic(f"in{number}")) for number in range(1, count)]
    publish(kafka.client_options(), others)
    for number in range(1, count):
        until(f"out{number}", shop, 6, running, seconds=200)
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0, running.told()
    assert ids(shop.read(f"out{count - 1}")) == [f"e-{number}" for number in range(6)]
