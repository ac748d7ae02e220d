"""A function and a key function of the user, loaded: one call on one batch, its outcomes as plain values."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from penstock.errors import CannotEncode, InvalidEvent, PipelineError, UsageError
from penstock.events import Dead, Drop, Emit, EventBatch, Retry
from penstock.events.event import Event
from penstock.events.event_type import LIST, EventType
from penstock.events.outcomes import settle
from penstock.pipeline.functions.emission import KeyFunction, emissions
from penstock.pipeline.functions.parcels import Record
from penstock.pipeline.functions.progress import NOWHERE, Progress, WatchedBatch

__all__ = ["LONGEST_TEXT", "Program", "legible", "load_function"]

LONGEST_TEXT: Final = 8192
"""Characters of a reason or a traceback in a dead letter."""

SAME: Final = ("same",)
"""The answer for an event that passes as it came, the most frequent one."""

Function = Callable[[EventBatch], Iterable[Any]]


def load_function(name: str) -> Callable[..., Any]:
    """Import `module:function`; PipelineError if there is no such thing. What the import raises passes."""
    module, _, function = name.partition(":")
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise PipelineError(f"module {module} has no function {function}", next="define it there")
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a route does with the events that it has kept."""

    route: str
    function: Function | None
    """None: events pass as they are."""
    key: KeyFunction | None = None

    def __call__(self, records: Sequence[Record], progress: Progress) -> list[tuple[Any, ...]]:
        """Run one batch and give an outcome a record.

        What the function raises passes; PipelineError says that what it returned cannot be.
        """
        views = tuple(record.view for record in records)
        batch = WatchedBatch(views, _envelope(self.route, views), progress)
        returned = views if self.function is None else _collected(self.function(batch), len(batch))
        answers = []
        with _as_wrong_result():
            outcomes = settle(batch, returned)
            for number, (outcome, record) in enumerate(zip(outcomes, records, strict=True)):
                progress.at(number)
                answers.append(_WRITERS[type(outcome)](self, outcome, record))
        progress.at(NOWHERE)
        return answers

    def _emit(self, outcome: Emit, record: Record) -> tuple[Any, ...]:
        if self.key is None and len(outcome.events) == 1 and outcome.events[0] is record.view:
            return SAME
        return "emit", list(emissions(outcome.events, record, self.route, self.key))

    def _retry(self, outcome: Retry, record: Record) -> tuple[Any, ...]:
        return "retry", _text(outcome.reason), float(outcome.after)

    def _dead(self, outcome: Dead, record: Record) -> tuple[Any, ...]:
        return "dead", _text(outcome.reason)

    def _drop(self, outcome: Drop, record: Record) -> tuple[Any, ...]:
        return "drop", _text(outcome.reason)


_WRITERS: Final[dict[type, Callable[[Program, Any, Record], tuple[Any, ...]]]] = {
    Emit: Program._emit,
    Retry: Program._retry,
    Dead: Program._dead,
    Drop: Program._drop,
}


def _collected(returned: Any, count: int) -> Sequence[object]:
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise PipelineError(
            f"the function returned {type(returned).__name__}",
            next="return one outcome per record, or yield them",
        )
    # One more than there can be: a function that never ends must not fill the memory.
    return list(islice(returned, count + 1))


@contextmanager
def _as_wrong_result() -> Iterator[None]:
    try:
        yield
    except (UsageError, InvalidEvent, CannotEncode) as exc:
        raise PipelineError(str(exc)) from exc


def _envelope(route: str, views: Sequence[Event]) -> Event:
    # spec 004: "indicate in the event type that it's a list type and pass a 'records' list object".
    first = views[0]
    id = f"{route}/{first.given_address}+{len(views)}"
    return Event(first.path, {"event-id": id, "event-type": str(EventType(class_=LIST, kind="records"))})


def _text(value: object) -> str:
    return legible(str(value)[:LONGEST_TEXT])


def legible(text: str) -> str:
    """Give a text that can be written as UTF-8, whatever a function put into it."""
    return text.encode("utf-8", "replace").decode()
