"""Frames out of a stream that comes in any pieces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire.framing import FrameBuffer


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_frames_do_not_depend_on_how_the_bytes_come(bodies: list[bytes], pieces: list[int]) -> None:
    stream = framed(bodies)
    copied, direct = FrameBuffer(limit=300, first=16), FrameBuffer(limit=300, first=16)
    seen: dict[str, list[bytes]] = {"copied": [], "direct": []}
    pos = turn = 0
    while pos < len(stream):
        piece = stream[pos : pos + pieces[turn % len(pieces)]]
        copied.receive(piece)
        seen["copied"] += map(bytes, copied.frames())
        room = direct.writable()
        taken = piece[: len(room)]
        room[: len(taken)] = taken
        direct.wrote(len(taken))
        seen["direct"] += map(bytes, direct.frames())
        if len(taken) < len(piece):
            direct.receive(piece[len(taken) :])
            seen["direct"] += map(bytes, direct.frames())
        pos += len(piece)
        turn += 1
    assert seen == {"copied": bodies, "direct": bodies}
    assert len(copied) == len(direct) == 0


@pytest.mark.parametrize("size", [-1, 301, 2**31 - 1, -(2**31)])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    buffer = FrameBuffer(limit=300)
    buffer.receive(framed([b"good"]) + struct.pack(">i", size))
    frames = buffer.frames()
    assert bytes(next(frames)) == b"good"
    with pytest.raises(WireError, match=f"{size} bytes"):
        next(frames)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x16\x03\x01\x02", "a TLS handshake on a port without TLS"),
        (b"\x16\x03\x03\x00", "a TLS handshake on a port without TLS"),
        (b"GET / HTTP/1.1", "a peer sends HTTP"),
    ],
)
def test_another_protocol_is_recognized(first: bytes, said: str) -> None:
    buffer = FrameBuffer(limit=300)
    buffer.receive(first)
    with pytest.raises(WireError, match=said):
        next(buffer.frames())


def test_an_announced_size_takes_no_memory() -> None:
    buffer = FrameBuffer(limit=1 << 30, first=1024)
    buffer.receive(struct.pack(">i", 1 << 29))
    assert list(buffer.frames()) == []
    assert len(buffer.writable()) < 10_000


def test_a_large_frame_gives_its_memory_back() -> None:
    buffer = FrameBuffer(limit=1 << 20, first=1024)
    buffer.receive(framed([bytes(1 << 19)]))
    assert [len(frame) for frame in buffer.frames()] == [1 << 19]
    assert len(buffer.writable()) == 1024


def test_a_frame_stays_valid_while_the_frames_of_one_arrival_are_read() -> None:
    buffer = FrameBuffer(limit=100, first=32)
    buffer.receive(framed([b"one", b"two", b"three"]))
    assert [bytes(frame) for frame in list(buffer.frames())] == [b"one", b"two", b"three"]


def test_what_is_missing_is_counted_once_the_size_is_there() -> None:
    buffer = FrameBuffer(limit=100)
    found = []
    for byte in framed([b"three"]):
        buffer.receive(bytes([byte]))
        found.append(buffer.missing)
    assert found == [0, 0, 0, 5, 4, 3, 2, 1, 0]
    assert [bytes(frame) for frame in buffer.frames()] == [b"three"]
    assert buffer.missing == 0
    buffer.receive(struct.pack(">i", 101))
    with pytest.raises(WireError):
        _ = buffer.missing
