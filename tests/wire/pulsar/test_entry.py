"""Entries against Protocol Buffers: heads, checksums, broker-entry metadata, SEND in place."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InternalError, WireError
from penstock.wire.buffer import as_array
from penstock.wire.kernels import crc32c
from penstock.wire.pulsar import SEND_HEADROOM, encode_send, read_entry, send_frame
from penstock.wire.pulsar import pulsar_pb2 as pb

uint64 = st.integers(0, (1 << 63) - 1)


def entry_in(frame: bytes) -> bytes:
    return frame[8 + struct.unpack_from(">I", frame, 4)[0] :]


optional = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.integers(0, 4),
        "uncompressed_size": st.integers(0, (1 << 32) - 1),
        "num_messages_in_batch": st.integers(0, (1 << 31) - 1),
        "highest_sequence_id": uint64,
        "marker_type": st.integers(0, 30),
        "num_chunks_from_msg": st.integers(1, 9),
        "chunk_id": st.integers(0, 9),
        "encryption_algo": st.text(max_size=3),
        "properties": st.lists(
            st.builds(pb.KeyValue, key=st.text(max_size=3), value=st.text(max_size=3)), max_size=2
        ),
        "partition_key": st.text(max_size=5),
        "ordering_key": st.binary(max_size=5),
        "event_time": uint64,
        "schema_version": st.binary(max_size=8),
        "uuid": st.text(max_size=5),
        "null_value": st.booleans(),
    },
)


@given(st.text(max_size=9), uint64, uint64, optional, st.binary(max_size=50))
def test_a_head_says_what_protobuf_wrote(
    name: str, sequence: int, time: int, fields: dict[str, object], payload: bytes
) -> None:
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=sequence, publish_time=time, **fields)  # type: ignore[arg-type]
    frame = encode_send(pb.CommandSend(producer_id=1, sequence_id=sequence), metadata, payload)
    entry = read_entry(memoryview(entry_in(frame)))
    assert bytes(entry.producer_name).decode() == name
    assert (entry.sequence_id, entry.publish_time) == (sequence, time)
    assert entry.compression == metadata.compression
    assert entry.uncompressed_size == metadata.uncompressed_size
    assert entry.num_messages == metadata.num_messages_in_batch
    assert entry.is_batch == metadata.HasField("num_messages_in_batch")
    assert entry.is_marker == metadata.HasField("marker_type")
    assert entry.is_encrypted == metadata.HasField("encryption_algo")
    assert entry.is_chunk == (metadata.num_chunks_from_msg > 1 or metadata.HasField("chunk_id"))
    assert entry.highest_sequence_id == (
        metadata.highest_sequence_id if "highest_sequence_id" in fields else -1
    )
    assert bytes(entry.metadata) == metadata.SerializeToString()
    assert bytes(entry.payload) == payload
    assert entry.is_intact
    assert (entry.broker_index, entry.broker_timestamp, entry.first_index) == (-1, -1, -1)


def plain_entry(**fields: object) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)  # type: ignore[arg-type]
    return entry_in(encode_send(pb.CommandSend(producer_id=1, sequence_id=1), metadata, b"payload"))


def test_broker_entry_metadata_stands_before_the_checksum() -> None:
    broker = pb.BrokerEntryMetadata(broker_timestamp=1234, index=19).SerializeToString()
    data = b"\x0e\x02" + struct.pack(">I", len(broker)) + broker + plain_entry(num_messages_in_batch=10)
    entry = read_entry(memoryview(data))
    assert (entry.broker_index, entry.broker_timestamp, entry.first_index) == (19, 1234, 10)
    assert entry.is_intact
    assert bytes(entry.payload) == b"payload"


def test_an_entry_without_checksum_is_taken() -> None:
    data = plain_entry()[6:]
    entry = read_entry(memoryview(data))
    assert entry.crc == -1
    assert entry.is_intact


def test_every_flipped_bit_behind_the_checksum_is_seen() -> None:
    data = plain_entry()
    for i in range(10, len(data)):
        spoilt = data[:i] + bytes((data[i] ^ 1,)) + data[i + 1 :]
        try:
            assert not read_entry(memoryview(spoilt)).is_intact
        except WireError:
            continue


@pytest.mark.parametrize("size", range(30))
def test_every_cut_of_a_head_is_refused(size: int) -> None:
    head = 2 + 4 + 4 + pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).ByteSize()
    if size < head:
        with pytest.raises(WireError):
            read_entry(memoryview(plain_entry()[:size]))


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x10\x01\x18\x02",
        b"\x0a\x01p\x10\x01",
        b"\x0a\x01p\x10\x01\x18" + b"\xff" * 9 + b"\x01",
        b"\x0a\x7fp",
        b"\x0b",
    ],
)
def test_metadata_that_cannot_be_is_refused(metadata: bytes) -> None:
    with pytest.raises(WireError):
        read_entry(memoryview(struct.pack(">I", len(metadata)) + metadata))


@given(
    st.binary(max_size=20),
    uint64,
    uint64,
    st.integers(1, 1 << 30),
    uint64,
    st.just(-1) | uint64,
    st.just((-1, -1)) | st.tuples(st.integers(1, 4), st.integers(0, 1 << 30)),
    st.binary(max_size=50),
)
def test_send_in_place_is_what_protobuf_writes(
    name: bytes,
    producer: int,
    sequence: int,
    messages: int,
    time: int,
    highest: int,
    packed: tuple[int, int],
    payload: bytes,
) -> None:
    name = name.hex().encode()
    start = SEND_HEADROOM + len(name)
    buffer = np.zeros(start + len(payload), np.uint8)
    buffer[start:] = np.frombuffer(payload, np.uint8)
    frame = send_frame(
        buffer,
        start,
        len(buffer),
        producer_name=as_array(name),
        producer_id=producer,
        sequence_id=sequence,
        num_messages=messages,
        publish_time=time,
        highest_sequence_id=highest,
        compression=packed[0],
        uncompressed_size=packed[1],
    )
    send = pb.CommandSend(producer_id=producer, sequence_id=sequence, num_messages=messages)
    metadata = pb.MessageMetadata(
        producer_name=name.decode(), sequence_id=sequence, publish_time=time, num_messages_in_batch=messages
    )
    if highest >= 0:
        send.highest_sequence_id = metadata.highest_sequence_id = highest
    if packed[0] >= 0:
        metadata.compression, metadata.uncompressed_size = packed
    assert bytes(frame) == encode_send(send, metadata, payload)


def test_too_little_room_before_a_payload_is_our_fault() -> None:
    with pytest.raises(InternalError):
        send_frame(
            np.zeros(20, np.uint8),
            10,
            20,
            producer_name=as_array(b"p"),
            producer_id=1,
            sequence_id=1,
            num_messages=1,
            publish_time=1,
        )


def test_the_checksum_covers_metadata_and_payload() -> None:
    frame = encode_send(
        pb.CommandSend(producer_id=1, sequence_id=1),
        pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2),
        b"payload",
    )
    entry = entry_in(frame)
    assert entry[:2] == b"\x0e\x01"
    assert struct.unpack(">I", entry[2:6])[0] == crc32c(entry[6:])
    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
