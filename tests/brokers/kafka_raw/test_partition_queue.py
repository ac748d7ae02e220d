"""Which batches of a partition are in the log, told by the last sequence that is."""

from __future__ import annotations

import pytest

from penstock.brokers.kafka_raw.partition_queue import PartitionQueue

LARGEST = (1 << 31) - 1


@pytest.mark.parametrize(
    ("last_sequence", "sizes"),
    [(None, 0), (LARGEST - 3, 0), (LARGEST - 2, 1), (LARGEST, 2), (0, 2), (1, 4), (2, 8)],
)
def test_sequences_go_round(last_sequence: int | None, sizes: int) -> None:
    queue = PartitionQueue("t", 0)
    queue.take_sequence(LARGEST - 2)
    for size, records in ((1, 1), (1, 1), (2, 3), (4, 1)):  # the last ones: -2, -1, 1, 2
        queue.take_sequence(records)
        queue.append(bytearray(size), 0.0)
    assert queue.found(last_sequence) == sizes
