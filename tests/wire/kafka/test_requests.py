"""Request headers against kio's, bodies of every API and version against hostile bytes."""

from __future__ import annotations

import io
import struct
from dataclasses import fields, is_dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from penstock.errors import WireError
from penstock.wire.kafka import APIS, RequestHeader, decode_request, decode_request_header
from penstock.wire.kafka.apis import is_flexible

EVERY = [(api.key, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]


def header_bytes(key: int, version: int, correlation: int, client: str | None) -> bytes:
    out = io.BytesIO()
    values = {
        "request_api_key": i16(key),
        "request_api_version": i16(version),
        "correlation_id": i32(correlation),
        "client_id": client,
    }
    if is_flexible(key, version):
        entity_writer(HeaderV2)(out, HeaderV2(**values))  # type: ignore[arg-type]
    else:
        entity_writer(HeaderV1)(out, HeaderV1(**values))  # type: ignore[arg-type]
    return out.getvalue()


@given(
    st.sampled_from(EVERY),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text(max_size=20),
    st.binary(max_size=5),
)
def test_a_header_is_what_kio_wrote(
    api: tuple[int, int], correlation: int, client: str | None, body: bytes
) -> None:
    data = header_bytes(*api, correlation, client)
    assert decode_request_header(memoryview(data + body)) == RequestHeader(
        api_key=api[0],
        api_version=api[1],
        correlation_id=correlation,
        client_id=client,
        body=len(data),
    )


def test_header_and_flexibility_are_those_of_kio() -> None:
    for api in EVERY:
        schema = load_request_schema(*api)
        assert is_flexible(*api) == schema.__flexible__, api
        assert schema.__header_schema__ is (HeaderV2 if is_flexible(*api) else HeaderV1), api


@pytest.mark.parametrize(
    "api", [(18, 5), (18, 99), (18, -1), (0, 2), (0, 14), (1, 3), (4, 0), (999, 0), (-1, 7)]
)
def test_an_unknown_api_or_version_keeps_its_correlation_id(api: tuple[int, int]) -> None:
    header = decode_request_header(memoryview(struct.pack(">hhi", *api, 77) + b"\xff\xfejunk"))
    assert (header.api_key, header.api_version, header.correlation_id) == (*api, 77)
    assert not header.supported
    with pytest.raises(WireError):
        decode_request(header, memoryview(b""))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 3, 12, 1, -1) + b"\x02" + b"\x00\x01x" + b"\x81\x01\x02yy" + b"body"
    header = decode_request_header(memoryview(frame))
    assert frame[header.body :] == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(7),
        struct.pack(">hhih", 3, 0, 1, 5) + b"abc",
        struct.pack(">hhih", 3, 0, 1, -2),
        struct.pack(">hhih", 3, 0, 1, 1) + b"\xff",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x00\x7f",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\xff\x01",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_a_broken_header_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode_request_header(memoryview(frame))


def metadata_request() -> tuple[MetadataRequest, bytes]:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName("orders")),),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    out = io.BytesIO()
    entity_writer(MetadataRequest)(out, request)
    return request, header_bytes(3, 12, 9, "me") + out.getvalue()


def test_a_body_is_read_by_kio() -> None:
    request, data = metadata_request()
    frame = memoryview(data)
    assert decode_request(decode_request_header(frame), frame) == request


def test_tagged_fields_that_nobody_knows_are_ignored() -> None:
    request, data = metadata_request()
    # Tag 9 with two bytes and tag 300 with none, in the topic and at the end.
    tags = b"\x02\x09\x02xy\xac\x02\x00"
    assert data.endswith(b"\0\x01\0\0")
    frame = memoryview(data[:-4] + tags + data[-3:-1] + tags)
    assert decode_request(decode_request_header(frame), frame) == request


def test_tagged_fields_that_are_known_are_read() -> None:
    # Fetch v12: replica, wait, least, most, isolation, session, epoch, topics, forgotten, rack, tag 0.
    body = (
        struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0)
        + b"\x01\x01\x01"
        + b"\x01\x00\x03\x02id"[:2]
        + b"\x03\x03id"
    )
    frame = memoryview(header_bytes(1, 12, 1, None) + body)
    assert decode_request(decode_request_header(frame), frame).cluster_id == "id"


def test_what_follows_a_body_is_ignored() -> None:
    expected, data = metadata_request()
    frame = memoryview(data + b"xyz")
    assert decode_request(decode_request_header(frame), frame) == expected


@given(st.binary(max_size=60), st.lists(st.sampled_from(EVERY), min_size=10, max_size=10))
def test_any_bytes_as_a_body_are_read_or_refused(body: bytes, apis: list[tuple[int, int]]) -> None:
    for key, version in apis:
        frame = memoryview(header_bytes(key, version, 1, None) + body)
        longer = memoryview(bytes(frame) + b"xyz")
        try:
            found = decode_request(decode_request_header(frame), frame)
        except WireError:
            continue
        # What was read does not depend on what lies behind it.
        assert found == decode_request(decode_request_header(longer), longer)


def test_giant_lengths_are_refused_and_do_not_end_the_process() -> None:
    # kio alone reserves memory for 2**32 elements here and is aborted.
    refused = set()
    for api in EVERY:
        head = header_bytes(*api, 1, None)
        for body in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07" * 4, b"\x80" * 12):
            frame = memoryview(head + body)
            try:
                decode_request(decode_request_header(frame), frame)
            except WireError:
                refused.add((*api, body))
    # A body without a length in front may be read; what follows it is ignored.
    assert len(refused) > 3 * len(EVERY)
    assert (3, 13, b"\xff\xff\xff\xff\x0f") in refused


def test_a_request_with_very_many_elements_is_refused() -> None:
    frame = memoryview(header_bytes(3, 1, 1, None) + struct.pack(">i", 300_000) + bytes(600_000))
    with pytest.raises(WireError, match="more than 262144 elements"):
        decode_request(decode_request_header(frame), frame)


def test_every_cut_of_a_body_is_refused() -> None:
    _, data = metadata_request()
    begin = decode_request_header(memoryview(data)).body
    assert begin is not None
    for size in range(begin, len(data)):
        frame = memoryview(data[:size])
        with pytest.raises(WireError):
            decode_request(decode_request_header(frame), frame)


class Guess:
    """Values for kio's classes, of every shape a field can have."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def entity(self, schema: Any) -> Any:
        return schema(
            **{field.name: self.field(field) for field in fields(schema) if "tag" not in field.metadata}
        )

    def field(self, field: Any) -> Any:
        choices = get_args(field.type)
        if NoneType in choices and self.draw(st.booleans()):
            return None
        kind = (
            next(choice for choice in choices if choice is not NoneType)
            if NoneType in choices
            else field.type
        )
        if get_origin(kind) is not tuple:
            return self.one(kind)
        return tuple(self.one(get_args(kind)[0]) for _ in range(self.draw(st.integers(0, 2))))

    def one(self, kind: Any) -> Any:
        if is_dataclass(kind):
            return self.entity(kind)
        for base, values in SAMPLES.items():
            if issubclass(kind, base):
                return self.draw(values)
        raise AssertionError(kind)


SAMPLES: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(0, 100),
    float: st.just(1.5),
    str: st.text(max_size=5),
    bytes: st.binary(max_size=300),
    UUID: st.uuids(),
    timedelta: st.integers(0, 1000).map(lambda value: timedelta(milliseconds=value)),
}


@given(st.data())
def test_every_request_that_kio_writes_is_read_back(data: st.DataObject) -> None:
    api = data.draw(st.sampled_from(EVERY))
    request = Guess(data.draw).entity(load_request_schema(*api))
    out = io.BytesIO()
    entity_writer(type(request))(out, request)
    frame = memoryview(header_bytes(*api, 1, None) + out.getvalue())
    assert decode_request(decode_request_header(frame), frame) == request
