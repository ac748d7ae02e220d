"""Trying again: with longer and longer pauses, until a deadline; what cannot get better is raised at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from penstock.errors import KafkaRefused, PenstockError, PulsarRefused, Unreachable

__all__ = ["is_retriable", "pauses", "retrying"]

_Result = TypeVar("_Result")
_FIRST = 0.01
_LONGEST = 1.0


def is_retriable(error: PenstockError) -> bool:
    """Say whether trying again can help: the broker said so, or did not answer."""
    if isinstance(error, KafkaRefused | PulsarRefused):
        return error.retriable
    return isinstance(error, Unreachable)


def pauses(first: float = _FIRST) -> Iterator[float]:
    """Give pauses that double up to a second, each shortened by chance: clients shall not come together."""
    step = first
    while True:
        yield step * random.uniform(0.5, 1.0)
        step = min(2 * step, _LONGEST)


def retrying(
    attempt: Callable[[], _Result],
    *,
    seconds: float,
    between: Callable[[PenstockError], None],
    first: float = _FIRST,
    gives_up: Callable[[], bool] = lambda: False,
) -> _Result:
    """Call `attempt` until it works; `between` mends what it can after a failure.

    After so many seconds, or when `gives_up` says so, the last failure is raised. `first` is the first pause.
    """
    until = time.monotonic() + seconds
    for pause in pauses(first):
        try:
            return attempt()
        except PenstockError as exc:
            if not is_retriable(exc) or time.monotonic() + pause > until or gives_up():
                raise
            between(exc)
        time.sleep(pause)
    raise AssertionError("pauses do not end")
