"""Packed offsets on a Pulsar that keeps no index: offsets grow strictly, and each is a place."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.embedded.pulsar import Pulsar
from penstock.gateway.pulsar.packed import PENSTOCK
from penstock.gateway.pulsar.packed_partition import PackedPartition
from penstock.mapping import OnUndecodable
from penstock.wire.pulsar import MessageId

pulsar_client = pytest.importorskip("pulsar")
pytestmark = pytest.mark.server

_SILENT = logging.getLogger("silent")
_SILENT.setLevel(logging.CRITICAL)
MOST = PENSTOCK.largest_batch
COUNTS = st.integers(1, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("kafka"), COUNTS, st.integers(0, 4)),
        st.tuples(st.just("kafka"), COUNTS, st.integers(0, 4)),
        st.tuples(st.just("pulsar"), COUNTS, st.sampled_from([True, False])),
        st.tuples(st.just("unload"), st.just(0), st.none()),
        st.tuples(st.just("restart"), st.just(0), st.none()),
    ),
    min_size=3,
    max_size=12,
)


class World:
    """A Pulsar without the index, with small ledgers, and a gateway that can be started anew."""

    def __init__(self, server: Any, start_gateway: Any, connect: Any) -> None:
        self.server, self._start, self._connect = server, start_gateway, connect
        self.client = pulsar_client.Client(server.service_url, logger=_SILENT)
        self._begin()

    def _begin(self, **options: Any) -> None:
        self.gateway = self._start(
            self.server.service_url, self.server.admin_url, partitions=PackedPartition, **options
        )
        self.wire = self._connect(self.gateway.bootstrap)
        # The gateway has taken the connection, and closes it if it ends before anything is asked.
        assert self.wire.ask(18, 0).error_code == 0

    def restart(self, **options: Any) -> None:
        self.wire.close()
        self.gateway.close()
        self._begin(**options)

    def write(self, topic: str, values: list[bytes], *, batched: bool, most: int = 1000) -> None:
        producer = self.client.create_producer(
            full(topic),
            batching_enabled=batched,
            batching_max_messages=most,
            batching_max_publish_delay_ms=1000,
            max_pending_messages=20_000,
        )
        for value in values:
            producer.send_async(value, None)
        producer.flush()
        producer.close()

    def close(self) -> None:
        self.wire.close()
        self.gateway.close()
        self.client.close()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}-partition-0"


@pytest.fixture(scope="module")
def plain() -> Iterator[Pulsar]:
    """A Pulsar as it is shipped: it keeps no index."""
    without = {
        "brokerEntryMetadataInterceptors": "",
        "exposingBrokerEntryMetadataToClientEnabled": "false",
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }
    with Pulsar(durable=False, settings=without) as server:
        yield server


@pytest.fixture(scope="module")
def world(plain: Pulsar, start_gateway: Any, connect: Any) -> Iterator[World]:
    made = World(plain, start_gateway, connect)
    yield made
    made.close()


def read_all(wire: Any, records: Any, topic: str, count: int) -> list[Any]:
    """Read as a client does: from the earliest offset on, always behind the last record."""
    code, offset, _ = wire.find(topic, -2)
    assert code == 0
    found: list[Any] = []
    while len(found) < count:
        answer = wire.fetch(topic, offset)
        assert answer.error_code == 0
        fresh = [record for record in records(answer) if record.offset >= offset]
        assert fresh, f"nothing at {offset}, {len(found)} of {count}"
        found += fresh
        offset = fresh[-1].offset + 1
        assert answer.high_watermark >= offset
    return found


@given(steps=STEPS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_offsets_grow_strictly_whoever_writes(world: World, batch: Any, records: Any, steps: Any) -> None:
    topic, expected, told = world.wire.create(), [], {}
    start = world.wire.find(topic, -2)[1]
    assert world.wire.find(topic, -1)[:2] == (0, start)
    for step, count, how in steps:
        values = [b"%d" % (len(expected) + number) for number in range(count)]
        if step == "kafka":
            answer = world.wire.produce(topic, batch([{"value": v} for v in values], compression=how))
            assert answer.error_code == 0
            told |= {answer.base_offset + index: value for index, value in enumerate(values)}
        elif step == "pulsar":
            world.write(topic, values, batched=how)
        elif step == "unload":
            world.gateway.run(world.gateway.admin.unload(full(topic)))
        else:
            world.restart()
        expected += values
    found = read_all(world.wire, records, topic, len(expected))
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert [record.value for record in found] == expected
    assert told == {record.offset: record.value for record in found if record.offset in told}
    if offsets:
        assert world.wire.find(topic, -1)[:2] == (0, offsets[-1] + 1)


def test_an_offset_is_the_place_of_a_message(world: World, batch: Any) -> None:
    topic = world.wire.create()
    first = world.wire.produce(topic, batch([{}] * 3)).base_offset
    second = world.wire.produce(topic, batch([{}] * 2)).base_offset
    last = world.gateway.run(world.gateway.admin.last_message_id(full(topic)))
    assert PENSTOCK.unpack(second + 1)[:3] == last[:3]
    assert PENSTOCK.unpack(first)[:3] == (last.ledger_id, last.entry_id - 1, 0)
    assert world.wire.find(topic, -1)[:2] == (0, second + 2)


def test_any_offset_can_be_sought_also_one_that_nobody_has(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create()
    bases = [world.wire.produce(topic, batch([{"value": b"%d" % n}] * 3)).base_offset for n in range(30)]
    world.restart()
    for number, base in enumerate(bases):
        inside = [r for r in records(world.wire.fetch(topic, base + 1)) if r.offset > base]
        assert (inside[0].offset, inside[0].value) == (base + 1, b"%d" % number)
    # Between two entries there are offsets without a record.
    found = [r for r in records(world.wire.fetch(topic, bases[3] + 3)) if r.offset >= bases[3] + 3]
    assert found[0].offset == bases[4]
    end = world.wire.find(topic, -1)[1]
    assert end == bases[-1] + 3
    assert records(world.wire.fetch(topic, end, max_wait=100)) == []
    assert world.wire.fetch(topic, end + 1).error_code == 1
    assert world.wire.fetch(topic, bases[0] - 1).error_code == 1
    assert world.wire.fetch(topic, 0).error_code == 1


def test_offsets_by_time(world: World, batch: Any) -> None:
    topic, now = world.wire.create(), int(time.time() * 1000)
    bases = [
        world.wire.produce(
            topic, batch([{"timestamp": now + 10 * (first + n)} for n in range(3)])
        ).base_offset
        for first in (0, 3, 6)
    ]
    assert world.wire.find(topic, now + 41) == (0, bases[1] + 2, now + 50)
    assert world.wire.find(topic, -3) == (0, bases[2] + 2, now + 80)
    assert world.wire.find(topic, now + 81)[:2] == (0, -1)


def test_a_client_waits_for_the_next_record(world: World, batch: Any, records: Any, connect: Any) -> None:
    topic = world.wire.create()
    end = world.wire.find(topic, -1)[1]
    other = connect(world.gateway.bootstrap)
    for number in range(3):
        asked = world.wire.send(1, 12, **fetch_of(topic, end))
        base = other.produce(topic, batch([{"value": b"%d" % number}])).base_offset
        correlation, answer = world.wire.answer()
        assert correlation == asked
        got = records(answer.responses[0].partitions[0])
        assert [(record.offset, record.value) for record in got] == [(base, b"%d" % number)]
        end = base + 1
    other.close()


def fetch_of(topic: str, offset: int) -> dict[str, Any]:
    row = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait": 10_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_batch_with_too_many_records_is_split(
    world: World, batch: Any, records: Any, idempotent: bool
) -> None:
    topic, count = world.wire.create(), 2 * MOST + 10
    pid, epoch = world.wire.producer_id() if idempotent else (-1, -1)
    rows = [{"value": b"%d" % number} for number in range(count)]
    options = {"producer_id": pid, "epoch": epoch, "sequence": 0 if idempotent else -1}
    answer = world.wire.produce(topic, batch(rows, compression=3, **options))
    assert answer.error_code == 0
    if idempotent:
        assert world.wire.produce(topic, batch(rows, compression=3, **options)).base_offset == (
            answer.base_offset
        )
    found = read_all(world.wire, records, topic, count)
    assert [record.value for record in found] == [row["value"] for row in rows]
    # One entry follows the other, so that the client's own count of offsets is right.
    assert [record.offset for record in found] == list(range(answer.base_offset, answer.base_offset + count))
    assert world.wire.find(topic, -1)[:2] == (0, answer.base_offset + count)


@pytest.mark.parametrize("placeholders", [False, True])
def test_an_entry_of_others_with_too_many_messages(
    world: World, batch: Any, records: Any, placeholders: bool
) -> None:
    world.restart(on_undecodable=OnUndecodable.PLACEHOLDER if placeholders else OnUndecodable.FAIL)
    topic = world.wire.create()
    world.write(topic, [b"x"] * (MOST + 1), batched=True, most=MOST + 1)
    after = world.wire.produce(topic, batch([{"value": b"after"}])).base_offset
    start = world.wire.find(topic, -2)[1]
    answer = world.wire.fetch(topic, start)
    if placeholders:
        [one] = records(answer)[:1]
        assert (one.offset, one.value) == (start, None)
        assert b"offsets for 4096" in dict(one.headers)["penstock.undecodable"]
    else:
        assert answer.error_code == 2
        assert world.gateway.storage.undecodable["unnumbered"] == 1
    # What is behind it can be read.
    assert [record.value for record in records(world.wire.fetch(topic, after))] == [b"after"]
    if not placeholders:
        assert [r.value for r in records(world.wire.fetch(topic, start + MOST))] == [b"after"]
    world.restart()


def test_an_idempotent_producer_goes_on_after_a_restart(world: World, batch: Any, records: Any) -> None:
    topic, (pid, epoch) = world.wire.create(), world.wire.producer_id()

    def send(sequence: int) -> Any:
        return world.wire.produce(
            topic, batch([{"value": b"%d" % sequence}], producer_id=pid, epoch=epoch, sequence=sequence)
        )

    told = [send(sequence).base_offset for sequence in range(3)]
    world.restart()
    assert [send(2).base_offset, send(0).base_offset] == [told[2], told[0]]
    assert send(5).error_code == 45
    assert send(3).base_offset > told[2]
    assert [record.value for record in read_all(world.wire, records, topic, 4)] == [b"0", b"1", b"2", b"3"]


def test_trimmed_ledgers_are_outside_of_the_log(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create()
    bases = [world.wire.produce(topic, batch([{"value": b"%d" % n}])).base_offset for n in range(50)]
    world.gateway.run(world.gateway.admin.truncate(full(topic)))
    world.restart()
    code, start, _ = world.wire.find(topic, -2)
    assert (code, start) == (0, bases[40])
    assert world.wire.fetch(topic, bases[39]).error_code == 1
    answer = world.wire.fetch(topic, start)
    assert (answer.log_start_offset, answer.high_watermark) == (start, bases[-1] + 1)
    assert records(answer)[0].value == b"40"


def test_all_records_are_removed(world: World, batch: Any, records: Any) -> None:
    topic = world.wire.create()
    before = [world.wire.produce(topic, batch([{}] * 5)).base_offset for _ in range(4)]

    def remove(offset: int) -> tuple[int, int]:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        found = world.wire.ask(21, 1, topics=asked, timeout=30_000).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert remove(before[1] + 2) == (0, before[1] + 2)
    assert world.wire.fetch(topic, before[1] + 1).error_code == 1
    assert world.wire.find(topic, -2)[1] == before[1] + 2
    assert remove(-1) == (0, before[-1] + 5)
    assert world.wire.find(topic, -2)[1] == world.wire.find(topic, -1)[1] == before[-1] + 5
    assert world.wire.fetch(topic, before[0]).error_code == 1
    after = world.wire.produce(topic, batch([{"value": b"after"}])).base_offset
    assert after > before[-1] + 4
    assert [record.value for record in records(world.wire.fetch(topic, before[-1] + 5))] == [b"after"]


def test_a_ledger_is_closed_before_its_numbers_run_out(
    world: World, batch: Any, records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.pulsar.packed_partition._FULL", 5)
    topic = world.wire.create()
    offsets = []
    deadline = time.monotonic() + 30
    while len({PENSTOCK.unpack(offset).ledger_id for offset in offsets}) < 3:
        assert time.monotonic() < deadline
        answer = world.wire.produce(topic, batch([{"value": b"%d" % len(offsets)}]))
        assert answer.error_code == 0
        offsets.append(answer.base_offset)
    entries = [PENSTOCK.unpack(offset).entry_id for offset in offsets]
    # Pulsar itself would close it after twenty.
    assert entries.count(0) == 3
    assert max(entries) < 19
    found = read_all(world.wire, records, topic, len(offsets))
    assert [record.offset for record in found] == offsets


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    from penstock.errors import ApiError
    from penstock.gateway.pulsar.packed_partition import PACKED

    with pytest.raises(ApiError, match=r"stored and has no offset: entry id 131072 does not fit") as caught:
        PACKED.counter().count(MessageId(1, 1 << 17), 1)
    assert caught.value.error_code == 44
    with pytest.raises(ApiError, match="ledger id"):
        PACKED.counter().count(MessageId(1 << 34, 0), 1)


def test_the_command_says_what_to_do_and_runs(plain: Pulsar, connect: Any, batch: Any, records: Any) -> None:
    from penstock.embedded.gateway import Gateway
    from penstock.errors import StartupError

    with pytest.raises(StartupError) as caught, Gateway(plain):
        pass
    assert "--offsets packed" in "".join(map(str, (caught.value.what, caught.value.why, caught.value.next)))
    with Gateway(plain, options=("--offsets", "packed")) as gateway:
        wire = connect(gateway.bootstrap)
        topic = wire.create()
        base = wire.produce(topic, batch([{"value": b"one"}])).base_offset
        assert [(r.offset, r.value) for r in records(wire.fetch(topic, base))] == [(base, b"one")]
        for value in (b"two", b"three"):
            wire.produce(topic, batch([{"value": value}]))
        wire.close()
        assert read_as_group(gateway.bootstrap, topic, 2) == [b"one", b"two"]
        assert read_as_group(gateway.bootstrap, topic, 1) == [b"three"]


def read_as_group(bootstrap: str, topic: str, count: int) -> list[Any]:
    from confluent_kafka import Consumer

    options = {"group.id": f"packed-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **options})
    consumer.subscribe([topic])
    found = []
    for _ in range(count):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
        consumer.commit(message, asynchronous=False)
    consumer.close()
    return found
