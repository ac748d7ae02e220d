"""Media types as CloudEvents uses them: RFC 2046 grammar, JSON by subtype, the CloudEvents prefix.

Comparison ignores case, parameters are set aside (JSON format 3.1.1, Kafka binding 3).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["charset", "essence", "is_batch", "is_cloudevents", "is_json", "is_media_type", "is_text"]

CLOUDEVENTS = "application/cloudevents"
BATCH = "application/cloudevents-batch"

# RFC 2045 5.1 (referred to by RFC 2046): type "/" subtype *(";" attribute "=" value).
# Possessive throughout: hostile text is read once, without backtracking.
_TOKEN = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]++"
_QUOTED = r'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\U0010ffff]|\\[\t\x20-\U0010ffff])*+"'
_PARAMETER = rf"[ \t]*+;[ \t]*+(?:{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))?+"
GRAMMAR = rf"{_TOKEN}/{_TOKEN}(?:{_PARAMETER})*+[ \t]*+"
_MEDIA_TYPE = re.compile(GRAMMAR)
_CHARSET = re.compile(rf';[ \t]*charset="?({_TOKEN})"?', re.IGNORECASE)
_MEMORY = 512
json_types_seen: set[str] = set()
"""Media types of JSON seen so far; bounded, because they come from outside."""
LONGEST_KEPT: Final = 256
"""Characters of a media type, or of a name, that is remembered."""
_TEXT_SUFFIXES = ("+xml", "/xml", "/javascript", "/x-www-form-urlencoded", "/yaml", "+yaml")


def is_media_type(text: str) -> bool:
    """Tell whether the text is a media type with optional parameters."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def essence(text: str) -> str:
    """Give type and subtype in lower case, without parameters."""
    return text.partition(";")[0].strip().lower()


def is_json(text: str) -> bool:
    """Tell whether data of this type is JSON: subtype `json` or suffix `+json`, any top-level type.

    >>> [is_json(t) for t in ("text/JSON", "image/svg+json;v=1", "application/json-seq")]
    [True, True, False]
    """
    if text in json_types_seen:
        return True
    # JSON format 3.1.1: "the media subtype is json or has +json as structured syntax suffix".
    found = essence(text).endswith(("/json", "+json"))
    if found and len(text) <= LONGEST_KEPT and len(json_types_seen) < _MEMORY:
        json_types_seen.add(text)
    return found


def is_cloudevents(text: str) -> bool:
    """Tell whether a content type says `structured`."""
    # Kafka 3: "prefixed with the CloudEvents media type (matched case-insensitively)".
    return text[:23].lower() == CLOUDEVENTS


def is_batch(text: str) -> bool:
    """Tell whether a content type says `batch`."""
    return text[:29].lower() == BATCH


def is_text(text: str) -> bool:
    """Tell whether data of this type is characters rather than bytes."""
    kind = essence(text)
    return kind.startswith("text/") or kind.endswith(_TEXT_SUFFIXES)


def charset(text: str) -> str:
    """Give the charset parameter in lower case; without one it is utf-8."""
    match = _CHARSET.search(text)
    return match[1].lower() if match else "utf-8"
