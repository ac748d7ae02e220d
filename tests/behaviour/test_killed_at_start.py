"""Three gateways, killed at random while producers start and consumers open partitions.

Every round has a new topic and new producers, so that what is known of both is made, lost and made again
while gateways die. Nothing acknowledged is lost, and what an idempotent producer wrote to a partition is
there once, in its order, at the offset that was acknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.ports import choose_port

pytestmark = [pytest.mark.server, pytest.mark.slow]

log = logging.getLogger(__name__)

PARTITIONS = 4
RECORDS = 400
"""Of each producer in a round."""
STARTS = 120.0
WITHIN = 90.0
SOAK_SECONDS = 3600.0
ROUNDS = os.environ.get("SOAK_ROUNDS")


class GatewayProcess:
    """One `penstock gateway`, at the same address in each of its lives."""

    def __init__(self, pulsar: Any, log: Path) -> None:
        self.port = choose_port(0, setting="port")
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "penstock.cli", "gateway", "--listen", self.bootstrap]
        self._words += [
            "--pulsar",
            pulsar.service_url,
            "--admin",
            pulsar.admin_url,
            "--beside-broker",
            "none",
        ]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._words, stdout=out, stderr=out)

    def wait(self) -> None:
        """Wait until it listens."""
        assert self._process is not None
        deadline = time.monotonic() + STARTS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def gateways(pulsar: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GatewayProcess]]:
    folder = tmp_path_factory.mktemp("gateways")
    made = [GatewayProcess(pulsar, folder / f"{number}.log") for number in range(3)]
    try:
        for gateway in made:
            gateway.begin()
        for gateway in made:
            gateway.wait()
        yield made
    finally:
        for gateway in made:
            gateway.kill()


class Writing(threading.Thread):
    """A producer that is new, and what was acknowledged to it: offset, or -1, by partition and number."""

    def __init__(self, bootstrap: str, topic: str, name: str, *, idempotent: bool) -> None:
        super().__init__()
        self.name, self.idempotent = name, idempotent
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.errors: list[str] = []
        self._topic = topic
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": idempotent,
            "linger.ms": 1,
            "batch.num.messages": 7,
            "message.timeout.ms": int(WITHIN * 1000),
            "retry.backoff.ms": 50,
            "topic.metadata.refresh.interval.ms": 1000,
        }

    def run(self) -> None:
        producer = Producer(self._options)
        for number in range(RECORDS):
            producer.produce(
                self._topic,
                f"{self.name} {number}".encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: self._heard(number, error, message),
            )
            producer.poll(0.005)
        if producer.flush(WITHIN):
            self.errors.append("not everything was answered")

    def _heard(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[message.partition(), number] = message.offset()


class Reading(threading.Thread):
    """A consumer that opens every partition, again and again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._servers, self._topic, self.over = bootstrap, topic, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            consumer = _consumer(self._servers)
            consumer.assign([TopicPartition(self._topic, index, 0) for index in range(PARTITIONS)])
            consumer.consume(500, 0.3)
            consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"alone-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def read_all(bootstrap: str, topic: str, wanted: int) -> dict[int, list[tuple[int, str, int]]]:
    """Give offset, producer and number of every record, by partition; read until that many have come."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[tuple[int, str, int]]] = {index: [] for index in range(PARTITIONS)}
    deadline, quiet = time.monotonic() + WITHIN, 0
    while time.monotonic() < deadline and quiet < 3:
        messages = consumer.consume(2000, 1.0)
        for message in messages:
            if message.error() is None:
                name, number = message.value().decode().split()
                found[message.partition()].append((message.offset(), name, int(number)))
        quiet = quiet + 1 if not messages and sum(map(len, found.values())) >= wanted else 0
    consumer.close()
    return found


def one_round(gateways: list[GatewayProcess], dice: random.Random) -> int:
    """Kill gateways while everything starts; give how many records were acknowledged."""
    bootstrap = ",".join(gateway.bootstrap for gateway in gateways)
    topic = f"start-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WITHIN)
    writing = [Writing(bootstrap, topic, f"w{number}", idempotent=number != 2) for number in range(3)]
    reading = [Reading(bootstrap, topic) for _ in range(2)]
    threads: list[threading.Thread] = [*writing, *reading]
    dice.shuffle(threads)
    for thread in threads:
        thread.start()
        time.sleep(dice.random() * 0.05)
    try:
        for _ in range(dice.randint(1, 2)):
            time.sleep(dice.random() * 0.8)
            victim = dice.choice(gateways)
            victim.kill()
            time.sleep(dice.random() * 0.5)
            victim.begin()
            victim.wait()
        for thread in writing:
            thread.join()
    finally:
        for reader in reading:
            reader.over.set()
        for thread in threads:
            thread.join()
    check(bootstrap, topic, writing)
    admin.delete_topics([topic])[topic].result(WITHIN)
    return sum(len(each.acknowledged) for each in writing)


def check(bootstrap: str, topic: str, writing: list[Writing]) -> None:
    assert [each.errors for each in writing] == [[]] * len(writing)
    found = read_all(bootstrap, topic, sum(len(each.acknowledged) for each in writing))
    places = {(name, index, number): offset for index, rows in found.items() for offset, name, number in rows}
    for each in writing:
        lost = [key for key in each.acknowledged if (each.name, *key) not in places]
        assert lost == [], f"{each.name}: acknowledged and lost"
        if each.idempotent:
            # Another one may write twice, and changes its order when it repeats to the next leader.
            for index, rows in found.items():
                numbers = [number for _, name, number in rows if name == each.name]
                assert numbers == list(range(index, RECORDS, PARTITIONS)), f"{each.name}, partition {index}"
            wrong = {
                key: (offset, places[each.name, *key])
                for key, offset in each.acknowledged.items()
                if offset not in (-1, places[each.name, *key])
            }
            assert wrong == {}, f"{each.name}: acknowledged with another offset"


def test_gateways_are_killed_while_producers_start(gateways: list[GatewayProcess]) -> None:
    seed = random.randrange(1 << 30)
    log.info("seed %d", seed)
    assert one_round(gateways, random.Random(seed)) == 3 * RECORDS


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_gateways_are_killed_while_producers_start_for_an_hour(gateways: list[GatewayProcess]) -> None:
    seed = random.randrange(1 << 30)
    dice, rounds, end = random.Random(seed), 0, time.monotonic() + SOAK_SECONDS
    while rounds < int(ROUNDS) if ROUNDS else time.monotonic() < end:
        log.info("seed %d, round %d", seed, rounds)
        assert one_round(gateways, dice) == 3 * RECORDS
        rounds += 1
