"""Who leads a partition now, as tagged fields of Produce and Fetch answers (KIP-951)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.wire.kafka.primitives import Encoding

__all__ = ["NodeEndpoint", "current_leader", "node_endpoints"]

_LEADER = struct.Struct(">iiB")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """Where a leader listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def current_leader(tag: int, leader_id: int, leader_epoch: int) -> list[tuple[int, bytes]]:
    """Give the tagged field for a known leader; nothing for -1."""
    return [(tag, _LEADER.pack(leader_id, leader_epoch, 0))] if leader_id >= 0 else []


def node_endpoints(endpoints: Sequence[NodeEndpoint], form: Encoding) -> list[tuple[int, bytes]]:
    """Give the tagged field 0 of the endpoints; nothing if there are none."""
    if not endpoints:
        return []
    parts = [form.length(len(endpoints))]
    for node in endpoints:
        parts += [_INT32.pack(node.node_id), form.string(node.host), _INT32.pack(node.port)]
        parts += [form.string(node.rack), form.tags]
    return [(0, b"".join(parts))]
