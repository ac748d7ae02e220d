"""The offsets topic: records as batches, and a log over a Pulsar that buffers, refuses and answers late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.pulsar import AccessMode, Delivery, Receipt
from penstock.errors import ApiError, ClusterError, PenstockError
from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.requests import Identity, JoinRequest, SyncRequest
from penstock.gateway.groups.schemas import Commit, Record, read_key
from penstock.gateway.groups.shard import Shard
from penstock.gateway.pulsar import offsets_log
from penstock.gateway.pulsar.offsets_log import OffsetsLog, mark_record, read_records, write_records
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import MessageId, encode_send, read_entry
from penstock.wire.pulsar.pulsar_pb2 import CommandSend, MessageMetadata, SingleMessageMetadata

MAX_MESSAGE = 5 * 1024 * 1024
TOPIC = "persistent://public/__kafka/__consumer_offsets-partition-0"

records = st.lists(
    st.tuples(st.binary(max_size=20), st.none() | st.binary(min_size=1, max_size=20)), max_size=5
)


@given(records)
def test_records_come_back(given_: list[tuple[bytes, bytes | None]]) -> None:
    assert list(read_records(write_records(given_), len(given_))) == given_


@given(st.binary(max_size=100), st.integers(0, 5))
def test_bytes_of_others_are_left_out(data: bytes, count: int) -> None:
    assert len(list(read_records(data, count))) <= count


@given(records, st.integers(0, 200))
def test_a_batch_that_is_cut_gives_what_is_whole(given_: list[tuple[bytes, bytes | None]], size: int) -> None:
    found = list(read_records(write_records(given_)[:size], len(given_)))
    assert found == given_[: len(found)]


def test_what_compaction_has_left_out_is_not_there() -> None:
    head = SingleMessageMetadata(partition_key="", payload_size=0, compacted_out=True).SerializeToString()
    payload = len(head).to_bytes(4, "big") + head + write_records([(b"k", b"v")])
    assert list(read_records(payload, 2)) == [(b"k", b"v")]


def test_a_mark_says_nothing_about_groups() -> None:
    key, value = mark_record("node 1")
    assert read_key(key) is None
    assert value == b"node 1"


# A log over a Pulsar in memory


class FakeProducer:
    """Keeps what is sent until it is told to store it, and refuses what is too large."""

    def __init__(self, pulsar: FakePulsar, epoch: int) -> None:
        self.topic, self.topic_epoch = TOPIC, epoch
        self.max_message_bytes = pulsar.max_message_bytes
        self.error: PenstockError | None = None
        self.closed = False
        self.pulsar = pulsar
        self.sent: list[tuple[bytes, asyncio.Future[Receipt]]] = []
        self.room = asyncio.Event()
        self.room.set()

    async def send_message(self, metadata: MessageMetadata, payload: bytes) -> asyncio.Future[Receipt]:
        await self.room.wait()
        if self.error is not None:
            raise self.error
        metadata.producer_name, metadata.sequence_id = "p", len(self.sent)
        send = CommandSend(producer_id=1, sequence_id=0, num_messages=metadata.num_messages_in_batch)
        frame = encode_send(send, metadata, payload)
        if len(frame) > self.max_message_bytes:
            raise ClusterError(f"an entry of {len(frame)} bytes is too large")
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.sent.append((bytes(frame)[8 + int.from_bytes(frame[4:8], "big") :], done))
        if self.pulsar.stores_at_once:
            self.store()
        return done

    def store(self) -> None:
        """Let the broker store what it was sent; not if somebody else has taken the topic."""
        for entry, done in self.sent:
            if self.pulsar.producer is not self:
                self.error = ClusterError("producer fenced")
                done.set_exception(self.error)
                continue
            self.pulsar.entries.append(entry)
            place = MessageId(1, len(self.pulsar.entries) - 1)
            if self.pulsar.lost_receipts > 0:
                # The producer has sent it again, and Pulsar says only that it has it.
                self.pulsar.lost_receipts -= 1
                place = MessageId(-1, -1)
            done.set_result(Receipt(0, place, 1))
        self.sent.clear()

    def refuse(self) -> None:
        """Let the broker refuse what it was sent."""
        for _, done in self.sent:
            done.set_exception(ClusterError("disk full"))
        self.sent.clear()

    async def close(self) -> None:
        self.closed = True
        for _, done in self.sent:
            if not done.done():
                done.set_exception(ClusterError("closed"))


class FakeReader:
    """Gives the entries that there are, one at a time, and then waits."""

    def __init__(self, pulsar: FakePulsar, convert: Callable[[Delivery], Any]) -> None:
        self.pulsar, self.convert, self.at, self.closed = pulsar, convert, 0, False

    async def read(self) -> Any:
        await asyncio.sleep(self.pulsar.delay)
        while self.at >= len(self.pulsar.entries):
            await asyncio.sleep(0.001)
        data = memoryview(self.pulsar.entries[self.at])
        self.at += 1
        return self.convert(Delivery(MessageId(1, self.at - 1), 0, read_entry(data), data))

    async def close(self) -> None:
        self.closed = True


class FakePulsar:
    """One topic; who opens it with fencing takes it from the one before."""

    def __init__(self, *, max_message_bytes: int = MAX_MESSAGE) -> None:
        self.entries: list[bytes] = []
        self.max_message_bytes = max_message_bytes
        self.stores_at_once = True
        self.lost_receipts = 0
        """How many receipts get lost with their connection."""
        self.delay = 0.0
        """Seconds before each entry that is read."""
        self.producer: FakeProducer | None = None
        self.readers: list[FakeReader] = []

    async def producer_(self, topic: str, *, access: AccessMode) -> FakeProducer:
        if self.producer is not None and access is not AccessMode.EXCLUSIVE_WITH_FENCING:
            raise ClusterError("producer busy")
        epoch = 1 if self.producer is None else self.producer.topic_epoch + 1
        self.producer = FakeProducer(self, epoch)
        return self.producer

    async def reader(
        self, topic: str, *, read_compacted: bool, convert: Callable[[Delivery], Any]
    ) -> FakeReader:
        assert read_compacted
        self.readers.append(FakeReader(self, convert))
        return self.readers[-1]

    async def open(self, name: str = "node 1") -> tuple[OffsetsLog, list[Record]]:
        client: Any = self
        return await OffsetsLog.open(_Client(client), TOPIC, mark=mark_record(name))

    def records(self) -> list[Record]:
        found = [read_entry(memoryview(entry)) for entry in self.entries]
        return [each for entry in found for each in read_records(bytes(entry.payload), entry.num_messages)]


class _Client:
    """The two methods of a client that a log needs."""

    def __init__(self, pulsar: FakePulsar) -> None:
        self.producer, self.reader = pulsar.producer_, pulsar.reader


def run(work: Callable[[FakePulsar], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def life() -> None:
        await asyncio.wait_for(work(FakePulsar(**options)), 60)

    asyncio.run(life())


def offset(number: int, size: int = 10) -> Record:
    return b"key %06d" % number, b"v" * size


def test_a_log_gives_what_was_stored_and_takes_the_topic() -> None:
    async def work(pulsar: FakePulsar) -> None:
        first, found = await pulsar.open()
        assert found == [mark_record("node 1")]
        await first.append([offset(1), (b"key 000002", None)])
        # An entry of which compaction has left nothing, and one that is none of ours, end no replay.
        head = SingleMessageMetadata(partition_key="", payload_size=0, compacted_out=True).SerializeToString()
        empty = MessageMetadata(producer_name="p", sequence_id=9, publish_time=1, num_messages_in_batch=1)
        frame = encode_send(
            CommandSend(producer_id=1, sequence_id=9), empty, len(head).to_bytes(4, "big") + head
        )
        pulsar.entries.append(bytes(frame)[8 + int.from_bytes(frame[4:8], "big") :])
        await first.append([offset(3)])
        second, found = await pulsar.open("node 2")
        assert found == [
            mark_record("node 1"),
            offset(1),
            (b"key 000002", None),
            offset(3),
            mark_record("node 2"),
        ]
        assert second.epoch == first.epoch + 1
        with pytest.raises(ClusterError, match="fenced"):
            await first.append([offset(4)])
        assert offset(4) not in pulsar.records()
        assert all(reader.closed for reader in pulsar.readers)
        await first.close()
        await second.close()

    run(work)


def test_a_log_is_read_to_its_end_if_the_receipt_of_its_mark_was_lost() -> None:
    async def work(pulsar: FakePulsar) -> None:
        first, _ = await pulsar.open()
        await first.append([offset(1)])
        await first.append([offset(2)])
        pulsar.lost_receipts = 2
        second, found = await pulsar.open("node 2")
        assert [each for each in found if each != mark_record("node 2")] == [
            mark_record("node 1"),
            offset(1),
            offset(2),
        ]
        await first.close()
        await second.close()

    run(work)


def test_a_log_may_take_long_to_read_but_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(pulsar: FakePulsar) -> None:
        first, _ = await pulsar.open()
        for number in range(30):
            await first.append([offset(number)])
        monkeypatch.setattr(offsets_log, "STALL_SECONDS", 0.2)
        pulsar.delay = 0.02
        second, found = await pulsar.open("node 2")
        assert len(found) == 32, "0.6 s in all, and each of them in time"
        pulsar.delay = 5.0
        with pytest.raises(ClusterError, match="gave nothing for 0.2 s"):
            await pulsar.open("node 3")
        assert pulsar.producer is not None and pulsar.producer.closed
        assert all(reader.closed for reader in pulsar.readers)
        await first.close()
        await second.close()

    run(work)


def test_a_record_is_done_when_the_broker_says_so() -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        assert pulsar.producer is not None
        pulsar.stores_at_once = False
        first, second = log.append([offset(1)]), log.append([offset(2)])
        while len(pulsar.producer.sent) < 1:
            await asyncio.sleep(0)
        third = log.append([offset(3)])
        while len(pulsar.producer.sent) < 2:
            await asyncio.sleep(0)
        assert not first.done() and not third.done()
        pulsar.producer.store()
        await asyncio.gather(first, second, third)
        assert pulsar.records()[1:] == [offset(1), offset(2), offset(3)]
        assert len(pulsar.entries) == 3, "what waited together is one message"
        await log.close()

    run(work)


def test_what_the_broker_refuses_is_told_to_all_who_wait_for_it() -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        assert pulsar.producer is not None
        pulsar.stores_at_once = False
        futures = [log.append([offset(number)]) for number in range(3)]
        while not pulsar.producer.sent:
            await asyncio.sleep(0)
        pulsar.producer.refuse()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(each) for each in found] == ["disk full"] * 3
        await log.close()

    run(work)


def test_nobody_waits_for_a_log_that_is_closed() -> None:
    """Also those whose records were taken out of the queue and wait for room at the producer."""

    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        assert pulsar.producer is not None
        pulsar.producer.room.clear()
        sending = log.append([offset(1)])
        await asyncio.sleep(0.01)
        large, waiting = log.append([offset(number, 1000) for number in range(3000)]), log.append([offset(2)])
        await log.close()
        found = await asyncio.gather(sending, large, waiting, log.append([offset(3)]), return_exceptions=True)
        assert [type(each) for each in found] == [ClusterError] * 4
        assert pulsar.producer.closed

    run(work)


@pytest.mark.parametrize(("count", "size"), [(5000, 10), (1299, 4096), (3, 2 * 1024 * 1024)])
def test_many_records_are_cut_by_number_and_by_size(count: int, size: int) -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        given_ = [offset(number, size) for number in range(count)]
        await asyncio.gather(log.append(given_[:-1]), log.append(given_[-1:]))
        assert pulsar.records()[1:] == given_
        found = [read_entry(memoryview(entry)) for entry in pulsar.entries[1:]]
        assert all(entry.num_messages <= 2000 for entry in found)
        assert all(len(entry.payload) <= 1024 * 1024 for entry in found if entry.num_messages > 1)
        await log.close()

    run(work)


def test_many_records_are_done_when_the_last_one_is_stored() -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        assert pulsar.producer is not None
        pulsar.stores_at_once = False
        done = log.append([offset(number) for number in range(5000)])
        while len(pulsar.producer.sent) < 3:
            await asyncio.sleep(0)
        last = pulsar.producer.sent.pop()
        pulsar.producer.store()
        await asyncio.sleep(0.01)
        assert not done.done()
        pulsar.producer.sent.append(last)
        pulsar.producer.store()
        await done
        await log.close()

    run(work)


def test_a_tombstone_is_what_pulsar_takes_for_a_delete() -> None:
    """Compaction removes a key whose newest message has no value and says so, or has no bytes."""
    payload = write_records([(b"k", None), (b"l", b"v")])
    size = int.from_bytes(payload[:4], "big")
    head = SingleMessageMetadata.FromString(payload[4 : 4 + size])
    assert (head.null_value, head.payload_size) == (True, 0)
    value = SingleMessageMetadata.FromString(payload[8 + size : -1])
    assert (value.null_value, value.payload_size) == (False, 1)


def test_a_part_that_fails_fails_the_whole() -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        assert pulsar.producer is not None
        pulsar.stores_at_once = False
        done = log.append([offset(number) for number in range(5000)])
        while len(pulsar.producer.sent) < 3:
            await asyncio.sleep(0)
        last = pulsar.producer.sent.pop()
        pulsar.producer.sent.pop()[1].set_exception(ClusterError("disk full"))
        pulsar.producer.store()
        last[1].set_result(Receipt(0, MessageId(1, 9), 1))
        with pytest.raises(ClusterError, match="disk full"):
            await done
        await log.close()

    run(work)


def test_a_record_that_no_message_can_hold_is_refused_by_itself() -> None:
    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        before = log.append([offset(1)])
        large = log.append([offset(2), offset(3, pulsar.max_message_bytes)])
        after = log.append([offset(4)])
        with pytest.raises(ApiError) as caught:
            await large
        assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
        await asyncio.gather(before, after)
        assert pulsar.records()[1:] == [offset(1), offset(4)]
        await log.close()

    run(work)


def test_no_client_takes_the_coordinator_from_the_others() -> None:
    """The names of members, and one commit of many partitions, are as large as the protocol allows."""

    async def work(pulsar: FakePulsar) -> None:
        log, _ = await pulsar.open()
        lost: list[BaseException] = []
        shard = Shard(log, Limits(initial_delay=0.05), on_failure=lost.append)
        errors = await asyncio.gather(*(shard.join("g", _join("x" * 32_700)) for _ in range(170)))
        assert {each.error for each in errors} == {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}
        joined = [each for each in errors if each.error == ErrorCode.NONE]
        [leader] = [each for each in joined if each.members]
        who = Identity(member_id=leader.member_id, generation=leader.generation)
        assert (await shard.sync("g", SyncRequest(token=0, who=who))).error == ErrorCode.NONE
        assert max(len(value or b"") for _, value in pulsar.records()) > 4_000_000
        rows = {("orders", number): Commit(offset=1, metadata="m" * 4096) for number in range(1299)}
        assert set((await shard.commit("h", Identity(), rows)).values()) == {ErrorCode.NONE}
        assert len(joined) > 100
        assert (lost, shard.closed) == ([], False)
        shard.close()
        await log.close()

    run(work)


def _join(client_id: str) -> JoinRequest:
    return JoinRequest(
        token=0,
        member_id="",
        instance_id=None,
        client_id=client_id,
        client_host="/h",
        session=10.0,
        rebalance=10.0,
        protocol_type="consumer",
        protocols=(("range", b""),),
        new_member_id="",
    )
