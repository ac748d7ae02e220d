"""One payload for carriers without headers: header length, headers, body (spec 004, Event Message).

Layout, all numbers big-endian:

    0  3 bytes   magic CE 45 56
    3  1 byte    version, 1
    4  1 byte    flags: bit 0 is set if there is a body, which may be empty; the others are 0
    5  4 bytes   length of the headers in bytes
    9  headers   one after another: name length (2), name in UTF-8, value length (4), value;
                 the value length FFFFFFFF is a null value
       body      the rest
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.event import Event
from penstock.record import Header, Headers

__all__ = [
    "MAGIC",
    "MAX_HEADERS",
    "MAX_HEADER_BYTES",
    "Frame",
    "event_of_frame",
    "frame",
    "frame_of_event",
    "is_frame",
    "unframe",
]

MAGIC = b"\xceEV\x01"
"""Three bytes of magic and the version; no UTF-8 text starts with them."""
MAX_HEADERS = 1024
MAX_HEADER_BYTES = 1 << 20

_PREAMBLE = struct.Struct(">4sBI")
_NAME = struct.Struct(">H")
_VALUE = struct.Struct(">I")
_NULL = 0xFFFFFFFF
_BODY = 1
_CLAUSE = "spec 004: within the payload have header length, header, body"


@dataclass(frozen=True, slots=True)
class Frame:
    """What a framed payload holds."""

    headers: Headers = ()
    body: bytes | None = None


def frame(headers: Headers, body: bytes | None) -> bytes:
    r"""Write headers and body as one payload.

    >>> frame((("event-id", b"7"),), b"hi")
    b'\xceEV\x01\x01\x00\x00\x00\x0f\x00\x08event-id\x00\x00\x00\x017hi'
    """
    if len(headers) > MAX_HEADERS:
        raise CannotEncode(f"{len(headers)} headers; a frame holds {MAX_HEADERS}", why=_CLAUSE)
    section = b"".join(_header_bytes(header) for header in headers)
    if len(section) > MAX_HEADER_BYTES:
        raise CannotEncode(f"{len(section)} bytes of headers; a frame holds {MAX_HEADER_BYTES}", why=_CLAUSE)
    flags = 0 if body is None else _BODY
    return _PREAMBLE.pack(MAGIC, flags, len(section)) + section + (body or b"")


def _header_bytes(header: Header) -> bytes:
    name, value = header
    try:
        encoded = name.encode()
        length = _NAME.pack(len(encoded))
    except (UnicodeEncodeError, struct.error) as exc:
        raise CannotEncode(
            f"the header name {name!r:.60} cannot be framed", why="UTF-8, 65535 bytes"
        ) from exc
    if value is None:
        return length + encoded + _VALUE.pack(_NULL)
    return length + encoded + _VALUE.pack(len(value)) + value


def is_frame(payload: bytes | None) -> bool:
    """Tell whether a payload claims to be framed."""
    return payload is not None and payload[: len(MAGIC)] == MAGIC


def unframe(payload: bytes) -> Frame:
    """Read a framed payload; InvalidEvent says at which byte it is broken."""
    if len(payload) < _PREAMBLE.size or not is_frame(payload):
        raise _broken("no frame of version 1 begins here", 0)
    _, flags, length = _PREAMBLE.unpack_from(payload)
    if flags not in (0, _BODY):
        raise _broken(f"unknown flags {flags:#04x}", 4)
    end = _PREAMBLE.size + length
    if length > MAX_HEADER_BYTES or end > len(payload):
        raise _broken(f"a header length of {length} in a payload of {len(payload)} bytes", 5)
    if flags != _BODY and end != len(payload):
        raise _broken("bytes after the headers, but no body is announced", end)
    return Frame(tuple(_headers(payload, end)), payload[end:] if flags == _BODY else None)


def frame_of_event(event: Event) -> bytes:
    """Write an event's headers and body as one payload; the path is the carrier's own address."""
    if event.has_attributes:
        raise CannotEncode("structured attributes have no body to frame", next="send them as a batch record")
    return frame(tuple((field.name, field.value) for field in event.header_fields), event.body)


def event_of_frame(payload: bytes, path: str = "") -> Event:
    """Read a framed payload as an event; a frame says nothing about who appended a header."""
    content = unframe(payload)
    return Event(path, content.headers, content.body)


def _headers(payload: bytes, end: int) -> Iterator[Header]:
    position, count = _PREAMBLE.size, 0
    while position < end:
        count += 1
        if count > MAX_HEADERS:
            raise _broken(f"more than {MAX_HEADERS} headers", position)
        name, position = _read(payload, position, end, _NAME)
        value, position = _read(payload, position, end, _VALUE)
        yield _name(name, position), value


def _read(payload: bytes, position: int, end: int, size: struct.Struct) -> tuple[bytes | None, int]:
    """Read a length and as many bytes; both must lie inside the headers."""
    start = position + size.size
    if start > end:
        raise _broken("a length that is cut off", position)
    (length,) = size.unpack_from(payload, position)
    if size is _VALUE and length == _NULL:
        return None, start
    if start + length > end:
        raise _broken(f"a length of {length} that goes beyond the headers", position)
    return payload[start : start + length], start + length


def _name(raw: bytes | None, position: int) -> str:
    try:
        return (raw or b"").decode()
    except UnicodeDecodeError as exc:
        raise _broken("a header name that is not UTF-8", position) from exc


def _broken(what: str, position: int) -> InvalidEvent:
    return InvalidEvent(f"broken frame: {what}", attribute=f"byte {position}", clause=_CLAUSE)
