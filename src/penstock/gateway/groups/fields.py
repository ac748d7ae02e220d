"""Fields of stored bytes, one after the other, in Kafka's classic or compact form; never past their end."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.errors import WireError

__all__ = ["LONGEST", "FieldReader", "array", "nullable", "sized", "text"]

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_VARINT_BITS = 35
LONGEST = 0x7FFF
"""The bytes of the longest string that can be stored."""


class FieldReader:
    """Reads fields; WireError if they leave the bytes."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self.flexible = flexible

    def int16(self) -> int:
        """Read two bytes."""
        return int(self._number(_INT16))

    def int32(self) -> int:
        """Read four bytes."""
        return int(self._number(_INT32))

    def int64(self) -> int:
        """Read eight bytes."""
        return int(self._number(_INT64))

    def string(self) -> str:
        """Read a string."""
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        """Read a string, or null."""
        size = self._uvarint() - 1 if self.flexible else self.int16()
        try:
            return None if size < 0 else self._take(size).decode()
        except UnicodeDecodeError as exc:
            raise WireError("a stored group has a string that is not UTF-8") from exc

    def blob(self) -> bytes:
        """Read bytes."""
        size = self._uvarint() - 1 if self.flexible else self.int32()
        return self._take(max(size, 0))

    def count(self) -> int:
        """Read the length of an array; each element takes at least a byte."""
        count = self._uvarint() - 1 if self.flexible else self.int32()
        if count > len(self._data) - self._at:
            raise WireError(f"a stored group has an array of {count} elements in too few bytes")
        return max(count, 0)

    def tags(self) -> None:
        """Pass by tagged fields (KIP-482)."""
        if self.flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())

    def _number(self, form: struct.Struct) -> int:
        return int(form.unpack(self._take(form.size))[0])

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise WireError("a stored group ends in the middle of a field")
        taken, self._at = self._data[self._at : end], end
        return taken

    def _uvarint(self) -> int:
        value = 0
        for shift in range(0, _VARINT_BITS, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise WireError("a stored group has a number of more than 32 bits")


def text(value: str) -> bytes:
    """Write a string."""
    data = value.encode()
    if len(data) > LONGEST:
        raise WireError(f"a string of {len(data)} bytes cannot be stored")
    return _INT16.pack(len(data)) + data


def nullable(value: str | None) -> bytes:
    """Write a string, or null."""
    return b"\xff\xff" if value is None else text(value)


def sized(data: bytes) -> bytes:
    """Write bytes."""
    return _INT32.pack(len(data)) + data


def array(parts: Iterable[bytes]) -> bytes:
    """Write an array of parts that are written already."""
    parts = list(parts)
    return _INT32.pack(len(parts)) + b"".join(parts)
