"""Hostile bytes in front of the mapping's kernels: an error or a result, never a read or write outside.

The kernels are called without the functions around them, which would turn an IndexError into a refusal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.mapping import KafkaBatch, Undecodable, entry_to_batch, to_kafka, to_pulsar
from penstock.wire.pulsar import read_entry
from penstock.wire.pulsar.pulsar_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

# Two records: key and value, then null ones; headers that are text, null, binary and marked.
RECORDS = bytes.fromhex(
    "4c 00 00 00 02 6b 02 76 08 02 61 02 62 02 63 01 02 64 02 ff 10 6b61666b617e747e 06 c3a921"
    "0e 00 02 02 01 01 00"
)


def records() -> bytes:
    first = bytearray(RECORDS[:-7])
    first[0] = (len(first) - 1) * 2
    second = bytearray(RECORDS[-7:])
    second[0] = (len(second) - 1) * 2
    return bytes(first + second)


def entry() -> bytes:
    metadata = SingleMessageMetadata(
        properties=[KeyValue(key="kafka~B~/w==", value="/w=="), KeyValue(key="a", value="b")],
        partition_key="aw==",
        partition_key_b64_encoded=True,
        payload_size=3,
        event_time=1000,
    )
    one = struct.pack(">I", metadata.ByteSize()) + metadata.SerializeToString() + b"abc"
    return one + one


def to_entry(data: bytes, count: int, space: int = 4096) -> bytes | int:
    """Run the kernel in an output with a guard behind it."""
    out = np.full(space + 64, 0xA5, np.uint8)
    facts = np.zeros(to_pulsar.FACTS, np.int64)
    array = np.frombuffer(data, np.uint8)
    end = to_pulsar.records_to_entry(array, 0, len(data), count, 10**12, out[:space], 0, facts)
    assert (out[space:] == 0xA5).all()
    return end if end < 0 else bytes(out[:end])


def to_records(data: bytes, count: int, space: int = 4096) -> bytes | int:
    out = np.full(space + 64, 0xA5, np.uint8)
    facts = np.zeros(to_kafka.FACTS, np.int64)
    room = np.zeros(50, np.int64)
    array = np.frombuffer(data, np.uint8)
    end = to_kafka.entry_to_records(array, 0, len(data), count, 10**12, facts, room, out[:space], 0)
    assert (out[space:] == 0xA5).all()
    return end if end < 0 else bytes(out[:end])


def spoilt(data: bytes) -> Iterator[bytes]:
    """Cut the bytes at every place, and replace every byte by some that hurt."""
    for i in range(len(data)):
        yield data[:i]
        for byte in (0, 1, 0x7F, 0x80, 0xFF, data[i] ^ 1, data[i] ^ 0x80):
            yield data[:i] + bytes((byte,)) + data[i + 1 :]
        yield data[:i] + b"\xff" * 9 + b"\x01" + data[i + 1 :]
        yield data[:i] + b"\x80" * 10 + data[i + 1 :]


def test_the_samples_are_good() -> None:
    carried = to_entry(records(), 2)
    assert isinstance(carried, bytes)
    assert to_records(carried, 2) == records()
    assert isinstance(to_records(entry(), 2), bytes)


def test_spoilt_records_are_refused_or_carried_whole() -> None:
    outcomes = set()
    for data in spoilt(records()):
        carried = to_entry(data, 2)
        outcomes.add(carried if isinstance(carried, int) else 0)
        if isinstance(carried, bytes):
            assert isinstance(to_records(carried, 2), bytes), data.hex()
    # Every kind of error has been seen, so the samples reach every check.
    assert outcomes >= {0, -1, -2, to_pulsar.BAD_LENGTH, to_pulsar.BAD_OFFSET, to_pulsar.TRAILING}


def test_spoilt_entries_are_refused_or_carried_whole() -> None:
    outcomes = set()
    for data in spoilt(entry()):
        carried = to_records(data, 2)
        outcomes.add(carried if isinstance(carried, int) else 0)
        if isinstance(carried, bytes):
            assert isinstance(to_entry(carried, 2), bytes), data.hex()
    assert outcomes >= {0, -1, -2, -3, to_kafka.BAD_SIZE, to_kafka.BAD_KEY}


def test_every_size_of_output_is_enough_or_refused() -> None:
    carried = to_entry(records(), 2)
    assert {to_entry(records(), 2, space) for space in range(400)} == {to_pulsar.NO_SPACE, carried}
    back = to_records(entry(), 2)
    assert {to_records(entry(), 2, space) for space in range(400)} == {to_kafka.NO_SPACE, back}


@given(st.binary(max_size=200), st.integers(1, 5))
def test_any_bytes_as_records(data: bytes, count: int) -> None:
    assert to_entry(data, count) is not None


@given(st.binary(max_size=200), st.integers(1, 5))
def test_any_bytes_as_an_entry(data: bytes, count: int) -> None:
    assert to_records(data, count) is not None


@given(st.binary(max_size=120))
def test_any_bytes_as_metadata_and_payload(data: bytes) -> None:
    try:
        read = read_entry(memoryview(data))
    except WireError:
        return
    assert isinstance(entry_to_batch(read, base_offset=0, limit=1000), KafkaBatch | Undecodable)


def test_spoilt_metadata_is_refused_or_judged() -> None:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        num_messages_in_batch=2,
        compression=1,
        uncompressed_size=100,
        properties=[KeyValue(key="a", value="b")],
    ).SerializeToString()
    whole = b"\x0e\x02\0\0\0\x02\x10\x07" + struct.pack(">I", len(metadata)) + metadata + entry()
    judged = 0
    for data in spoilt(whole):
        try:
            read = read_entry(memoryview(data))
        except WireError:
            continue
        judged += 1
        assert isinstance(entry_to_batch(read, base_offset=0, limit=1000), KafkaBatch | Undecodable)
    assert judged > 100
