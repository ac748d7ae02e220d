"""The sending side of one connection: answers go out together, and what is not read is counted.

asyncio tells when its buffer is above and below its marks; what is above them is in the budget of unread
answers. A connection that is closed while its client does not read would wait for ever; it is aborted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from penstock.gateway.budget import Budgets, Share
from penstock.gateway.limits import Limits
from penstock.wire.buffer import Buffer

__all__ = ["Output"]

_FLUSH_FROM: Final = 64 * 1024
"""Bytes from which answers are not held back for the end of the turn of the loop."""
_COUNT_SECONDS: Final = 1.0


class Output:
    """Writes answers; `on_unread` is called when the connection is ended because they are not read."""

    def __init__(
        self, limits: Limits, budgets: Budgets, *, key: str, on_unread: Callable[[], None] = lambda: None
    ) -> None:
        self._limits = limits
        self._budget = budgets.answers
        self._on_unread = on_unread
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[Buffer] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        """Counts what is unread while the client does not read; once closing, aborts."""
        self._is_ending = False
        self.is_writable = True
        """Whether the client reads what it is sent."""
        self.unread = 0
        self.unread_share: Share = self._budget.join(key)
        self.stalled_since = 0.0

    # What asyncio tells

    def connected(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport

    def pause(self) -> None:
        """The client does not read: count what waits for it."""
        self.is_writable = False
        self.stalled_since = time.monotonic()
        self._budget.holders[self] = None
        self.count_unread()
        if self._timer is None:
            self._timer = self._loop.call_later(_COUNT_SECONDS, self._count_again)
        self._budget.make_room(self.unread_share)

    def resume(self) -> None:
        """The client has read nearly all."""
        self.is_writable = True
        self._forget()

    def lost(self) -> None:
        """The connection is gone."""
        self._is_ending = True
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
        self._pieces.clear()
        self.unread_share.leave()

    # Writing

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be read or written any more, or not yet."""
        return self._transport is None or self._transport.is_closing()

    def write(self, pieces: Sequence[Buffer]) -> None:
        """Write answers, at the latest when the loop comes round: all of a turn with one system call."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.extend(pieces)
        self._size += sum(map(len, pieces))
        if self._size >= _FLUSH_FROM:
            # Now, so that a client that does not read stops us before the next answer is made.
            self.flush()

    def flush(self) -> None:
        """Hand over what was written in this turn of the loop."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self.is_closing:
            assert self._transport is not None
            self._transport.writelines(pieces)

    def close(self) -> None:
        """End the connection when the client has read its answers, or does not within `close_seconds`."""
        self.flush()
        if self._transport is None or self._is_ending:
            return
        # Once only: a TLS transport of asyncio that is closed twice cannot be aborted any more.
        self._is_ending = True
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._limits.close_seconds, self._transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # The budget

    def move_to(self, key: object) -> None:
        """Count for another principal from now on."""
        former, self.unread_share = self.unread_share, self._budget.join(key)
        former.give(self.unread)
        former.leave()
        self.unread_share.take(self.unread)

    def count_unread(self) -> None:
        """Look how much is still unread."""
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if size < self.unread:
            self.stalled_since = time.monotonic()
        self.unread_share.give(self.unread - size)
        self.unread = size

    def end_unread(self) -> None:
        """End the connection at once, to make room for the answers of others."""
        self._on_unread()
        self._forget()
        self.abort()

    def _count_again(self) -> None:
        self._timer = None
        if not self.is_writable and not self.is_closing:
            self.count_unread()
            self._timer = self._loop.call_later(_COUNT_SECONDS, self._count_again)

    def _forget(self) -> None:
        self._budget.holders.pop(self, None)
        self.unread_share.give(self.unread)
        self.unread = 0
