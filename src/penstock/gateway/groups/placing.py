"""Which partition of the offsets topic, and which of the live nodes, something belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

__all__ = ["java_hash", "node_of", "partition_of"]

_WORD = 1 << 32
_SIGN = 1 << 31


def java_hash(text: str) -> int:
    """Hash a string as Java does: over its UTF-16 units, in 32 bits.

    >>> java_hash("billing"), java_hash("polygenelubricants") == -(1 << 31)
    (-109829509, True)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) % _WORD
    return value - _WORD if value >= _SIGN else value


def partition_of(group_id: str, partitions: int) -> int:
    """Place a group as Kafka does; the one number without a positive twin counts as 0.

    >>> partition_of("billing", 50), partition_of("polygenelubricants", 50)
    (9, 0)
    """
    value = java_hash(group_id)
    return 0 if value == -_SIGN else abs(value) % partitions


def node_of(what: str, nodes: Iterable[int]) -> int:
    """Choose a node by the highest hash of both: all choose the same, and only a lost node's things move.

    >>> node_of("orders-0", (1, 2, 3)) == node_of("orders-0", (3, 2, 1)), node_of("orders-0", ())
    (True, -1)
    """
    return max(nodes, key=lambda node: _weight(what, node), default=-1)


@lru_cache(maxsize=65_536)
def _weight(what: str, node: int) -> tuple[bytes, int]:
    return blake2b(f"{node}|{what}".encode(), digest_size=8).digest(), node
