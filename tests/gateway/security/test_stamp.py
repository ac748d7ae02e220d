"""The header `source-identity`: set, not forged, and nothing else touched; against aiokafka's record code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordsError
from penstock.gateway.ports import Appended
from penstock.gateway.security.stamp import HEADER, StampedLog, stamp
from penstock.wire.kafka import RecordBatch, read_batches

LIMIT = 1 << 20
NAME = HEADER.decode()

headers = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from([NAME, "Source-Identity", "source-identit", "source\ridentity", ""]), st.text()
        ),
        st.one_of(st.none(), st.binary(max_size=40)),
    ),
    max_size=4,
)
rows = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.one_of(st.none(), st.binary(max_size=200)),
        headers,
    ),
    min_size=1,
    max_size=20,
)


def make(found: list[Any], compression: int = 0) -> RecordBatch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=42,
        batch_size=1 << 24,
    )
    for number, (timestamp, key, value, given_headers) in enumerate(found):
        assert builder.append(number, timestamp, key, value, given_headers) is not None
    [batch] = read_batches(bytes(builder.build()))
    return batch


def read(batch: RecordBatch) -> list[Any]:
    found = MemoryRecords(bytes(batch.data)).next_batch()
    assert found is not None and found.validate_crc()
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in found]


@given(rows, st.sampled_from([0, 1]), st.one_of(st.none(), st.text(min_size=1, max_size=30)))
def test_only_that_header_changes(found: list[Any], compression: int, identity: str | None) -> None:
    batch = make(found, compression)
    stamped = stamp(batch, identity, limit=LIMIT)
    own = [] if identity is None else [(NAME, identity.encode())]
    assert read(stamped) == [
        (timestamp, key, value, [each for each in kept if each[0].lower() != NAME] + own)
        for timestamp, key, value, kept in found
    ]
    for field in ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "record_count"):
        assert getattr(stamped, field) == getattr(batch, field)
    assert (stamped.producer_id, stamped.producer_epoch, stamped.base_sequence) == (7, 1, 42)
    assert stamped.compression == 0


@given(rows, st.data())
def test_broken_records_are_refused_or_stay_whole(found: list[Any], data: st.DataObject) -> None:
    batch = make(found)
    raw = bytearray(batch.data)
    at = data.draw(st.integers(61, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    [broken] = read_batches(bytes(raw))
    with pytest.raises(RecordsError, match="checksum"):
        stamp(broken, "ann", limit=LIMIT)
    repaired = broken._replace(crc=_crc(raw))
    try:
        stamped = stamp(repaired, "ann", limit=LIMIT)
    except RecordsError as exc:
        assert "cannot be read" in exc.what
    else:
        assert stamped.record_count == batch.record_count


def _crc(raw: bytearray) -> int:
    from penstock.wire.kernels import crc32c

    return crc32c(memoryview(raw)[21:])


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 30])
def test_a_count_that_cannot_be(count: int) -> None:
    batch = make([(0, None, b"v", [])])
    with pytest.raises(RecordsError):
        stamp(batch._replace(record_count=count), "ann", limit=LIMIT)


def test_an_inflated_batch_is_bounded() -> None:
    with pytest.raises(RecordsError):
        stamp(make([(0, None, bytes(100_000), [])], 1), "ann", limit=1000)


def test_a_log_stamps_what_is_appended() -> None:
    class Memory:
        def __init__(self) -> None:
            self.batches: list[RecordBatch] = []

        async def _stored(self) -> Appended:
            return Appended(base_offset=0, log_start_offset=0)

        def append(self, topic: str, partition: int, batch: RecordBatch) -> Any:
            self.batches.append(batch)
            return self._stored()

    async def scenario() -> None:
        memory = Memory()
        log = StampedLog(memory, "ann", limit=LIMIT)  # type: ignore[arg-type]
        await log.append("t", 0, make([(0, None, b"v", [(NAME, b"root"), ("a", b"1")])]))
        assert read(memory.batches[0])[0][3] == [("a", b"1"), (NAME, b"ann")]

    asyncio.run(scenario())
