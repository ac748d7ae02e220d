"""The framed form: golden bytes, every way to break it, and that it gives back what it was given."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.event import Event
from penstock.events.framing import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Frame,
    event_of_frame,
    frame,
    frame_of_event,
    is_frame,
    unframe,
)
from penstock.record import Headers

GOLDEN: list[tuple[Frame, str]] = [
    (Frame(), "ce455601 00 00000000"),
    (Frame((), b""), "ce455601 01 00000000"),
    (Frame((), b"hi"), "ce455601 01 00000000 6869"),
    (Frame((("a", b"1"),)), "ce455601 00 00000008 0001 61 00000001 31"),
    (Frame((("a", None),), b"x"), "ce455601 01 00000007 0001 61 ffffffff 78"),
    (
        Frame((("a", b""), ("é", b"\xff"), ("a", b"2")), b"\x00"),
        "ce455601 01 00000018 0001 61 00000000 0002 c3a9 00000001 ff 0001 61 00000001 32 00",
    ),
    (Frame((("", b"1"),)), "ce455601 00 00000007 0000 00000001 31"),
]


@pytest.mark.parametrize(("content", "golden"), GOLDEN, ids=[row[1] for row in GOLDEN])
def test_golden(content: Frame, golden: str) -> None:
    raw = bytes.fromhex(golden)
    assert frame(content.headers, content.body) == raw
    assert unframe(raw) == content
    assert is_frame(raw)


@pytest.mark.parametrize(
    ("golden", "where"),
    [
        ("", "byte 0"),
        ("ce4556", "byte 0"),
        ("ce455601 01 000000", "byte 0"),
        ("7b226964 22 3a223122", "byte 0"),
        ("ce455602 01 00000000", "byte 0"),
        ("ce455601 02 00000000", "byte 4"),
        ("ce455601 81 00000000", "byte 4"),
        ("ce455601 01 00000001", "byte 5"),
        ("ce455601 01 ffffffff 00", "byte 5"),
        ("ce455601 00 00000000 78", "byte 9"),
        ("ce455601 01 00000001 00", "byte 9"),
        ("ce455601 01 00000003 0002 61 62 63", "byte 9"),
        ("ce455601 01 00000003 0001 61", "byte 12"),
        ("ce455601 01 00000007 0001 61 00000001 31", "byte 12"),
        ("ce455601 01 00000008 0001 ff 00000001 31", "byte 17"),
    ],
)
def test_broken_frames_say_where(golden: str, where: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        unframe(bytes.fromhex(golden))
    assert caught.value.attribute == where


def test_the_number_of_headers_is_bounded() -> None:
    many = tuple(("h", b"") for _ in range(MAX_HEADERS))
    assert unframe(frame(many, None)).headers == many
    with pytest.raises(CannotEncode, match="headers"):
        frame((*many, ("h", b"")), None)
    section = struct.pack(">H1sI", 1, b"h", 0) * (MAX_HEADERS + 1)
    with pytest.raises(InvalidEvent, match=str(MAX_HEADERS)):
        unframe(struct.pack(">4sBI", b"\xceEV\x01", 0, len(section)) + section)


def test_the_size_of_headers_is_bounded() -> None:
    with pytest.raises(CannotEncode, match="bytes"):
        frame((("h", b"x" * MAX_HEADER_BYTES),), None)
    with pytest.raises(InvalidEvent, match="header length"):
        unframe(b"\xceEV\x01\x01" + struct.pack(">I", MAX_HEADER_BYTES + 1) + b"x" * (MAX_HEADER_BYTES + 1))


@pytest.mark.parametrize("name", ["x" * 65536, "\ud800"])
def test_names_that_cannot_be_framed(name: str) -> None:
    with pytest.raises(CannotEncode, match="header name"):
        frame(((name, b""),), None)


def test_events_in_frames() -> None:
    event = Event("orders", [("event-id", "1"), ("x", None), ("X", b"\xff")], b"body")
    assert event_of_frame(frame_of_event(event), "orders") == event
    with pytest.raises(CannotEncode, match="attributes"):
        frame_of_event(Event("orders", attributes={"n": 1}))


def test_other_payloads_are_no_frames() -> None:
    assert [is_frame(payload) for payload in (None, b"", b"{}", b"\xceEV", b"\xceEV\x02")] == [False] * 5


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=8).map(tuple)


@given(HEADERS, st.none() | st.binary(max_size=50))
def test_what_goes_in_comes_out(headers: Headers, body: bytes | None) -> None:
    assert unframe(frame(headers, body)) == Frame(headers, body)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\xceEV\x01" + tail))
def test_any_bytes_are_a_frame_or_a_typed_error(payload: bytes) -> None:
    try:
        content = unframe(payload)
    except InvalidEvent:
        return
    assert frame(content.headers, content.body) == payload


@given(HEADERS, st.binary(max_size=20), st.data())
def test_a_frame_that_was_cut_is_never_read_as_more(
    headers: Headers, body: bytes, data: st.DataObject
) -> None:
    raw = frame(headers, body)
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        content = unframe(cut)
    except InvalidEvent:
        return
    assert content.headers == headers
    assert content.body is not None and body.startswith(content.body)
