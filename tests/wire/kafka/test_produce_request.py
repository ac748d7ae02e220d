"""Produce requests without a copy, against kio."""

from __future__ import annotations

import datetime
import io
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from penstock.errors import WireError
from penstock.wire.kafka import APIS, decode_produce, decode_request_header
from penstock.wire.kafka import produce_request as module
from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.produce_request import PartitionToProduce, ProduceRequest, TopicToProduce

partitions = st.builds(
    PartitionToProduce, st.integers(0, 1 << 30), st.none() | st.binary(max_size=300).map(memoryview)
)
topics = st.builds(
    TopicToProduce, st.text(max_size=8), st.uuids(), st.lists(partitions, max_size=3).map(tuple)
)
requests = st.builds(
    ProduceRequest,
    st.none() | st.text(max_size=200),
    st.integers(-1, 1),
    st.integers(0, 1 << 30),
    st.lists(topics, max_size=3).map(tuple),
)


def head(version: int) -> bytes:
    return struct.pack(">hhih", 0, version, 7, -1) + (b"\0" if is_flexible(0, version) else b"")


def as_kio(request: ProduceRequest, version: int) -> Any:
    module: Any = load_payload_module(0, version, EntityType.request)

    def topic(given_topic: TopicToProduce) -> Any:
        which = {"topic_id": given_topic.topic_id} if version >= 13 else {"name": given_topic.name}
        return module.TopicProduceData(
            partition_data=tuple(
                module.PartitionProduceData(
                    index=part.partition, records=None if part.records is None else bytes(part.records)
                )
                for part in given_topic.partitions
            ),
            **which,
        )

    return module.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout=datetime.timedelta(milliseconds=request.timeout_ms),
        topic_data=tuple(map(topic, request.topics)),
    )


def check_every_version(request: ProduceRequest) -> None:
    for version in range(APIS[0].lowest, APIS[0].highest + 1):
        out = io.BytesIO()
        expected = as_kio(request, version)
        entity_writer(type(expected))(out, expected)
        frame = memoryview(head(version) + out.getvalue())
        named = tuple(
            topic._replace(name="") if version >= 13 else topic._replace(topic_id=None)
            for topic in request.topics
        )
        assert decode_produce(decode_request_header(frame), frame) == request._replace(topics=named)


@given(requests)
def test_every_version_that_kio_writes_is_read(request: ProduceRequest) -> None:
    check_every_version(request)


plain = st.builds(
    ProduceRequest,
    st.none(),
    st.integers(-1, 1),
    st.integers(0, 1 << 30),
    st.builds(
        lambda name, topic_id, records: (
            TopicToProduce(name, topic_id, (PartitionToProduce(3, memoryview(records)),)),
        ),
        st.text(max_size=200),
        st.uuids(),
        st.binary(max_size=300),
    ),
)


@given(plain)
def test_one_batch_for_one_partition_is_read_at_once(request: ProduceRequest) -> None:
    check_every_version(request)


def outcome(decode: Any, frame: memoryview) -> Any:
    try:
        return decode(decode_request_header(frame), frame)
    except WireError as exc:
        return str(exc)


@given(plain, st.integers(3, 13), st.data())
def test_the_quick_way_reads_and_refuses_as_the_thorough_one(
    request: ProduceRequest, version: int, data: st.DataObject
) -> None:
    out = io.BytesIO()
    written = as_kio(request, version)
    entity_writer(type(written))(out, written)
    frame = bytearray(head(version) + out.getvalue())
    for at in data.draw(st.lists(st.integers(len(head(version)), len(frame) - 1), max_size=3)):
        frame[at] = data.draw(st.integers(0, 255))
    view = memoryview(frame)[: data.draw(st.integers(len(head(version)), len(frame)))]
    assert outcome(decode_produce, view) == outcome(module._thorough, view)


def test_the_records_are_not_copied() -> None:
    body = struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 3) + b"abc"
    frame = memoryview(bytearray(head(3) + body))
    records = decode_produce(decode_request_header(frame), frame).topics[0].partitions[0].records
    assert records is not None
    assert records == b"abc"
    frame[-1] = ord("x")
    assert records == b"abx"


def test_tagged_fields_are_skipped() -> None:
    tags = b"\x01\x09\x02xy"
    partition = struct.pack(">i", 4) + b"\x04abc" + tags
    body = b"\0" + struct.pack(">hi", 1, 5) + b"\x02" + b"\x02t" + b"\x02" + partition + tags + tags
    frame = memoryview(head(9) + body)
    assert decode_produce(decode_request_header(frame), frame) == ProduceRequest(
        None, 1, 5, (TopicToProduce("t", None, (PartitionToProduce(4, memoryview(b"abc")),)),)
    )


def test_every_cut_is_refused() -> None:
    body = struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 3) + b"abc"
    whole = head(3) + body
    for size in range(len(head(3)), len(whole)):
        frame = memoryview(whole[:size])
        with pytest.raises(WireError):
            decode_produce(decode_request_header(frame), frame)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    frame = memoryview(head(3) + struct.pack(">hhii", -1, -1, 1000, 1) + b"\0\1\xff" + bytes(4))
    with pytest.raises(WireError, match="not UTF-8"):
        decode_produce(decode_request_header(frame), frame)


@pytest.mark.parametrize("version", [2, 14])
def test_other_versions_and_apis_are_refused(version: int) -> None:
    for frame in (struct.pack(">hhih", 0, version, 1, -1), struct.pack(">hhih", 3, 0, 1, -1)):
        with pytest.raises(WireError):
            decode_produce(decode_request_header(memoryview(frame)), memoryview(frame))


@given(st.binary(max_size=80), st.sampled_from([3, 8, 9, 13]))
def test_any_bytes_are_read_or_refused(body: bytes, version: int) -> None:
    frame = memoryview(head(version) + body)
    try:
        assert isinstance(decode_produce(decode_request_header(frame), frame), ProduceRequest)
    except WireError as error:
        assert "Produce" in str(error)


def test_a_topic_id_is_sixteen_bytes() -> None:
    name = UUID(int=5)
    frame = memoryview(head(13) + b"\0" + struct.pack(">hi", 1, 5) + b"\x02" + name.bytes + b"\x01\0\0")
    assert decode_produce(decode_request_header(frame), frame).topics == (TopicToProduce("", name, ()),)
