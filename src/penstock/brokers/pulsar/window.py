"""What a producer has under way, oldest first: the resend store, and the limit of what may be sent.

Sans-IO but for the futures. Sequence ids grow and a broker stores in the order of sending, so a receipt
is for the head of the queue, or it is a late one for something that was already answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from penstock.errors import InternalError, PenstockError, WireError
from penstock.wire.pulsar import MessageId, SendReceipt

__all__ = ["Pending", "Receipt", "Window"]


class Receipt(NamedTuple):
    """The broker's answer to an entry."""

    sequence_id: int
    message_id: MessageId
    attempts: int
    """How often the entry was sent."""

    @property
    def is_duplicate(self) -> bool:
        """Say whether deduplication dropped the entry: its sequence id was stored before, id unknown.

        After a second attempt that is what one hopes for; after the first somebody has used the number.
        """
        return self.message_id.entry_id < 0


class Pending:
    """One entry under way; the frame is kept until the receipt."""

    __slots__ = ("attempts", "deadline", "done", "frame", "last_sequence_id", "sequence_id")

    def __init__(
        self,
        frame: memoryview,
        sequence_id: int,
        last_sequence_id: int,
        deadline: float,
        done: asyncio.Future[Receipt],
    ) -> None:
        self.frame = frame
        self.sequence_id = sequence_id
        self.last_sequence_id = last_sequence_id
        self.deadline = deadline
        self.done = done
        self.attempts = 0

    def finish(self, message_id: MessageId) -> None:
        """Answer the one who waits, if he still does."""
        if not self.done.done():
            self.done.set_result(Receipt(self.sequence_id, message_id, self.attempts))

    def fail(self, error: PenstockError) -> None:
        """Tell the one who waits that it did not work."""
        if not self.done.done():
            self.done.set_exception(error)
            # Looked at here: one who does not care for receipts does not look.
            self.done.exception()


class Window:
    """A queue of pending entries, bounded by count and by bytes; one entry fits always if it is alone."""

    def __init__(self, *, entries: int, size: int) -> None:
        self._most_entries = entries
        self._most_bytes = size
        self._queue: deque[Pending] = deque()
        self._bytes = 0
        self._room: asyncio.Future[None] | None = None
        self.late_receipts = 0
        """Receipts for entries that were already answered: each may be a second copy in the topic."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def size(self) -> int:
        """The bytes under way."""
        return self._bytes

    @property
    def head(self) -> Pending | None:
        """The oldest entry."""
        return self._queue[0] if self._queue else None

    def has_room(self, size: int) -> bool:
        """Say whether an entry of so many bytes may be added."""
        return not self._queue or (
            len(self._queue) < self._most_entries and self._bytes + size <= self._most_bytes
        )

    async def wait_for_room(self, size: int) -> None:
        """Wait until an entry of so many bytes may be added; one may wait at a time."""
        while not self.has_room(size):
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def add(self, pending: Pending) -> None:
        """Put an entry at the end."""
        if self._queue and pending.sequence_id <= self._queue[-1].last_sequence_id:
            raise InternalError(
                f"sequence id {pending.sequence_id} does not follow {self._queue[-1].last_sequence_id}"
            )
        self._queue.append(pending)
        self._bytes += len(pending.frame)

    def all(self) -> list[Pending]:
        """Give everything under way, oldest first."""
        return list(self._queue)

    def receive(self, receipt: SendReceipt) -> None:
        """Take a receipt; raise WireError on one that skips the head, because then an entry is lost."""
        head = self.head
        if head is None or receipt.sequence_id < head.sequence_id:
            self.late_receipts += 1
            return
        if receipt.sequence_id > head.last_sequence_id:
            raise WireError(
                f"a receipt for sequence id {receipt.sequence_id} came before that for {head.sequence_id}"
            )
        self._drop(head)
        head.finish(receipt.message_id)

    def find(self, sequence_id: int) -> Pending | None:
        """Find the entry that a SEND_ERROR is about: it names the highest sequence id of a batch."""
        return next((entry for entry in self._queue if entry.last_sequence_id == sequence_id), None)

    def fail(self, entry: Pending, error: PenstockError) -> None:
        """Give up one entry."""
        self._drop(entry)
        entry.fail(error)

    def fail_all(self, error: PenstockError) -> None:
        """Give up everything under way."""
        failed = list(self._queue)
        self._queue.clear()
        self._bytes = 0
        for entry in failed:
            entry.fail(error)
        self._wake()

    def _drop(self, entry: Pending) -> None:
        self._queue.remove(entry)
        self._bytes -= len(entry.frame)
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
