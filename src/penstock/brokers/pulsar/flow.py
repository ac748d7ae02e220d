"""How many messages a reader asks for (FLOW): Pulsar counts messages, memory is counted in bytes.

Permits are what fits into the bytes that are still free, by the size that messages are expected to have, and
are topped up when a quarter of the budget is free. A larger message is expected again at once, smaller ones
by and by: what was asked for comes, and a burst that does not fit costs more than a few commands.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FlowControl"]

MOST_PERMITS: Final = 1 << 20
FIRST_GUESS: Final = 64 * 1024
_SHARE: Final = 0.25


class FlowControl:
    """The account of one reader: what it asked for, what it holds.

    >>> flow = FlowControl(budget=1024 * 1024)
    >>> flow.grant()
    16
    >>> flow.received(10, 1000)
    True
    >>> flow.held
    1000
    """

    __slots__ = ("_expected", "_budget", "_outstanding", "held")

    def __init__(self, *, budget: int) -> None:
        self._budget = budget
        self._expected = float(FIRST_GUESS)
        self._outstanding = 0
        self.held = 0
        """Bytes that were received and not yet taken."""

    def limit(self, budget: int) -> None:
        """Change the budget; what was asked for still comes."""
        self._budget = budget

    def restart(self) -> None:
        """Forget what was asked for: the broker does so too when a consumer comes back."""
        self._outstanding = 0

    def received(self, messages: int, size: int) -> bool:
        """Count an entry; False if it must be dropped because twice the budget would be held."""
        if self.held and self.held + size > 2 * self._budget:
            return False
        self._outstanding -= messages
        self.held += size
        seen = max(size / max(messages, 1), 1.0)
        self._expected = max(seen, self._expected + _SHARE * (seen - self._expected))
        return True

    def resized(self, messages: int, received: int, held: int) -> None:
        """Count an entry by what it takes now, which is more than was received if it was inflated."""
        self.held += held - received
        self._expected = max(self._expected, held / max(messages, 1))

    def taken(self, size: int) -> None:
        """Count an entry that has left."""
        self.held = max(self.held - size, 0)

    def cleared(self) -> None:
        """Count everything as gone."""
        self.held = 0

    @property
    def is_low(self) -> bool:
        """Say whether less than half of the budget is held."""
        return self.held <= self._budget // 2

    def grant(self) -> int:
        """Give the permits to ask for now, 0 if it is not worth a command."""
        free = self._budget - self.held
        if free <= 0:
            return 0
        target = min(max(int(free / self._expected), 1), MOST_PERMITS)
        permits = target - self._outstanding
        # Few and large grants: each is a command, and the broker reads as much at once as it may send.
        if permits < max(min(int(self._budget / self._expected), MOST_PERMITS) // 4, 1):
            return 0
        self._outstanding = target
        return permits
