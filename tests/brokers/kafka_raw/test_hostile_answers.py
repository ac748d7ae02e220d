"""Answers in which any bytes are changed: read as something, or refused with an error of ours."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from penstock.brokers.kafka_raw import topic_offsets
from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.fetch_call import read_fetch
from penstock.brokers.kafka_raw.fetched import whole_batches
from penstock.brokers.kafka_raw.group_offsets import check_partitions
from penstock.brokers.kafka_raw.last_sequence import read_producers
from penstock.brokers.kafka_raw.produce_call import read_produce
from penstock.brokers.kafka_raw.topic_config import read_config
from penstock.brokers.kafka_raw.visible import visible
from penstock.errors import PenstockError
from penstock.wire.kafka.batch_body import BatchBody, framed

T = struct.pack(">h", 1) + b"t"
BATCH = bytes(framed(BatchBody(bytes(70), 10, 0, 0), producer_id=7, epoch=0, sequence=0, transactional=True))
FETCH = (
    struct.pack(">hii", 0, 0, 1)
    + T
    + struct.pack(">iihqqqiqqi", 1, 0, 0, 9, 9, 0, 1, 7, 0, 2 * len(BATCH))
    + BATCH
    + BATCH[:7]
    + b"\x0a"
    + BATCH[8:]
)
PRODUCE = struct.pack(">i", 1) + T + struct.pack(">iihqqqiihhi", 1, 0, 87, 0, -1, 0, 1, 0, -1, -1, 0)
OFFSETS = struct.pack(">i", 1) + T + struct.pack(">iihqqi", 1, 0, 0, -1, 5, 0)
PARTITIONS = struct.pack(">i", 1) + T + struct.pack(">iih", 1, 0, 0)
CONFIG = (
    struct.pack(">ihhb", 1, 0, -1, 2) + T + struct.pack(">i", 1) + T + T + bytes(3) + struct.pack(">i", 0)
)

# In a flexible version: compact lengths, tags behind each structure.
PRODUCERS = b"\x02\x02t\x02" + struct.pack(">ihbbqiiqiqb", 0, 0, 0, 2, 7, 0, 5, 1, -1, -1, 0) + bytes(3)


def fetch(answer: Answer) -> list[bytes]:
    found = []
    for each in read_fetch(answer):
        data, _ = whole_batches(each.records, 0)
        found += [bytes(part) for part in visible(data, each.aborted)]
    return found


CASES: dict[str, tuple[bytes, Callable[[Answer], object], object]] = {
    # The transaction is aborted, and nothing of it is seen.
    "fetch": (FETCH, fetch, []),
    "produce": (PRODUCE, read_produce, ({("t", 0): 87}, {("t", 0): (((0, None),), None)}, 0)),
    "list offsets": (OFFSETS, topic_offsets._read, {0: 5}),
    "partitions": (PARTITIONS, lambda answer: check_partitions(answer, "no"), None),
    "producers": (PRODUCERS, lambda answer: [row.last_sequence for row in read_producers(answer)], [5]),
    "config": (CONFIG, read_config, "t"),
}
FLEXIBLE = {"producers"}


@pytest.mark.parametrize("case", CASES)
def test_changed_answers_raise_only_what_is_ours(case: str) -> None:
    good, read, expected = CASES[case]
    flexible = case in FLEXIBLE
    assert read(Answer(memoryview(good), flexible=flexible)) == expected
    chance = random.Random(case)
    refused = 0
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(chance.randint(1, 5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x20, 0x7F, 0x80, 0xFF))
        try:
            body = memoryview(data)[: chance.choice((len(data), chance.randrange(len(data))))]
            read(Answer(body, flexible=flexible))
        except PenstockError:
            refused += 1
    assert refused > 100
