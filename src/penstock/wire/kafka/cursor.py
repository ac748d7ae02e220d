"""A position in the body of a request, for the requests that are read by hand; both encodings (KIP-482)."""

from __future__ import annotations

from penstock.errors import WireError

__all__ = ["Cursor"]


class Cursor:
    """Reads from a body whose lengths have been checked."""

    __slots__ = ("flexible", "frame", "pos")

    def __init__(self, frame: memoryview, pos: int, flexible: bool) -> None:
        self.frame = frame
        self.pos = pos
        self.flexible = flexible

    def take(self, size: int) -> memoryview:
        """Give the next bytes."""
        begin = self.pos
        self.pos = begin + size
        return self.frame[begin : self.pos]

    def uvarint(self) -> int:
        """Read an unsigned varint."""
        value = shift = 0
        while True:
            byte = self.frame[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, width: int) -> int:
        """Read a length, -1 for null: compact, or of `width` bytes."""
        if self.flexible:
            return self.uvarint() - 1
        return int.from_bytes(self.take(width), "big", signed=True)

    def count(self) -> int:
        """Read the length of an array; null is empty."""
        return max(self.length(4), 0)

    def sized(self, width: int) -> memoryview | None:
        """Read bytes with their length in front; None if null."""
        size = self.length(width)
        return None if size < 0 else self.take(size)

    def string(self) -> str | None:
        """Read a string; None if null."""
        data = self.sized(2)
        try:
            return None if data is None else str(data, "utf-8")
        except UnicodeDecodeError as exc:
            raise WireError("a Kafka request has a name that is not UTF-8", why=str(exc)) from exc

    def skip_tags(self) -> None:
        """Pass by the tagged fields at the end of a structure."""
        for _ in range(self.uvarint() if self.flexible else 0):
            self.uvarint()
            self.take(self.uvarint())
