"""A loop that writes to another Kafka: its marks are there, and its group shows the lag."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer
from test_edits import events

from penstock.embedded.kafka import Kafka
from penstock.events import KafkaBinding
from penstock.pipeline.job import JobOptions, job_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

ELSEWHERE = {"out": "west", "dead": "west"}


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


@pytest.fixture
def shop(project: Callable[..., Any], kafka: Kafka, west: Kafka) -> Any:
    made = project(servers={"kafka": kafka, "west": west}, places=ELSEWHERE).create()
    return made.write(None, name="shown", engine="loop")


def run(shop: Any, group: str, **options: Any) -> None:
    with job_of(shop.pipeline(), JobOptions(once=True, group=group, **options)) as job:
        job.prepare()
        job.run()


def ids(shop: Any) -> Counter[str]:
    return Counter(KafkaBinding().decode(each).id for each in shop.read("out"))


def test_a_loop_goes_on_although_the_group_has_a_member(
    shop: Any, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    shop.produce(events(range(10)))
    settings = {"group.id": group, "enable.auto.commit": "false"}
    consumer, assigned, stop = Consumer({**kafka.client_options(), **settings}), Event(), Event()
    consumer.subscribe([shop.topic("in")], on_assign=lambda *_: assigned.set())

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.2)

    member = Thread(target=poll, daemon=True)
    member.start()
    try:
        assert assigned.wait(60)
        with caplog.at_level(logging.WARNING):
            run(shop, group)
    finally:
        stop.set()
        member.join()
        consumer.close()
    assert len(ids(shop)) == 10
    assert caplog.text.count(f"commits of progress to group {group}: lost") == 1


def test_what_was_delivered_at_least_once_is_not_delivered_again(shop: Any) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    for start, options in ((0, {}), (10, {"exactly_once": False}), (20, {})):
        shop.produce(events(range(start, start + 10)))
        run(shop, group, **options)
    assert ids(shop) == {str(number): 1 for number in range(30)}


def test_a_group_that_somebody_else_has_moved_skips_nothing(shop: Any) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    shop.produce(events(range(10)))
    run(shop, group)
    shop.produce(events(range(10, 20)))
    shop.admin().commit(group, shop.topic("in"), {0: 20})
    run(shop, group)
    assert ids(shop) == {str(number): 1 for number in range(20)}
