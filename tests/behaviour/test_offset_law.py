"""The law of offsets: whoever writes, and whatever happens between, a fetch gives 0..n-1 once each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pulsar_client = pytest.importorskip("pulsar")

pytestmark = pytest.mark.server

_SILENT = logging.getLogger("silent")
_SILENT.setLevel(logging.CRITICAL)

COUNTS = st.integers(1, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("kafka"), COUNTS, st.integers(0, 4)),
        st.tuples(st.just("kafka"), COUNTS, st.integers(0, 4)),
        st.tuples(st.just("pulsar"), COUNTS, st.sampled_from(["single", "batched", "lz4"])),
        st.tuples(st.just("unload"), st.just(0), st.none()),
        st.tuples(st.just("restart"), st.just(0), st.none()),
    ),
    min_size=3,
    max_size=14,
)


class World:
    """A Pulsar with small ledgers, its own client, and a gateway that can be started anew."""

    def __init__(self, server: Any, start_gateway: Any, connect: Any) -> None:
        self.server, self._start, self._connect = server, start_gateway, connect
        self.client = pulsar_client.Client(server.service_url, logger=_SILENT)
        self.gateway = start_gateway(server.service_url, server.admin_url)
        self.wire = connect(self.gateway.bootstrap)

    def restart(self) -> None:
        self.wire.close()
        self.gateway.close()
        self.gateway = self._start(self.server.service_url, self.server.admin_url)
        self.wire = self._connect(self.gateway.bootstrap)

    def producer(self, topic: str, kind: str) -> Any:
        return self.client.create_producer(
            f"persistent://public/default/{topic}-partition-0",
            batching_enabled=kind != "single",
            batching_max_publish_delay_ms=1000,
            compression_type=pulsar_client.CompressionType.LZ4
            if kind == "lz4"
            else pulsar_client.CompressionType.NONE,
        )

    def close(self) -> None:
        self.wire.close()
        self.gateway.close()
        self.client.close()


@pytest.fixture(scope="module")
def world(small_ledgers: Any, start_gateway: Any, connect: Any) -> Iterator[World]:
    made = World(small_ledgers, start_gateway, connect)
    yield made
    made.close()


def read_all(wire: Any, records: Any, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        answer = wire.fetch(topic, len(found))
        assert answer.error_code == 0
        fresh = [record for record in records(answer) if record.offset >= len(found)]
        assert fresh, f"nothing at {len(found)} of {count}"
        found += fresh
    return found


@given(steps=STEPS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_any_interleaving_of_writers(world: World, batch: Any, records: Any, steps: Any) -> None:
    topic, expected = world.wire.create(), []
    for step, count, how in steps:
        values = [b"%d" % (len(expected) + number) for number in range(count)]
        if step == "kafka":
            rows = [{"key": value, "value": value} for value in values]
            answer = world.wire.produce(topic, batch(rows, compression=how))
            assert (answer.error_code, answer.base_offset) == (0, len(expected))
        elif step == "pulsar":
            # A new one each time: pulsar-client loses a batch after a topic has moved, when it uses a number
            # again and deduplication drops it (its receipt is -1:-1, told as Ok).
            producer = world.producer(topic, how)
            for value in values:
                producer.send_async(value, None, partition_key=value.decode())
            producer.flush()
            producer.close()
        elif step == "unload":
            full = f"persistent://public/default/{topic}-partition-0"
            world.gateway.run(world.gateway.admin.unload(full))
        else:
            world.restart()
        expected += values
        assert world.wire.find(topic, -1)[:2] == (0, len(expected))
    found = read_all(world.wire, records, topic, len(expected))
    assert [record.offset for record in found] == list(range(len(expected)))
    assert [record.value for record in found] == expected
    assert [record.key for record in found] == expected


def test_writers_at_the_same_time(world: World, connect: Any, batch: Any, records: Any) -> None:
    """Two Kafka producers and one of Pulsar, an unload, new ledgers: acknowledged offsets are true."""
    topic = world.wire.create()
    acknowledged: dict[int, bytes] = {}
    sent: list[bytes] = []

    def kafka(name: bytes) -> None:
        wire = connect(world.gateway.bootstrap)
        pid, epoch = wire.producer_id()
        sequence = 0
        for number in range(40):
            values = [b"%s-%d-%d" % (name, number, index) for index in range(1 + number % 3)]
            rows = [{"value": value} for value in values]
            answer = wire.produce(
                topic, batch(rows, producer_id=pid, epoch=epoch, sequence=sequence, compression=number % 5)
            )
            assert answer.error_code == 0, answer
            sequence += len(values)
            acknowledged.update({answer.base_offset + index: value for index, value in enumerate(values)})
            sent.extend(values)
        wire.close()

    def pulsar() -> None:
        producer = world.producer(topic, "single")
        for number in range(60):
            place = producer.send(b"pulsar-%d" % number)
            # After a move it may use a number again; deduplication then drops the message: no place.
            if place.ledger_id() >= 0:
                sent.append(b"pulsar-%d" % number)
        producer.close()

    threads = [threading.Thread(target=kafka, args=(name,)) for name in (b"a", b"b")]
    threads.append(threading.Thread(target=pulsar))
    for thread in threads:
        thread.start()
    full = f"persistent://public/default/{topic}-partition-0"
    world.gateway.run(world.gateway.admin.unload(full))
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    end = world.wire.find(topic, -1)[1]
    assert end >= len(sent)
    found = read_all(world.wire, records, topic, end)
    assert [record.offset for record in found] == list(range(end))
    values = [record.value for record in found]
    assert {offset: values[offset] for offset in acknowledged} == acknowledged
    assert len(acknowledged) == 2 * sum(1 + number % 3 for number in range(40))
    # Pulsar's own client may send an entry twice when its topic moves; nothing of ours is there twice.
    ours = [value for value in values if not value.startswith(b"pulsar")]
    assert len(ours) == len(set(ours)) == len(acknowledged)
    theirs = {value for value in values if value.startswith(b"pulsar")}
    assert theirs >= {value for value in sent if value.startswith(b"pulsar")}
    assert len(theirs) > 50


def test_an_idempotent_producer_goes_on_after_a_restart_of_the_gateway(
    world: World, batch: Any, records: Any
) -> None:
    topic, (pid, epoch) = world.wire.create(), world.wire.producer_id()

    def send(sequence: int) -> Any:
        return world.wire.produce(
            topic, batch([{"value": b"%d" % sequence}], producer_id=pid, epoch=epoch, sequence=sequence)
        )

    for sequence in range(3):
        assert send(sequence).base_offset == sequence
    world.restart()
    # Stored before: Pulsar knows that, and not where.
    assert send(2).base_offset == 2
    assert send(0).base_offset == 0
    assert send(5).error_code == 45
    assert send(3).base_offset == 3
    assert send(3).base_offset == 3
    found = read_all(world.wire, records, topic, 4)
    assert [record.value for record in found] == [b"0", b"1", b"2", b"3"]


def test_trimmed_ledgers_are_outside_of_the_log(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create()
    for number in range(50):
        world.wire.produce(topic, batch([{"value": b"%d" % number}]))
    full = f"persistent://public/default/{topic}-partition-0"
    world.gateway.run(world.gateway.admin.truncate(full))
    world.restart()
    code, start, _ = world.wire.find(topic, -2)
    assert (code, start) == (0, 40)
    assert world.wire.fetch(topic, 39).error_code == 1
    answer = world.wire.fetch(topic, 40)
    assert (answer.log_start_offset, answer.high_watermark) == (40, 50)
    assert [record.value for record in records(answer)][0] == b"40"


def test_a_topic_that_others_make_again_begins_at_0(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create()
    assert world.wire.produce(topic, batch([{"value": b"old"}] * 5)).base_offset == 0
    admin, run = world.gateway.admin, world.gateway.run
    full = f"persistent://public/default/{topic}"
    run(admin.delete_topic(full, partitioned=True, force=True))
    run(admin.create_topic(full, 1))
    assert world.wire.find(topic, -1)[:2] == (0, 0)
    producer = world.producer(topic, "single")
    producer.send(b"new")
    producer.close()
    assert world.wire.find(topic, -1)[:2] == (0, 1)


def test_a_compacted_topic(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create(cleanup_policy="compact")
    assert world.wire.produce(topic, batch([{"key": None, "value": b"v"}])).error_code == 87
    assert world.wire.produce(topic, batch([{"key": b"k", "value": b""}])).error_code == 87
    for number in range(10):
        rows = [{"key": b"k%d" % (index % 3), "value": b"%d-%d" % (number, index)} for index in range(3)]
        assert world.wire.produce(topic, batch(rows)).base_offset == number * 3
    assert world.wire.produce(topic, batch([{"key": b"k1", "value": None}])).base_offset == 30
    full = f"persistent://public/default/{topic}-partition-0"
    admin, run = world.gateway.admin, world.gateway.run
    run(admin.compact(full))
    deadline = time.monotonic() + 60
    while run(admin.compaction_status(full)) == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run(admin.compaction_status(full)) == "SUCCESS"
    assert world.wire.produce(topic, batch([{"key": b"k9", "value": b"new"}])).base_offset == 31
    world.restart()
    found: list[Any] = []
    offset = 0
    while offset < 32:
        answer = world.wire.fetch(topic, offset)
        assert answer.error_code == 0
        found += [record for record in records(answer) if record.offset >= offset]
        offset = found[-1].offset + 1
    assert [(record.offset, record.key, record.value) for record in found] == [
        (27, b"k0", b"9-0"),
        (29, b"k2", b"9-2"),
        (31, b"k9", b"new"),
    ]
