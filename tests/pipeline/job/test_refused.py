"""Jobs to topics that refuse records: letters instead of a stop, everything once, also if one is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
Make = Callable[..., Any]
BOTH = {"send": ["send", "send-beside"]}


def records(start: int, end: int) -> Iterator[KafkaRecord]:
    for number in range(start, end):
        attributes = {"id": str(number), "source": "/s", "type": "t", "datacontenttype": "application/json"}
        key = None if number % 50 == 0 else b"k%d" % number
        yield KafkaBinding().encode(CloudEvent(attributes, b'{"n": %d}' % number), key=key)


def numbers(shop: Any, channel: str) -> Counter[int]:
    return Counter(json.loads(each.value)["n"] for each in shop.read(channel))


def letters(shop: Any) -> Counter[tuple[int, str]]:
    found = (read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead"))
    return Counter((json.loads(each.record.value or b"")["n"], each.code) for each in found)


@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.soak)])
def test_a_record_without_a_key_does_not_stop_a_route_to_a_compacted_topic(
    project: Make, engine: str
) -> None:
    shop = project(places={"beside": "kafka"})
    shop.create(partitions=2, settings={"out": {"cleanup.policy": "compact"}}).write(BOTH)
    shop.produce(records(0, 500))
    job = shop.spawn("run", "--engine", engine, "--once")
    assert job.ended() == 0, job.told()
    assert letters(shop) == Counter({(number, "no-key"): 1 for number in range(0, 500, 50)})
    assert numbers(shop, "out") == Counter(number for number in range(500) if number % 50)
    assert numbers(shop, "beside") == Counter(range(500))


@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.soak)])
def test_who_is_killed_while_records_are_refused_writes_nothing_twice(project: Make, engine: str) -> None:
    """The topic becomes a compacted one while the job runs, so that it learns of it from the broker."""
    shop = project(places={"beside": "kafka"})
    shop.create(partitions=2).write(BOTH)
    shop.produce(records(1, 50))
    small = ("--max-offsets", "500") if engine == "spark" else ()
    first = shop.spawn("run", "--engine", engine, *small)
    first.until(r"batch \d+ ")
    shop.admin("out").change_settings(shop.topic("out"), {"cleanup.policy": "compact"})
    shop.produce(records(50, 2000))
    if engine == "loop":
        first.until("become dead letters")  # a loop tells of all of it as one batch
    else:
        first.until(r"batch \d+ ", times=3)
    shop.produce(records(2000, 3000))
    first.process.kill()
    first.process.wait(30)
    last = shop.spawn("run", "--engine", engine, "--once")
    assert last.ended() == 0, last.told()
    assert letters(shop) == Counter({(number, "no-key"): 1 for number in range(50, 3000, 50)})
    assert numbers(shop, "out") == Counter(number for number in range(3000) if number % 50)
    assert numbers(shop, "beside") == Counter(range(1, 3000))
