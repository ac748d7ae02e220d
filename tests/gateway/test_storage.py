"""Appends to partitions that are being opened, by whomever, or cannot be, or are closed under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.errors import ApiError, Unreachable, WireError
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.packed_partition import PackedPartition
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches

FULL = "persistent://public/default/t-partition-0"
OUT_OF_ORDER, NOT_LEADER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(sequence: int = -1, value: bytes = b"v", records: int = 1) -> RecordBatch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=9 if sequence >= 0 else -1,
        producer_epoch=0 if sequence >= 0 else -1,
        base_sequence=sequence,
        batch_size=1_000_000,
    )
    for number in range(records):
        builder.append(number, timestamp=1, key=None, value=value, headers=[])
    [made] = read_batches(bytes(builder.build()))
    return made


@pytest.fixture
def run(fake_pulsar: Any) -> Any:
    def runs(work: Any, **more: Any) -> None:
        async def inside() -> None:
            pulsar = fake_pulsar()
            storage = PulsarStorage(pulsar, pulsar, names=Names(), **more)
            try:
                await work(pulsar, storage)
            finally:
                await storage.close()

        asyncio.run(inside())

    return runs


async def codes_of(*waiting: Any) -> list[int]:
    """0 for each that is stored, else its error code."""
    results = await asyncio.gather(*waiting, return_exceptions=True)
    return [result.error_code if isinstance(result, ApiError) else 0 for result in results]


def begin(storage: PulsarStorage, one: RecordBatch) -> asyncio.Future[Any]:
    return asyncio.ensure_future(storage.append("t", 0, one))


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """Holds up the question whether a topic is compacted, which comes last before a partition is open."""

    def __init__(self, pulsar: Any) -> None:
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self._policy = pulsar.policy
        pulsar.policy = self._ask

    async def _ask(self, topic: str, name: str) -> Any:
        self.asked.set()
        await self.open.wait()
        return await self._policy(topic, name)


@pytest.mark.parametrize("first", [-1, 0])
def test_the_order_is_kept_while_a_fetch_opens_the_partition_first(run: Any, first: int) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        gate = Gate(pulsar)
        one = begin(storage, batch(first, b"1"))
        await gate.asked.wait()
        # A consumer is faster: the partition is open, and the producer's own look-up is not done.
        place = await storage.topics.place("t")
        opened = storage._new_partition("t", 0, place, False)
        two = begin(storage, batch(first + 1 if first >= 0 else -1, b"2"))
        await turns()
        assert pulsar.values(FULL) == []
        gate.open.set()
        three = begin(storage, batch(first + 2 if first >= 0 else -1, b"3"))
        assert await codes_of(one, two, three) == [0, 0, 0]
        assert pulsar.values(FULL) == [b"1", b"2", b"3"]
        assert storage._partitions["t", 0] is opened

    run(work)


@pytest.mark.parametrize("first", [-1, 0])
def test_readers_and_writers_open_a_partition_at_once_and_the_order_is_kept(run: Any, first: int) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        waiting = []
        for number in range(20):
            # One look-up more each time: somebody is always ahead of somebody else.
            waiting.append(begin(storage, batch(first + number if first >= 0 else -1, bytes([65 + number]))))
            finding = asyncio.ensure_future(storage._partition("t", 0))
            await asyncio.sleep(0)
            await finding if number % 3 == 0 else await turns(1)
        assert await codes_of(*waiting) == [0] * 20
        assert pulsar.values(FULL) == [bytes([65 + number]) for number in range(20)]

    run(work)


def test_a_partition_that_cannot_be_opened_lets_nothing_later_be_the_first(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        asks = pulsar.policy

        async def away(topic: str, name: str) -> Any:
            raise Unreachable("away")

        pulsar.policy = away
        assert await codes_of(begin(storage, batch(0, b"a"))) == [NOT_LEADER]
        pulsar.policy = asks
        assert await codes_of(begin(storage, batch(1, b"b"))) == [OUT_OF_ORDER]
        assert await codes_of(begin(storage, batch(0, b"a")), begin(storage, batch(1, b"b"))) == [0, 0]
        assert pulsar.values(FULL) == [b"a", b"b"]

    run(work)


def test_a_broker_that_talks_nonsense_is_asked_again_by_the_client(run: Any) -> None:
    """The connection that failed is the gateway's own; the client has done nothing wrong."""

    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        asks, lists = pulsar.policy, pulsar.partitions

        async def nonsense(*_: Any, **__: Any) -> Any:
            raise WireError("a frame of -1 bytes")

        pulsar.policy = nonsense
        assert await codes_of(begin(storage, batch(0, b"a"))) == [NOT_LEADER]
        with pytest.raises(ApiError) as caught:
            await storage.read("t", 0, 0, 1000)
        assert caught.value.error_code == NOT_LEADER
        pulsar.policy, pulsar.partitions = asks, nonsense
        assert (await storage.topics.get("t")) is not None
        with pytest.raises(ApiError) as caught:
            await storage.topics.get("unknown")
        assert caught.value.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        pulsar.partitions = lists

    run(work)


def test_a_bug_while_a_partition_is_opened_is_answered(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        async def broken(topic: str, name: str) -> Any:
            raise ZeroDivisionError

        pulsar.policy = broken
        async with asyncio.timeout(5):
            assert await codes_of(begin(storage, batch(0))) == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(work)


def test_what_was_given_up_while_the_partition_opened_is_not_overtaken(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        gate = Gate(pulsar)
        one, two = begin(storage, batch(0, b"a")), begin(storage, batch(1, b"b"))
        await gate.asked.wait()
        one.cancel()
        await turns(2)
        gate.open.set()
        assert await codes_of(two) == [OUT_OF_ORDER]
        assert await codes_of(begin(storage, batch(0, b"a")), begin(storage, batch(1, b"b"))) == [0, 0]
        assert pulsar.values(FULL) == [b"a", b"b"]

    run(work)


def test_a_partition_that_is_closed_and_opened_again_waits_for_what_was_under_way(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        # Opened by a reader, so that nothing is known of the producer.
        await storage._partition("t", 0)
        pulsar.answers = False
        lost = [begin(storage, batch(number, bytes([97 + number]))) for number in range(2)]
        await turns()
        # A setting of the topic changes: what is held of it is closed.
        storage._gone("t")
        pulsar.answers = True
        assert await codes_of(*lost) == [NOT_LEADER, NOT_LEADER]
        assert await codes_of(begin(storage, batch(2, b"c"))) == [OUT_OF_ORDER]
        again = [begin(storage, batch(number, bytes([97 + number]))) for number in range(3)]
        assert await codes_of(*again) == [0, 0, 0]
        assert pulsar.values(FULL) == [b"a", b"b", b"c"]

    run(work)


def test_what_was_refused_before_the_partition_was_open_is_waited_for(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        storage.refused("t", 0, batch(0))
        storage.refused("t", 0, batch())
        assert await codes_of(begin(storage, batch(1))) == [OUT_OF_ORDER]
        storage.refused("t", 0, batch(1))
        assert await codes_of(begin(storage, batch(0)), begin(storage, batch(1))) == [0, 0]

    run(work)


def test_a_large_batch_whose_parts_are_partly_known_is_stored_only_when_all_are(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        many = batch(0, records=4096 * 3)
        pulsar.answers = False
        lost = begin(storage, many)
        await turns()
        [producer] = pulsar.open.values()
        assert len(producer.window) == 3
        # The first part is stored and its offset cannot be told, the others are lost.
        producer.fail(Unreachable("away"), stored=True)
        producer.fail(Unreachable("away"))
        producer.fail(Unreachable("away"))
        assert await codes_of(lost) == [NOT_LEADER]
        pulsar.unreadable = Unreachable("away")
        again = begin(storage, many)
        await turns()
        producer.take()
        producer.fail(Unreachable("away"))
        producer.fail(Unreachable("away"))
        assert await codes_of(again) == [NOT_LEADER]
        pulsar.unreadable, pulsar.answers = None, True
        assert await codes_of(begin(storage, many)) == [0]
        assert [entry.sequence for entry in pulsar.entries[FULL]] == [0, 4096, 8192]

    run(work, partitions=PackedPartition)


def test_the_partitions_of_a_topic_are_opened_with_one_question_for_all(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        async def many(topic: str) -> int:
            pulsar.asked.append("partitions")
            await asyncio.sleep(0)
            return 1000

        pulsar.partitions = many
        waiting = [storage.append("t", index, batch(0)) for index in range(1000)]
        assert await codes_of(*waiting) == [0] * 1000
        asked = [question for question in pulsar.asked if question != "entry"]
        assert len(asked) == len(set(asked)) <= 3
        # A setting is changed: it is asked anew.
        storage._gone("t")
        assert await codes_of(storage.append("t", 0, batch(1))) == [0]
        assert len([question for question in pulsar.asked if question != "entry"]) > len(asked)

    run(work)


def test_one_who_gives_up_does_not_take_the_answer_from_the_others(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        gate = Gate(pulsar)
        reading = asyncio.ensure_future(storage._partition("t", 1))
        writing = begin(storage, batch(0))
        await gate.asked.wait()
        reading.cancel()
        gate.open.set()
        assert await codes_of(writing) == [0]

    run(work)


def test_a_batch_that_is_refused_at_once_does_not_hold_up_those_before_it(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        gate = Gate(pulsar)
        one = begin(storage, batch(0, b"a"))
        await gate.asked.wait()
        # The second is too large, which is seen before the first could be appended.
        storage.refused("t", 0, batch(1))
        three = begin(storage, batch(2, b"c"))
        gate.open.set()
        assert await codes_of(one, three) == [0, OUT_OF_ORDER]
        assert await codes_of(begin(storage, batch(1, b"b")), begin(storage, batch(2, b"c"))) == [0, 0]
        assert pulsar.values(FULL) == [b"a", b"b", b"c"]

    run(work)


def test_a_refusal_while_the_producer_opens_does_not_hold_up_what_waits_for_it(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        await storage._partition("t", 0)
        pulsar.gate.clear()
        one = begin(storage, batch(0, b"a"))
        await turns(5)
        storage.refused("t", 0, batch(1))
        pulsar.gate.set()
        assert await codes_of(one) == [0]
        assert await codes_of(begin(storage, batch(2, b"c"))) == [OUT_OF_ORDER]
        assert await codes_of(begin(storage, batch(1, b"b"))) == [0]

    run(work)


def test_partitions_that_there_are_not_are_asked_for_once(run: Any) -> None:
    """However many numbers are out of range: a topic is asked once a second whether it has grown."""

    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        asked, partitions = [], pulsar.partitions

        async def counted(topic: str) -> int:
            asked.append(topic)
            return int(await partitions(topic))

        pulsar.partitions = counted
        await storage.topics.place("t")
        missing = [storage.append("t", 3 + number, batch()) for number in range(1000)]
        below = [storage.read("t", -1 - number, 0, 1) for number in range(100)]
        codes = await codes_of(*missing, *below)
        assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(asked) == 2
        # Not for the next second, either; then it is looked at anew.
        assert await codes_of(storage.read("t", 3, 0, 1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(asked) == 2
        asked_at, done = storage._growth["t"]
        storage._growth["t"] = asked_at - 1.0, done

        async def grown(topic: str) -> int:
            return 4

        pulsar.partitions = grown
        assert await codes_of(storage.append("t", 3, batch())) == [0]
        storage.topics._forget("t")
        assert not storage._growth

    run(work)


def test_a_negative_partition_is_refused_without_asking(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        assert await codes_of(storage.append("t", -1, batch())) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert not storage._growth

    run(work)
