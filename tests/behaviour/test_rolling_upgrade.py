"""A gateway of the version before and one of this version: side by side, one after the other, and back again.

The version before is built from its commit, installed into a folder of its own and run as a process. What
either writes, the other reads; what the older one does not know, it skips and leaves as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.embedded.ports import choose_port

pytestmark = [pytest.mark.server, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BEFORE = "c9b69abbcdaec62672265678b8223161c46c4c80"
"""The version before this one."""
WITHIN = 60.0
TEXT, BINARY = b"user-1", b"\xff\x00\xfe"
"""Keys that are UTF-8 and are not: this version writes the first ones otherwise."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and install the version before; give the folder for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "source.tar"
    command = ["git", "-C", str(ROOT), "archive", "--output", str(archive), BEFORE]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.fail(f"commit {BEFORE} is not in this clone: fetch the whole history. {made.stderr}")
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    target = folder / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install += ["--no-build-isolation", "--target", str(target), str(folder / "source")]
    subprocess.run(install, check=True, timeout=200)
    return target


class GatewayProcess:
    """One `penstock gateway` of either version."""

    def __init__(self, pulsar: Any, namespace: str, log: Path, path: Path | None) -> None:
        self.port = choose_port(0, setting="port")
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "penstock.cli", "gateway", "--listen", self.bootstrap]
        self._words += ["--pulsar", pulsar.service_url, "--admin", pulsar.admin_url]
        self._words += ["--groups-namespace", namespace, "--beside-broker", "none", "--cursor-period", "1"]
        # Compiling kernels for a few records would take longer than the test.
        self._environ = os.environ | {"NUMBA_DISABLE_JIT": "1"}
        if path is not None:
            self._environ |= {"PYTHONPATH": str(path)}
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(self._words, stdout=out, stderr=out, env=self._environ)
        deadline = time.monotonic() + WITHIN
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


@pytest.fixture
def two(pulsar: Any, before: Path, tmp_path: Path) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """A gateway of the version before and one of this version, of one cluster; neither runs yet."""
    where = subprocess.run(
        [sys.executable, "-c", "import penstock.gateway; print(penstock.gateway.__file__)"],
        env=os.environ | {"PYTHONPATH": str(before)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(before))
    namespace = f"public/__kafka_upgrade_{uuid.uuid4().hex[:6]}"
    old = GatewayProcess(pulsar, namespace, tmp_path / "old.log", before)
    new = GatewayProcess(pulsar, namespace, tmp_path / "new.log", None)
    try:
        yield old, new
    finally:
        for gateway in (old, new):
            gateway.stop()
    for gateway in (old, new):
        assert "Traceback" not in gateway.log, gateway.log
        assert " bug" not in gateway.log, gateway.log


class Kafka:
    """What clients do at one gateway."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._common = {"bootstrap.servers": gateway.bootstrap, "log_level": 0}
        self.admin = AdminClient(self._common)

    def create(self, name: str, **config: str) -> None:
        topic = NewTopic(name, 1, 1, config={key.replace("_", "."): value for key, value in config.items()})
        self.admin.create_topics([topic])[name].result(WITHIN)

    def write(self, topic: str, *rows: tuple[bytes, bytes]) -> None:
        producer = Producer(self._common | {"enable.idempotence": True})
        for key, value in rows:
            producer.produce(topic, value, key, partition=0, headers={"h": b"\xfe"})
        assert producer.flush(WITHIN) == 0

    def read(self, topic: str, offset: int = 0) -> list[tuple[int, bytes, bytes]]:
        consumer = Consumer(self._common | {"group.id": "x", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, 0, offset)])
        found = []
        while True:
            record = consumer.poll(WITHIN)
            assert record is not None
            if record.error():
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                consumer.close()
                return found
            assert record.headers() == [("h", b"\xfe")]
            found.append((record.offset(), record.key(), record.value()))

    def consume(self, topic: str, group: str, count: int) -> list[bytes]:
        """Read as a member of a group and commit."""
        consumer = Consumer(
            self._common | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + WITHIN
        while len(found) < count:
            assert time.monotonic() < deadline, found
            record = consumer.poll(1)
            if record is not None and not record.error():
                found.append(record.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def committed(self, topic: str, group: str) -> int:
        consumer = Consumer(self._common | {"group.id": group})
        deadline = time.monotonic() + WITHIN
        try:
            while True:
                try:
                    return int(consumer.committed([TopicPartition(topic, 0)], WITHIN)[0].offset)
                except KafkaException:
                    # The coordinator may be moving.
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
        finally:
            consumer.close()

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(WITHIN)
        return str(found[name].value)

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(WITHIN)

    def topic_id(self, topic: str) -> str:
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(WITHIN)
        return str(found.topic_id)

    def nodes(self) -> set[int]:
        return set(self.admin.list_topics(timeout=WITHIN).brokers)


def until(condition: Any) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_upgrade_and_the_way_back(two: tuple[GatewayProcess, GatewayProcess]) -> None:
    old, new = two
    mark = uuid.uuid4().hex[:6]
    first, second = f"first-{mark}", f"second-{mark}"
    group, other = f"group-{mark}", f"other-{mark}"

    # The version before is alone.
    old.start()
    before = Kafka(old)
    before.create(first, retention_ms="3600000")
    before.write(first, (TEXT, b"0"), (BINARY, b"1"), (TEXT, b"2"))
    assert before.consume(first, group, 2)[:2] == [b"0", b"1"]
    committed = before.committed(first, group)
    identity = before.topic_id(first)

    # Side by side: each reads what the other wrote, and both are one cluster.
    new.start()
    after = Kafka(new)
    until(lambda: before.nodes() == after.nodes() and len(after.nodes()) == 2)
    assert before.topic_id(first) == after.topic_id(first) == identity
    assert after.committed(first, group) == before.committed(first, group) == committed
    after.write(first, (TEXT, b"3"), (BINARY, b"4"))
    before.write(first, (TEXT, b"5"))
    rows = [(TEXT, b"0"), (BINARY, b"1"), (TEXT, b"2"), (TEXT, b"3"), (BINARY, b"4"), (TEXT, b"5")]
    expected = [(offset, *row) for offset, row in enumerate(rows)]
    assert before.read(first) == after.read(first) == expected
    assert after.config(first, "retention.ms") == before.config(first, "retention.ms") == "3600000"
    after.consume(first, other, 6)
    assert before.committed(first, other) == 6

    # This version alone: it writes what the one before does not know.
    old.stop()
    until(lambda: len(after.nodes()) == 1)
    assert after.committed(first, group) == committed
    assert after.consume(first, group, 6 - committed)
    after.create(second, retention_ms="7200000", segment_bytes="1048576")
    after.write(second, (TEXT, b"a"), (BINARY, b"b"))
    assert after.consume(second, group, 2) == [b"a", b"b"]
    after.admin.delete_consumer_groups([other])[other].result(WITHIN)
    after.admin.delete_records([TopicPartition(first, 0, 2)])[TopicPartition(first, 0, 2)].result(WITHIN)
    own = after.topic_id(second)

    # And back: the version before finds everything that it knows, and changes some of it.
    old.start()
    until(lambda: len(after.nodes()) == 2)
    new.stop()
    before = Kafka(old)
    until(lambda: len(before.nodes()) == 1)
    assert before.committed(first, group) == 6
    assert before.committed(second, group) == 2
    assert before.committed(first, other) == -1001
    assert before.read(first, 2) == expected[2:]
    assert before.read(second) == [(0, TEXT, b"a"), (1, BINARY, b"b")]
    assert before.config(second, "retention.ms") == "7200000"
    before.set_config(second, "retention.ms", "10800000")
    before.write(second, (TEXT, b"c"))
    assert before.consume(second, group, 1) == [b"c"]

    # Forward again: what the version before did not know is as it was left.
    new.start()
    until(lambda: len(before.nodes()) == 2)
    old.stop()
    after = Kafka(new)
    until(lambda: len(after.nodes()) == 1)
    assert after.committed(second, group) == 3
    assert after.read(second, 2) == [(2, TEXT, b"c")]
    assert after.config(second, "segment.bytes") == "1048576"
    assert after.config(second, "retention.ms") == "10800000"
    assert (after.topic_id(first), after.topic_id(second)) == (identity, own)
