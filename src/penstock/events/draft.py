"""From what a decoder found to a Reading: the one place where the three levels differ.

A decoder fills a Draft and notes findings. `conclude` adds the rules of core, then raises, repairs
or gives the verdict. What `lenient` does with each broken rule:

- an illegal attribute name is lower-cased if that makes it legal and free, else left out and reported;
- an empty optional attribute is left out; any other illegal text is kept as received;
- an extension of a wrong type is kept as text;
- a missing or empty required attribute and an unknown specversion leave no event: InvalidEvent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import EventError, InvalidEvent, NotACloudEvent, UnsupportedFormat
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json, absent
from penstock.events.media import is_json
from penstock.events.reading import Finding, Level, Mode, Reading, Severity, Verdict
from penstock.events.rules import NON_EMPTY, findings, illegal_name, is_name
from penstock.events.types import AttributeType
from penstock.events.v03 import upgrade

__all__ = ["Draft", "conclude", "failed"]


MAX_FINDINGS = 100


@dataclass(slots=True)
class Draft:
    """What a decoder read so far; mutable, lives for one record."""

    attributes: dict[str, str] = field(default_factory=dict)
    data: Data = absent
    types: dict[str, AttributeType] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    mode: Mode = Mode.BINARY

    def report(self, what: str, attribute: str | None = None, clause: str | None = None, **more: str) -> None:
        """Note a broken rule that `lenient` forgives; what follows a hundred of them is not told."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(what, attribute, clause, more.get("fix")))

    def fatal(self, what: str, attribute: str | None = None, clause: str | None = None, **more: str) -> None:
        """Note a broken rule that leaves no event."""
        self.findings.append(Finding(what, attribute, clause, more.get("fix"), Severity.FATAL))


def conclude(draft: Draft, level: Level) -> Reading:
    """Judge a draft at a level."""
    if level is not Level.STRICT:
        _lower_names(draft)
    _upgrade(draft)
    found = (*draft.findings, *findings(draft.attributes, draft.types), *_data_findings(draft))
    broken = [finding for finding in found if finding.severity is not Severity.WARNING]
    fatal = next((finding for finding in broken if finding.severity is Severity.FATAL), None)
    blocking = broken[0] if broken and level is Level.STRICT else fatal
    if blocking is not None:
        if level is not Level.FORENSIC:
            raise blocking.error()
        return Reading(
            verdict=Verdict.INVALID,
            findings=found,
            error=blocking.error(),
            mode=draft.mode,
            attributes=draft.attributes,
        )
    attributes, types = _repaired(draft) if broken else (draft.attributes, draft.types)
    return Reading(
        verdict=Verdict.TOLERATED if broken else Verdict.EVENT,
        event=CloudEvent.unchecked(attributes, draft.data, types, sound=not broken),
        findings=found,
        error=broken[0].error() if broken else None,
        mode=draft.mode,
        attributes=attributes,
    )


_VERDICTS: tuple[tuple[type[EventError], Verdict], ...] = (
    (NotACloudEvent, Verdict.FOREIGN),
    (UnsupportedFormat, Verdict.UNSUPPORTED),
    (EventError, Verdict.INVALID),
)


def failed(error: EventError, level: Level, mode: Mode | None = None) -> Reading:
    """Raise the error, or at the level `forensic` give it as a verdict."""
    if level is not Level.FORENSIC:
        raise error
    verdict = next(verdict for kind, verdict in _VERDICTS if isinstance(error, kind))
    found: tuple[Finding, ...] = ()
    if isinstance(error, InvalidEvent):
        found = (Finding(error.what, error.attribute, error.clause, error.fix, Severity.FATAL),)
    return Reading(verdict=verdict, error=error, mode=mode, findings=found)


def _lower_names(draft: Draft) -> None:
    """Lower-case illegal names before anything is missed: `Type` is the type where there is no `type`."""
    for name in [name for name in draft.attributes if not is_name(name)]:
        lower = name.lower()
        if is_name(lower) and lower not in draft.attributes:
            draft.findings.extend(illegal_name(name))
            draft.attributes[lower] = draft.attributes.pop(name)
            if name in draft.types:
                draft.types[lower] = draft.types.pop(name)


def _upgrade(draft: Draft) -> None:
    # Row 43: strict refuses 0.3 with a clear error, lenient and forensic convert it.
    if draft.attributes.get("specversion") != "0.3":
        return
    draft.report(
        "specversion 0.3 is converted to 1.0", "specversion", "core, specversion", fix="send specversion 1.0"
    )
    try:
        draft.attributes, draft.data = upgrade(draft.attributes, draft.data)
    except ValueError as exc:
        draft.fatal(str(exc), "data", "CloudEvents 0.3, datacontentencoding")


def _data_findings(draft: Draft) -> tuple[Finding, ...]:
    media_type = draft.attributes.get("datacontenttype")
    if isinstance(draft.data, Json) and media_type is not None and not is_json(media_type):
        # JSON format 3.1.2: data of a type that is not JSON is a string; anything else MAY fail.
        what = f"data is a JSON value, but datacontenttype is {media_type[:60]}"
        return (Finding(what, "data", "JSON format 3.1.2", "send it as a string or in data_base64"),)
    return ()


def _repaired(draft: Draft) -> tuple[dict[str, str], Mapping[str, AttributeType]]:
    attributes: dict[str, str] = {}
    for name, text in draft.attributes.items():
        if is_name(name) and (text or name not in NON_EMPTY):
            attributes[name] = text
    wrong = {finding.attribute for finding in findings(draft.attributes, draft.types)}
    return attributes, {n: kind for n, kind in draft.types.items() if n in attributes and n not in wrong}
