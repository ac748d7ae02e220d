"""Frames with a four-byte size in front, big end first: how both protocols cut their stream.

Sans-IO: bytes go in through `writable` and `wrote` (no copy, for a BufferedProtocol) or `receive`
(a copy), whole frames come out of `frames`, in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.errors import WireError
from penstock.wire.buffer import Buffer

__all__ = ["SIZE_BYTES", "FrameBuffer"]

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")
_TLS_HANDSHAKE = b"\x16\x03"
"""RFC 8446, 5.1: content type handshake, then the version 3.x of the record layer."""
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE")
_FIRST = 64 * 1024
_KEEP = 4


class FrameBuffer:
    """Bytes from a peer in, whole frames out.

    A frame is a view into the buffer and is valid until the next `writable` or `receive`. The buffer
    grows with the bytes that have come, not with the size that a peer announces.

    >>> buffer = FrameBuffer(limit=1024)
    >>> buffer.receive(bytes.fromhex("00000003 616263 0000"))
    >>> [bytes(frame) for frame in buffer.frames()]
    [b'abc']
    >>> len(buffer)
    2
    """

    def __init__(self, *, limit: int, first: int = _FIRST) -> None:
        self.limit = limit
        """The largest frame that may come."""
        self._first = first
        self._store = bytearray(first)
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        """Count the bytes that wait for the rest of their frame."""
        return self._end - self._start

    @property
    def missing(self) -> int:
        """The bytes that are still to come of the frame that has begun; 0 if it is whole, or none has."""
        held = self._end - self._start
        return max(SIZE_BYTES + self._next_size() - held, 0) if held >= SIZE_BYTES else 0

    def writable(self, least: int = 1) -> memoryview:
        """Give room for at least so many bytes; tell `wrote` how many were put there."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._store) > _KEEP * self._first:
                # Give back what one large frame has taken.
                self._store = bytearray(self._first)
        room = len(self._store) - self._end
        if room < least or (self._start and room < len(self._store) // 4):
            self._move(least)
        return memoryview(self._store)[self._end :]

    def release(self) -> None:
        """Give the memory back: nothing will come any more, and what waits is lost."""
        self._store = bytearray()
        self._start = self._end = 0

    def wrote(self, count: int) -> None:
        """Take in `count` bytes that were put into `writable`."""
        self._end += count

    def receive(self, data: Buffer) -> None:
        """Take in a copy of `data`."""
        self.writable(len(data))[: len(data)] = data
        self.wrote(len(data))

    def frames(self) -> Iterator[memoryview]:
        """Give every whole frame, without its size; raise WireError on a size that cannot be."""
        view = memoryview(self._store)
        while self._end - self._start >= SIZE_BYTES:
            begin = self._start + SIZE_BYTES
            end = begin + self._next_size()
            if end > self._end:
                return
            self._start = end
            yield view[begin:end]

    def _next_size(self) -> int:
        size: int = _SIZE.unpack_from(self._store, self._start)[0]
        if not 0 <= size <= self.limit:
            raise self._refusal(size)
        return size

    def _refusal(self, size: int) -> WireError:
        """Name the protocol that the peer speaks, if the four bytes are the first of another one."""
        first = _SIZE.pack(size)
        if first.startswith(_TLS_HANDSHAKE):
            return WireError(
                "a peer begins a TLS handshake on a port without TLS",
                next="connect without TLS (security.protocol PLAINTEXT or SASL_PLAINTEXT), or to a TLS port",
            )
        if first in _HTTP_METHODS:
            return WireError("a peer sends HTTP", next="use the port of the metrics, or the admin address")
        return WireError(
            f"a peer announced a frame of {size} bytes",
            why=f"frames are from 0 to {self.limit} bytes here",
            next="raise the limit if the peer is right, else look what is talking to this port",
        )

    def _move(self, least: int) -> None:
        """Bring what waits to the front, of a larger store if need be; frames handed out die here."""
        rest = bytes(memoryview(self._store)[self._start : self._end])
        needed = len(rest) + least
        if needed > len(self._store):
            self._store = bytearray(max(needed, 2 * len(self._store)))
        self._store[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
