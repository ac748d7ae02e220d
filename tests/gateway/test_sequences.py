"""What a partition remembers of idempotent producers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.pulsar.sequences import Refusals, Sequences, Standing
from penstock.wire.kafka import ErrorCode, RecordBatch

WRAP = 1 << 31


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> RecordBatch:
    return RecordBatch(memoryview(b""), 0, 0, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


class Partition:
    """A Sequences with the two futures that a writer has for each batch."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.now = 100.0
        self.known = Sequences(clock=lambda: self.now)

    def send(self, one: RecordBatch) -> tuple[int, asyncio.Future[int], asyncio.Future[Any]]:
        assert self.known.find(one) is Standing.NEXT
        first = self.known.next_of(one)
        offset, receipt = self.loop.create_future(), self.loop.create_future()
        self.known.begun(one, offset, receipt)
        return first, offset, receipt

    def store(self, one: RecordBatch, offset: int) -> int:
        first, _, receipt = self.send(one)
        receipt.set_result(None)
        self.known.stored(one, first, offset)
        return first


@pytest.fixture
def partition() -> Any:
    made = Partition()
    yield made
    made.loop.close()


def test_any_sequence_may_be_the_first_that_is_seen(partition: Partition) -> None:
    assert partition.store(batch(1234), 0) == 1234


def test_five_batches_are_remembered(partition: Partition) -> None:
    for number in range(6):
        partition.store(batch(number * 3, 3), number * 10)
    assert [partition.known.find(batch(number * 3, 3)) for number in range(1, 6)] == [10, 20, 30, 40, 50]
    assert partition.known.find(batch(0, 3)) is Standing.STORED


def test_a_gap_is_out_of_order(partition: Partition) -> None:
    partition.store(batch(0, 3), 0)
    assert partition.known.find(batch(4)) is Standing.OUT_OF_ORDER


def test_the_sequence_begins_again_at_0_and_pulsars_goes_on(partition: Partition) -> None:
    assert partition.store(batch(WRAP - 2, 2), 0) == WRAP - 2
    assert partition.store(batch(0, 5), 2) == WRAP
    assert partition.known.find(batch(WRAP - 2, 2)) == 0
    assert partition.known.find(batch(0, 5)) == 2
    assert partition.store(batch(5), 7) == WRAP + 5


def test_a_batch_may_cross_the_wrap(partition: Partition) -> None:
    partition.store(batch(WRAP - 1, 3), 0)
    assert partition.store(batch(2), 3) == WRAP + 2


def test_what_pulsar_has_stored_decides_after_a_restart(partition: Partition) -> None:
    partition.known.opened(7, 0, WRAP + 4)
    assert partition.known.find(batch(6)) is Standing.OUT_OF_ORDER
    assert partition.known.find(batch(4)) is Standing.TAKEN
    assert partition.known.find(batch(3)) is Standing.PENDING
    assert partition.known.unsettled(batch(3)) == WRAP + 4
    partition.known.settled(batch(3))
    assert partition.known.find(batch(3)) is Standing.BEHIND
    assert partition.store(batch(5), 100) == WRAP + 5


def test_nothing_overtakes_a_repetition_that_pulsar_may_still_be_storing(partition: Partition) -> None:
    partition.known.opened(7, 0, 1)
    assert partition.known.is_next(batch(2))
    assert partition.known.find(batch(0)) is Standing.PENDING
    assert partition.known.find(batch(2)) is Standing.HELD
    assert not partition.known.is_next(batch(2))
    assert not partition.known.is_stale(batch(0))
    partition.now += 6
    assert partition.known.is_stale(batch(0))
    # Nobody waits for ever for what cannot be found.
    partition.now += 25
    assert partition.known.is_next(batch(2))
    assert partition.known.find(batch(0)) is Standing.BEHIND
    assert partition.store(batch(2), 2) == 2


@pytest.mark.parametrize("last", [-1, 0])
def test_what_pulsar_has_lost_is_expected_again(partition: Partition, last: int) -> None:
    partition.known.opened(7, 0, 1)
    assert partition.known.find(batch(1)) is Standing.TAKEN
    assert partition.known.find(batch(0)) is Standing.PENDING
    partition.known.opened(7, 0, last)
    assert partition.known.find(batch(2)) is not Standing.NEXT
    for number in range(last + 1, 3):
        assert partition.store(batch(number), number) == number


def test_a_repetition_waits_for_the_one_that_is_under_way(partition: Partition) -> None:
    _, offset, _ = partition.send(batch(0))
    assert partition.known.find(batch(0)) is offset


def test_after_a_failure_the_same_batch_is_expected_and_no_later_one(partition: Partition) -> None:
    first, _, receipt = partition.send(batch(0))
    receipt.set_exception(ApiError("lost", error_code=6))
    # The failure is known to the window of the producer, and not yet told to the one who sent.
    assert partition.known.find(batch(1)) is Standing.OUT_OF_ORDER
    partition.known.failed(batch(0), first)
    assert partition.known.find(batch(1)) is Standing.OUT_OF_ORDER
    assert partition.known.may_be_stored(batch(0), 0)
    assert not partition.known.may_be_stored(batch(1), 1)
    assert partition.store(batch(0), 0) == 0


def test_epochs_only_grow_and_a_new_one_begins_anew(partition: Partition) -> None:
    partition.store(batch(0, 3, epoch=1), 0)
    with pytest.raises(ApiError) as refused:
        partition.known.find(batch(3, epoch=0))
    assert refused.value.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.store(batch(0, epoch=2), 3) == 0
    partition.known.stored(batch(0, 3, epoch=1), 0, 99)
    assert partition.known.find(batch(0, epoch=2)) == 3


def test_producers_are_forgotten_from_the_least_used_on(partition: Partition) -> None:
    for producer in range(10_001):
        partition.store(batch(0, producer=producer), producer)
    assert partition.known.find(batch(0, producer=0)) is Standing.NEXT
    assert partition.known.find(batch(0, producer=10_000)) == 10_000


def test_the_first_two_batches_fail_and_both_are_expected_again(partition: Partition) -> None:
    (one, _, lost), (two, _, lost_too) = partition.send(batch(0)), partition.send(batch(1))
    for receipt in (lost, lost_too):
        receipt.set_exception(ApiError("lost", error_code=6))
    partition.known.failed(batch(0), one)
    partition.known.failed(batch(1), two)
    assert partition.known.find(batch(1)) is Standing.OUT_OF_ORDER
    assert partition.store(batch(0), 0) == 0
    assert partition.store(batch(1), 1) == 1


def test_what_is_behind_is_stored_only_if_it_was_confirmed_without_a_gap(partition: Partition) -> None:
    partition.store(batch(10), 0)
    for number in range(11, 20):
        partition.store(batch(number), number)
    assert partition.known.find(batch(10)) is Standing.STORED
    # Before the first that was seen here, or across it: it may never have come.
    assert partition.known.find(batch(9)) is Standing.BEHIND
    assert partition.known.find(batch(9, 2)) is Standing.BEHIND


def test_a_batch_whose_offset_is_not_known_is_stored(partition: Partition) -> None:
    partition.store(batch(0), -1)
    assert partition.known.find(batch(0)) is Standing.STORED


def test_behind_a_refused_first_batch_nothing_is_stored_before_it(partition: Partition) -> None:
    partition.known.refused(batch(3))
    partition.known.refused(batch(4))
    assert partition.known.find(batch(4)) is Standing.OUT_OF_ORDER
    assert partition.known.find(batch(3, 2)) is Standing.NEXT
    assert partition.store(batch(3), 0) == 3
    assert partition.store(batch(4), 1) == 4


def test_a_refusal_does_not_hold_a_producer_up_for_ever(partition: Partition) -> None:
    partition.known.refused(batch(0))
    partition.now += 29
    assert partition.known.find(batch(1)) is Standing.OUT_OF_ORDER
    partition.now += 2
    assert partition.known.find(batch(1)) is Standing.NEXT


def test_what_pulsar_has_stored_counts_more_than_a_refusal(partition: Partition) -> None:
    partition.known.refused(batch(2))
    partition.known.opened(7, 0, 4)
    assert partition.known.find(batch(5)) is Standing.NEXT
    assert partition.known.find(batch(2)) is Standing.PENDING


def test_a_refused_repetition_takes_nothing_back(partition: Partition) -> None:
    for number in range(3):
        partition.store(batch(number), number)
    partition.known.refused(batch(1))
    assert partition.known.find(batch(3)) is Standing.NEXT


def test_the_refusal_of_an_older_epoch_means_nothing(partition: Partition) -> None:
    partition.store(batch(0, epoch=1), 0)
    partition.known.refused(batch(5, epoch=0))
    assert partition.store(batch(1, epoch=1), 1) == 1


def test_after_a_hole_no_sequence_of_the_epoch_is_believed(partition: Partition) -> None:
    first, _, _ = partition.send(batch(0))
    second, _, _ = partition.send(batch(1))
    partition.known.rejected(batch(0), first)
    # Java drops the batch, and gives its sequence and the next to other records.
    partition.known.stored(batch(1), second, 0)
    for one in (batch(0), batch(1), batch(2)):
        assert partition.known.find(one) is Standing.OUT_OF_ORDER
        assert not partition.known.is_next(one)
    assert partition.store(batch(0, epoch=1), 1) == 0


def test_a_batch_that_pulsar_refused_alone_is_expected_again(partition: Partition) -> None:
    partition.store(batch(0), 0)
    first, _, _ = partition.send(batch(1))
    partition.known.rejected(batch(1), first)
    assert not partition.known.may_be_stored(batch(1), first)
    assert partition.known.find(batch(2)) is Standing.OUT_OF_ORDER
    assert partition.store(batch(1), 1) == 1


def test_refusals_keep_the_first_of_each_producer_and_grow_old() -> None:
    now = 0.0
    refusals = Refusals(clock=lambda: now)
    for one in (batch(4), batch(3), batch(5), batch(9, producer=8)):
        refusals.note("t", 0, one)
    assert [each.base_sequence for each in refusals.take("t", 0)] == [3, 9]
    assert refusals.take("t", 0) == []
    refusals.note("t", 0, batch(1))
    now = 31.0
    assert refusals.take("t", 0) == []
    refusals.note("t", 1, batch(7))
    now = 62.0
    refusals.note("t", 1, batch(8))
    assert [each.base_sequence for each in refusals.take("t", 1)] == [8]


def test_refusals_of_many_partitions_are_forgotten_from_the_oldest_on() -> None:
    refusals = Refusals(clock=lambda: 0.0)
    for index in range(10_001):
        refusals.note("t", index, batch(0))
    assert refusals.take("t", 0) == []
    assert len(refusals.take("t", 10_000)) == 1


def test_the_refusals_of_all_partitions_have_one_bound() -> None:
    refusals = Refusals(clock=lambda: 0.0)
    for index in range(101):
        for producer in range(200):
            refusals.note("t", index, batch(0, producer=producer))
    assert len(refusals) == 10_000
    assert [len(refusals.take("t", index)) for index in (50, 51, 100)] == [0, 200, 200]
    assert len(refusals) == 9_600
    refusals.note("t" * 1_001, 0, batch(0))
    assert len(refusals) == 9_600


def test_an_old_refusal_is_forgotten_although_its_partition_has_new_ones() -> None:
    now = 0.0
    refusals = Refusals(clock=lambda: now)
    refusals.note("t", 0, batch(1, producer=1))
    for second in range(1, 5):
        now = second * 10.0
        refusals.note("t", 0, batch(1, producer=2))
    assert len(refusals) == 1
    assert [each.producer_id for each in refusals.take("t", 0)] == [2]


def test_a_failed_batch_is_not_sent_behind_a_later_one_that_is_under_way(partition: Partition) -> None:
    one, _, _ = partition.send(batch(0))
    two, _, _ = partition.send(batch(1))
    partition.known.failed(batch(0), one)
    # Not "out of order": a client gives up for good what it is told that of and is its next.
    assert partition.known.find(batch(0)) is Standing.HELD
    # The later one is stored: Pulsar would drop the first as a duplicate now. It is looked for.
    partition.known.stored(batch(1), two, 7)
    assert partition.known.find(batch(0)) is Standing.BEHIND
    assert partition.known.find(batch(1)) == 7
    assert partition.store(batch(2), 8) == 2


def test_what_follows_a_batch_that_pulsar_has_dropped_and_stored_goes_on(partition: Partition) -> None:
    """Whether the first is stored could not be looked up; the second is, and a third follows."""
    lost, later, third = batch(0, 5), batch(5, 2), batch(7)
    first, _, receipt = partition.send(lost)
    _, _, second = partition.send(later)
    receipt.set_result(None)
    partition.known.dropped(lost, first)
    assert partition.known.find(third) is Standing.NEXT
    second.set_result(None)
    partition.known.stored(later, 5, 9)
    assert partition.store(third, 11) == 7
    # It is looked for, and not sent once more behind them.
    assert partition.known.find(lost) is Standing.BEHIND


def test_a_batch_that_pulsar_has_dropped_alone_is_expected_again(partition: Partition) -> None:
    one = batch(0, 5)
    first, _, receipt = partition.send(one)
    receipt.set_result(None)
    partition.known.dropped(one, first)
    assert partition.known.find(batch(5)) is Standing.OUT_OF_ORDER
    assert partition.known.find(one) is Standing.NEXT
    assert partition.known.may_be_stored(one, first)
