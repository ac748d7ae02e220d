"""How much may be under way: of one connection, of an unknown client, of a principal, of the process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one connection, one principal or address, and the whole process may have under way."""

    requests_per_connection: int = 100
    small_requests_per_connection: int = 500
    """While they hold less than `small_requests_bytes`: those of one turn go on to Pulsar together."""
    small_requests_bytes: int = 4 * _MIB
    bytes_per_connection: int = 64 * _MIB
    bytes_per_principal: int = 128 * _MIB
    """Of requests of one principal; of one address on a listener that does not authenticate."""
    bytes_in_all: int = 256 * _MIB
    small_bytes: int = 64 * _KIB
    """A connection that holds less is read although budgets are full: heartbeats always come through."""
    answer_bytes_per_principal: int = 128 * _MIB
    """Of answers that clients have not read yet."""
    answer_bytes_in_all: int = 256 * _MIB
    connections: int = 5000
    connections_per_address: int = 1000
    handshake_seconds: float = 15.0
    """How long a TLS handshake may take; the connection counts from its beginning."""
    stranger_bytes: int = 512 * _KIB
    """The largest request of one who has not said who it is (Kafka: `sasl.server.max.receive.size`)."""
    unauthenticated_small_bytes: int = 16 * _KIB
    unauthenticated_bytes_per_address: int = 4 * _MIB
    unauthenticated_bytes_in_all: int = 16 * _MIB
    """Of requests of clients that have yet to authenticate: a budget of their own."""
    stranger_seconds: float = 30.0
    """How long one may take to say it."""
    idle_seconds: float = 600.0
    close_seconds: float = 5.0
    """How long a client may take to read the last answers of a connection that the gateway ends."""
    frame_seconds: float = 30.0
    """A request that takes longer to come must bring `frame_bytes_per_second`, averaged over as long.

    While a budget is full it is averaged over a tenth of that. Time in which the gateway does not read does
    not count.
    """
    frame_bytes_per_second: int = 100_000
