"""What the server tells whoever counts; this one counts nothing, `metrics.Metrics` counts all of it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Observer"]


class Observer:
    """Hears of connections and requests; called on the hot path, so it must be quick."""

    def connected(self) -> None:
        """A client has connected."""

    def served(
        self,
        api_key: int,
        api_version: int,
        *,
        taken: int,
        given: int,
        seconds: float,
        errors: Sequence[int] = (),
    ) -> None:
        """A request of `taken` bytes was answered with `given` bytes, and with these error codes."""

    def closed(self, reason: str) -> None:
        """We ended a connection, for a reason: refused, idle, slow, unread, malformed and so on."""
