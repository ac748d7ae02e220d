"""Which sources of a job have failed since they last wrote, and when each is started again.

| failure | what follows |
|---|---|
| schemas that were not known, and are now | it is started at once |
| a cluster or the registry is away, in a job without an end | every few seconds, for as long as it takes |
| another job took over the checkpoint, or a copy of it | it is not started again |
| a Python worker was killed or did not come up | after longer and longer pauses, some times |
| anything else, in a job without an end, while other sources go on | the same, `max_failures` times |
| anything else | it is not started again |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Self

from penstock.brokers.outage import REMIND_SECONDS
from penstock.errors import JobFailed, PenstockError, PipelineError, UnknownSchemas, Unreachable
from penstock.pipeline.job.failure import outage_in

__all__ = [
    "AwayFailure",
    "Failing",
    "OtherFailure",
    "Restarts",
    "TakenOver",
    "WorkerFailure",
    "as_problem",
    "combined",
]

AWAY_PAUSE: Final = 5.0
"""Seconds before a query is started again whose cluster was away."""
MOST_WORKER_FAILURES: Final = 6
"""How often in a row Python workers of a source may die or not come up."""
LONGEST_WORKER_PAUSE: Final = 20.0
LONGEST_PAUSE: Final = 60.0


class _Kind(JobFailed):
    """A failure that decides about the next start."""

    @classmethod
    def of(cls, failed: PenstockError) -> Self:
        """Return the same failure as one of this kind."""
        return cls(failed.what, where=failed.where, why=failed.why, next=failed.next)


class WorkerFailure(_Kind):
    """A query that can be started again: a Python process was missing."""


class AwayFailure(_Kind):
    """A query that can be started again: its tasks did not wait as long as a cluster was away."""


class TakenOver(_Kind):
    """A query that must not be started again: it would fence the job that has the checkpoint now."""


class OtherFailure(_Kind):
    """The trouble of one source that Spark did not tell of: with its registry, or with a file of a secret."""

    error: PenstockError
    """What was raised; it ends the job if nothing else does."""


def as_problem(error: PenstockError, *, has_end: bool) -> PipelineError:
    """Return what was raised for one source as its failure; `has_end`: the job ends by itself."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, Unreachable) and not has_end:
        return AwayFailure.of(error)
    problem = OtherFailure.of(error)
    problem.error = error
    return problem


@dataclass(slots=True)
class Failing:
    """A source that has failed since it last wrote a batch."""

    problem: PipelineError
    since: float
    noted: float
    count: int = 0
    """Failures in a row, without those of a cluster that was away."""

    @property
    def what(self) -> str:
        """What happened last."""
        return self.problem.what


class Restarts:
    """Counts the failures of each source and decides about its next start, which `note` is told."""

    def __init__(
        self,
        note: Callable[[str], None],
        *,
        max_failures: int,
        has_end: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`max_failures` 0: no number of failures is too much. `has_end`: the job ends by itself."""
        self._note = note
        self._max_failures = max_failures
        self._has_end = has_end
        self._clock = clock
        self._failing: dict[str, Failing] = {}

    def failing(self, name: str) -> Failing | None:
        """Return how a source fails; None if it has written a batch since, or never failed."""
        return self._failing.get(name)

    def worked(self, name: str) -> None:
        """Note that a source has written a batch."""
        failing = self._failing.pop(name, None)
        if failing is not None:
            self._note(f"{name}: writes again after {self._clock() - failing.since:.0f} s")

    def next_start(self, name: str, problem: PipelineError, *, others_go_on: bool) -> float | None:
        """Return after how many seconds a source that has failed is started again; None: not at all."""
        if isinstance(problem, UnknownSchemas):
            return 0.0
        now = self._clock()
        failing = self._failing.setdefault(name, Failing(problem, now, noted=-REMIND_SECONDS))
        was, failing.problem = failing.what, problem
        if isinstance(problem, AwayFailure):
            if failing.what != was or now - failing.noted > REMIND_SECONDS:
                failing.noted = now
                reason = outage_in(problem.why or "")
                said = f"{problem.what}; trying again until it does"
                self._note(f"{name}: {said}" + (f": {reason}" if reason else ""))
            return AWAY_PAUSE
        failing.count += 1
        if isinstance(problem, TakenOver):
            return None
        if isinstance(problem, WorkerFailure):
            return self._pause(name, failing, MOST_WORKER_FAILURES, LONGEST_WORKER_PAUSE)
        if self._has_end or not others_go_on:
            return None
        return self._pause(name, failing, self._max_failures, LONGEST_PAUSE)

    def _pause(self, name: str, failing: Failing, most: int, longest: float) -> float | None:
        if most and failing.count >= most:
            return None
        pause = min(2.0 ** (failing.count - 1), longest)
        bound = f" of {most}" if most else ""
        self._note(
            f"{name}: {failing.what}; failure {failing.count}{bound}, starting it again in {pause:.0f} s"
        )
        return pause

    def others(self, name: str) -> list[tuple[str, PipelineError]]:
        """Return why the other sources fail at the moment."""
        return [(each, failing.problem) for each, failing in self._failing.items() if each != name]


def combined(problems: dict[str, PipelineError]) -> PenstockError:
    """Return one error for all sources that have failed."""
    first = next(iter(problems.values()))
    if len(problems) == 1:
        return first.error if isinstance(first, OtherFailure) else first
    reasons = (
        f"{name}: {problem.what}" + (f": {problem.why}" if problem.why else "")
        for name, problem in problems.items()
    )
    advice = dict.fromkeys(problem.next for problem in problems.values() if problem.next)
    return JobFailed(
        f"{len(problems)} sources have failed",
        where=", ".join(problems),
        why="\n".join(reasons),
        next="; ".join(advice) or None,
    )
