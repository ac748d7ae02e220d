"""How answers write strings, arrays and tags: the classic encoding and the compact one (KIP-482).

An encoder asks `encoding(flexible)` once and then writes through it, so that one encoder serves
every version. Numbers are written by `struct` where they stand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.errors import InternalError

__all__ = ["COMPACT", "CLASSIC", "Encoding", "encoding", "uvarint"]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MAX_STRING = 0x7FFF


def uvarint(value: int) -> bytes:
    """Write an unsigned varint.

    >>> uvarint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _classic_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _MAX_STRING:
        raise InternalError(f"a string of {len(data)} bytes in an answer", why="Kafka's strings end at 32767")
    return _INT16.pack(len(data)) + data


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _compact_length(count: int) -> bytes:
    return uvarint(count + 1)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The parts that differ between a classic and a flexible version."""

    string: Callable[[str | None], bytes]
    """A string; null if None."""
    length: Callable[[int], bytes]
    """The length of an array or of bytes; -1 for null."""
    tags: bytes
    """An empty section of tagged fields at the end of a structure."""

    def tagged(self, fields: Iterable[tuple[int, bytes]]) -> bytes:
        """Write a section of tagged fields, in the order of their numbers; nothing if not flexible."""
        if not self.tags:
            return b""
        parts = [uvarint(tag) + uvarint(len(data)) + data for tag, data in fields]
        return uvarint(len(parts)) + b"".join(parts)


CLASSIC = Encoding(_classic_string, _INT32.pack, b"")
COMPACT = Encoding(_compact_string, _compact_length, b"\0")


def encoding(flexible: bool) -> Encoding:
    """Give the encoding of a version."""
    return COMPACT if flexible else CLASSIC
