"""The writer of a partition, over a Pulsar in memory that answers as the test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.brokers.pulsar import Receipt
from penstock.brokers.pulsar.refusal import refusal
from penstock.errors import AccessDenied, ApiError, ClusterError, PulsarRefused, Unreachable
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.writer import Writer
from penstock.mapping import PulsarBatch
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError

NAME = "penstock-9-0"
LARGE = 5_000


def batch(
    sequence: int = -1, value: bytes = b"v", *, records: int = 1, producer: int = 9, epoch: int = 0
) -> RecordBatch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer if sequence >= 0 else -1,
        producer_epoch=epoch if sequence >= 0 else -1,
        base_sequence=sequence,
        batch_size=100_000,
    )
    for number in range(records):
        builder.append(number, timestamp=1, key=None, value=value, headers=[])
    [made] = read_batches(bytes(builder.build()))
    return made


class Bench:
    """A writer and the Pulsar below it."""

    def __init__(self, pulsar: Any) -> None:
        self.pulsar = pulsar
        self.writer = self.another()

    def another(self) -> Writer:
        return Writer(
            self.pulsar,
            self.pulsar,
            "topic",
            counter=OffsetCounter(),
            max_batch_bytes=100_000,
            check=_check,
        )

    @property
    def values(self) -> list[bytes]:
        return list(self.pulsar.values("topic"))

    async def under_way(self, count: int, name: str = NAME) -> Any:
        """Wait until a producer has so many entries under way."""
        async with asyncio.timeout(5):
            while len(getattr(self.pulsar.open.get(("topic", name)), "window", ())) < count:
                await asyncio.sleep(0)
        return self.pulsar.open["topic", name]


def _check(entry: PulsarBatch) -> None:
    if entry.end - entry.start > LARGE:
        raise ApiError("too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)


@pytest.fixture
def run(fake_pulsar: Any) -> Any:
    def runs(work: Any) -> None:
        async def inside() -> None:
            bench = Bench(fake_pulsar())
            try:
                await work(bench)
            finally:
                await bench.writer.close()

        asyncio.run(inside())

    return runs


async def code_of(waiting: Any) -> int:
    with pytest.raises(ApiError) as refused:
        await waiting
    return refused.value.error_code


async def codes_of(*waiting: Any) -> list[int]:
    """0 for each that is stored, else its error code."""
    results = await asyncio.gather(*waiting, return_exceptions=True)
    return [result.error_code if isinstance(result, ApiError) else 0 for result in results]


DUPLICATE, OUT_OF_ORDER = ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TOO_LARGE, NOT_LEADER = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_nobody_waits_for_is_not_sent_when_its_producer_is_open_at_last(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.gate.clear()
        waiting = bench.writer.append(batch(5, b"5"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        bench.pulsar.gate.set()
        assert await bench.writer.append(batch(0, b"0", records=5)) == 0
        assert bench.values == [b"0"]

    run(work)


def test_batches_go_out_in_order_and_each_learns_its_offset(run: Any) -> None:
    async def work(bench: Bench) -> None:
        waiting = [bench.writer.append(batch(value=value)) for value in (b"a", b"b", b"c")]
        assert await asyncio.gather(*waiting) == [0, 1, 2]
        assert bench.values == [b"a", b"b", b"c"]
        assert bench.pulsar.asked == ["entry"]

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_the_order_is_kept_while_there_is_no_room(run: Any, sequence: int) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.window, bench.pulsar.answers = 1, False
        numbers = [sequence + number if sequence >= 0 else -1 for number in range(5)]
        waiting = [
            bench.writer.append(batch(number, value=bytes([65 + at]))) for at, number in enumerate(numbers)
        ]
        name = NAME if sequence >= 0 else "chosen-1"
        for count in range(1, 6):
            producer = await bench.under_way(1, name)
            producer.take()
            if count == 4:
                # Comes when there is room, and the sender has not had its turn yet: it must not overtake.
                late = bench.writer.append(batch(sequence + 5 if sequence >= 0 else -1, value=b"F"))
        (await bench.under_way(1, name)).take()
        assert await asyncio.gather(*waiting, late) == [0, 1, 2, 3, 4, 5]
        assert bench.values == [b"A", b"B", b"C", b"D", b"E", b"F"]

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_a_duplicate_that_nobody_sent_before_is_no_success_also_when_it_is_repeated(
    run: Any, sequence: int
) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        name = NAME if sequence >= 0 else "chosen-1"
        for _ in range(2):
            waiting = bench.writer.append(batch(sequence))
            producer = await bench.under_way(1, name)
            *_, receipt = producer.window.popleft()
            receipt.set_result(Receipt(0, MessageId(-1, -1), 1))
            assert await code_of(waiting) == ErrorCode.UNKNOWN_SERVER_ERROR

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
@pytest.mark.parametrize("found", [True, False])
def test_a_second_attempt_that_is_dropped_is_stored_if_the_log_has_it(
    run: Any, found: bool, sequence: int
) -> None:
    """Pulsar drops what was refused, too, when something behind it was stored: the refusal may be lost."""

    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = bench.writer.append(batch(sequence))
        producer = await bench.under_way(1, NAME if sequence >= 0 else "chosen-1")
        first, last, payload, receipt = producer.window.popleft()
        if found:
            bench.pulsar.store(producer, first, last, payload, 1)
        receipt.set_result(Receipt(first, MessageId(-1, -1), 2))
        if found:
            assert await waiting == 0
        else:
            assert await code_of(waiting) == ErrorCode.UNKNOWN_SERVER_ERROR

    run(work)


@pytest.mark.parametrize(
    ("unreadable", "code"),
    [(Unreachable("away"), NOT_LEADER), (AccessDenied("no"), DUPLICATE)],
)
def test_a_second_attempt_that_is_dropped_is_tried_again_if_the_log_cannot_be_read(
    run: Any, unreadable: ClusterError, code: ErrorCode
) -> None:
    """One who may never read has nothing but Pulsar's word."""

    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = bench.writer.append(batch(0))
        producer = await bench.under_way(1)
        first, last, payload, receipt = producer.window.popleft()
        bench.pulsar.store(producer, first, last, payload, 1)
        bench.pulsar.unreadable = unreadable
        receipt.set_result(Receipt(first, MessageId(-1, -1), 2))
        assert await code_of(waiting) == code
        bench.pulsar.unreadable, bench.pulsar.answers = None, True
        assert await bench.writer.append(batch(0)) == 0
        assert len(bench.values) == 1

    run(work)


def test_what_follows_a_second_attempt_that_is_dropped_goes_on_if_the_log_cannot_be_read(run: Any) -> None:
    """The client hears that the second batch is stored: to refuse the third would lose it."""

    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = bench.writer.append(batch(0, b"0"))
        later = bench.writer.append(batch(1, b"1"))
        producer = await bench.under_way(2)
        first, last, payload, receipt = producer.window.popleft()
        bench.pulsar.store(producer, first, last, payload, 1)
        bench.pulsar.unreadable, bench.pulsar.answers = Unreachable("away"), True
        receipt.set_result(Receipt(first, MessageId(-1, -1), 2))
        assert await code_of(waiting) == NOT_LEADER
        third = bench.writer.append(batch(2, b"2"))
        # Of the second one everything is known.
        first, last, payload, receipt = producer.window.popleft()
        bench.pulsar.unreadable = None
        receipt.set_result(bench.pulsar.store(producer, first, last, payload, 1))
        assert (await later, await third) == (1, 2)
        assert await bench.writer.append(batch(0, b"0")) == 0
        assert bench.values == [b"0", b"1", b"2"]

    run(work)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_who_may_not_read_is_not_told_where_and_nothing_is_sent_twice(run: Any, sequence: int) -> None:
    asked = []

    async def work(bench: Bench) -> None:
        async def forbidden(topic: str, where: Any) -> Any:
            asked.append(where)
            raise AccessDenied("no")

        bench.pulsar.entry_index = bench.pulsar.message_id_by_time = forbidden
        bench.pulsar.unreadable = AccessDenied("no")
        waiting = [bench.writer.append(batch(number if sequence >= 0 else -1)) for number in range(3)]
        assert await asyncio.gather(*waiting) == [-1, -1, -1]
        # Pulsar said no once; it is not asked again for a while.
        assert len(asked) == 1
        if sequence >= 0:
            # Clients take this for success without an offset.
            assert await code_of(bench.writer.append(batch(0))) == DUPLICATE
            assert len(bench.values) == 3

    run(work)


def test_after_a_failure_nothing_later_of_that_producer_is_sent(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        first = bench.writer.append(batch(0))
        producer = await bench.under_way(1)
        producer.fail(Unreachable("gone"))
        second = bench.writer.append(batch(1))
        assert await code_of(first) == NOT_LEADER
        assert await code_of(second) == OUT_OF_ORDER
        again = bench.writer.append(batch(0))
        (await bench.under_way(1)).take()
        assert await again == 0
        assert len(bench.values) == 1

    run(work)


def test_a_batch_that_waits_for_room_does_not_overtake_those_that_fail_meanwhile(run: Any) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer.append(batch(0, value=b"a"))
        bench.pulsar.window, bench.pulsar.answers = 2, False
        waiting = [bench.writer.append(batch(number, value=bytes([97 + number]))) for number in (1, 2, 3)]
        producer = await bench.under_way(2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting[2].done()
        bench.pulsar.answers = True
        producer.time_out()
        assert await codes_of(*waiting) == [NOT_LEADER, NOT_LEADER, OUT_OF_ORDER]
        for number in (1, 2, 3):
            assert await bench.writer.append(batch(number, value=bytes([97 + number]))) == number
        assert bench.values == [b"a", b"b", b"c", b"d"]

    run(work)


@pytest.mark.parametrize("stored", [True, False])
def test_the_first_two_batches_fail_and_both_are_stored_once_when_they_come_again(
    run: Any, stored: bool
) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = [
            bench.writer.append(batch(number, value=value)) for number, value in enumerate((b"a", b"b"))
        ]
        producer = await bench.under_way(2)
        for _ in waiting:
            producer.fail(Unreachable("gone"), stored=stored)
        assert await codes_of(*waiting) == [NOT_LEADER, NOT_LEADER]
        bench.pulsar.answers = True
        assert await bench.writer.append(batch(0, value=b"a")) == 0
        assert await bench.writer.append(batch(1, value=b"b")) == 1
        assert bench.values == [b"a", b"b"]

    run(work)


def test_a_batch_behind_that_is_in_the_log_is_answered_with_its_offset(run: Any) -> None:
    async def work(bench: Bench) -> None:
        for number in range(3):
            await bench.writer.append(batch(number, value=bytes([97 + number])))
        await bench.writer.close()
        # Another gateway takes over: all it knows is what Pulsar says.
        bench.writer = bench.another()
        assert await bench.writer.append(batch(1, value=b"b")) == 1
        assert await bench.writer.append(batch(3, value=b"d")) == 3
        assert bench.values == [b"a", b"b", b"c", b"d"]

    run(work)


def test_a_misleading_publish_time_does_not_hide_a_batch(run: Any) -> None:
    async def work(bench: Bench) -> None:
        for number in range(3):
            await bench.writer.append(batch(number))
        await bench.writer.close()
        bench.writer = bench.another()
        bench.pulsar.by_time = MessageId(5, 2)
        bench.pulsar.reads.clear()
        assert await bench.writer.append(batch(0)) == 0
        # The newest of the producer is looked for first, and is there.
        assert [start.entry_id for start in bench.pulsar.reads] == [2, 2, -1]

    run(work)


def test_a_batch_behind_that_is_not_in_the_log_is_no_duplicate(run: Any) -> None:
    async def work(bench: Bench) -> None:
        # A producer that nobody knows may begin anywhere, as with Kafka.
        await bench.writer.append(batch(7, value=b"h"))
        assert await code_of(bench.writer.append(batch(6, value=b"g"))) == OUT_OF_ORDER
        await bench.writer.close()
        bench.writer = bench.another()
        assert await code_of(bench.writer.append(batch(6, value=b"g"))) == OUT_OF_ORDER
        # With a new epoch, as clients then take, it is stored.
        assert await bench.writer.append(batch(0, value=b"g", epoch=1)) == 1
        assert bench.values == [b"h", b"g"]

    run(work)


@pytest.mark.parametrize(
    ("why", "code", "last"),
    [(Unreachable("away"), NOT_LEADER, NOT_LEADER), (AccessDenied("no"), OUT_OF_ORDER, DUPLICATE)],
)
def test_a_log_that_cannot_be_looked_through_makes_no_duplicate(
    run: Any, why: Any, code: int, last: int
) -> None:
    async def work(bench: Bench) -> None:
        for number in range(3):
            await bench.writer.append(batch(number))
        await bench.writer.close()
        bench.writer = bench.another()
        bench.pulsar.unreadable = why
        assert await code_of(bench.writer.append(batch(0))) == code
        # Pulsar says by itself that it has the last one: that must do for one who may not read.
        assert await code_of(bench.writer.append(batch(2))) == last

    run(work)


def test_what_is_looked_for_holds_up_nobody_else(run: Any) -> None:
    async def work(bench: Bench) -> None:
        for number in range(3):
            await bench.writer.append(batch(number))
        await bench.writer.close()
        bench.writer = bench.another()
        reading = asyncio.Event()

        async def slow(topic: str, publish_time: int) -> None:
            await reading.wait()

        bench.pulsar.message_id_by_time = slow
        looked_for = [bench.writer.append(batch(0)) for _ in range(5)]
        assert await bench.writer.append(batch(0, producer=10)) == 3
        assert not any(each.done() for each in looked_for)
        reading.set()
        assert await asyncio.gather(*looked_for) == [0] * 5

    run(work)


def test_a_receipt_whose_offset_cannot_be_learnt_is_not_sent_again(run: Any) -> None:
    async def work(bench: Bench) -> None:
        learn = bench.pulsar.entry_index

        async def away(topic: str, place: Any) -> Any:
            raise ClusterError("away")

        bench.pulsar.entry_index, bench.pulsar.unreadable = away, ClusterError("away")
        assert await code_of(bench.writer.append(batch(0, value=b"a"))) == NOT_LEADER
        bench.pulsar.entry_index, bench.pulsar.unreadable = learn, None
        assert await bench.writer.append(batch(0, value=b"a")) == 0
        assert await bench.writer.append(batch(1, value=b"b")) == 1
        assert bench.values == [b"a", b"b"]

    run(work)


# What is refused, with others in flight behind it


@pytest.mark.parametrize("known", [False, True])
def test_a_batch_that_is_too_large_is_split_and_stored_before_what_was_in_flight(
    run: Any, known: bool
) -> None:
    async def work(bench: Bench) -> None:
        base = 0
        if known:
            await bench.writer.append(batch(0, value=b"-"))
            base = 1
        large = bench.writer.append(batch(base, value=b"x" * LARGE, records=2))
        behind = [bench.writer.append(batch(base + 2 + at, value=bytes([99 + at]))) for at in range(3)]
        assert await codes_of(large, *behind) == [TOO_LARGE, OUT_OF_ORDER, OUT_OF_ORDER, OUT_OF_ORDER]
        # So Java does: two halves with the sequences of the whole, then what was out of order.
        again = [bench.writer.append(batch(base + at, value=bytes([97 + at]))) for at in range(5)]
        assert await codes_of(*again) == [0] * 5
        assert bench.values == [b"-"][:base] + [b"a", b"b", b"c", b"d", b"e"]

    run(work)


def test_a_dropped_batch_gives_its_sequence_to_the_next(run: Any) -> None:
    async def work(bench: Bench) -> None:
        dropped = bench.writer.append(batch(0, value=b"x" * LARGE))
        behind = bench.writer.append(batch(1, value=b"a"))
        assert await codes_of(dropped, behind) == [TOO_LARGE, OUT_OF_ORDER]
        assert await bench.writer.append(batch(0, value=b"a")) == 0
        assert bench.values == [b"a"]

    run(work)


def test_what_was_refused_elsewhere_is_waited_for(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.writer.refused(batch(0))
        assert await code_of(bench.writer.append(batch(1, value=b"b"))) == OUT_OF_ORDER
        assert await bench.writer.append(batch(0, value=b"a")) == 0
        assert await bench.writer.append(batch(1, value=b"b")) == 1

    run(work)


def test_a_producer_that_cannot_be_opened_lets_nothing_later_be_the_first(run: Any) -> None:
    async def work(bench: Bench) -> None:
        opens = bench.pulsar.producer

        async def away(topic: str, *, name: str | None = None) -> Any:
            bench.pulsar.producer = opens
            raise Unreachable("away")

        bench.pulsar.producer = away
        waiting = [bench.writer.append(batch(number)) for number in range(2)]
        assert await codes_of(*waiting) == [NOT_LEADER, OUT_OF_ORDER]
        assert bench.values == []
        assert await bench.writer.append(batch(0)) == 0

    run(work)


def test_a_batch_that_nobody_waits_for_any_more_is_not_sent_and_nothing_behind_it(run: Any) -> None:
    async def work(bench: Bench) -> None:
        given_up = bench.writer.append(batch(0, value=b"a"))
        given_up.cancel()
        assert await code_of(bench.writer.append(batch(1, value=b"b"))) == OUT_OF_ORDER
        assert bench.values == []
        assert await bench.writer.append(batch(0, value=b"a")) == 0

    run(work)


def test_a_batch_without_sequence_that_nobody_waits_for_is_not_sent(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.writer.append(batch(value=b"a")).cancel()
        assert await bench.writer.append(batch(value=b"b")) == 0
        assert bench.values == [b"b"]

    run(work)


def test_what_pulsar_refuses_with_others_behind_it_ends_the_epoch(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = [bench.writer.append(batch(number, value=bytes([97 + number]))) for number in range(2)]
        producer = await bench.under_way(2)
        producer.fail(refusal(ServerError.NOT_ALLOWED_ERROR, "larger than the policy of the topic"))
        producer.take()
        assert await codes_of(*waiting) == [TOO_LARGE, 0]
        bench.pulsar.answers = True
        # Java has dropped the first batch: sequence 1 now stands for another record than the one stored.
        assert (
            await codes_of(*[bench.writer.append(batch(number, value=b"n")) for number in (0, 1, 2)])
            == [OUT_OF_ORDER] * 3
        )
        assert await bench.writer.append(batch(0, value=b"n", epoch=1)) == 1
        assert bench.values == [b"b", b"n"]

    run(work)


@pytest.mark.parametrize("code", [ServerError.PRODUCER_BUSY, ServerError.PRODUCER_FENCED])
@pytest.mark.parametrize("stored", [True, False])
def test_a_producer_that_pulsar_ends_leaves_open_what_is_stored(
    run: Any, stored: bool, code: ServerError
) -> None:
    """The refusal is of the producer, not of the batches: each may be stored, and is sent again."""

    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = [bench.writer.append(batch(number, value=bytes([97 + number]))) for number in range(2)]
        producer = await bench.under_way(2)
        producer.error = refusal(code, "another has its name")
        for _ in waiting:
            producer.fail(producer.error, stored=stored)
        del bench.pulsar.open["topic", NAME]
        assert await codes_of(*waiting) == [NOT_LEADER, NOT_LEADER]
        bench.pulsar.answers = True
        assert await bench.writer.append(batch(0, value=b"a")) == 0
        assert await bench.writer.append(batch(1, value=b"b")) == 1
        assert bench.values == [b"a", b"b"]

    run(work)


def test_what_is_under_way_fails_when_the_partition_is_closed(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        waiting = [bench.writer.append(batch(number)) for number in range(3)]
        await bench.under_way(3)
        assert sorted(each.base_sequence for each in bench.writer.unanswered()) == [0, 1, 2]
        await bench.writer.close()
        assert await codes_of(*waiting) == [NOT_LEADER] * 3

    run(work)


# More producers than are kept open


def test_a_hundred_producers_write_in_turn_and_each_keeps_its_order(run: Any) -> None:
    async def work(bench: Bench) -> None:
        producers, rounds = range(100), range(3)
        waiting = [
            bench.writer.append(batch(number, producer=producer, value=bytes([number])))
            for number in rounds
            for producer in producers
        ]
        assert sorted(await asyncio.gather(*waiting)) == list(range(300))
        assert len(bench.pulsar.open) <= 64 + 64
        assert len(bench.pulsar.opened) > 100
        for producer in producers:
            own = [
                entry.payload[-1]
                for entry in bench.pulsar.entries["topic"]
                if entry.producer == f"penstock-{producer}-0"
            ]
            assert own == [0, 1, 2]

    run(work)


def test_a_producer_that_is_closed_for_others_is_flushed_first_and_holds_nobody_up(run: Any) -> None:
    async def work(bench: Bench) -> None:
        bench.pulsar.answers = False
        first = bench.writer.append(batch(0, producer=0, value=b"a"))
        oldest = await bench.under_way(1, "penstock-0-0")
        bench.pulsar.answers = True
        others = [bench.writer.append(batch(0, producer=producer)) for producer in range(1, 66)]
        # Its entry has no receipt yet: the others are sent all the same, and it stays open until then.
        async with asyncio.timeout(5):
            while len(bench.pulsar.entries.get("topic", ())) < 65:
                await asyncio.sleep(0)
        assert oldest.flushes == 1
        assert oldest.error is None
        again = bench.writer.append(batch(1, producer=0, value=b"b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.pulsar.open["topic", "penstock-0-0"] is oldest
        oldest.take()
        results = await asyncio.gather(first, *others, again)
        assert sorted(results) == list(range(67))
        own = [
            entry.payload[-1:] for entry in bench.pulsar.entries["topic"] if entry.producer == "penstock-0-0"
        ]
        assert own == [b"a", b"b"]

    run(work)


def test_an_entry_that_is_too_large_for_the_broker_is_not_tried_for_ever(run: Any) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer.append(batch(0))
        producer = bench.pulsar.open["topic", NAME]
        sends = producer.send_nowait

        def too_large(*said: Any) -> Any:
            # As the producer does when it compares the frame with what the broker has announced.
            producer.send_nowait = sends
            raise PulsarRefused("too large", server_error=ServerError.NOT_ALLOWED_ERROR, retriable=False)

        producer.send_nowait = too_large
        waiting = [bench.writer.append(batch(number)) for number in (1, 2)]
        assert await codes_of(*waiting) == [TOO_LARGE, OUT_OF_ORDER]
        assert await bench.writer.append(batch(1)) == 1

    run(work)


def test_what_pulsar_has_taken_and_not_stored_yet_is_asked_for_again(run: Any) -> None:
    async def work(bench: Bench) -> None:
        # A gateway has died; the broker has its batch under way to the bookies, and counts it already.
        bench.pulsar.highest["topic", NAME] = 0
        assert await code_of(bench.writer.append(batch(0, value=b"a"))) == NOT_LEADER
        assert await code_of(bench.writer.append(batch(0, value=b"a"))) == NOT_LEADER
        producer = bench.pulsar.open["topic", NAME]
        bench.pulsar.highest["topic", NAME] = -1
        bench.pulsar.store(producer, 0, 0, b"a", 1)
        assert await bench.writer.append(batch(0, value=b"a")) == 0

    run(work)


def test_nothing_overtakes_what_pulsar_has_taken_and_not_stored_yet(run: Any) -> None:
    async def work(bench: Bench) -> None:
        # A gateway has died with two batches in flight; their client repeats them, and a third behind them.
        values, pulsar = (b"a", b"b", b"c"), bench.pulsar
        pulsar.highest["topic", NAME] = 1

        def sends() -> list[Any]:
            return [bench.writer.append(batch(number, value=value)) for number, value in enumerate(values)]

        assert await codes_of(*sends()) == [NOT_LEADER, NOT_LEADER, NOT_LEADER]
        producer, pulsar.highest["topic", NAME] = pulsar.open["topic", NAME], -1
        pulsar.store(producer, 0, 0, b"a", 1)
        assert await codes_of(*sends()) == [0, NOT_LEADER, NOT_LEADER]
        pulsar.store(producer, 1, 1, b"b", 1)
        await asyncio.gather(*sends()[:2])
        assert await asyncio.gather(*sends()) == [0, 1, 2]
        assert bench.values == [b"a", b"b", b"c"]
        assert pulsar.opened == [NAME]

    run(work)


def test_what_pulsar_has_lost_is_stored_when_its_producer_is_opened_again(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.pulsar.sequences._STALE_SECONDS", 0.0)

    async def work(bench: Bench) -> None:
        bench.pulsar.highest["topic", NAME] = 1
        assert await code_of(bench.writer.append(batch(1, value=b"b"))) == NOT_LEADER
        assert await code_of(bench.writer.append(batch(0, value=b"a"))) == NOT_LEADER
        # The broker dies, and what it had not stored is nowhere.
        bench.pulsar.highest["topic", NAME] = -1
        for number, value in enumerate((b"a", b"b", b"c")):
            assert await bench.writer.append(batch(number, value=value)) == number
        assert bench.values == [b"a", b"b", b"c"]

    run(work)


def test_a_producer_that_goes_on_after_a_takeover_is_not_looked_for(run: Any) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer.append(batch(0))
        await bench.writer.close()
        bench.writer = bench.another()
        bench.pulsar.reads.clear()
        assert await bench.writer.append(batch(1)) == 1
        # Read for the offset of the first entry, and for nothing else.
        assert len(bench.pulsar.reads) == 1

    run(work)
