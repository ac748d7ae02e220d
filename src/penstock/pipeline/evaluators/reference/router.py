"""All routes of a source on records, one by one: what each becomes, and what is counted.

Each record has a boundary of its own: if a step raises because of it, it becomes one dead letter and nothing
else, and the others go on. What is not about a record, such as an id that the registry was not asked for,
ends the batch. Functions get all their events of a batch at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

from penstock.errors import EventError, UnsupportedPlan
from penstock.events import CloudEvent, absent
from penstock.events.cloudevent import with_data
from penstock.events.content import json_of
from penstock.events.reading import Mode as EventMode
from penstock.pipeline.arrow.bindings import Binding
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.evaluators.reference.outcome import (
    INTERNAL,
    DeadLetters,
    Outcome,
    Refused,
    Written,
    is_of_a_record,
    reason_of_bug,
)
from penstock.pipeline.evaluators.reference.reading import FOREIGN, UNSUPPORTED, Decoded, Reject, UnreadBatch
from penstock.pipeline.evaluators.reference.route import (
    Output,
    RouteEvaluator,
    evaluator_of,
    in_order,
    scope_of,
)
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plain import PlainReader
from penstock.pipeline.plan.route import Mode
from penstock.pipeline.plan.verdict import EXPIRED, KEEP, REASONS, UNMATCHED, Decision, Verdict
from penstock.pipeline.ports import Invoked, Invoker, Routed, Target
from penstock.pipeline.pulsar import PulsarReader
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.record_check import RecordCheck, Unresolved
from penstock.record import Headers, KafkaRecord

if TYPE_CHECKING:
    from penstock.pipeline.stage import Stage, StageRoute

__all__ = ["Answers", "Known", "ReferenceRouter", "Routing", "stops_reference"]

Answers = Sequence[bool]
"""Whether the condition in Spark's own SQL of each route holds for a record; true where there is none."""
AnswerKey = tuple[int | None, int]
"""The offset of a record, and how many records before it have the same one: see `_answer_keys`."""
Known = dict[int, dict[AnswerKey, Invoked]]
"""What functions have answered, by the number of the route and the record, of one partition."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What records became: one list a record, in their order, and the counters."""

    written: list[list[Written]]
    counts: Counter[str]


@dataclass(slots=True)
class _Leaving:
    """An event that a route has kept, and what belongs to it."""

    outcome: Outcome
    event: CloudEvent
    key: bytes | None
    headers: Headers
    structured: bool
    null_value: bool
    """Whether its record came with a null value, which stays one in either mode."""
    came: Headers | None
    """All headers of the plain record that it is, if nothing of it was changed."""
    is_json: bool
    """Whether data is known to be JSON text."""
    origin: CloudEvent
    """The event as it was read."""


class _Route:
    """A route, prepared: its evaluator, how each target is written in either mode, where its letters go."""

    def __init__(self, route: StageRoute, stage: Stage, server: str | None) -> None:
        self.evaluator: RouteEvaluator = evaluator_of(route.plan)
        self.mode = route.plan.mode
        self.targets = route.targets
        self.invoker: Invoker | None = route.invoker
        self.dead = DeadLetters(route.dead, stage.pipeline, server, route.plan.name)
        self.bindings: list[tuple[Target, Binding, Binding]] = [
            (target, target.binding(EventMode.BINARY), target.binding(EventMode.STRUCTURED))
            for target in route.targets
        ]
        """Each target with its bindings for binary and for structured mode."""

    def write(self, leaving: _Leaving) -> None:
        """Write an event to all targets; what one of them cannot take is one dead letter."""
        wanted = self.mode is Mode.STRUCTURED or (self.mode is Mode.KEEP and leaving.structured)
        # A tombstone stays one: a null value is an event without data, which only binary mode can say.
        wanted = wanted and not leaving.null_value
        event, outcome = leaving.event, leaving.outcome
        shown = event
        if wanted and leaving.is_json and type(event.data) is bytes:
            # A condition has seen that this is JSON: it need not be parsed again to be spliced.
            shown = with_data(event, json_of(absent, event.data, None))
        problem: Exception | None = None
        for target, binary, structured in self.bindings:
            try:
                if target.writer is None:
                    binding = structured if wanted else binary
                    record = binding.encode(shown, key=leaving.key, headers=leaving.headers)
                else:
                    record = target.writer(
                        event,
                        leaving.key,
                        leaving.headers,
                        null_value=leaving.null_value,
                        came=leaving.came,
                    )
            except Exception as exc:
                # Not left to the boundary of the record: its other targets get what can be written.
                if not is_of_a_record(exc):
                    raise
                problem = problem or exc
            else:
                outcome.send(target, record, self.dead)
        if isinstance(problem, EventError):
            outcome.bury(self.dead, "cannot-encode", str(problem))
        elif problem is not None:
            outcome.bury(self.dead, INTERNAL, reason_of_bug(problem))

    def account(self, verdict: Verdict, outcome: Outcome) -> None:
        """Count a record that the route does not keep, or put it aside."""
        if verdict.decision is Decision.REJECT:
            outcome.bury(self.dead, verdict.code, REASONS[verdict])
        elif verdict.decision is Decision.DROP and verdict is not UNMATCHED:
            outcome.counted.append("n_expired" if verdict is EXPIRED else "n_dropped")

    def invoked(self, leaving: _Leaving, invoked: Invoked) -> None:
        """Write what a function made of an event."""
        outcome = leaving.outcome
        for number, event in enumerate(invoked.events):
            headers = leaving.headers if invoked.headers is None else invoked.headers[number]
            kept = leaving.came is not None and headers == leaving.headers and event == leaving.event
            left = _Leaving(
                outcome,
                event,
                leaving.key if invoked.keys is None else invoked.keys[number],
                headers,
                leaving.structured,
                leaving.null_value and event.data is absent,
                leaving.came if kept else None,
                False,
                leaving.origin,
            )
            self.write(left)
        if invoked.code is not None:
            outcome.bury(self.dead, invoked.code, invoked.reason, invoked.attempts)
        elif not invoked.events:
            outcome.counted.append("n_dropped")
        outcome.counted += ["n_retried"] * (invoked.attempts - 1)
        outcome.counted += ["n_unfollowed"] * invoked.unfollowed
        if invoked.receipt is not None:
            target = invoked.receipt.target
            if outcome.is_refused(target):
                # Nobody waits for a letter about a receipt; its event has gone where it should.
                outcome.counted.append("n_unfollowed")
                return
            record = target.binding(EventMode.BINARY).encode(invoked.receipt.event)
            outcome.written.append((target, record))


def stops_reference(stage: Stage, *, has_answers: bool = False) -> tuple[str, ...]:
    """Return what keeps a stage from the reference, each with its route; none: it can be done.

    `has_answers` says that the answers to conditions in Spark's own SQL come with the records.
    """
    asked = [
        f"route {each.plan.name}: a condition in Spark's own SQL"
        for each in stage.routes
        if each.sql is not None and not has_answers
    ]
    others = (type(each).__name__ for each in stage.checks if not isinstance(each, ContractCheck))
    return (*asked, *(f"events are checked by {name}" for name in others))


class ReferenceRouter:
    """The routes of one source; made once, used for any number of batches."""

    def __init__(self, stage: Stage, *, has_answers: bool = False) -> None:
        """`has_answers`: each call of `route` has the answers to conditions in Spark's own SQL."""
        if stopped := stops_reference(stage, has_answers=has_answers):
            raise UnsupportedPlan("reference", stopped)
        server = stage.servers[0] if stage.servers else None
        self._dead = DeadLetters(stage.dead, stage.pipeline, server)
        self._unknown = stage.unknown
        self._read = _reader_of(stage)
        self._is_plain = isinstance(stage.reader, PlainReader)
        self._checks = [RecordCheck(check) for check in stage.checks if isinstance(check, ContractCheck)]
        self._routes = [_Route(route, stage, server) for route in stage.routes]
        self._all_hold: Answers = (True,) * len(self._routes)

    def route(
        self,
        records: Sequence[KafkaRecord],
        *,
        now: int,
        refused: Refused | None = None,
        known: Known | None = None,
        answers: Sequence[Answers] | None = None,
    ) -> Routing:
        """Route records; `now` is the moment in microseconds.

        What a record becomes for a topic that has `refused` it is a dead letter; then all records are of one
        partition. A letter that was refused as too large leaves without its record. `known` keeps what
        functions have answered, so that the same records can be routed again without a second call. `answers`
        has one row for each record: whether the condition in Spark's own SQL of each route holds, true for
        routes without.
        """
        outcomes = [Outcome(record, refused or {}) for record in records]
        found = [self._guarded(outcome, self._decode, outcome.record) for outcome in outcomes]
        for check in self._checks:
            self._check(check, outcomes, found)
        waiting: list[list[_Leaving]] = [[] for _ in self._routes]
        asked = repeat(self._all_hold, len(outcomes)) if answers is None else answers
        for outcome, decoded, holds in zip(outcomes, found, asked, strict=True):
            if not outcome.failed:
                self._guarded(outcome, self._route_one, outcome, decoded, now, holds, waiting)
        keys: dict[int, AnswerKey] = {}
        if known is not None and any(waiting):
            keys = {id(outcome): key for outcome, key in zip(outcomes, _answer_keys(records), strict=True)}
        for number, (route, leaving) in enumerate(zip(self._routes, waiting, strict=True)):
            alive = [each for each in leaving if not each.outcome.failed]
            if known is None:
                self._invoke(route, alive)
            else:
                self._invoke_once(route, alive, known.setdefault(number, {}), keys)
        counts = Counter(dict.fromkeys(COUNTERS, 0))
        counts["n_in"] = len(outcomes)
        counts.update(chain.from_iterable(outcome.counted for outcome in outcomes))
        return Routing([outcome.finish() for outcome in outcomes], counts)

    def _guarded(self, outcome: Outcome, step: Callable[..., object], *arguments: object) -> object:
        """Do a step for one record; if it raises because of the record, only a letter is left of that."""
        try:
            return step(*arguments)
        except Exception as exc:
            if not is_of_a_record(exc):
                raise
            outcome.fail(self._dead, exc)
            return None

    # Reading

    def _decode(self, record: KafkaRecord) -> Decoded | Reject:
        if type(record) is UnreadBatch:
            return record.reject
        found = self._read(record)
        if type(found) is Decoded:
            found.event = in_order(found.event)
        return found

    def _check(self, check: RecordCheck, outcomes: Sequence[Outcome], found: list[object]) -> None:
        """Check all events in place; what has a code already stays as it is."""
        unresolved: dict[int, Unresolved] = {}
        for at, (outcome, decoded) in enumerate(zip(outcomes, found, strict=True)):
            if type(decoded) is Decoded:
                verdict = self._guarded(outcome, check.check, decoded, outcome.record)
                found[at] = verdict
                if type(verdict) is Unresolved:
                    unresolved[at] = verdict
        if unresolved:
            for at, reject in zip(unresolved, check.settle(list(unresolved.values())), strict=True):
                found[at] = reject

    # Routing

    def _route_one(
        self,
        outcome: Outcome,
        decoded: Decoded | Reject,
        now: int,
        holds: Answers,
        waiting: Sequence[list[_Leaving]],
    ) -> None:
        if isinstance(decoded, Reject):
            self._not_an_event(decoded, outcome)
            return
        event, structured, key = decoded.event, decoded.structured, outcome.record.key
        scope, matched = scope_of(event, now), False
        for route, functions, may in zip(self._routes, waiting, holds, strict=True):
            evaluator = route.evaluator
            found = (
                evaluator.decide(event, scope, key, structured) if may else evaluator.unmatched(event, scope)
            )
            matched = matched or found is not UNMATCHED
            if not isinstance(found, Output):
                route.account(found, outcome)
                continue
            leaving = _Leaving(
                outcome,
                found.event,
                found.key,
                decoded.foreign,
                structured,
                found.null_value,
                outcome.record.headers if self._is_plain and found.event is event else None,
                type(scope.data) in _JSON_VALUES,
                event,
            )
            if route.invoker is None:
                route.write(leaving)
            else:
                functions.append(leaving)
        if not matched:
            outcome.counted.append("n_unmatched")

    def _not_an_event(self, reject: Reject, outcome: Outcome) -> None:
        if reject.code == FOREIGN and outcome.record.value is None:
            for route in self._routes:
                verdict = route.evaluator.verdict_on_null
                if verdict is KEEP:
                    _pass_on(route.targets, route.dead, outcome)
                route.account(verdict, outcome)
        elif reject.code == UNSUPPORTED and self._unknown:
            _pass_on(self._unknown, self._dead, outcome)
        else:
            outcome.bury(self._dead, reject.code, reject.reason)

    # Functions

    def _invoke_once(
        self,
        route: _Route,
        waiting: Sequence[_Leaving],
        known: dict[AnswerKey, Invoked],
        keys: Mapping[int, AnswerKey],
    ) -> None:
        """Call the function for events of which no answer is known yet; `keys` is by the id of an outcome."""
        unknown = [each for each in waiting if keys[id(each.outcome)] not in known]
        self._invoke(
            route, unknown, lambda leaving, invoked: known.update({keys[id(leaving.outcome)]: invoked})
        )
        for leaving in waiting:
            invoked = known.get(keys[id(leaving.outcome)])
            if invoked is not None and not leaving.outcome.failed:
                self._guarded(leaving.outcome, route.invoked, leaving, invoked)

    def _invoke(
        self,
        route: _Route,
        waiting: Sequence[_Leaving],
        remember: Callable[[_Leaving, Invoked], object] | None = None,
    ) -> None:
        """Call the function for all events; for halves where it is not known on which of them it breaks.

        Writes what it gave, or only lets it be remembered.
        """
        if route.invoker is None or not waiting:
            return
        try:
            results = route.invoker([_as_routed(leaving) for leaving in waiting])
        except Exception as exc:
            if not is_of_a_record(exc):
                raise
            half = len(waiting) // 2
            if not half:
                waiting[0].outcome.fail(self._dead, exc)
                return
        else:
            for leaving, invoked in zip(waiting, results, strict=True):
                if remember is None:
                    self._guarded(leaving.outcome, route.invoked, leaving, invoked)
                else:
                    remember(leaving, invoked)
            return
        self._invoke(route, waiting[:half], remember)
        self._invoke(route, waiting[half:], remember)


def _answer_keys(records: Iterable[KafkaRecord]) -> Iterator[AnswerKey]:
    """Tell records of one partition apart, also in another call with all records of an offset.

    Messages that Pulsar got in one batch of a transaction have an offset together.

    >>> list(_answer_keys([KafkaRecord(value=b"", offset=offset) for offset in (3, 3, 4)]))
    [(3, 0), (3, 1), (4, 0)]
    """
    before, number = None, 0
    for record in records:
        number = number + 1 if record.offset == before else 0
        before = record.offset
        yield before, number


_JSON_VALUES: Final = frozenset({dict, list, str, bool})
"""Types of parsed data that are certainly JSON; null is not among them, which also stands for no data."""


def _pass_on(targets: Iterable[Target], dead: DeadLetters, outcome: Outcome) -> None:
    """Write a record as it came."""
    given = outcome.record
    for target in targets:
        record = KafkaRecord(key=given.key, value=given.value, headers=given.headers)
        outcome.send(target, record, dead)


def _as_routed(leaving: _Leaving) -> Routed:
    return Routed(
        event=leaving.event,
        key=leaving.key,
        headers=leaving.headers,
        record=leaving.outcome.record,
        origin=(leaving.origin.source, leaving.origin.id),
    )


def _reader_of(stage: Stage) -> Callable[[KafkaRecord], Decoded | Reject]:
    reader = stage.reader
    if isinstance(reader, KafkaReader | PulsarReader | PlainReader):
        return reader.by_record()
    return KafkaReader().by_record()
