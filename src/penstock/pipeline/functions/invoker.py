"""The function of a route as the stage calls it: events in, what became of each of them out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.errors import EventError
from penstock.events import CloudEvent, Dead, Drop, Retry
from penstock.pipeline.functions.delivery import Clock, Retries, Settled, SystemClock, deliver
from penstock.pipeline.functions.isolation import isolate
from penstock.pipeline.functions.parcels import Parcel, parcel, unpacked
from penstock.pipeline.functions.process import Bounds, Failure, FunctionProcess, Settings, process_of
from penstock.pipeline.functions.receipts import Receipts
from penstock.pipeline.ports import Invoked, Routed
from penstock.record import Headers

__all__ = ["FunctionInvoker"]

_MOST_BYTES: Final = 16 << 20
"""Of the data of one call; a call has at least one record."""
_LONGEST_NAME: Final = 60

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Emitted:
    """What an event became."""

    events: tuple[CloudEvent | None, ...]
    """None stands for the event as it came in."""
    keys: tuple[bytes | None, ...]
    headers: tuple[Headers | None, ...]


Answer = _Emitted | Retry | Dead | Drop | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInvoker:
    """Calls a function in its process, with its retries and within its bounds; a value that travels."""

    settings: Settings
    bounds: Bounds = Bounds()
    batch: int = 100
    retries: Retries = Retries()
    ordering: str = "partition"
    key_from_partitionkey: bool = False
    """Whether the key is the attribute partitionkey of what the function emits."""
    receipts: Receipts | None = None
    clock: Clock = field(default_factory=SystemClock, compare=False)

    def __call__(self, events: Sequence[Routed]) -> list[Invoked]:
        """Give what became of each event."""
        process = process_of(self.settings, self.bounds)
        group = _GROUPS[self.ordering]

        def call(numbers: list[int]) -> list[Answer]:
            return list(_answers(process, [events[number] for number in numbers]))

        settled = deliver(
            [group(routed) for routed in events],
            call,
            size=self.batch,
            retries=self.retries,
            clock=self.clock,
        )
        return [self._invoked(*pair) for pair in zip(events, settled, strict=True)]

    def check(self) -> None:
        """Load the function; PipelineError if that cannot be."""
        process_of(self.settings, self.bounds).check()

    def close(self) -> None:
        """End the process of the function."""
        process_of(self.settings, self.bounds).close()

    def _invoked(self, routed: Routed, settled: Settled[Answer]) -> Invoked:
        answer, attempts = settled.answer, settled.attempts
        if answer is _SAME:
            invoked = Invoked(events=(routed.event,), attempts=attempts)
        elif isinstance(answer, _Emitted):
            invoked = self._emitted(routed, answer, attempts)
        elif isinstance(answer, Drop):
            invoked = Invoked(reason=answer.reason, attempts=attempts)
        else:
            code = _CODES.get(type(answer)) or getattr(answer, "code", "")
            reason = answer.reason or "the function gave no reason"
            invoked = Invoked(code=code, reason=reason, attempts=attempts)
        return self._with_receipt(routed, invoked)

    def _emitted(self, routed: Routed, answer: _Emitted, attempts: int) -> Invoked:
        events = tuple(event or routed.event for event in answer.events)
        headers = tuple(routed.headers if own is None else own for own in answer.headers)
        return Invoked(
            events=events, keys=self._keys(routed, events, answer), headers=headers, attempts=attempts
        )

    def _keys(
        self, routed: Routed, events: tuple[CloudEvent, ...], answer: _Emitted
    ) -> tuple[bytes | None, ...]:
        if self.settings.key is not None:
            return answer.keys
        if self.key_from_partitionkey:
            texts = (event.get("partitionkey") for event in events)
            return tuple(None if text is None else text.encode() for text in texts)
        return (routed.key,) * len(events)

    def _with_receipt(self, routed: Routed, invoked: Invoked) -> Invoked:
        if self.receipts is None or self.receipts.wanted(routed) is None:
            return invoked
        outcome = "dead" if invoked.code is not None else "emitted" if invoked.events else "dropped"
        receipt = self.receipts.of(routed, invoked, outcome)
        if receipt is None:
            name = str(self.receipts.wanted(routed))[:_LONGEST_NAME]
            _log.warning("event %r asks for a receipt on %r, no channel for receipts", routed.event.id, name)
        return replace(invoked, receipt=receipt, unfollowed=receipt is None)


_CODES: Final[Mapping[type, str]] = {Retry: "retries-exhausted", Dead: "function-dead"}
"""Why an event is dead; a Failure says it itself."""

_GROUPS: Final[Mapping[str, Callable[[Routed], Hashable]]] = {
    "partition": lambda routed: (routed.record.topic, routed.record.partition),
    "key": lambda routed: (
        None
        if routed.record.key is None
        else (routed.record.topic, routed.record.partition, routed.record.key)
    ),
    "none": lambda routed: None,
}
"""What an event is in order with."""


def _answers(process: FunctionProcess, events: Sequence[Routed]) -> Iterator[Answer]:
    for part in _parts([_parcel(routed) for routed in events]):
        for answer in isolate(process.call, part):
            yield answer if isinstance(answer, Failure) else _read(answer)


def _parcel(routed: Routed) -> Parcel:
    origin = routed.origin or (routed.event.source, routed.event.id)
    return parcel(routed.event, routed.headers, routed.record, origin)


def _parts(parcels: Sequence[Parcel]) -> Iterator[list[Parcel]]:
    """Split a call that would hold too many bytes."""
    part: list[Parcel] = []
    size = 0
    for each in parcels:
        own = len(each[0][2] or b"")
        if part and size + own > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += own
    if part:
        yield part


def _read(answer: Any) -> Answer:
    """Read an outcome that the child wrote; what cannot be read is a failure of the child."""
    try:
        return _READERS[answer[0]](*answer[1:])
    except (EventError, AttributeError, LookupError, TypeError, ValueError) as exc:
        return Failure("function-exit", f"its answer cannot be read: {type(exc).__name__}")


def _read_emitted(emissions: Any) -> _Emitted:
    events = tuple(None if content is None else unpacked(content) for content, _, _ in emissions)
    return _Emitted(events, tuple(key for _, key, _ in emissions), tuple(own for _, _, own in emissions))


_SAME: Final = _Emitted((None,), (None,), (None,))
_READERS: Final[Mapping[str, Callable[..., Answer]]] = {
    "same": lambda: _SAME,
    "emit": _read_emitted,
    "retry": Retry,
    "dead": Dead,
    "drop": Drop,
}
