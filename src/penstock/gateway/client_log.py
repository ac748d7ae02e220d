"""The logger of what clients cause, and its limit: a thousand bad connections are no thousand lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

__all__ = ["RateLimit", "log"]

log = logging.getLogger("penstock.gateway.clients")

_MOST: Final = 30
_PERIOD: Final = 60.0


class RateLimit(logging.Filter):
    """Lets so many warnings pass in a period; the last says that more are left out, the next how many."""

    def __init__(
        self, most: int = _MOST, period: float = _PERIOD, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most = most
        self._period = period
        self._clock = clock
        self._ends_at = clock() + period
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is logged; one below WARNING always is."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        if now >= self._ends_at:
            self._add(record, f"; {self._left_out} warnings about clients were left out before")
            self._ends_at, self._passed, self._left_out = now + self._period, 0, 0
        self._passed += 1
        if self._passed > self._most:
            self._left_out += 1
            return False
        if self._passed == self._most:
            self._add(
                record, f"; more warnings about clients are left out for {self._ends_at - now:.0f} s", 1
            )
        return True

    def _add(self, record: logging.LogRecord, text: str, count: int | None = None) -> None:
        if self._left_out if count is None else count:
            record.msg, record.args = f"{record.getMessage()}{text}", ()
