"""Three gateways on one Pulsar: killed in turn under load, hung, and their log compacted; nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.ports import choose_port

pytestmark = [pytest.mark.server, pytest.mark.slow]

COMMIT, FETCH_OFFSETS, FIND, METADATA = 8, 9, 10, 3
NOT_COORDINATOR = 16
TAKEOVER = 5.0
WITHIN = 40.0
STARTS = 120.0
"""A process on a busy machine."""


class GatewayProcess:
    """One `penstock gateway`, at the same address in each of its lives."""

    def __init__(self, pulsar: Any, log: Path, *words: str) -> None:
        self.port = choose_port(0, setting="port")
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "penstock.cli", "gateway", "--listen", self.bootstrap]
        self._words += ["--pulsar", pulsar.service_url, "--admin", pulsar.admin_url, *words]
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(self._words, stdout=out, stderr=out)
        deadline = time.monotonic() + STARTS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def signal(self, which: int) -> None:
        assert self.process is not None
        self.process.send_signal(which)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture(scope="module")
def gateways(pulsar: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GatewayProcess]]:
    folder = tmp_path_factory.mktemp("gateways")
    nowhere = ("--beside-broker", "none")
    made = [GatewayProcess(pulsar, folder / f"{number}.log", *nowhere) for number in range(3)]
    try:
        for gateway in made:
            gateway.start()
        yield made
    finally:
        for gateway in made:
            gateway.stop()


@pytest.fixture(autouse=True)
def _all_live(gateways: list[GatewayProcess], connect: Callable[[str], Any]) -> None:
    """Begin with three gateways that know each other."""
    eventually(lambda: all(len(nodes(connect, each)) == 3 for each in gateways))


def eventually(check: Callable[[], Any], within: float = WITHIN) -> Any:
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def nodes(connect: Callable[[str], Any], gateway: GatewayProcess) -> dict[int, int]:
    """The nodes and their ports, as one gateway tells them."""
    wire = connect(gateway.bootstrap)
    try:
        return {each.node_id: each.port for each in wire.ask(METADATA, 9, topics=[]).brokers}
    finally:
        wire.close()


def coordinator(connect: Callable[[str], Any], gateway: GatewayProcess, group: str) -> int:
    """The port of a group's coordinator, as one gateway tells it."""
    wire = connect(gateway.bootstrap)
    try:
        return int(wire.ask(FIND, 6, key_type=0, coordinator_keys=[group]).coordinators[0].port)
    finally:
        wire.close()


def commit_fields(group: str, topic: str, offset: int) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [row]}],
    }


def commit(wire: Any, group: str, topic: str, offset: int) -> int:
    found = wire.ask(COMMIT, 9, **commit_fields(group, topic, offset))
    return int(found.topics[0].partitions[0].error_code)


def committed(wire: Any, group: str, topic: str) -> int | None:
    asked = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    [found] = wire.ask(FETCH_OFFSETS, 9, groups=asked).groups
    return None if found.error_code else int(found.topics[0].partitions[0].committed_offset)


def everybody(gateways: list[GatewayProcess]) -> str:
    return ",".join(gateway.bootstrap for gateway in gateways)


def make_topic(gateways: list[GatewayProcess], partitions: int) -> str:
    name = f"takeover-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": everybody(gateways), "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WITHIN)
    return name


def test_all_gateways_tell_the_same(gateways: list[GatewayProcess], connect: Callable[[str], Any]) -> None:
    topic = make_topic(gateways, 30)

    def told(gateway: GatewayProcess) -> Any:
        wire = connect(gateway.bootstrap)
        try:
            found = wire.ask(METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
        finally:
            wire.close()
        leaders = {part.partition_index: part.leader_id for part in found.topics[0].partitions}
        return found.controller_id, sorted(each.port for each in found.brokers), leaders

    first, second, third = (told(gateway) for gateway in gateways)
    assert first == second == third
    assert len(set(first[2].values())) == 3, "the leaders are not spread"
    groups = [f"group-{number}" for number in range(40)]
    found = [[coordinator(connect, gateway, group) for group in groups] for gateway in gateways]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) > 1


class Load:
    """A producer and two members of one group, each in a thread of its own, until they are told to stop."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.commits: dict[int, int] = {}
        """The highest offset of each partition that was committed, as the members were told."""
        self.went_back: list[tuple[int, int, int]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._done_producing = threading.Event()
        self._threads = [threading.Thread(target=self._produce, daemon=True)]
        self._threads += [threading.Thread(target=self._consume, daemon=True) for _ in range(2)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WITHIN)
            assert not thread.is_alive()

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        producer = Producer({**settings, "linger.ms": 5})

        def heard(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(int(message.value()))
            else:
                self.errors.append(f"produce: {error}")

        for number in itertools.count():
            if self._stop.is_set():
                break
            producer.produce(self.topic, b"%d" % number, on_delivery=heard)
            producer.poll(0.002)
        assert producer.flush(WITHIN) == 0
        self._done_producing.set()

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0}
        settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**settings, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500})
        consumer.subscribe([self.topic])
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self.read.add(int(message.value()))
                elif message.error().fatal():
                    self.errors.append(f"consume: {message.error()}")
            self._commit(consumer)
            if self._done_producing.is_set():
                deadline = deadline or time.monotonic() + WITHIN
                if self.acknowledged <= self.read:
                    break
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException as exc:
            # Nothing to commit, a rebalance, or a coordinator that moves: the next one tells.
            assert exc.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE
            return
        for part in done:
            if part.error is None:
                self.commits[part.partition] = max(part.offset, self.commits.get(part.partition, -1))

    def committed_now(self) -> dict[int, int]:
        """What the group has committed, by a consumer that is no member."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def ask() -> dict[int, int] | None:
            [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)]).values()
            try:
                return {part.partition: part.offset for part in future.result(10).topic_partitions}
            except KafkaException:
                return None

        found: dict[int, int] = eventually(ask)
        return found


def kill_in_turn(gateways: list[GatewayProcess], connect: Callable[[str], Any], times: int) -> None:
    topic, group = make_topic(gateways, 6), f"load-{uuid.uuid4().hex[:8]}"
    with Load(everybody(gateways), topic, group) as load:
        eventually(lambda: load.commits)
        for number in range(times):
            victim = gateways[number % len(gateways)]
            before = dict(load.commits)
            victim.kill()
            others = [each for each in gateways if each is not victim]
            moved(connect, others, group, victim, topic)
            now = load.committed_now()
            lost = {
                part: (offset, now.get(part)) for part, offset in before.items() if now.get(part, -1) < offset
            }
            assert lost == {}, "committed offsets went back"
            count = len(load.read)
            eventually(lambda count=count: len(load.read) > count)
            victim.start()
            eventually(lambda: all(len(nodes(connect, each)) == 3 for each in gateways))
    assert load.errors == []
    assert load.acknowledged - load.read == set(), "acknowledged records were lost"
    assert len(load.acknowledged) > 100


def moved(
    connect: Callable[[str], Any],
    others: list[GatewayProcess],
    group: str,
    victim: GatewayProcess,
    topic: str,
) -> None:
    """Wait until a group that the victim may have had is served by another, not longer than we promise."""
    begun = time.monotonic()

    def served() -> bool:
        ports = {coordinator(connect, each, group) for each in others}
        if len(ports) != 1 or victim.port in ports or ports == {-1}:
            return False
        wire = connect(f"127.0.0.1:{ports.pop()}")
        try:
            return committed(wire, group, topic) is not None
        finally:
            wire.close()

    eventually(served)
    assert time.monotonic() - begun < TAKEOVER


@pytest.mark.soak
def test_gateways_are_killed_in_turn(gateways: list[GatewayProcess], connect: Callable[[str], Any]) -> None:
    kill_in_turn(gateways, connect, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_gateways_are_killed_thirty_times(
    gateways: list[GatewayProcess], connect: Callable[[str], Any]
) -> None:
    kill_in_turn(gateways, connect, 30)


def leaders(connect: Callable[[str], Any], gateway: GatewayProcess, topic: str) -> set[int]:
    """The ports of the gateways that lead a topic, as one gateway tells them."""
    wire = connect(gateway.bootstrap)
    try:
        found = wire.ask(METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    finally:
        wire.close()
    ports = {each.node_id: int(each.port) for each in found.brokers}
    return {ports.get(part.leader_id, -1) for part in found.topics[0].partitions}


def test_a_gateway_beside_the_broker_leads_what_it_owns(
    gateways: list[GatewayProcess], connect: Callable[[str], Any], pulsar: Any, tmp_path: Path
) -> None:
    topic, group = make_topic(gateways, 6), f"beside-{uuid.uuid4().hex[:8]}"
    # By its own address: it is that of the broker, which the others were told not to be beside.
    beside = GatewayProcess(pulsar, tmp_path / "beside.log")
    everyone = [*gateways, beside]

    def is_led_by(told: list[GatewayProcess], ports: set[int]) -> bool:
        # Few partitions are spread by chance: a gateway may lead none of them.
        return all(leaders(connect, each, topic) <= ports for each in told)

    try:
        with Load(everybody(everyone), topic, group) as load:
            eventually(lambda: load.commits)
            eventually(lambda: is_led_by(gateways, {each.port for each in gateways}))
            beside.start()
            eventually(lambda: is_led_by(everyone, {beside.port}))
            beside.kill()
            eventually(lambda: is_led_by(gateways, {each.port for each in gateways}))
            beside.start()
            eventually(lambda: is_led_by(everyone, {beside.port}))
    finally:
        beside.stop()
    assert load.errors == []
    assert load.acknowledged - load.read == set(), "acknowledged records were lost"


def test_a_gateway_that_hangs_writes_nothing_when_it_goes_on(
    gateways: list[GatewayProcess], connect: Callable[[str], Any]
) -> None:
    topic, group = make_topic(gateways, 1), f"hang-{uuid.uuid4().hex[:8]}"
    port = coordinator(connect, gateways[0], group)
    [hung] = [gateway for gateway in gateways if gateway.port == port]
    others = [gateway for gateway in gateways if gateway is not hung]
    wire = connect(hung.bootstrap)
    eventually(lambda: commit(wire, group, topic, 5) == 0)
    hung.signal(signal.SIGSTOP)
    try:
        # It finds this in its socket when it goes on, and may believe for a moment that nothing has happened.
        wire.send(COMMIT, 9, **commit_fields(group, topic, 7))
        moved(connect, others, group, hung, topic)
        taken = connect(f"127.0.0.1:{coordinator(connect, others[0], group)}")
        assert committed(taken, group, topic) == 5
        assert commit(taken, group, topic, 10) == 0
    finally:
        hung.signal(signal.SIGCONT)
    _, late = wire.answer()
    assert late.topics[0].partitions[0].error_code == NOT_COORDINATOR
    eventually(lambda: all(len(nodes(connect, each)) == 3 for each in gateways))
    wire.close()
    taken.close()
    assert eventually(lambda: settled(connect, gateways, group, topic)) == 10


def settled(
    connect: Callable[[str], Any], gateways: list[GatewayProcess], group: str, topic: str
) -> int | None:
    wire = connect(f"127.0.0.1:{coordinator(connect, gateways[0], group)}")
    try:
        return committed(wire, group, topic)
    finally:
        wire.close()


def test_a_gateway_that_ends_in_order_hands_over_at_once(
    gateways: list[GatewayProcess], connect: Callable[[str], Any]
) -> None:
    topic, group = make_topic(gateways, 1), f"order-{uuid.uuid4().hex[:8]}"
    port = coordinator(connect, gateways[0], group)
    [leaver] = [gateway for gateway in gateways if gateway.port == port]
    others = [gateway for gateway in gateways if gateway is not leaver]
    wire = connect(leaver.bootstrap)
    eventually(lambda: commit(wire, group, topic, 5) == 0)
    wire.close()
    leaver.signal(signal.SIGTERM)
    moved(connect, others, group, leaver, topic)
    assert settled(connect, others, group, topic) == 5
    assert leaver.process is not None
    leaver.process.wait(20)
    leaver.start()


def test_two_gateways_cannot_be_the_same_node(pulsar: Any, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "penstock.cli",
        "gateway",
        "--node-id",
        "77",
        "--pulsar",
        pulsar.service_url,
    ]
    words += ["--admin", pulsar.admin_url, "--listen", "127.0.0.1:0"]
    log = tmp_path / "first.log"
    with log.open("wb") as out:
        first = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        eventually(lambda: "Kafka clients on" in log.read_text())
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
        assert done.returncode == 2
        assert "another gateway has the node id 77" in done.stderr
    finally:
        first.terminate()
        first.wait(20)


def test_compaction_in_the_middle_loses_nothing(
    gateways: list[GatewayProcess], connect: Callable[[str], Any], pulsar: Any
) -> None:
    import httpx

    topic = make_topic(gateways, 1)
    groups = [f"compact-{uuid.uuid4().hex[:6]}-{number}" for number in range(20)]

    def commit_all(offset: int) -> None:
        for group in groups:
            wire = connect(f"127.0.0.1:{coordinator(connect, gateways[0], group)}")
            eventually(lambda wire=wire, group=group: commit(wire, group, topic, offset) == 0)
            wire.close()

    for offset in range(3):
        commit_all(offset)
    base = f"{pulsar.admin_url}/admin/v2/persistent/public/__kafka/__consumer_offsets-partition-"
    for partition in range(8):
        assert httpx.put(f"{base}{partition}/compaction").status_code < 300
    commit_all(3)
    for partition in range(8):
        eventually(
            lambda partition=partition: (
                httpx.get(f"{base}{partition}/compaction").json()["status"] == "SUCCESS"
            )
        )
    commit_all(4)
    # Every log is read anew, from its compacted part on.
    victim = gateways[0]
    victim.kill()
    others = gateways[1:]
    eventually(lambda: all(victim.port not in nodes(connect, each).values() for each in others))
    for group in groups:
        assert eventually(lambda group=group: settled(connect, others, group, topic) is not None)
        assert settled(connect, others, group, topic) == 4
    victim.start()
