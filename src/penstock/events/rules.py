"""The rules that core (CloudEvents 1.0, spec.md) puts on attributes.

`is_valid` answers fast for the many; `findings` explains for the few. A text that `is_valid`
accepts has no error in `findings`, and the other way round (tested as a property).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from penstock.events.media import LONGEST_KEPT, is_media_type
from penstock.events.reading import Finding, Severity
from penstock.events.timestamp import is_timestamp
from penstock.events.types import READERS, AttributeType

__all__ = [
    "CORE",
    "NON_EMPTY",
    "REQUIRED",
    "findings",
    "illegal_name",
    "is_name",
    "is_sound",
    "is_uri_reference",
    "is_valid",
]

CORE: Mapping[str, AttributeType] = {
    "specversion": AttributeType.STRING,
    "id": AttributeType.STRING,
    "source": AttributeType.URI_REFERENCE,
    "type": AttributeType.STRING,
    "subject": AttributeType.STRING,
    "time": AttributeType.TIMESTAMP,
    "datacontenttype": AttributeType.STRING,
    "dataschema": AttributeType.URI,
}
REQUIRED = ("specversion", "id", "source", "type")
SPECVERSION = "1.0"
# core: each "MUST be a non-empty string"; partitionkey by the Partitioning extension.
NON_EMPTY = frozenset(CORE) | {"partitionkey"}
LONG_NAME = 20

_NAME = re.compile(r"[a-z0-9]+", re.ASCII)
_PERCENT = "%[0-9A-Fa-f]{2}"
_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;="
_COMMON = r"A-Za-z0-9\-._~!$&'()*+,;=/"
_PCHARS = rf"(?:[{_PLAIN}:@/]++|{_PERCENT})*+"
_TAIL = rf"(?:\?(?:[{_PLAIN}:@/?]++|{_PERCENT})*+)?(?:\#(?:[{_PLAIN}:@/?]++|{_PERCENT})*+)?"
_HOST = rf"(?:\[(?:[0-9A-Fa-f:.]+|v[0-9A-Fa-f]+\.[{_PLAIN}:]+)\]|(?:[{_PLAIN}]++|{_PERCENT})*+)"
_USER = rf"(?:(?:[{_PLAIN}:]++|{_PERCENT})*+@)?"
_HIERARCHY = rf"(?://{_USER}{_HOST}(?::[0-9]*)?(?=[/?#\n]|\Z)|(?!//)){_PCHARS}{_TAIL}"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*:"
# RFC 3986 4.1 and 4.2: a relative reference has no colon in its first segment.
# The first branch is the common kind, tried first because it is cheap.
_COMMON_REFERENCE = rf"(?:{_SCHEME})?[{_COMMON}]++(?=\n|\Z)"
URI_REFERENCE = rf"(?:{_COMMON_REFERENCE}|(?:{_SCHEME}|(?![^/?#\n]*:)){_HIERARCHY})"
URI = _SCHEME + _HIERARCHY
_is_reference = re.compile(URI_REFERENCE).fullmatch
_is_uri = re.compile(URI).fullmatch

# core, String: no U+0000-001F, U+007F-009F, noncharacters, unpaired surrogates.
_NONCHARACTERS = "".join(
    f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17)
)
_ILLEGAL = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]")

_MEMORY = 512
_names = set(CORE)
"""Legal attribute names seen so far; bounded, because names come from outside."""
_MAX_NAMES = 2048
"""Characters of the names of an event whose names are remembered."""
media_types_seen: set[str] = set()
"""Valid media types seen so far; bounded likewise."""


def is_name(name: str) -> bool:
    """Tell whether an attribute may have this name."""
    # core, Naming: "MUST consist of lower-case letters or digits"; "data" is not for attributes.
    return _NAME.fullmatch(name) is not None and name != "data"


def is_uri_reference(text: str) -> bool:
    """Tell whether the text is a URI-reference of RFC 3986."""
    return _is_reference(text) is not None


def is_uri(text: str) -> bool:
    """Tell whether the text is an absolute URI."""
    return _is_uri(text) is not None


def is_text(text: str) -> bool:
    """Tell whether the text is a String of core."""
    return text.isprintable() or _ILLEGAL.search(text) is None


def is_valid(attributes: Mapping[str, str]) -> bool:
    """Tell whether the attributes make a valid event: required ones, names, text and types."""
    return (attributes.keys() <= _names or _learn_names(attributes)) and is_sound(attributes)


def is_sound(attributes: Mapping[str, str]) -> bool:
    """Tell the same of attributes whose names are known to be legal."""
    get = attributes.get
    source, time, media_type = get("source"), get("time"), get("datacontenttype")
    return bool(
        get("specversion") == SPECVERSION
        and get("id")
        and get("type")
        and source
        and _is_reference(source)
        and is_text("".join(attributes.values()))
        and (time is None or is_timestamp(time))
        and (media_type is None or media_type in media_types_seen or _learn_media_type(media_type))
        and get("subject") != ""
        and get("partitionkey") != ""
        and ("dataschema" not in attributes or _is_uri(attributes["dataschema"]))
    )


def _learn_names(attributes: Mapping[str, str]) -> bool:
    legal = all(map(is_name, attributes))
    if legal and len(_names) < _MEMORY and sum(map(len, attributes)) <= _MAX_NAMES:
        _names.update(attributes)
    return legal


def _learn_media_type(text: str) -> bool:
    legal = is_media_type(text)
    if legal and len(text) <= LONGEST_KEPT and len(media_types_seen) < _MEMORY:
        media_types_seen.add(text)
    return legal


def findings(
    attributes: Mapping[str, str], types: Mapping[str, AttributeType] | None = None
) -> Iterator[Finding]:
    """Explain every rule that the attributes break, errors and warnings."""
    types = types or {}
    yield from _missing(attributes)
    for name, text in attributes.items():
        yield from illegal_name(name)
        if text == "" and name in NON_EMPTY:
            cost = Severity.FATAL if name in REQUIRED else Severity.ERROR
            yield Finding(f"{name} is empty", name, f"core, {name}: non-empty", f"give {name} a value", cost)
        else:
            kind = CORE.get(name) or types.get(name, AttributeType.STRING)
            yield from _value_findings(name, text, kind)


def _missing(attributes: Mapping[str, str]) -> Iterator[Finding]:
    for name in REQUIRED:
        if name not in attributes:
            fix = f"the producer must set {name}"
            yield Finding(f"{name} is missing", name, f"core, {name}: REQUIRED", fix, Severity.FATAL)
    version = attributes.get("specversion", SPECVERSION)
    if version not in (SPECVERSION, ""):
        what = f"specversion {version[:40]!r} is not known here"
        yield Finding(what, "specversion", "core, specversion", "send specversion 1.0", Severity.FATAL)


def illegal_name(name: str) -> Iterator[Finding]:
    """Explain what is wrong with the name of an attribute."""
    if not is_name(name):
        fix = "the name data is taken" if name == "data" else "use lower-case letters a-z and digits only"
        yield Finding(f"attribute name {name[:60]!r} is not legal", name, "core, Naming", fix)
    elif len(name) > LONG_NAME or name[0].isdigit():
        why = f"is longer than {LONG_NAME}" if len(name) > LONG_NAME else "starts with a digit"
        yield Finding(
            f"attribute name {name[:60]} {why}", name, "core, Naming, SHOULD", severity=Severity.WARNING
        )


def _value_findings(name: str, text: str, kind: AttributeType) -> Iterator[Finding]:
    illegal = None if text.isprintable() else _ILLEGAL.search(text)
    if illegal:
        what = f"{name} holds the character U+{ord(illegal[0]):04X}"
        # A surrogate has no UTF-8: no binding could carry the event on.
        cost = Severity.FATAL if "\ud800" <= illegal[0] <= "\udfff" else Severity.ERROR
        yield Finding(what, name, "core, String", "remove control characters", cost)
        return
    if not _IS_OF_TYPE[kind](text):
        yield Finding(
            f"{name} is not a {kind.value}: {text[:60]!r}", name, f"core, Type System, {kind.value}"
        )
    elif name == "datacontenttype" and not is_media_type(text):
        yield Finding(f"{name} is not a media type: {text[:60]!r}", name, "core, datacontenttype; RFC 2046")
    elif name == "dataschema" and "#" in text:
        # RFC 3986 4.3 has no fragment in an absolute URI, but schemas are named by fragment everywhere.
        yield Finding(f"{name} has a fragment", name, "core, URI; RFC 3986 4.3", severity=Severity.WARNING)


def _reads_as(kind: AttributeType) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            READERS[kind](text)
        except ValueError:
            return False
        return True

    return check


_IS_OF_TYPE: Mapping[AttributeType, Callable[[str], object]] = {
    AttributeType.STRING: lambda text: True,
    AttributeType.URI_REFERENCE: _is_reference,
    AttributeType.URI: _is_uri,
    AttributeType.TIMESTAMP: is_timestamp,
    AttributeType.INTEGER: _reads_as(AttributeType.INTEGER),
    AttributeType.BOOLEAN: _reads_as(AttributeType.BOOLEAN),
    AttributeType.BINARY: _reads_as(AttributeType.BINARY),
}
