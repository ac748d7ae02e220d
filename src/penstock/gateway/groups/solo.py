"""All groups in one shard, for a node that is alone and forgets them when it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.schemas import Record
from penstock.gateway.groups.shard import Shard

__all__ = ["SoloGroups"]


class _NoLog:
    """A log that remembers nothing."""

    max_group_bytes = sys.maxsize

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Be done at once."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class SoloGroups:
    """Coordinates everything; made in the running loop."""

    def __init__(self, node_id: int, limits: Limits | None = None) -> None:
        self._node_id = node_id
        self._shard = Shard(_NoLog(), limits)

    def shard(self, group_id: str) -> Shard:
        """Give the only shard."""
        return self._shard

    def shards(self) -> Sequence[Shard]:
        """Give the only shard."""
        return (self._shard,)

    async def coordinator(self, group_id: str) -> int:
        """Give this node."""
        return self._node_id

    def close(self) -> None:
        """Stop."""
        self._shard.close()
