"""What a partition remembers of idempotent producers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.pulsar.sequences import Sequences
from penstock.wire.kafka import ErrorCode, RecordBatch

WRAP = 1 << 31


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> RecordBatch:
    return RecordBatch(memoryview(b""), 0, 0, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


class Partition:
    """A Sequences with the two futures that a writer has for each batch."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.known = Sequences()

    def send(self, one: RecordBatch) -> tuple[int, asyncio.Future[int], asyncio.Future[Any]]:
        assert self.known.find(one) is None
        first = self.known.next_of(one)
        offset, receipt = self.loop.create_future(), self.loop.create_future()
        self.known.begun(one, offset, receipt)
        return first, offset, receipt

    def store(self, one: RecordBatch, offset: int) -> int:
        first, _, receipt = self.send(one)
        receipt.set_result(None)
        self.known.stored(one, first, offset)
        return first

    def refusal(self, one: RecordBatch) -> int:
        with pytest.raises(ApiError) as refused:
            self.known.find(one)
        return refused.value.error_code


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
    assert partition.refusal(batch(0, 3)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(partition: Partition) -> None:
    partition.store(batch(0, 3), 0)
    assert partition.refusal(batch(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


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
    assert partition.refusal(batch(4)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert partition.refusal(batch(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.store(batch(5), 100) == WRAP + 5


def test_a_repetition_waits_for_the_one_that_is_under_way(partition: Partition) -> None:
    _, offset, _ = partition.send(batch(0))
    assert partition.known.find(batch(0)) is offset


def test_after_a_failure_the_same_batch_is_expected_and_no_later_one(partition: Partition) -> None:
    first, _, receipt = partition.send(batch(0))
    receipt.set_exception(ApiError("lost", error_code=6))
    # The failure is known to the window of the producer, and not yet told to the one who sent.
    assert partition.refusal(batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.known.failed(batch(0), first)
    assert partition.refusal(batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.known.may_be_stored(batch(0), 0)
    assert not partition.known.may_be_stored(batch(1), 1)
    assert partition.store(batch(0), 0) == 0


def test_epochs_only_grow_and_a_new_one_begins_anew(partition: Partition) -> None:
    partition.store(batch(0, 3, epoch=1), 0)
    assert partition.refusal(batch(3, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.store(batch(0, epoch=2), 3) == 0
    partition.known.stored(batch(0, 3, epoch=1), 0, 99)
    assert partition.known.find(batch(0, epoch=2)) == 3


def test_producers_are_forgotten_from_the_least_used_on(partition: Partition) -> None:
    for producer in range(10_001):
        partition.store(batch(0, producer=producer), producer)
    assert partition.known.find(batch(0, producer=0)) is None
    assert partition.known.find(batch(0, producer=10_000)) == 10_000
