"""A place in hostile bytes: every step is checked against their end (Avro and Protobuf share it)."""

from __future__ import annotations

from penstock.errors import InvalidEvent

__all__ = ["MAX_ATTRIBUTES", "Cursor", "varint"]

_VARINT_BYTES = 10
MAX_ATTRIBUTES = 1000
"""Of an event in a format that is read piece by piece: a few megabytes could hold a million of them."""


def varint(number: int) -> bytes:
    """Write an unsigned number in base 128, lowest group first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Cursor:
    """Reads forward through bytes; InvalidEvent, naming the format, when they end too early."""

    __slots__ = ("at", "clause", "end", "raw")

    def __init__(self, raw: bytes, clause: str) -> None:
        self.raw, self.clause, self.at, self.end = raw, clause, 0, len(raw)

    def take(self, count: int) -> bytes:
        """Give the next `count` bytes."""
        stop = self.at + count
        if not self.at <= stop <= self.end:
            raise self.broken("the bytes end inside a value")
        taken = self.raw[self.at : stop]
        self.at = stop
        return taken

    def varint(self) -> int:
        """Read an unsigned number of at most 64 bits."""
        number = shift = 0
        for _ in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & (2**64 - 1)
            shift += 7
        raise self.broken("a number is longer than ten bytes")

    def text(self, raw: bytes) -> str:
        """Read UTF-8."""
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.broken("a string is not UTF-8") from None

    @property
    def done(self) -> bool:
        """Whether all bytes were read."""
        return self.at >= self.end

    def broken(self, what: str) -> InvalidEvent:
        """Make the error for this place."""
        return InvalidEvent(f"{what} (byte {self.at})", clause=self.clause)
