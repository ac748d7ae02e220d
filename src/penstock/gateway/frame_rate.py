"""Whether a request comes fast enough: judged by the bytes that came, while the gateway was reading."""

from __future__ import annotations

__all__ = ["FrameRate"]


class FrameRate:
    """The rate of the request that a connection is sending; times are seconds of a monotonic clock.

    >>> rate = FrameRate(bytes_per_second=1000)
    >>> rate.begin(now=0.0)
    >>> rate.is_slow(now=2.0, arrived=100, window=3.0)      # too early to say
    False
    >>> rate.is_slow(now=3.0, arrived=3000, window=3.0), rate.is_slow(now=6.0, arrived=3100, window=3.0)
    (False, True)
    """

    __slots__ = ("_arrived", "_paused_at", "_rate", "_since")

    def __init__(self, *, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._since = 0.0
        self._arrived = 0
        self._paused_at: float | None = None

    def begin(self, now: float) -> None:
        """Another request begins to come."""
        self._since, self._arrived = now, 0
        if self._paused_at is not None:
            self._paused_at = now

    def pause(self, now: float) -> None:
        """The gateway stops reading: what does not come from now on is not the client's fault."""
        self._paused_at = now

    def resume(self, now: float) -> None:
        """The gateway reads again."""
        if self._paused_at is not None:
            self._since += now - self._paused_at
            self._paused_at = None

    def is_slow(self, now: float, arrived: int, window: float) -> bool:
        """Judge the last `window` seconds of reading, once they are over; then the next ones begin."""
        elapsed = (now if self._paused_at is None else self._paused_at) - self._since
        if elapsed < window:
            return False
        is_slow = arrived - self._arrived < self._rate * elapsed
        self._since += elapsed
        self._arrived = arrived
        return is_slow
