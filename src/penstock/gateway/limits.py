"""How much may be under way: of one connection, of one who is not known yet, of the whole process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one connection, and the whole process, may have under way."""

    requests_per_connection: int = 100
    bytes_per_connection: int = 64 * 1024 * 1024
    bytes_in_all: int = 256 * 1024 * 1024
    connections: int = 5000
    connections_per_address: int = 1000
    stranger_bytes: int = 512 * 1024
    """The largest request of one who has not said who it is (Kafka: `sasl.server.max.receive.size`)."""
    stranger_seconds: float = 30.0
    """How long one may take to say it."""
    idle_seconds: float = 600.0
    frame_seconds: float = 30.0
    """What a large request may take to come, and a second more for each `frame_bytes_per_second`."""
    frame_bytes_per_second: int = 100_000
