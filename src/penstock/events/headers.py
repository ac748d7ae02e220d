"""How attributes are named in the headers of Kafka and in the properties of Pulsar's profile 1.0.

Legal names are remembered, within a bound, so that a record costs one lookup per header.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import CannotEncode
from penstock.events.draft import Draft
from penstock.events.reading import Finding, Severity
from penstock.events.rules import is_name
from penstock.record import Headers, Properties

__all__ = ["CONTENT_TYPE", "DASH", "PREFIX", "header_of", "read_headers", "to_headers", "to_properties"]

PREFIX = "ce_"
DASH = "ce-"
CONTENT_TYPE = "content-type"
_MEMORY = 4096

known: dict[str, str | None] = {CONTENT_TYPE: "datacontenttype"}
"""Header to attribute, None for a foreign header; illegal and ambiguous names never enter."""
written: dict[str, str] = {"datacontenttype": CONTENT_TYPE}
"""Attribute to header."""


def header_of(attribute: str) -> str:
    """Name the header of an attribute."""
    # Kafka 3.2.3.1: "prefixed with ce_"; 3.2.1: content-type is datacontenttype.
    header = written.get(attribute)
    if header is None:
        header = PREFIX + attribute
        if len(written) < _MEMORY:
            written[attribute] = header
    return header


def read_headers(draft: Draft, headers: Headers, *, dash: bool, lenient: bool) -> bool:
    """Read the headers of binary mode with all that is wrong; False if none claims to be ours."""
    others = []
    claimed = False
    for name, raw in headers:
        _learn(name)
        if name == CONTENT_TYPE or name.startswith(PREFIX):
            claimed |= raw is not None and name != CONTENT_TYPE
            _read(draft, name, raw)
        else:
            others.append((name, raw))
    for name, raw in others:
        spelled = _respelled(name, dash, lenient)
        if spelled is not None and raw is not None:
            claimed |= spelled != CONTENT_TYPE
            _read_other_spelling(draft, name, spelled, raw)
    return claimed


def _learn(name: str) -> None:
    attribute = name[len(PREFIX) :] if name.startswith(PREFIX) else None
    ambiguous = attribute == "datacontenttype" or name.lower().startswith((PREFIX, DASH, CONTENT_TYPE))
    legal = is_name(attribute) and attribute != "datacontenttype" if attribute is not None else not ambiguous
    if legal and len(known) < _MEMORY:
        known.setdefault(name, attribute)


def _read(draft: Draft, name: str, raw: bytes | None) -> None:
    if raw is None:
        return  # row 63: Kafka allows a null header; it holds no text, so the attribute is absent
    attribute = "datacontenttype" if name == CONTENT_TYPE else name[len(PREFIX) :]
    if name != CONTENT_TYPE and attribute == "datacontenttype":
        # Kafka 3.2.1: datacontenttype is mapped to content-type; lenient takes it if there is no other.
        draft.report("ce_datacontenttype stands for content-type", attribute, "Kafka 3.2.1")
        if attribute in draft.attributes:
            return
    elif attribute in draft.attributes:
        # core, Context Attributes: each attribute at most once; lenient takes the last.
        draft.report(f"header {name} is repeated", attribute, "core, Context Attributes", fix="send it once")
    _set(draft, attribute, raw)


def _set(draft: Draft, attribute: str, raw: bytes) -> None:
    try:
        draft.attributes[attribute] = raw.decode()
    except UnicodeDecodeError:
        # Kafka 3.2.3: "header values MUST be encoded as UTF-8 strings".
        draft.fatal(f"{attribute} is not UTF-8", attribute, "Kafka 3.2.3", fix="send UTF-8")
        draft.attributes[attribute] = raw.decode("utf-8", "replace")


def _respelled(name: str, dash: bool, lenient: bool) -> str | None:
    spelled = name.lower() if lenient else name
    if dash and spelled.startswith(DASH):
        return PREFIX + spelled[len(DASH) :]
    return spelled if lenient and (spelled == CONTENT_TYPE or spelled.startswith(PREFIX)) else None


def _read_other_spelling(draft: Draft, name: str, spelled: str, raw: bytes) -> None:
    # Row 59: never both spellings; the exact one is taken.
    attribute = "datacontenttype" if spelled == CONTENT_TYPE else spelled[len(PREFIX) :]
    if attribute in draft.attributes:
        draft.report(f"header {name} is another spelling of {spelled}", attribute, "Kafka 3.2.3.1")
        return
    exact = Severity.WARNING if name.startswith(DASH) else Severity.ERROR
    draft.findings.append(
        Finding(f"header {name} is read as {spelled}", attribute, "Kafka 3.2.3.1", None, exact)
    )
    _set(draft, attribute, raw)


def to_properties(headers: Iterable[tuple[str, bytes | None]]) -> Properties:
    """Give foreign Kafka headers as Pulsar properties; CannotEncode for what is not text or repeated."""
    properties: dict[str, str] = {}
    for name, value in headers:
        if value is None or name in properties:
            raise CannotEncode(
                f"header {name[:60]!r} is null or repeated", why="a Pulsar property has one text"
            )
        try:
            properties[name] = value.decode()
        except UnicodeDecodeError as exc:
            raise CannotEncode(
                f"header {name[:60]!r} is not UTF-8", why="Pulsar properties are text"
            ) from exc
    return tuple(properties.items())


def to_headers(properties: Iterable[tuple[str, str]]) -> Headers:
    """Give foreign Pulsar properties as Kafka headers."""
    return tuple((name, value.encode()) for name, value in properties)
