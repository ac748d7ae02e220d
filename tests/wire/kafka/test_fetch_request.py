"""Fetch requests read by hand, against kio."""

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
from penstock.wire.kafka import APIS, decode_fetch, decode_request_header
from penstock.wire.kafka.apis import FETCH, is_flexible
from penstock.wire.kafka.fetch_request import FetchRequest, PartitionToFetch, TopicToFetch

VERSIONS = range(APIS[FETCH].lowest, APIS[FETCH].highest + 1)
numbers = st.integers(0, 1 << 30)
partitions = st.builds(PartitionToFetch, numbers, st.integers(-5, 1 << 60), numbers)
topics = st.builds(TopicToFetch, st.text(max_size=8), st.uuids(), st.lists(partitions, max_size=3).map(tuple))
requests = st.builds(
    FetchRequest, numbers, numbers, numbers, numbers, st.lists(topics, max_size=3).map(tuple)
)


def head(version: int) -> bytes:
    return struct.pack(">hhih", FETCH, version, 7, -1) + (b"\0" if is_flexible(FETCH, version) else b"")


def written(request: FetchRequest, version: int) -> bytes:
    """Write a request by kio, every field that is not read set to something."""
    module: Any = load_payload_module(FETCH, version, EntityType.request)

    def only(cls: Any, **fields: Any) -> Any:
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})

    def topic(asked: TopicToFetch) -> Any:
        rows = tuple(
            only(
                module.FetchPartition,
                partition=each.partition,
                current_leader_epoch=3,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=4,
                log_start_offset=5,
                partition_max_bytes=each.partition_max_bytes,
            )
            for each in asked.partitions
        )
        return only(module.FetchTopic, topic=asked.name, topic_id=asked.topic_id, partitions=rows)

    made = only(
        module.FetchRequest,
        replica_id=-1,
        max_wait=datetime.timedelta(milliseconds=request.max_wait_ms),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=1,
        session_id=request.session_id,
        session_epoch=9,
        topics=tuple(map(topic, request.topics)),
        forgotten_topics_data=(),
        rack_id="rack",
    )
    out = io.BytesIO()
    entity_writer(type(made))(out, made)
    return head(version) + out.getvalue()


@given(requests)
def test_every_version_that_kio_writes_is_read(request: FetchRequest) -> None:
    for version in VERSIONS:
        frame = memoryview(written(request, version))
        named = tuple(
            topic._replace(name="") if version >= 13 else topic._replace(topic_id=None)
            for topic in request.topics
        )
        session = request.session_id if version >= 7 else 0
        expected = request._replace(topics=named, session_id=session)
        assert decode_fetch(decode_request_header(frame), frame) == expected


@pytest.mark.parametrize("version", [4, 11, 18])
def test_every_cut_is_refused(version: int) -> None:
    one = TopicToFetch("topic", None, (PartitionToFetch(0, 1, 2),))
    if version >= 13:
        one = one._replace(topic_id=UUID(int=7))
    data = written(FetchRequest(1, 2, 3, 0, (one,)), version)
    for end in range(len(head(version)), len(data)):
        frame = memoryview(data[:end])
        with pytest.raises(WireError):
            decode_fetch(decode_request_header(frame), frame)


@given(st.binary(max_size=200), st.sampled_from(list(VERSIONS)))
def test_any_bytes_are_read_or_refused(body: bytes, version: int) -> None:
    frame = memoryview(head(version) + body)
    longer = memoryview(bytes(frame) + b"xyz")
    try:
        found = decode_fetch(decode_request_header(frame), frame)
    except WireError:
        return
    # What was read does not depend on what lies behind it, and was not made up: the bytes are there.
    assert found == decode_fetch(decode_request_header(longer), longer)
    assert sum(len(topic.partitions) for topic in found.topics) * 16 <= len(body)


def test_another_api_is_refused() -> None:
    frame = memoryview(struct.pack(">hhih", 0, 9, 7, -1) + b"\0")
    with pytest.raises(WireError, match="no Fetch request"):
        decode_fetch(decode_request_header(frame), frame)
