"""Entries as batches or rejects, and names and ids, without a broker."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pulsar_rows import body_of, record_at

from penstock.brokers.pulsar import Delivery
from penstock.errors import JobFailed, PenstockError, RecordsError, Refused, WireError
from penstock.mapping import KafkaBatch, Reason, body_to_entry, slice_records
from penstock.mapping.split import at_one_offset
from penstock.pipeline.delivery.pulsar.entries import EntryDecoder, RejectedEntry, Undecided, size_of
from penstock.pipeline.delivery.pulsar.log import Numbering, packed, unpacked
from penstock.pipeline.delivery.pulsar.producer_names import sequence_ids
from penstock.wire.kernels import crc32c
from penstock.wire.pulsar import MessageId, read_entry
from penstock.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata


def entry(place: tuple[int, int], index: int, *values: bytes, txn: bool = False, **said: Any) -> Delivery:
    """An entry as a broker delivers it."""
    payload = b""
    for value in values:
        head = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + value
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=5, num_messages_in_batch=len(values), **said
    )
    if txn:
        metadata.txnid_most_bits, metadata.txnid_least_bits = 1, 2
    raw = metadata.SerializeToString()
    checked = len(raw).to_bytes(4, "big") + raw + payload
    data = b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked
    if index >= 0:
        outer = BrokerEntryMetadata(index=index).SerializeToString()
        data = b"\x0e\x02" + len(outer).to_bytes(4, "big") + outer + data
    view = memoryview(data)
    return Delivery(MessageId(*place), 0, read_entry(view), view)


def decoder(numbering: Numbering = Numbering.INDEX) -> EntryDecoder:
    return EntryDecoder("t", 3, name="t-partition-3", numbering=numbering, inflated=1 << 20)


def test_a_batch_has_the_index_of_its_first_message() -> None:
    found = decoder().decode(entry((7, 0), 12, b"a", b"b", b"c"))
    assert isinstance(found.content, KafkaBatch)
    assert (found.content.base_offset, found.content.next_offset, found.messages) == (10, 13, 3)
    assert size_of(found) >= len(found.content.data)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"partition_key": "/wA=", "partition_key_b64_encoded": True}, b"\xff\x00"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({"partition_key": ""}, b""),
        ({"ordering_key": b"", "partition_key": "p"}, b""),
        ({"partition_key": "p", "null_partition_key": True}, None),
        ({}, None),
    ],
)
def test_a_rejected_entry_has_the_key_of_its_message(said: dict[str, Any], key: bytes | None) -> None:
    found = decoder().decode(entry((7, 0), 5, b"x", encryption_algo="AES", **said)).content
    assert isinstance(found, RejectedEntry) and found.record().key == key


def test_the_letter_of_an_encrypted_message_can_be_decrypted() -> None:
    keys = [
        {"key": "k1", "value": b"\xffdata key", "metadata": [{"key": "v", "value": "2"}]},
        {"key": "k2", "value": b""},
    ]
    said = {
        "encryption_algo": "AES",
        "encryption_param": b"\xffnonce",
        "encryption_keys": keys,
        "event_time": 77,
    }
    found = decoder().decode(entry((7, 0), 5, b"x", **said)).content
    assert isinstance(found, RejectedEntry)
    facts = dict(found.record().headers)
    assert facts["pulsar-encryption-param"] == base64.b64encode(b"\xffnonce")
    assert facts["pulsar-encryption-key-0-name"] == b"k1" and facts["pulsar-encryption-key-1-name"] == b"k2"
    assert facts["pulsar-encryption-key-0-value"] == base64.b64encode(b"\xffdata key")
    assert facts["pulsar-encryption-key-0-metadata-v"] == b"2"
    assert facts["pulsar-event-time"] == b"77"


def test_properties_that_are_left_out_are_counted() -> None:
    properties = [{"key": f"k{number}", "value": "v"} for number in range(1500)]
    found = decoder().decode(entry((7, 0), 5, b"x", encryption_algo="A", properties=properties)).content
    assert isinstance(found, RejectedEntry)
    headers = found.record().headers
    assert sum(name.startswith("k") for name, _ in headers) == 1000
    assert ("pulsar-properties-left-out", b"500") in headers


def test_a_batch_of_no_messages_has_the_index_that_was_counted() -> None:
    found = decoder().decode(entry((7, 0), 5)).content
    assert isinstance(found, RejectedEntry)
    assert (found.base_offset, found.next_offset, found.reason) == (5, 6, Reason.CORRUPT)


def test_an_encrypted_entry_is_rejected_with_its_bytes() -> None:
    keys = [{"key": "k1", "value": b"secret"}]
    delivery = entry((7, 0), 5, b"x", b"y", encryption_keys=keys, encryption_algo="AES", partition_key="id")
    found = decoder().decode(delivery)
    rejected = found.content
    assert isinstance(rejected, RejectedEntry)
    assert (rejected.reason, rejected.base_offset, rejected.next_offset) == (Reason.ENCRYPTED, 4, 6)
    assert rejected.raw == bytes(delivery.data)
    record = rejected.record()
    assert (record.topic, record.partition, record.offset, record.key) == ("t", 3, 4, b"id")
    assert isinstance(delivery.entry, tuple) and record.value == bytes(delivery.entry.payload)
    facts = dict(record.headers)
    assert facts["pulsar-encryption-keys"] == b"k1" and facts["pulsar-message-id"] == b"7:0"


def test_an_entry_whose_head_cannot_be_read_is_rejected_whole() -> None:
    decode = decoder().decode
    decode(entry((7, 0), 0, b"a"))
    broken = memoryview(b"\x00\x01broken")
    found = decode(Delivery(MessageId(7, 1), 0, WireError("broken"), broken))
    assert isinstance(found.content, RejectedEntry)
    assert (found.content.base_offset, found.content.next_offset) == (1, 1)
    assert found.content.record().value == bytes(broken)


def test_an_entry_whose_metadata_cannot_be_read_has_the_index_before_them() -> None:
    outer = BrokerEntryMetadata(index=12).SerializeToString()
    broken = memoryview(b"\x0e\x02" + len(outer).to_bytes(4, "big") + outer + b"\x00\x01broken")
    delivery = Delivery(MessageId(7, 4), 0, WireError("broken"), broken)
    decode = decoder().decode
    content = decode(delivery).content
    assert isinstance(content, RejectedEntry)
    assert (content.base_offset, content.next_offset, content.raw) == (12, 13, bytes(broken))
    assert isinstance(decode(entry((7, 5), 12, b"a")).content, JobFailed), "indexes grow"
    placed = decoder(Numbering.PLACE)
    content = placed.decode(delivery).content
    assert isinstance(content, RejectedEntry)
    assert (content.base_offset, content.next_offset) == (packed(7, 4), packed(7, 5))
    assert placed.arrived == packed(7, 5)
    for cut in (b"", bytes(broken[:7]), b"\x0e\x02\x00\x00\x00\x01\xff"):
        found = decoder().decode(Delivery(MessageId(7, 4), 0, WireError("broken"), memoryview(cut))).content
        assert isinstance(found, RejectedEntry) and (found.base_offset, found.next_offset) == (0, 0)


def test_a_rejected_entry_keeps_its_properties_beside_the_reason() -> None:
    delivery = entry((7, 0), 5, b"x", encryption_algo="AES", properties=[{"key": "p", "value": "v"}])
    rejected = decoder().decode(delivery).content
    assert isinstance(rejected, RejectedEntry)
    names = [name for name, _ in rejected.record().headers]
    assert names[0] == "p" and "pulsar-encryption-algorithm" in names
    assert all(name.encode() in rejected.batch() for name in names)


def test_an_index_that_goes_back_is_another_log() -> None:
    decode = decoder().decode
    decode(entry((7, 0), 9, b"a"))
    again = decode(entry((90, 0), 0, b"a"))
    assert isinstance(again.content, JobFailed)
    decode = decoder().decode
    decode(entry((7, 0), 9, b"a"))
    assert isinstance(decode(entry((90, 0), 9, b"a")).content, JobFailed), "as long as before"


def test_an_entry_without_index() -> None:
    assert isinstance(decoder().decode(entry((7, 0), -1, b"a")).content, PenstockError)
    found = decoder(Numbering.PLACE).decode(entry((7, 4), -1, b"a", b"b")).content
    assert isinstance(found, KafkaBatch)
    assert found.base_offset == packed(7, 4) and unpacked(found.base_offset + 1)[:3] == (7, 4, 1)
    # Ten minutes of a thousand entries a second, before which no broker begins another ledger.
    assert unpacked(packed((1 << 31) - 1, 600_000))[:3] == ((1 << 31) - 1, 600_000, 0)
    assert packed((1 << 31) - 1, (1 << 20) - 1) + 4095 < 1 << 63
    for place in ((7, 1 << 20), (1 << 31, 0)):
        with pytest.raises(Refused):
            packed(*place)
    largest = decoder(Numbering.PLACE).decode(entry((7, 4), -1, *[b""] * 4096)).content
    assert isinstance(largest, KafkaBatch) and largest.record_count == 4096
    larger = decoder(Numbering.PLACE).decode(entry((7, 4), -1, *[b""] * 4097)).content
    assert isinstance(larger, RejectedEntry) and larger.reason is Reason.UNNUMBERED


@pytest.mark.parametrize(
    ("before", "index", "kind"),
    [
        pytest.param((7, 0, 9), 12, "counted", id="right behind, three indexes"),
        pytest.param((7, 0, 9), 10, "one", id="right behind, one index"),
        pytest.param(None, 12, "undecided", id="nothing before"),
        pytest.param(None, 1, "one", id="too few indexes in all"),
    ],
)
def test_a_batch_of_a_transaction(before: tuple[int, int, int] | None, index: int, kind: str) -> None:
    decode = decoder().decode
    if before is not None:
        decode(entry(before[:2], before[2], b"x"))
    found = decode(entry((7, 1), index, b"a", b"b", b"c", txn=True)).content
    if kind == "undecided":
        assert isinstance(found, Undecided) and found.index_if_counted == index - 3
        assert isinstance(found.as_one, KafkaBatch)
        found = found.as_one
        kind = "one"
    assert isinstance(found, KafkaBatch) and found.record_count == 3
    offsets = (index, index + 1) if kind == "one" else (index - 2, index + 1)
    assert (found.base_offset, found.next_offset) == offsets


@pytest.mark.parametrize("said", [{}, {"encryption_algo": "AES"}], ids=["batch", "rejected"])
def test_a_batch_of_which_the_broker_was_told_too_little_is_read_whole(said: dict[str, Any]) -> None:
    """Its first messages would have the indexes of entries before it, and be passed by."""
    decode = decoder().decode
    decode(entry((7, 0), 9, b"x"))
    found = decode(entry((7, 1), 10, b"a", b"b", b"c", **said)).content
    assert isinstance(found, KafkaBatch | RejectedEntry)
    assert (found.base_offset, found.next_offset) == (10, 11)
    found = decoder().decode(entry((7, 0), 1, b"a", b"b", b"c", **said)).content
    assert isinstance(found, KafkaBatch | RejectedEntry) and found.base_offset == 1


def test_the_batch_that_a_range_begins_in_is_counted_by_the_broker() -> None:
    inside = EntryDecoder("t", 3, name="t", numbering=Numbering.INDEX, inflated=1 << 20, first=10)
    found = inside.decode(entry((7, 1), 10, b"a", b"b", b"c")).content
    assert isinstance(found, Undecided)
    assert found.settled(7) is found.settled(None) is found.counted
    assert found.settled(9) is found.as_one and found.as_one.base_offset == 10
    before = EntryDecoder("t", 3, name="t", numbering=Numbering.INDEX, inflated=1 << 20, first=8)
    assert isinstance(before.decode(entry((7, 1), 10, b"a", b"b", b"c")).content, KafkaBatch)


def test_a_rejected_entry_may_have_texts_that_are_none() -> None:
    """What a hostile producer writes is kept, and stops nobody."""
    delivery = entry((7, 0), 5, b"x", encryption_algo="AES")
    raw = bytes(delivery.entry.metadata)  # type: ignore[union-attr]
    raw += b"\x22\x08\x0a\x02k\xff\x12\x02v\xfe"  # a property
    raw += b"\x32\x02k\xff"  # the key
    raw += b"\x6a\x06\x0a\x01\xff\x12\x01v"  # an encryption key
    raw += b"\xd2\x01\x02u\xff"  # the uuid of a chunk
    checked = len(raw).to_bytes(4, "big") + raw + b"payload"
    outer = BrokerEntryMetadata(index=5).SerializeToString()
    data = memoryview(
        b"\x0e\x02"
        + len(outer).to_bytes(4, "big")
        + outer
        + b"\x0e\x01"
        + crc32c(checked).to_bytes(4, "big")
        + checked
    )
    rejected = decoder().decode(Delivery(MessageId(7, 0), 0, read_entry(data), data)).content
    assert isinstance(rejected, RejectedEntry)
    record = rejected.record()
    assert record.key == b"k\xff" and ("k\ufffd", b"v\xfe") in record.headers
    assert rejected.batch()


def test_records_are_sliced_and_put_at_one_offset() -> None:
    records = body_of([b"%d" % number for number in range(200)]).records
    part = slice_records(records, 150, 30)
    assert bytes(part) == b"".join(record_at(at, None, b"%d" % (150 + at)) for at in range(30))
    flat = at_one_offset(part, 30)
    assert bytes(flat) == b"".join(record_at(0, None, b"%d" % (150 + at)) for at in range(30))
    for first, count in ((190, 11), (0, 201)):
        with pytest.raises(RecordsError):
            slice_records(records, first, count)
    with pytest.raises(RecordsError):
        at_one_offset(b"\x10\x00", 1)


def test_a_body_becomes_an_entry() -> None:
    entry = body_to_entry(body_of([b"a", None]), now=9)
    assert (entry.num_messages, entry.publish_time, entry.keyless) == (2, 1_700_000_000_000, 2)
    with pytest.raises(RecordsError):
        body_to_entry(replace(body_of([b"a"]), count=9), now=9)


def test_ids_that_do_not_fit_are_refused() -> None:
    one = np.array([1], np.int64)
    assert sequence_ids(one * ((1 << 47) - 1), one * 65535).tolist() == [(1 << 63) - 1]
    for indexes, ordinals in ((one << 47, one), (one, one << 16), (-one, one), (one, -one)):
        with pytest.raises(Refused, match="sequence id"):
            sequence_ids(indexes, ordinals)
    assert len(sequence_ids(one[:0], one[:0])) == 0


def test_entries_between_that_readers_are_not_given_have_an_index_each() -> None:
    """Entry 3 with index 12: if 1 and 2 have 10 and 11, no room is left for three messages of its own."""
    for index, kind in ((12, KafkaBatch), (14, Undecided)):
        decode = decoder().decode
        decode(entry((7, 0), 9, b"x"))
        found = decode(entry((7, 3), index, b"a", b"b", b"c", txn=True)).content
        assert isinstance(found, kind)
        as_one = found.as_one if isinstance(found, Undecided) else found
        assert isinstance(as_one, KafkaBatch) and as_one.base_offset == index
