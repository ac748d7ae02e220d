"""The mapping of spec 001 against a slow and simple one in plain Python, on generated batches."""

from __future__ import annotations

import base64
import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RecordsError
from penstock.mapping import (
    KafkaBatch,
    PulsarBatch,
    Reason,
    Undecodable,
    batch_to_entry,
    entry_to_batch,
    hole,
    placeholder,
    to_kafka,
    to_pulsar,
)
from penstock.wire.buffer import as_array
from penstock.wire.kafka import Compression, ErrorCode, RecordBatch, read_batches, write_batch_head
from penstock.wire.kafka.compression import compress, compress_snappy_java
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.pulsar import Compression as PulsarCompression
from penstock.wire.pulsar import Entry, encode_send, read_entry, send_frame
from penstock.wire.pulsar.compression import compress as compress_pulsar
from penstock.wire.pulsar.pulsar_pb2 import (
    CommandSend,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

LIMIT = 1 << 24
NOW = 1_800_000_000_000


class Record(NamedTuple):
    """A Kafka record as the simple mapping sees it; -1 is no timestamp."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


# The simple mapping, written from the documentation only.


def varint(value: int) -> bytes:
    value = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out) + bytes([value])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def kafka_record(record: Record, delta: int, base: int) -> bytes:
    headers = b"".join(sized(name) + sized(value) for name, value in record.headers)
    body = b"\0" + varint(record.timestamp - base) + varint(delta) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers)) + headers
    return varint(len(body)) + body


def kafka_batch(records: list[Record], compression: int = 0, base_offset: int = 0) -> bytes:
    base = records[0].timestamp
    data = b"".join(kafka_record(record, i, base) for i, record in enumerate(records))
    batch = bytearray(HEAD_SIZE) + compress(Compression(compression), data)
    write_batch_head(
        memoryview(batch),
        base_offset=base_offset,
        last_offset_delta=len(records) - 1,
        base_timestamp=base,
        max_timestamp=max(record.timestamp for record in records),
        record_count=len(records),
        attributes=compression,
    )
    return bytes(batch)


def as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def escape(name: bytes, value: bytes | None) -> tuple[str, str]:
    text_name = as_text(name)
    text_value = None if value is None else as_text(value)
    letter = "n" if value is None else "b" if text_value is None else "t"
    written = "" if value is None else text_value
    if written is None:
        written = base64.b64encode(value or b"").decode()
    if text_name is None:
        return f"kafka~{letter.upper()}~{base64.b64encode(name).decode()}", written
    if letter != "t" or text_name.startswith("kafka~"):
        return f"kafka~{letter}~{text_name}", written
    return text_name, written


def unescape(name: str, value: str) -> tuple[bytes, bytes | None]:
    plain = name.encode(), value.encode()
    if not name.startswith("kafka~") or name[7:8] != "~" or name[6:7] not in tuple("nbtNBT"):
        return plain
    letter, rest = name[6], name[8:].encode()
    if letter in "nN" and value:
        return plain
    try:
        real_name = strict_base64(rest) if letter.isupper() else rest
        real_value = strict_base64(plain[1]) if letter in "bB" else plain[1]
    except ValueError:
        return plain
    return real_name, None if letter in "nN" else real_value


def strict_base64(text: bytes) -> bytes:
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data) != text:
        raise ValueError("not in its one form")
    return data


def pulsar_message(record: Record) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(record.value or b""))
    for name, value in record.headers:
        key, text = escape(name, value)
        metadata.properties.append(KeyValue(key=key, value=text))
    if record.key is not None:
        try:
            metadata.partition_key = record.key.decode()
        except UnicodeDecodeError:
            metadata.partition_key = base64.b64encode(record.key).decode()
            metadata.partition_key_b64_encoded = True
        metadata.ordering_key = record.key
    if record.timestamp >= 0:
        metadata.event_time = record.timestamp
    if record.value is None:
        metadata.null_value = True
    data = metadata.SerializeToString()
    return struct.pack(">I", len(data)) + data + (record.value or b"")


def key_of(metadata: SingleMessageMetadata | MessageMetadata) -> bytes | None:
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.null_partition_key or not metadata.HasField("partition_key"):
        return None
    text = metadata.partition_key.encode()
    return base64.b64decode(text) if metadata.partition_key_b64_encoded else text


def record_of(metadata: SingleMessageMetadata | MessageMetadata, payload: bytes, publish_time: int) -> Record:
    return Record(
        metadata.event_time if metadata.HasField("event_time") else publish_time,
        key_of(metadata),
        None if metadata.null_value else payload,
        tuple(unescape(pair.key, pair.value) for pair in metadata.properties),
    )


# What is generated.

texts = st.text(max_size=12).map(str.encode)
marked = st.builds(
    lambda letter, rest: b"kafka~" + letter + rest, st.sampled_from([b"", b"n~", b"B~", b"x"]), texts
)
names = st.one_of(texts, st.binary(max_size=12), marked)
values = st.one_of(st.none(), texts, st.binary(max_size=70))
times = st.one_of(st.just(-1), st.just(0), st.integers(0, 1 << 45), st.integers(0, (1 << 62) - 1))
records = st.builds(
    Record,
    times,
    st.one_of(st.none(), st.binary(max_size=20)),
    values,
    st.lists(st.tuples(names, values), max_size=4).map(tuple),
)
batches = st.lists(records, min_size=1, max_size=8)


def only(batch: bytes) -> RecordBatch:
    [one] = read_batches(batch)
    return one


def produced(batch: bytes) -> PulsarBatch:
    return batch_to_entry(only(batch), now=NOW, limit=LIMIT)


def stored(sent: PulsarBatch, **more: int) -> Entry:
    """Give the entry as Pulsar would, out of the frame that the gateway sends."""
    frame = send_frame(
        sent.buffer,
        sent.start,
        sent.end,
        producer_name=as_array(b"p"),
        producer_id=1,
        sequence_id=2,
        num_messages=sent.num_messages,
        publish_time=sent.publish_time,
        **more,
    )
    command = struct.unpack_from(">I", frame, 4)[0]
    return read_entry(frame[8 + command :])


def entry_of(metadata: MessageMetadata, payload: bytes) -> Entry:
    metadata.producer_name = "p"
    metadata.sequence_id = 1
    frame = memoryview(encode_send(CommandSend(producer_id=1, sequence_id=1), metadata, payload))
    command = struct.unpack_from(">I", frame, 4)[0]
    return read_entry(frame[8 + command :])


def fetched(entry: Entry, base_offset: int = 0) -> KafkaBatch:
    batch = entry_to_batch(entry, base_offset=base_offset, limit=LIMIT)
    assert isinstance(batch, KafkaBatch), batch
    return batch


# Kafka to Pulsar.


@given(batches)
def test_kafka_to_pulsar_is_what_the_simple_mapping_gives(given_records: list[Record]) -> None:
    sent = produced(kafka_batch(given_records))
    assert bytes(sent.payload) == b"".join(map(pulsar_message, given_records))
    largest = max(record.timestamp for record in given_records)
    assert sent.publish_time == (largest if largest >= 0 else NOW)
    assert sent.num_messages == len(given_records)
    assert sent.keyless == sum(record.key is None for record in given_records)
    assert sent.empty_values == sum(record.value == b"" for record in given_records)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_of_a_kafka_batch_is_read(compression: Compression) -> None:
    some = [Record(5, b"k", bytes(1000), ((b"h", b"v"),))] * 3
    assert bytes(produced(kafka_batch(some, compression)).payload) == b"".join(map(pulsar_message, some))


def test_a_batch_of_snappy_java_is_read() -> None:
    some = [Record(5, b"k", bytes(90_000), ())]
    plain = kafka_batch(some)
    batch = bytearray(plain[:HEAD_SIZE]) + compress_snappy_java(plain[HEAD_SIZE:])
    write_batch_head(
        memoryview(batch),
        base_offset=0,
        last_offset_delta=0,
        base_timestamp=5,
        max_timestamp=5,
        record_count=1,
        attributes=Compression.SNAPPY,
    )
    assert bytes(produced(bytes(batch)).payload) == pulsar_message(some[0])


# Pulsar to Kafka.


@given(batches, st.integers(0, 1 << 60))
def test_a_batch_comes_back_bit_for_bit(given_records: list[Record], base_offset: int) -> None:
    sent = produced(kafka_batch(given_records))
    batch = fetched(stored(sent), base_offset)
    # Round-trip law: -1 returns as the publish time, everything else as it was.
    expected = [
        record._replace(timestamp=record.timestamp if record.timestamp >= 0 else sent.publish_time)
        for record in given_records
    ]
    assert bytes(batch.data[HEAD_SIZE:]) == kafka_batch(expected)[HEAD_SIZE:]
    head = only(bytes(batch.data))
    head.check()
    assert (head.base_offset, head.last_offset_delta) == (base_offset, len(expected) - 1)
    assert (head.base_timestamp, head.max_timestamp) == (
        expected[0].timestamp,
        max(r.timestamp for r in expected),
    )
    assert (batch.next_offset, batch.record_count) == (base_offset + len(expected), len(expected))


properties = st.lists(
    st.builds(
        KeyValue, key=st.one_of(st.text(max_size=8), marked.map(bytes.decode)), value=st.text(max_size=8)
    ),
    max_size=4,
)
keys = st.one_of(
    st.fixed_dictionaries({}),
    st.fixed_dictionaries({"partition_key": st.text(max_size=8)}),
    st.fixed_dictionaries({"ordering_key": st.binary(max_size=8), "partition_key": st.text(max_size=8)}),
    st.builds(
        lambda key: {"partition_key": base64.b64encode(key).decode(), "partition_key_b64_encoded": True},
        st.binary(max_size=8),
    ),
    st.fixed_dictionaries({"null_partition_key": st.just(True), "partition_key": st.just("")}),
)
more = st.fixed_dictionaries(
    {},
    optional={
        "event_time": st.integers(0, 1 << 62),
        "null_value": st.booleans(),
        "sequence_id": st.integers(0, 9),
    },
)
foreign = st.tuples(properties, keys, more, st.binary(max_size=30))


@given(
    st.lists(foreign, min_size=1, max_size=5),
    st.sampled_from(list(PulsarCompression)),
    st.integers(0, 1 << 45),
)
def test_batches_of_pulsar_producers_are_what_the_simple_mapping_gives(
    messages: list[tuple[list[KeyValue], dict[str, object], dict[str, object], bytes]],
    compression: PulsarCompression,
    publish_time: int,
) -> None:
    payload, expected = b"", []
    for pairs, key, rest, value in messages:
        metadata = SingleMessageMetadata(properties=pairs, payload_size=len(value), **key, **rest)  # type: ignore[arg-type]
        payload += struct.pack(">I", metadata.ByteSize()) + metadata.SerializeToString() + value
        expected.append(record_of(metadata, value, publish_time))
    head = MessageMetadata(
        publish_time=publish_time,
        num_messages_in_batch=len(messages),
        compression=compression,
        uncompressed_size=len(payload),
    )
    batch = fetched(entry_of(head, compress_pulsar(compression, payload)))
    assert bytes(batch.data[HEAD_SIZE:]) == kafka_batch(expected)[HEAD_SIZE:]


@given(foreign, st.sampled_from(list(PulsarCompression)))
def test_a_message_outside_a_batch_is_what_the_simple_mapping_gives(
    message: tuple[list[KeyValue], dict[str, object], dict[str, object], bytes],
    compression: PulsarCompression,
) -> None:
    pairs, key, rest, value = message
    rest = {name: what for name, what in rest.items() if name != "sequence_id"}
    metadata = MessageMetadata(
        properties=pairs,
        publish_time=77,
        compression=compression,
        uncompressed_size=len(value),
        **key,
        **rest,  # type: ignore[arg-type]
    )
    batch = fetched(entry_of(metadata, compress_pulsar(compression, value)), 41)
    assert bytes(batch.data[HEAD_SIZE:]) == kafka_batch([record_of(metadata, value, 77)])[HEAD_SIZE:]
    assert batch.next_offset == 42


def test_messages_that_compaction_took_out_leave_holes() -> None:
    kept = SingleMessageMetadata(payload_size=1, event_time=9)
    gone = SingleMessageMetadata(payload_size=0, compacted_out=True)
    payload = b""
    for metadata, value in ((gone, b""), (kept, b"a"), (gone, b""), (kept, b"b"), (gone, b"")):
        payload += struct.pack(">I", metadata.ByteSize()) + metadata.SerializeToString() + value
    batch = fetched(entry_of(MessageMetadata(publish_time=1, num_messages_in_batch=5), payload), 100)
    some = Record(9, None, b"a", ())
    assert bytes(batch.data[HEAD_SIZE:]) == kafka_record(some, 1, 9) + kafka_record(
        some._replace(value=b"b"), 3, 9
    )
    assert (batch.next_offset, batch.record_count) == (105, 2)


def test_a_message_with_very_many_properties_is_carried() -> None:
    pairs = [KeyValue(key=str(i), value="v") for i in range(1000)]
    metadata = MessageMetadata(properties=pairs, publish_time=3)
    batch = fetched(entry_of(metadata, b"x"))
    assert bytes(batch.data[HEAD_SIZE:]) == kafka_batch([record_of(metadata, b"x", 3)])[HEAD_SIZE:]


# Golden bytes, read by hand from the two formats.

GOLDEN_KAFKA = bytes.fromhex(
    "32 00 00 00"  # length 25, attributes, timestamp delta 0, offset delta 0
    "02 6b"  # key k
    "02 76"  # value v
    "08"  # four headers
    "02 61 02 62"  # a: b
    "02 63 01"  # c: null
    "02 64 02 ff"  # d: ff
    "02 65 06 c3 a9 21"  # e: é!
)
GOLDEN_PULSAR = bytes.fromhex(
    "00 00 00 3f"  # size of the metadata
    "0a 06 0a 01 61 12 01 62"
    "0a 0d 0a 09 6b61666b617e6e7e63 12 00"  # kafka~n~c
    "0a 11 0a 09 6b61666b617e627e64 12 04 2f773d3d"  # kafka~b~d: /w==
    "0a 08 0a 01 65 12 03 c3a921"
    "12 01 6b"  # partition key k
    "18 01"  # payload size
    "28 e8 07"  # event time 1000
    "3a 01 6b"  # ordering key k
    "76"
)


def test_the_golden_bytes_both_ways() -> None:
    kafka = np.frombuffer(GOLDEN_KAFKA, np.uint8)
    out = np.zeros(1000, np.uint8)
    facts = np.zeros(to_pulsar.FACTS, np.int64)
    end = to_pulsar.records_to_entry(kafka, 0, len(kafka), 1, 1000, out, 0, facts)
    assert bytes(out[:end]).hex(" ") == GOLDEN_PULSAR.hex(" ")
    back = np.zeros(1000, np.uint8)
    said = np.zeros(to_kafka.FACTS, np.int64)
    room = np.zeros(50, np.int64)
    end = to_kafka.entry_to_records(out, 0, end, 1, 5, said, room, back, 0)
    assert bytes(back[:end]).hex(" ") == GOLDEN_KAFKA.hex(" ")


# What is refused.


def refused(batch: bytes) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        produced(batch)
    return caught.value


SIMPLE = [Record(1, b"k", b"v", ())] * 2


def with_head(batch: bytes, **changes: int) -> bytes:
    """Write the head of a batch again, with a right checksum and a wrong field."""
    head = only(batch)
    fields = {
        "base_offset": 0,
        "last_offset_delta": head.last_offset_delta,
        "base_timestamp": head.base_timestamp,
        "max_timestamp": head.max_timestamp,
        "record_count": head.record_count,
        "attributes": head.attributes,
    }
    out = bytearray(batch)
    write_batch_head(memoryview(out), **(fields | changes))
    return bytes(out)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 1, "last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3, "last_offset_delta": 2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_head_that_lies_is_refused_with_its_code(changes: dict[str, int], code: ErrorCode) -> None:
    assert refused(with_head(kafka_batch(SIMPLE), **changes)).error_code == code


def test_a_wrong_checksum_is_refused() -> None:
    batch = bytearray(kafka_batch(SIMPLE))
    batch[-1] ^= 1
    assert refused(bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = kafka_batch([Record(0, None, None, ()), Record(5, None, None, ())])
    error = refused(with_head(batch, base_timestamp=2**63 - 5))
    assert "record 1 has a timestamp" in str(error)


def test_a_hole_is_a_batch_without_records() -> None:
    batch = hole(5, 9)
    [read] = read_batches(batch.data)
    read.check()
    assert (read.base_offset, read.last_offset_delta, read.record_count) == (5, 3, 0)
    assert (batch.base_offset, batch.next_offset, batch.record_count) == (5, 9, 0)
    assert bytes(read.records(0)) == b""


def test_a_zip_bomb_is_refused_before_it_takes_memory() -> None:
    bomb = kafka_batch([Record(1, None, bytes(LIMIT + 1), ())], Compression.GZIP)
    assert len(bomb) < LIMIT // 100
    assert refused(bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE


# What cannot be decoded.


def judged(entry: Entry) -> Undecodable:
    verdict = entry_to_batch(entry, base_offset=0, limit=LIMIT)
    assert isinstance(verdict, Undecodable), verdict
    return verdict


def head(**fields: object) -> MessageMetadata:
    return MessageMetadata(publish_time=1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "payload", "reason", "count"),
    [
        (head(encryption_keys=[EncryptionKeys(key="k", value=b"v")]), b"x", Reason.ENCRYPTED, 1),
        (head(encryption_algo="AES"), b"x", Reason.ENCRYPTED, 1),
        (head(num_chunks_from_msg=3, chunk_id=0), b"x", Reason.CHUNK, 1),
        (head(marker_type=21), b"", Reason.MARKER, 1),
        (head(num_messages_in_batch=0), b"", Reason.CORRUPT, 1),
        (head(num_messages_in_batch=2**31 - 1), b"short", Reason.CORRUPT, 2**31 - 1),
        (head(num_messages_in_batch=2), pulsar_message(SIMPLE[0]), Reason.CORRUPT, 2),
        (head(num_messages_in_batch=1), pulsar_message(SIMPLE[0]) + b"x", Reason.CORRUPT, 1),
        (head(num_messages_in_batch=1), b"\0\0\0\2\x28\1", Reason.CORRUPT, 1),
        (head(num_messages_in_batch=1), b"\0\0\0\2\x18\x7f", Reason.CORRUPT, 1),
        (head(partition_key="!", partition_key_b64_encoded=True), b"x", Reason.CORRUPT, 1),
        (head(compression=9), b"x", Reason.CORRUPT, 1),
        (head(compression=1, uncompressed_size=2**32 - 1), b"x", Reason.CORRUPT, 1),
        (head(compression=3, uncompressed_size=9), b"junk", Reason.CORRUPT, 1),
    ],
)
def test_what_cannot_be_decoded_gets_a_verdict(
    metadata: MessageMetadata, payload: bytes, reason: Reason, count: int
) -> None:
    verdict = judged(entry_of(metadata, payload))
    assert (verdict.reason, verdict.num_messages) == (reason, count)
    assert verdict.detail


def test_a_wrong_checksum_of_an_entry_is_corrupt() -> None:
    frame = bytearray(
        encode_send(
            CommandSend(producer_id=1, sequence_id=1),
            MessageMetadata(producer_name="p", sequence_id=1, publish_time=1),
            b"payload",
        )
    )
    frame[-1] ^= 1
    command = struct.unpack_from(">I", frame, 4)[0]
    assert str(judged(read_entry(memoryview(frame)[8 + command :]))) == "corrupt: wrong checksum"


@pytest.mark.parametrize(
    ("verdict", "hole"),
    [
        (Undecodable(Reason.MARKER, "m"), True),
        (Undecodable(Reason.CHUNK, "c", last_piece=False), True),
        (Undecodable(Reason.CHUNK, "c", last_piece=True), False),
        (Undecodable(Reason.CORRUPT, "c"), False),
        (Undecodable(Reason.ENCRYPTED, "e"), False),
    ],
)
def test_only_markers_and_chunks_may_leave_holes(verdict: Undecodable, hole: bool) -> None:
    assert verdict.may_leave_hole is hole


def test_a_placeholder_has_a_record_for_each_message() -> None:
    batch = placeholder(Undecodable(Reason.ENCRYPTED, "no key", 3), base_offset=7, timestamp=5)
    reason = ((b"penstock.undecodable", b"encrypted: no key"),)
    expected = [Record(5, None, None, reason)] * 3
    assert bytes(batch.data) == kafka_batch(expected, base_offset=7)
    assert (batch.next_offset, batch.record_count) == (10, 3)


def test_a_placeholder_for_a_boast_is_one_record_at_the_last_offset() -> None:
    batch = placeholder(Undecodable(Reason.CORRUPT, "lie", 2**31 - 1), base_offset=0, timestamp=5)
    assert len(batch.data) < 200
    assert (batch.next_offset, batch.record_count) == (2**31 - 1, 1)
    assert only(bytes(batch.data)).last_offset_delta == 2**31 - 2
