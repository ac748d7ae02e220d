"""The body of an answer, read field by field in both encodings (KIP-482); every length is checked.

Unlike the requests that a gateway gets, answers are read without a kernel: the driver of a Spark query
asks for metadata and must not load one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import WireError

__all__ = ["Answer"]

_Element = TypeVar("_Element")
MOST_ELEMENTS = 1 << 20
"""Elements of all arrays of an answer together."""
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{form}") for form in "bhiq")


class Answer:
    """A position in a body.

    >>> answer = Answer(memoryview(bytes.fromhex("0000 0002 0001 61 0001 62")))
    >>> answer.array(answer.string)
    ('a', 'b')
    """

    __slots__ = ("_body", "_elements", "_flexible", "_pos")

    def __init__(self, body: memoryview, *, flexible: bool = False) -> None:
        self._body = body
        self._flexible = flexible
        self._pos = 0
        self._elements = 0

    def take(self, size: int) -> memoryview:
        """Give the next bytes, not copied."""
        begin, self._pos = self._pos, self._pos + size
        if size < 0 or self._pos > len(self._body):
            raise WireError(f"an answer of the broker ends at {len(self._body)} bytes, within a field")
        return self._body[begin : self._pos]

    def int8(self) -> int:
        """Read a number of one byte."""
        return int(_INT8.unpack(self.take(1))[0])

    def int16(self) -> int:
        """Read a number of two bytes."""
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        """Read a number of four bytes."""
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        """Read a number of eight bytes."""
        return int(_INT64.unpack(self.take(8))[0])

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise WireError("an answer of the broker has a length of more than 32 bits")

    def nullable_bytes(self, width: int = 4) -> memoryview | None:
        """Read bytes, not copied; None if null."""
        size = self._length(width)
        return None if size == -1 else self.take(size)

    def bytes(self) -> memoryview:
        """Read bytes, not copied; null is empty."""
        found = self.nullable_bytes()
        return memoryview(b"") if found is None else found

    def nullable_string(self) -> str | None:
        """Read a string; None if null."""
        data = self.nullable_bytes(2)
        try:
            return None if data is None else str(data, "utf-8")
        except UnicodeDecodeError as exc:
            raise WireError("an answer of the broker has a name that is not UTF-8", why=str(exc)) from exc

    def string(self) -> str:
        """Read a string; null is empty."""
        return self.nullable_string() or ""

    def array(self, element: Callable[[], _Element]) -> tuple[_Element, ...]:
        """Read an array; null is empty."""
        count = self._length(4)
        self._elements += max(count, 0)
        # Each element has a byte at least: a length that cannot be reserves no memory.
        if count > len(self._body) - self._pos or self._elements > MOST_ELEMENTS:
            raise WireError(f"an answer of the broker has an array of {count} elements, which cannot be")
        return tuple(element() for _ in range(count))

    def skip_tags(self) -> None:
        """Pass by the tagged fields at the end of a structure."""
        for _ in range(self.uvarint() if self._flexible else 0):
            self.uvarint()
            self.take(self.uvarint())

    def _length(self, width: int) -> int:
        if self._flexible:
            return self.uvarint() - 1
        size = int.from_bytes(self.take(width), "big", signed=True)
        if size < -1:
            raise WireError(f"an answer of the broker has a length of {size}")
        return size
