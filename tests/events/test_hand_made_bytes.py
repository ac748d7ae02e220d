"""Avro and Protobuf events as bytes written by hand: reader and writer cannot be wrong in the same way."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent, Level, absent
from penstock.events.formats import AvroFormat, ProtobufFormat


def text(value: str) -> bytes:
    """An Avro string of less than 64 bytes: its length as a zigzag number, then its bytes."""
    return bytes([2 * len(value)]) + value.encode()


def entry(name: str, value: str) -> bytes:
    return text(name) + b"\x06" + text(value)  # branch 3, zigzag 6: string


CORE = entry("id", "1") + entry("source", "/s") + entry("type", "t") + entry("specversion", "1.0")
NULL, NO_DATA = b"\x00", b"\x02"  # the end of the map; branch 1 of the data union


@pytest.mark.parametrize(
    "blocks",
    [
        b"\x08" + CORE,  # one block of four
        b"\x04"
        + CORE[: len(entry("id", "1") + entry("source", "/s"))]
        + b"\x04"
        + CORE[len(entry("id", "1") + entry("source", "/s")) :],  # two blocks of two
        b"\x07" + bytes([2 * len(CORE)]) + CORE if len(CORE) < 64 else b"",  # -4, and the size of the block
    ],
)
def test_an_avro_map_in_blocks(blocks: bytes) -> None:
    event = AvroFormat().decode(blocks + NULL + NO_DATA)
    assert event.attributes == {"id": "1", "source": "/s", "type": "t", "specversion": "1.0"}
    assert event.data is absent


@pytest.mark.parametrize(
    ("branch", "value"),
    [(b"\x02\x01", True), (b"\x02\x00", False), (b"\x04\x0a", 5), (b"\x04\x09", -5), (b"\x08\x02a", b"a")],
)
def test_types_of_avro_attributes(branch: bytes, value: object) -> None:
    raw = b"\x0a" + CORE + text("ext") + branch + NULL + NO_DATA
    assert AvroFormat().decode(raw).value("ext") == value


@pytest.mark.parametrize("more", [b"\x00", b"\x02", b"x" * 10])
def test_bytes_behind_an_avro_event(more: bytes) -> None:
    with pytest.raises(InvalidEvent, match="follow"):
        AvroFormat().decode(b"\x08" + CORE + NULL + NO_DATA + more)


def test_an_avro_event_that_ends_early() -> None:
    whole = b"\x08" + CORE + NULL + NO_DATA
    for size in range(len(whole)):
        with pytest.raises(InvalidEvent):
            AvroFormat().decode(whole[:size])


def field(number: int, raw: bytes) -> bytes:
    """A Protobuf field of bytes: its tag with wire type 2, its length, its content."""
    return bytes([number << 3 | 2, len(raw)]) + raw


PROTO = field(1, b"1") + field(2, b"/s") + field(3, b"1.0") + field(4, b"t")


def attribute(name: str, value: bytes) -> bytes:
    return field(5, field(1, name.encode()) + field(2, value))


def test_a_protobuf_event() -> None:
    event = ProtobufFormat().decode(PROTO + field(6, b"\x00\x01"))
    assert event == CloudEvent({"id": "1", "source": "/s", "type": "t"}, b"\x00\x01")


@pytest.mark.parametrize(
    ("value", "native"),
    [
        (b"\x08\x01", True),  # ce_boolean
        (b"\x10\x05", 5),  # ce_integer
        (b"\x10\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01", -5),
        (field(3, b"x"), "x"),  # ce_string
        (field(4, b"\x01"), b"\x01"),  # ce_bytes
        (b"\x08\x01" + field(3, b"last"), "last"),  # a oneof that is repeated: the last one holds
        (field(3, b"first") + b"\x10\x07", 7),
    ],
)
def test_attributes_of_protobuf(value: bytes, native: object) -> None:
    event = ProtobufFormat().decode(PROTO + attribute("ext", value))
    assert event.value("ext") == native


def timestamp(seconds: int) -> bytes:
    raw, number = b"", seconds & (1 << 64) - 1
    while number > 0x7F:
        raw, number = raw + bytes([number & 0x7F | 0x80]), number >> 7
    return field(7, b"\x08" + raw + bytes([number]))


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-62_135_596_800, "0001-01-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (-62_135_596_801, None),  # the year 0000
        (253_402_300_800, None),  # the year 10000
    ],
)
def test_the_ends_of_protobufs_time(seconds: int, written: str | None) -> None:
    raw = PROTO + attribute("ext", timestamp(seconds))
    if written is None:
        with pytest.raises(InvalidEvent):
            ProtobufFormat().decode(raw)
    else:
        assert ProtobufFormat().decode(raw).get("ext") == written


def test_an_avro_event_of_very_many_attributes_is_refused_soon() -> None:
    many = b"".join(entry(f"a{n:05d}", "x") for n in range(60_000))
    with pytest.raises(InvalidEvent, match="more than 1000 attributes"):
        AvroFormat().decode(b"\xc0\xa9\x07" + many + NULL + NO_DATA)


def test_a_protobuf_event_of_very_many_attributes_is_refused_soon() -> None:
    many = b"".join(attribute(f"a{n}", field(3, b"x")) for n in range(1001))
    with pytest.raises(InvalidEvent, match="more than 1000 attributes"):
        ProtobufFormat().decode(PROTO + many)
    few = b"".join(attribute(f"a{n}", field(3, b"x")) for n in range(996))
    assert len(ProtobufFormat().decode(PROTO + few).attributes) == 1000


def test_findings_are_bounded() -> None:
    many = b"".join(attribute("A", field(3, b"x")) for n in range(900))
    reading = ProtobufFormat().read(PROTO + many, Level.FORENSIC)
    assert len(reading.findings) < 110


@pytest.mark.parametrize(
    ("dataschema", "number"),
    [
        ("https://type.googleapis.com/io.shop.Order", 8),
        ("https://shop.example/Order", 8),
        ("https://shop.example/schemas/order/1", 6),
        ("https://shop.example/order-v1", 6),
        ("urn:schema:5", 6),
        ("https://shop.example/Order?version=2", 6),
    ],
)
def test_data_is_a_protobuf_message_only_with_the_url_of_its_type(dataschema: str, number: int) -> None:
    attributes = {"datacontenttype": "application/protobuf", "dataschema": dataschema}
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", **attributes}, b"\x08\x01")
    raw = ProtobufFormat().encode(event)
    assert raw.endswith(field(6, b"\x08\x01")) is (number == 6)
    assert ProtobufFormat().decode(raw) == event
