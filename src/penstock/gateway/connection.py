"""One client connection without its socket: bytes in, requests out, answers in the order of the requests.

Kafka demands that answers come in the order of the requests, whichever is ready first. A request takes a slot
when it comes; a slot that is filled goes out when all before it have gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.gateway.budget import Share
from penstock.wire.buffer import Buffer
from penstock.wire.framing import FrameBuffer
from penstock.wire.kafka import RequestHeader, decode_request_header
from penstock.wire.kafka.apis import SASL_AUTHENTICATE

__all__ = ["BARE", "Connection", "Slot"]

_BUFFER = 512 * 1024
"""Room for a few batches of the usual size; what is never written to takes no memory."""

BARE = RequestHeader(api_key=SASL_AUTHENTICATE, api_version=-1, correlation_id=0, client_id=None, body=None)
"""Stands for the header that a frame does not have."""


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one request in the order of answers."""

    header: RequestHeader
    frame: memoryview
    """In the buffer of the socket, which the next bytes overwrite: to be kept if it is needed longer."""
    size: int
    answer: Sequence[Buffer] | None = field(default=None)
    """None until it is known; empty if the client wants none."""
    share: Share | None = field(default=None)
    """The budget that the bytes of the request are counted in until it is served."""

    def keep(self) -> None:
        """Copy the frame out of the buffer of the socket."""
        self.frame = memoryview(bytes(self.frame))

    def free(self, _: object = None) -> None:
        """Give the bytes of the request back to the budget: it was served, or given up."""
        if self.share is not None:
            self.share.give(self.size)
            self.share = None


class Connection:
    """The order of one connection, and how much of it is under way."""

    def __init__(self, *, max_request_bytes: int) -> None:
        self.input = FrameBuffer(limit=max_request_bytes, first=_BUFFER)
        self._slots: deque[Slot] = deque()
        self.bytes_under_way = 0
        self.bare = False
        """Whether frames come without headers: what a SASL mechanism says after SaslHandshake 0 (KIP-43)."""

    def __len__(self) -> int:
        """Count the requests under way."""
        return len(self._slots)

    def requests(self) -> Iterator[Slot]:
        """Give a slot for every whole request that has come; WireError if the bytes make no sense."""
        for frame in self.input.frames():
            slot = Slot(BARE if self.bare else decode_request_header(frame), frame, len(frame))
            self._slots.append(slot)
            self.bytes_under_way += slot.size
            yield slot

    def is_first(self, slot: Slot) -> bool:
        """Say whether every request before this one has been answered."""
        return bool(self._slots) and self._slots[0] is slot

    def answer(self, slot: Slot, pieces: Sequence[Buffer]) -> list[Buffer]:
        """Fill a slot; give all that may now be written."""
        slot.answer = pieces
        out: list[Buffer] = []
        while self._slots and self._slots[0].answer is not None:
            done = self._slots.popleft()
            self.bytes_under_way -= done.size
            out.extend(done.answer or ())
        return out
