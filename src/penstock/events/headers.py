"""How attributes are named in the headers of Kafka and in the properties of Pulsar's profile 1.0.

Legal names are remembered, within a bound, so that a record costs one lookup per header.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events.draft import Draft
from penstock.events.media import LONGEST_KEPT
from penstock.events.reading import Finding, Severity
from penstock.events.rules import is_name
from penstock.events.types import read_base64, write_base64
from penstock.record import Headers, Properties

__all__ = [
    "CONTENT_TYPE",
    "DASH",
    "PREFIX",
    "REPEATED",
    "header_of",
    "read_headers",
    "to_headers",
    "to_properties",
    "without_repeated",
]

PREFIX = "ce_"
DASH = "ce-"
CONTENT_TYPE = "content-type"
REPEATED = f"{PREFIX}datacontenttype"
"""The name that datacontenttype would have as any other attribute; content-type is the one it has."""
_ESCAPE = "kafka~"
"""How the name of a property begins that stands for a header which is no text."""
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
        if len(attribute) <= LONGEST_KEPT and len(written) < _MEMORY:
            written[attribute] = header
    return header


def read_headers(draft: Draft, headers: Headers, *, dash: bool, lenient: bool) -> bool:
    """Read the headers of binary mode with all that is wrong; False if none claims to be ours."""
    others = []
    repeated = []
    claimed = False
    for name, raw in headers:
        _learn(name)
        if name == REPEATED:
            claimed |= raw is not None
            repeated += [raw] if raw is not None else []
        elif name == CONTENT_TYPE or name.startswith(PREFIX):
            claimed |= raw is not None and name != CONTENT_TYPE
            _read(draft, name, raw)
        else:
            others.append((name, raw))
    for name, raw in others:
        spelled = _respelled(name, dash, lenient)
        if spelled is not None and raw is not None:
            claimed |= spelled != CONTENT_TYPE
            _read_other_spelling(draft, name, spelled, raw)
    for number, raw in enumerate(repeated):
        _read_repeated(draft, raw, number)
    return claimed


def without_repeated(headers: Headers) -> Headers | None:
    """Leave `ce_datacontenttype` out where it says what content-type says; None if that is not so."""
    own = dict(headers)
    said, again = own.get(CONTENT_TYPE), own.get(REPEATED)
    if said is None or again is None or said.lower() != again.lower():
        return None
    rest = tuple(header for header in headers if header[0] != REPEATED)
    return rest if len(rest) == len(headers) - 1 else None


def _learn(name: str) -> None:
    attribute = name[len(PREFIX) :] if name.startswith(PREFIX) else None
    ambiguous = attribute == "datacontenttype" or name.lower().startswith((PREFIX, DASH, CONTENT_TYPE))
    legal = is_name(attribute) and attribute != "datacontenttype" if attribute is not None else not ambiguous
    if legal and len(name) <= LONGEST_KEPT and len(known) < _MEMORY:
        known.setdefault(name, attribute)


def _read(draft: Draft, name: str, raw: bytes | None) -> None:
    if raw is None:
        return  # row 63: Kafka allows a null header; it holds no text, so the attribute is absent
    attribute = "datacontenttype" if name == CONTENT_TYPE else name[len(PREFIX) :]
    if attribute in draft.attributes:
        # core, Context Attributes: each attribute at most once; lenient takes the last.
        draft.report(f"header {name} is repeated", attribute, "core, Context Attributes", fix="send it once")
    _set(draft, attribute, raw)


def _read_repeated(draft: Draft, raw: bytes, number: int) -> None:
    """Compare `ce_datacontenttype` with content-type, which is the header of datacontenttype.

    The JavaScript SDK writes both. Media types ignore case (RFC 2045 5.1), so equality does; what
    content-type says is taken. Without content-type only lenient takes this one.
    """
    attribute = "datacontenttype"
    known = draft.attributes.get(attribute)
    if known is None:
        fix = "send it as content-type"
        draft.report("ce_datacontenttype stands for content-type", attribute, "Kafka 3.2.1", fix=fix)
        _set(draft, attribute, raw)
    elif number or raw.lower() != known.encode("utf-8", "surrogatepass").lower():
        what = "is repeated" if number else "differs from content-type, which is taken"
        draft.report(f"header {REPEATED} {what}", attribute, "Kafka 3.2.1", fix="send content-type alone")


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
    """Give Kafka headers as Pulsar properties, in order, repeated and null ones included.

    A property is two texts. What is no text is escaped as the gateway does it, so that a Kafka client reads
    the header through the gateway as it was: `kafka~n~NAME` is a null, `kafka~b~NAME` is bytes in base64,
    `kafka~t~NAME` is the text of a header whose name begins with `kafka~` itself.

    >>> to_properties((("a", b"1"), ("a", None), ("b", bytes([255]))))
    (('a', '1'), ('kafka~n~a', ''), ('kafka~b~b', '/w=='))
    """
    return tuple(_property(name, value) for name, value in headers)


def _property(name: str, value: bytes | None) -> tuple[str, str]:
    if value is None:
        return f"{_ESCAPE}n~{name}", ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{_ESCAPE}b~{name}", write_base64(value)
    return (f"{_ESCAPE}t~{name}" if name.startswith(_ESCAPE) else name), text


def to_headers(properties: Iterable[tuple[str, str]]) -> Headers:
    """Give Pulsar properties as Kafka headers; what `to_properties` escaped is what it was.

    What has not exactly the form of an escape is taken as it is.
    """
    return tuple(_header(name, value) for name, value in properties)


def _header(name: str, value: str) -> tuple[str, bytes | None]:
    kind, real = name[len(_ESCAPE) : len(_ESCAPE) + 2], name[len(_ESCAPE) + 2 :]
    if name.startswith(_ESCAPE):
        if kind == "n~" and not value:
            return real, None
        if kind == "t~":
            return real, value.encode()
        if kind == "b~":
            try:
                raw = read_base64(value)
            except ValueError:
                return name, value.encode()
            return (real, raw) if write_base64(raw) == value else (name, value.encode())
    return name, value.encode()
