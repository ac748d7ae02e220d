"""How an event is read: the level asked for, what was found on the way, and the verdict.

`strict` raises at the first broken rule. `lenient` gives the event and a report of what it
tolerated, and raises only when no event can be made. `forensic` never raises: it always gives a
verdict, with whatever could be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import EventError, InvalidEvent

if TYPE_CHECKING:
    from penstock.events.cloudevent import CloudEvent

__all__ = ["Finding", "Level", "Mode", "Reading", "Severity", "Verdict"]


class Level(Enum):
    """How much the reader forgives."""

    STRICT = "strict"
    LENIENT = "lenient"
    FORENSIC = "forensic"


class Mode(Enum):
    """The content modes of CloudEvents."""

    BINARY = "binary"
    STRUCTURED = "structured"
    BATCH = "batch"


class Severity(Enum):
    """How much a broken rule costs."""

    WARNING = "warning"
    """A SHOULD; no level minds."""
    ERROR = "error"
    """A MUST that `lenient` forgives."""
    FATAL = "fatal"
    """A MUST without which there is no event."""


class Verdict(Enum):
    """What a record turned out to be."""

    EVENT = "event"
    """A valid CloudEvent."""
    TOLERATED = "tolerated"
    """An event that breaks a rule which `lenient` forgives; the report says which."""
    INVALID = "invalid"
    """It claims to be a CloudEvent and no event can be made of it."""
    UNSUPPORTED = "unsupported"
    """An event format that nobody registered; the record can be forwarded as it is."""
    FOREIGN = "foreign"
    """It does not claim to be a CloudEvent."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that the input breaks: what, which attribute, by which clause, and how to repair it."""

    what: str
    attribute: str | None = None
    clause: str | None = None
    fix: str | None = None
    severity: Severity = Severity.ERROR

    def error(self) -> InvalidEvent:
        """Give the exception that `strict` raises for this finding."""
        return InvalidEvent(self.what, attribute=self.attribute, clause=self.clause, fix=self.fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The outcome of reading one record at any level.

    `event` is there for the verdicts EVENT and TOLERATED. `error` is what `strict` would raise.
    `attributes` holds what `forensic` could save of an event that is invalid.
    """

    verdict: Verdict
    event: CloudEvent | None = None
    findings: tuple[Finding, ...] = ()
    error: EventError | None = None
    mode: Mode | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
