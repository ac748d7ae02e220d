"""How patient and how greedy a client is; one frozen value for everything it opens."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Time-outs in seconds, sizes in bytes."""

    connect_timeout: float = 10.0
    """For TCP, TLS and Pulsar's handshake together."""
    request_timeout: float = 30.0
    """For the answer to one command."""
    open_timeout: float = 30.0
    """For opening a producer, reader or consumer, with retries."""
    send_timeout: float = 30.0
    """For the receipt of an entry, reconnects included."""
    stall_timeout: float = 10.0
    """A producer without any receipt for so long is opened again: brokers drop some entries in silence."""
    keep_alive: float = 20.0
    """A broker that was silent for so long gets a PING, and is given up when it stays silent as long."""
    barrier_timeout: float = 2.0
    """For what a connection that lost its producer still has to say."""
    first_delay: float = 0.05
    longest_delay: float = 10.0
    """Back-off between attempts; each is shortened by chance."""
    max_message_bytes: int = 16 * _MIB
    """The largest entry taken from a broker; one that announces more is refused."""
    window_entries: int = 1_000
    window_bytes: int = 16 * _MIB
    """What one producer may have under way."""
    read_bytes: int = 8 * _MIB
    """What one reader or consumer asks for ahead; it never holds more than twice as much."""
