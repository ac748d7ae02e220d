"""The writer of a partition, with a Pulsar that answers as the test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.brokers.pulsar import Receipt
from penstock.errors import AccessDenied, ApiError, PenstockError, Unreachable
from penstock.gateway.pulsar import writer as module
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.writer import Writer
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches
from penstock.wire.pulsar import MessageId

NOWHERE = MessageId(-1, -1)


class FakeProducer:
    """Keeps the receipts that a test gives."""

    def __init__(self, name: str | None) -> None:
        self.name = name or "chosen-by-the-broker"
        self.last_sequence_id = -1
        self.error: PenstockError | None = None
        self.receipts: list[tuple[int, asyncio.Future[Receipt]]] = []

    async def send(self, *said: Any) -> asyncio.Future[Receipt]:
        return self.send_nowait(*said)

    def send_nowait(self, *said: Any) -> asyncio.Future[Receipt]:
        *_, sequence_id, _ = said
        number = len(self.receipts) if sequence_id is None else sequence_id
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.receipts.append((number, receipt))
        return receipt

    async def close(self) -> None:
        return None


class FakePulsar:
    """Client and admin in one; an entry's index is that of its number."""

    def __init__(self) -> None:
        self.producers: dict[str | None, FakeProducer] = {}

    async def producer(self, topic: str, *, name: str | None) -> FakeProducer:
        return self.producers.setdefault(name, FakeProducer(name))

    async def entry_index(self, topic: str, place: MessageId) -> Any:
        return type("Index", (), {"last_index": place.entry_id, "num_messages": 1})

    async def sent(self, name: str | None, count: int) -> FakeProducer:
        async with asyncio.timeout(5):
            while len(getattr(self.producers.get(name), "receipts", ())) < count:
                await asyncio.sleep(0)
        return self.producers[name]


def batch(sequence: int = -1, value: bytes = b"v") -> RecordBatch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=9 if sequence >= 0 else -1,
        producer_epoch=0 if sequence >= 0 else -1,
        base_sequence=sequence,
        batch_size=10_000,
    )
    builder.append(0, timestamp=1, key=None, value=value, headers=[])
    [made] = read_batches(bytes(builder.build()))
    return made


def run(work: Any) -> None:
    async def inside() -> None:
        pulsar = FakePulsar()
        writer = Writer(pulsar, pulsar, "topic", counter=OffsetCounter(), max_batch_bytes=100_000)  # type: ignore[arg-type]
        try:
            await work(pulsar, writer)
        finally:
            await writer.close()

    asyncio.run(inside())


async def code_of(waiting: Any) -> int:
    with pytest.raises(ApiError) as refused:
        await waiting
    return refused.value.error_code


def test_batches_go_out_in_order_and_each_learns_its_offset() -> None:
    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        waiting = [writer.append(batch()) for _ in range(3)]
        producer = await pulsar.sent(None, 3)
        for number, receipt in producer.receipts:
            receipt.set_result(Receipt(number, MessageId(1, number), 1))
        assert await asyncio.gather(*waiting) == [0, 1, 2]

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_a_duplicate_that_nobody_sent_before_is_no_success(sequence: int) -> None:
    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        waiting = writer.append(batch(sequence))
        producer = await pulsar.sent("penstock-9-0" if sequence >= 0 else None, 1)
        producer.receipts[0][1].set_result(Receipt(0, NOWHERE, 1))
        assert await code_of(waiting) == ErrorCode.UNKNOWN_SERVER_ERROR

    run(work)


@pytest.mark.parametrize(("found", "sequence"), [(41, -1), (41, 0), (None, -1), (None, 0)])
def test_a_second_attempt_that_is_dropped_was_stored(
    monkeypatch: pytest.MonkeyPatch, found: int | None, sequence: int
) -> None:
    async def look(*where: Any, **more: Any) -> int | None:
        return found

    monkeypatch.setattr(module, "find_trace", look)

    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        waiting = writer.append(batch(sequence))
        producer = await pulsar.sent("penstock-9-0" if sequence >= 0 else None, 1)
        producer.receipts[0][1].set_result(Receipt(0, NOWHERE, 2))
        if found is None and sequence >= 0:
            assert await code_of(waiting) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            assert await waiting == (-1 if found is None else found)

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_who_may_not_read_is_not_told_where_and_nothing_is_sent_twice(sequence: int) -> None:
    asked = []

    class Forbidding(FakePulsar):
        async def entry_index(self, topic: str, place: MessageId) -> Any:
            asked.append(place)
            raise AccessDenied("no")

        async def message_id_by_time(self, topic: str, publish_time: int) -> Any:
            raise AccessDenied("no")

    async def inside() -> None:
        pulsar = Forbidding()
        writer = Writer(pulsar, pulsar, "topic", counter=OffsetCounter(), max_batch_bytes=100_000)  # type: ignore[arg-type]
        name = "penstock-9-0" if sequence >= 0 else None
        waiting = [writer.append(batch(sequence + number if name else -1)) for number in range(3)]
        for number, receipt in (await pulsar.sent(name, 3)).receipts:
            receipt.set_result(Receipt(number, MessageId(1, 2 * number), 1))
        assert await asyncio.gather(*waiting) == [-1, -1, -1]
        # Pulsar said no once; it is not asked again for a while.
        assert len(asked) == 1
        if name is not None:
            # Clients take this for success without an offset.
            assert await code_of(writer.append(batch(sequence))) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            assert len(pulsar.producers[name].receipts) == 3
        await writer.close()

    asyncio.run(inside())


def test_after_a_failure_nothing_later_of_that_producer_is_sent() -> None:
    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        first = writer.append(batch(0))
        producer = await pulsar.sent("penstock-9-0", 1)
        producer.receipts[0][1].set_exception(Unreachable("gone"))
        second = writer.append(batch(1))
        assert await code_of(first) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await code_of(second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = writer.append(batch(0))
        await pulsar.sent("penstock-9-0", 2)
        assert [number for number, _ in producer.receipts] == [0, 0]
        producer.receipts[1][1].set_result(Receipt(0, MessageId(1, 0), 1))
        assert await again == 0

    run(work)


def test_a_batch_that_nobody_waits_for_any_more_is_not_sent() -> None:
    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        given_up = writer.append(batch())
        given_up.cancel()  # type: ignore[attr-defined]
        kept = writer.append(batch())
        producer = await pulsar.sent(None, 1)
        producer.receipts[0][1].set_result(Receipt(0, MessageId(1, 0), 1))
        assert await kept == 0
        assert len(producer.receipts) == 1

    run(work)


def test_what_is_under_way_fails_when_the_partition_is_closed() -> None:
    async def work(pulsar: FakePulsar, writer: Writer) -> None:
        waiting = [writer.append(batch()) for _ in range(3)]
        await pulsar.sent(None, 3)
        await writer.close()
        for each in waiting:
            assert await code_of(each) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(work)
