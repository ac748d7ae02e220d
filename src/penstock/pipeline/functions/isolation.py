"""Which record breaks a batch: a batch that fails is split until each record that fails stands alone.

It is split at the record that the function was at, where that is known, and in halves otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.pipeline.functions.process import Failure
from penstock.pipeline.functions.progress import NOWHERE

__all__ = ["isolate"]

Parcel = TypeVar("Parcel")
Answer = TypeVar("Answer")


def isolate(
    call: Callable[[Sequence[Parcel]], Sequence[Answer] | Failure], parcels: Sequence[Parcel]
) -> list[Answer | Failure]:
    """Call with all parcels, or with ever smaller parts in their order; an answer or a failure for each.

    >>> isolate(lambda part: Failure("bad", "7") if 7 in part else [n * 2 for n in part], [5, 6, 7, 8])
    [10, 12, Failure(code='bad', reason='7', at=-1), 16]
    """
    answers: list[Answer | Failure] = []
    parts = [(0, len(parcels), True)] if parcels else []
    while parts:
        start, end, trusting = parts.pop()
        answer = call(parcels[start:end])
        if not isinstance(answer, Failure):
            answers += answer
        elif end - start == 1:
            answers.append(answer)
        else:
            parts += reversed(_split(start, end, answer.at if trusting else NOWHERE))
    return answers


def _split(start: int, end: int, at: int) -> list[tuple[int, int, bool]]:
    """Give smaller parts, each with whether a hint is believed in it."""
    if not 0 <= at < end - start:
        middle = (start + end) // 2
        return [(start, middle, True), (middle, end, True)]
    suspect = start + at
    # If what came before the suspect fails too, the function does not go through its records in order.
    parts = [(start, suspect, False), (suspect, suspect + 1, False), (suspect + 1, end, True)]
    return [part for part in parts if part[0] < part[1]]
