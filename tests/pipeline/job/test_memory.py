"""Large records and uneven partitions within the memory that a job has by default."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

Make = Callable[..., Any]
_LARGEST = str(32 << 20)


@pytest.fixture
def shop(project: Make) -> Iterator[Any]:
    """A project whose topics take 32 MiB a record; they are deleted afterwards."""
    made = project()
    yield made
    admin = made.admin()
    for channel in made.channels:
        admin.delete_topic(made.topic(channel))


def send(shop: Any, sizes: Iterator[tuple[int, int]]) -> None:
    """Produce an event for each partition and size of its data, which does not compress."""
    from confluent_kafka import Producer

    body = os.urandom(max(1 << 20, 1))
    options = {**shop.server("in").client_options(), "message.max.bytes": _LARGEST, "log_level": "0"}
    producer = Producer({**options, "queue.buffering.max.kbytes": "65536"})
    for number, (partition, size) in enumerate(sizes):
        data = (body * (size // len(body) + 1))[:size]
        attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "text/plain"}
        record = KafkaBinding().encode(CloudEvent(attributes, data), key=b"k%d" % number)
        while True:
            try:
                producer.produce(
                    shop.topic("in"), record.value, record.key, partition, headers=list(record.headers)
                )
                break
            except BufferError:
                producer.poll(1.0)
        producer.poll(0)
    assert producer.flush(120) == 0


def carried(shop: Any, count: int) -> None:
    running = shop.spawn("run", "--once", "-o", "json")
    assert running.ended() == 0, running.told()
    total = json.loads(running.stdout.read_text())["total"]
    assert (total["in"], total["out"], total["dead"]) == (count, count, 0)


@pytest.mark.parametrize(
    "count",
    [1_500, pytest.param(4_500, marks=pytest.mark.soak)],
)
def test_many_large_records(shop: Any, count: int) -> None:
    shop.create(partitions=3).write()
    send(shop, ((number % 3, 400_000) for number in range(count)))
    carried(shop, count)


def test_one_record_of_20_mb(shop: Any) -> None:
    shop.create(partitions=1, settings={name: {"max.message.bytes": _LARGEST} for name in shop.channels})
    shop.write()
    send(shop, iter([(0, 100), (0, 20_000_000), (0, 100)]))
    carried(shop, 3)


@pytest.mark.soak
def test_a_partition_with_a_thousand_times_the_data_of_the_others(shop: Any) -> None:
    shop.create(partitions=4).write()
    send(shop, ((3 if number >= 9 else number % 3, 10_000) for number in range(3_009)))
    send(shop, ((3, 10_000) for number in range(27_000)))
    carried(shop, 30_009)
