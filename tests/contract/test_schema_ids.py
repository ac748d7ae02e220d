"""Schema ids on the wire: golden bytes, round trips, and everything that is cut off or wrong."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.schema_ids import (
    IdKind,
    Part,
    SchemaId,
    decode_header,
    decode_payload,
    encode_apicurio_header,
    encode_confluent_header,
    encode_payload,
)
from penstock.errors import CannotEncode, InvalidEvent

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")

GOLDEN_PAYLOADS = [
    (SchemaId(number=1), 4, b"\x0e", "00 00000001 0e"),
    (SchemaId(number=0x7FFFFFFF), 4, b"", "00 7fffffff"),
    (SchemaId(number=1), 8, b"\x0e", "00 0000000000000001 0e"),
    (SchemaId(number=2**63 - 1), 8, b"", "00 7fffffffffffffff"),
    (SchemaId(guid=GUID), 4, b"\x0e", "01 89791762233641869674299b90a802e2 0e"),
]


@pytest.mark.parametrize(("schema_id", "width", "body", "hexed"), GOLDEN_PAYLOADS)
def test_golden_payloads(schema_id: SchemaId, width: int, body: bytes, hexed: str) -> None:
    raw = bytes.fromhex(hexed)
    assert encode_payload(schema_id, body, width=width) == raw
    assert decode_payload(raw, width=width) == (schema_id, body)


GOLDEN_HEADERS = [
    (encode_confluent_header(SchemaId(guid=GUID)), "__value_schema_id", "01" + GUID.hex),
    (encode_confluent_header(SchemaId(number=7), Part.KEY), "__key_schema_id", "0000000007"),
    (encode_apicurio_header(SchemaId(number=7)), "apicurio.value.contentId", "0000000000000007"),
    (
        encode_apicurio_header(SchemaId(number=7, kind=IdKind.GLOBAL_ID), Part.KEY),
        "apicurio.key.globalId",
        "0000000000000007",
    ),
]


@pytest.mark.parametrize(("header", "name", "hexed"), GOLDEN_HEADERS)
def test_golden_headers(header: tuple[str, bytes], name: str, hexed: str) -> None:
    assert header == (name, bytes.fromhex(hexed))


def test_headers_are_found_among_others_and_the_last_counts() -> None:
    headers = (("a", b"x"), ("__value_schema_id", b"\0\0\0\0\1"), ("__value_schema_id", b"\0\0\0\0\2"))
    assert decode_header(headers) == SchemaId(number=2)
    assert decode_header(headers, Part.KEY) is None
    assert decode_header((("apicurio.value.globalId", bytes(7) + b"\5"),)) == SchemaId(
        number=5, kind=IdKind.GLOBAL_ID
    )
    assert decode_header((("__value_schema_id", None),)) is None


@pytest.mark.parametrize(
    ("raw", "width"),
    [
        (b"", 4),
        (b"\x02\0\0\0\1", 4),
        (b"{", 4),
        (b"\0\0\0\1", 4),
        (b"\0\0\0\0\1", 8),
        (b"\1" + bytes(15), 4),
        (bytes(9), 5),
    ],
)
def test_wrong_payloads_are_invalid_events(raw: bytes, width: int) -> None:
    with pytest.raises(InvalidEvent):
        decode_payload(raw, width=width)


@pytest.mark.parametrize(
    "header",
    [
        ("__value_schema_id", b"\0\0\0\0\1\0"),
        ("__value_schema_id", b""),
        ("apicurio.value.contentId", b"\1"),
    ],
)
def test_wrong_headers_are_invalid_events(header: tuple[str, bytes]) -> None:
    with pytest.raises(InvalidEvent):
        decode_header((header,))


@pytest.mark.parametrize(
    ("schema_id", "width"),
    [
        (SchemaId(), 4),
        (SchemaId(number=-1), 4),
        (SchemaId(number=2**31), 4),
        (SchemaId(number=2**63), 8),
        (SchemaId(number=1), 2),
    ],
)
def test_ids_that_do_not_fit_cannot_be_encoded(schema_id: SchemaId, width: int) -> None:
    with pytest.raises(CannotEncode):
        encode_payload(schema_id, b"", width=width)


def test_apicurio_has_no_header_for_a_guid() -> None:
    with pytest.raises(CannotEncode):
        encode_apicurio_header(SchemaId(guid=GUID))


@given(st.integers(0, 2**31 - 1), st.binary(max_size=50), st.sampled_from([4, 8]))
def test_payload_round_trip(number: int, body: bytes, width: int) -> None:
    raw = encode_payload(SchemaId(number=number), body, width=width)
    assert decode_payload(raw, width=width) == (SchemaId(number=number), body)


@given(st.binary(max_size=30), st.sampled_from([4, 8]))
def test_any_payload_is_an_id_or_an_invalid_event(raw: bytes, width: int) -> None:
    try:
        schema_id, body = decode_payload(raw, width=width)
    except InvalidEvent:
        return
    if schema_id.number is None or schema_id.number < 1 << (8 * width - 1):
        assert encode_payload(schema_id, body, width=width) == raw


def test_confluents_own_client_writes_the_same_bytes() -> None:
    serde = pytest.importorskip("confluent_kafka.schema_registry.common.serde")
    assert encode_payload(SchemaId(number=1), b"") == serde.SchemaId("AVRO", 1).id_to_bytes()
    assert encode_payload(SchemaId(guid=GUID), b"") == serde.SchemaId("AVRO", guid=str(GUID)).guid_to_bytes()
