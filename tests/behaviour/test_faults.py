"""Pulsar and the gateway die under load: nothing acknowledged is lost, order stays, producers go on."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.pulsar import Pulsar

pytestmark = [pytest.mark.server, pytest.mark.slow]

ALONE = {
    "group.id": "alone",
    "enable.auto.commit": False,
    "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 300,
    "log_level": 0,
}


class Load:
    """A producer that writes numbers until it is told to stop, and notes what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        # One request under way: librdkafka has the next one ready, and sends it before it repeats one that
        # was answered with an error. So that the order says something, no request may time out.
        waits = {"request.timeout.ms": 110_000, "socket.timeout.ms": 115_000}
        patient = {"delivery.timeout.ms": 120_000, "linger.ms": 2, "retry.backoff.ms": 100, **waits}
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self.topic = topic
        self.acknowledged: dict[int, int | None] = {}
        self.failed: list[Any] = []
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, **patient, **quick, **options})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent
            self._producer.produce(
                self.topic,
                b"%d" % number,
                partition=0,
                on_delivery=lambda e, m, n=number: self._told(n, e, m),
            )
            self.sent += 1
            self._producer.poll(0)
            time.sleep(0.001)

    def _told(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[number] = message.offset()
        else:
            self.failed.append(error)

    def until(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        goal, deadline = len(self.acknowledged) + count, time.monotonic() + 60
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {goal}"
            time.sleep(0.02)

    def until_sent(self, count: int) -> None:
        """Wait until so many more were handed to the client, acknowledged or not."""
        goal, deadline = self.sent + count, time.monotonic() + 60
        while self.sent < goal:
            assert time.monotonic() < deadline, f"{self.sent} of {goal}"
            time.sleep(0.02)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.failed


def read_all(bootstrap: str, topic: str, end: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, **ALONE})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < end:
        got = consumer.consume(min(end - len(found), 1000), 20)
        assert got, f"{len(found)} of {end}"
        assert not [message.error() for message in got if message.error()]
        found += got
    consumer.close()
    assert [message.offset() for message in found] == list(range(end))
    return [int(message.value()) for message in found]


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, **ALONE})
    end = int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1])
    consumer.close()
    return end


def check(load: Load, bootstrap: str, *, once: bool) -> None:
    values = read_all(bootstrap, load.topic, end_of(bootstrap, load.topic))
    assert set(values) == set(range(load.sent))
    # A batch that was stored before the gateway died is acknowledged without its offset.
    told = {number: offset for number, offset in load.acknowledged.items() if offset is not None}
    assert {number: values[offset] for number, offset in told.items() if offset >= 0} == {
        number: number for number, offset in told.items() if offset >= 0
    }
    assert len(told) > load.sent // 2
    if once:
        assert values == list(range(load.sent))
    else:
        # A record may be there twice; without repetitions they are in their order.
        assert list(dict.fromkeys(values)) == list(range(load.sent))


def make(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(30)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Pulsar]:
    """A Pulsar that may be killed."""
    with Pulsar() as server:
        yield server


@pytest.mark.soak
def test_pulsar_dies_and_comes_back_under_load(mortal: Pulsar, start_gateway: Any) -> None:
    gateway = start_gateway(mortal.service_url, mortal.admin_url, patience=110.0)
    make(gateway.bootstrap, "exact", "plain")
    exact = Load(gateway.bootstrap, "exact", **{"enable.idempotence": True})
    plain = Load(gateway.bootstrap, "plain", **{"max.in.flight": 1})
    exact.until(300)
    mortal.kill()
    exact.until_sent(500)
    mortal.start()
    for load in (exact, plain):
        load.until(300)
        load.finish()
    check(exact, gateway.bootstrap, once=True)
    check(plain, gateway.bootstrap, once=False)
    gateway.close()


def test_the_gateway_dies_and_comes_back_under_load(mortal: Pulsar) -> None:
    from penstock.embedded.gateway import Gateway

    with Gateway(mortal) as gateway:
        make(gateway.bootstrap, "killed-exact", "killed-plain")
        exact = Load(gateway.bootstrap, "killed-exact", **{"enable.idempotence": True})
        plain = Load(gateway.bootstrap, "killed-plain", **{"max.in.flight": 1})
        for _ in range(2):
            exact.until(200)
            gateway.kill()
            gateway.start()
        for load in (exact, plain):
            load.until(200)
            load.finish()
        check(exact, gateway.bootstrap, once=True)
        check(plain, gateway.bootstrap, once=False)


def test_readiness_follows_pulsar_and_health_does_not(mortal: Pulsar) -> None:
    from penstock.embedded.gateway import Gateway

    def until(code: int) -> str:
        deadline = time.monotonic() + 90
        while (found := page(f"{gateway.metrics_url}/readyz"))[0] != code:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found[1]

    with Gateway(mortal) as gateway:
        assert until(200) == "ready\n"
        mortal.kill()
        assert until(503) != ""
        assert page(f"{gateway.metrics_url}/healthz") == (200, "ok\n")
        assert page(f"{gateway.metrics_url}/metrics")[0] == 200
        mortal.start()
        assert until(200) == "ready\n"
        make(gateway.bootstrap, "ready-again")


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def test_a_pulsar_that_stands_still_costs_no_more_than_the_budget(mortal: Pulsar, start_gateway: Any) -> None:
    from penstock.gateway.budget import Budgets
    from penstock.gateway.limits import Limits

    gateway = start_gateway(mortal.service_url, mortal.admin_url)
    budget = 16 << 20
    gateway.server.limits = Limits(bytes_in_all=budget, bytes_per_principal=budget)
    gateway.server.budgets = Budgets.of(gateway.server.limits)
    make(gateway.bootstrap, "still")
    options = {"bootstrap.servers": gateway.bootstrap, "delivery.timeout.ms": 120_000, "log_level": 0}
    producers = [Producer({**options, "queue.buffering.max.kbytes": 100_000}) for _ in range(4)]
    failed: list[Any] = []
    assert mortal.pid is not None
    first = Producer(options)
    first.produce("still", b"first")
    assert first.flush(30) == 0
    os.kill(mortal.pid, signal.SIGSTOP)
    try:
        for producer in producers:
            for _ in range(300):
                producer.produce(
                    "still", bytes(100_000), on_delivery=lambda e, m: failed.append(e) if e else None
                )
        deadline, most = time.monotonic() + 5, 0
        while time.monotonic() < deadline:
            most = max(most, gateway.server.budgets.requests.used)
            time.sleep(0.02)
    finally:
        os.kill(mortal.pid, signal.SIGCONT)
    # Full, and each connection at most one large request over it.
    assert budget <= most < budget + len(producers) * (2 << 20)
    for producer in producers:
        assert producer.flush(90) == 0
    assert not failed
    assert end_of(gateway.bootstrap, "still") >= 1 + 4 * 300
    gateway.close()
