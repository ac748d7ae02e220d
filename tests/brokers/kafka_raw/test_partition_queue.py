"""Which batches of a partition need not be sent again, told by the last sequence in the log."""

from __future__ import annotations

import pytest

from penstock.brokers.kafka_raw.partition_queue import PartitionQueue

LARGEST = (1 << 31) - 1


@pytest.mark.parametrize(
    ("last_sequence", "sizes"),
    [(None, None), (LARGEST - 3, None), (LARGEST - 2, 0), (LARGEST - 1, 1), (1, 3), (2, 7), (3, 15)],
)
def test_sequences_go_round(last_sequence: int | None, sizes: int | None) -> None:
    queue = PartitionQueue("t", 0)
    queue.take_sequence(LARGEST - 2)
    for size, records in ((1, 1), (2, 1), (4, 3), (8, 1)):  # they end at LARGEST - 2, LARGEST - 1, 1, 2
        queue.take_sequence(records)
        queue.append(bytearray(size), 0.0)
    assert queue.found(last_sequence) == sizes
