"""A framed body is a batch that our own reader and its checksum take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.wire import kafka
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.record_batch import read_batches

RECORDS = bytes.fromhex("0e00000002610000") * 40
BODY = BatchBody(RECORDS, 40, 1_700_000_000_000, 1_700_000_000_009)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_framed_body_is_read_back(compression: str) -> None:
    data = framed(BODY, compression=compression, producer_id=7, epoch=2, sequence=40, transactional=True)
    (batch,) = read_batches(data)
    batch.check()
    assert bytes(batch.records(1 << 20)) == RECORDS
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 40)
    assert (batch.record_count, batch.last_offset_delta) == (40, 39)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_009)
    assert batch.is_transactional and not batch.is_control


def test_the_body_may_be_reused_afterwards() -> None:
    store = bytearray(RECORDS)
    data = framed(BatchBody(memoryview(store), 40, 0, 0))
    store[:] = bytes(len(store))
    (batch,) = read_batches(data)
    batch.check()
    assert bytes(batch.records(1 << 20)) == RECORDS


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in kafka.__all__ if not hasattr(kafka, name)] == []
    with pytest.raises(AttributeError):
        _ = kafka.nothing_of_this_name


def test_error_codes_come_without_kernels() -> None:
    program = "import sys, penstock.wire.kafka.error_codes; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
