"""How many connections there may be, of all listeners together and from one address."""

from __future__ import annotations

from collections import Counter

__all__ = ["Room"]


class Room:
    """Counts who is in.

    >>> room = Room(connections=2, per_address=1)
    >>> room.enter("a"), room.enter("a"), room.enter("b"), room.enter("c")
    (None, '1 connections from this address are open', None, '2 connections are open')
    >>> room.leave("a"), room.enter("c")
    (None, None)
    """

    def __init__(self, *, connections: int, per_address: int) -> None:
        self._connections = connections
        self._per_address = per_address
        self._by_address: Counter[str] = Counter()
        self._inside = 0

    def enter(self, address: str) -> str | None:
        """Count one who comes; give why there is no room for it, None if there is."""
        if self._inside >= self._connections:
            return f"{self._connections} connections are open"
        if self._by_address[address] >= self._per_address:
            return f"{self._per_address} connections from this address are open"
        self._by_address[address] += 1
        self._inside += 1
        return None

    def leave(self, address: str) -> None:
        """Count one who goes."""
        self._inside -= 1
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            # So that the table is never longer than those who are in.
            del self._by_address[address]
