"""Many small waits at the same time, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["gather_limited"]

T = TypeVar("T")


async def gather_limited(work: Iterable[Coroutine[Any, Any, T]], limit: int) -> list[T]:
    """Run coroutines, at most `limit` at the same time; their results in their order.

    The first that raises ends the others, and what was not begun is closed.
    """
    rows = list(enumerate(work))
    results: dict[int, T] = {}
    waiting = iter(rows)

    async def worker() -> None:
        for index, each in waiting:
            results[index] = await each

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(rows))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for _, each in waiting:
            each.close()
    return [results[index] for index, _ in rows]
