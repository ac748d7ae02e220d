"""Commands against Protocol Buffers, which reads what we write and writes what we read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire.framing import FrameBuffer
from penstock.wire.pulsar import (
    Command,
    Message,
    MessageId,
    SendReceipt,
    decode_command,
    encode_command,
    encode_flow,
)
from penstock.wire.pulsar import pulsar_pb2 as pb

uint64 = st.integers(0, (1 << 63) - 1)
ids = st.builds(MessageId, uint64, uint64, st.integers(-1, 5000), st.integers(-1, 100))


def unframed(data: bytes) -> memoryview:
    """Give the frame without its total size, after checking the two sizes."""
    total, command = struct.unpack_from(">II", data)
    assert (total, command) == (len(data) - 4, len(data) - 8)
    return memoryview(data)[4:]


def id_data(given_id: MessageId) -> pb.MessageIdData:
    return pb.MessageIdData(
        ledger_id=given_id.ledger_id,
        entry_id=given_id.entry_id,
        partition=given_id.partition,
        batch_index=given_id.batch_index,
    )


@given(uint64, uint64, uint64, ids)
def test_a_receipt(producer: int, sequence: int, highest: int, where: MessageId) -> None:
    body = pb.CommandSendReceipt(
        producer_id=producer, sequence_id=sequence, message_id=id_data(where), highest_sequence_id=highest
    )
    frame = unframed(encode_command(body))
    assert decode_command(frame) == SendReceipt(producer, sequence, highest, where)


def test_a_receipt_for_a_dropped_duplicate_has_no_id() -> None:
    nowhere = pb.MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1)
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=2, message_id=nowhere)
    assert decode_command(unframed(encode_command(receipt))) == SendReceipt(1, 2, 0, MessageId(-1, -1))
    bare = pb.CommandSendReceipt(producer_id=1, sequence_id=2)
    assert decode_command(unframed(encode_command(bare))) == SendReceipt(1, 2, 0, MessageId(-1, -1))


@given(uint64, ids, st.integers(0, 100), st.binary(max_size=30))
def test_a_message(consumer: int, where: MessageId, redeliveries: int, entry: bytes) -> None:
    body = pb.CommandMessage(
        consumer_id=consumer,
        message_id=id_data(where),
        redelivery_count=redeliveries,
        ack_set=[1, 2],
        consumer_epoch=3,
    )
    frame = memoryview(encode_command(body)[4:] + entry)
    message = decode_command(frame)
    assert message == Message(consumer, where, redeliveries, memoryview(entry), frame)
    assert isinstance(message, Message) and message.ack_set() == (1, 2)


@given(uint64, st.integers(0, (1 << 32) - 1))
def test_flow_is_what_protobuf_writes(consumer: int, permits: int) -> None:
    body = pb.CommandFlow(consumer_id=consumer, message_permits=permits)
    assert encode_flow(consumer, permits) == encode_command(body)


def test_golden_bytes() -> None:
    assert encode_flow(1, 1000).hex(" ") == "00 00 00 0d 00 00 00 09 08 0b 5a 05 08 01 10 e8 07"
    receipt = bytes.fromhex("00000010 0807 3a0c 0805 1006 1a06 0802 1003 2007")
    assert decode_command(memoryview(receipt)) == SendReceipt(5, 6, 0, MessageId(2, 3, 7))


SOME = {
    "connect": pb.CommandConnect(
        client_version="x", feature_flags=pb.FeatureFlags(supports_auth_refresh=True)
    ),
    "producer": pb.CommandProducer(topic="t", producer_id=1, request_id=2, producer_access_mode=3),
    "subscribe": pb.CommandSubscribe(topic="t", subscription="s", sub_type=0, consumer_id=1, request_id=2),
    "send_error": pb.CommandSendError(producer_id=1, sequence_id=2, error=25, message="fenced"),
    "ping": pb.CommandPing(),
    "lookup": pb.CommandLookupTopic(topic="t", request_id=1),
    "topic_migrated": pb.CommandTopicMigrated(resource_id=1, resource_type=0),
}


@pytest.mark.parametrize("name", SOME)
def test_any_other_command_is_its_message(name: str) -> None:
    decoded = decode_command(unframed(encode_command(SOME[name])))
    number = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].number
    assert decoded == Command(number, SOME[name])


def test_the_type_of_a_command_is_the_number_of_its_field() -> None:
    # The protocol's own rule; encode_command relies on it.
    names = {value.number: value.name.lower() for value in pb.BaseCommand.Type.DESCRIPTOR.values}
    fields = {field.number: field.name for field in pb.BaseCommand.DESCRIPTOR.fields if field.message_type}
    assert names == fields


def test_an_unknown_command_and_an_unknown_error_are_no_failure() -> None:
    unknown = pb.BaseCommand(type=99).SerializeToString() + b"\x9a\x06\x00"
    frame = struct.pack(">I", len(unknown)) + unknown
    assert decode_command(memoryview(frame)) == Command(99, None)
    error = pb.CommandError(request_id=1, error=77, message="new")
    decoded = decode_command(unframed(encode_command(error)))
    assert isinstance(decoded, Command)
    assert decoded.body.error == 77


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\x05\x08",
        b"\0\0\0\0",
        b"\0\0\0\x02\x08\x07",
        b"\0\0\0\x02\x08\x0d",
        b"\0\0\0\x04\x08\x0d\x6a\x00",
        b"\0\0\0\x04\x08\x0d\x6a\x05",
        b"\xff\xff\xff\xff\x08\x07",
        b"\0\0\0\x0b\x08" + b"\xff" * 10,
    ],
)
def test_what_is_no_command_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode_command(memoryview(frame))


@given(
    st.binary(max_size=80),
    st.sampled_from([b"", b"\x08\x07", b"\x08\x09", b"\x08\x07\x3a\x10", b"\x08\x09\x4a\x10"]),
)
def test_any_bytes_are_a_command_or_refused(data: bytes, begin: bytes) -> None:
    frame = struct.pack(">I", len(begin + data)) + begin + data
    try:
        assert isinstance(decode_command(memoryview(frame)), SendReceipt | Message | Command)
    except WireError:
        return


def test_frames_of_commands_are_cut_like_all_frames() -> None:
    buffer = FrameBuffer(limit=1000)
    buffer.receive(encode_flow(1, 2) + encode_command(pb.CommandPing()))
    kinds = [decode_command(frame) for frame in buffer.frames()]
    assert [kind.type for kind in kinds if isinstance(kind, Command)] == [11, 18]
