"""What the kernel asks about a text that it has not met: the rules of `penstock.events`, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.errors import EventError
from penstock.events.formats import FORMATS
from penstock.events.formats.json import JsonFormat
from penstock.events.media import charset, is_batch, is_cloudevents, is_json, is_media_type, is_text
from penstock.events.rules import is_text as is_string
from penstock.events.rules import is_uri, is_uri_reference
from penstock.record import KafkaRecord
from penstock.wire import routing_layout as at

__all__ = ["classify"]

_UTF8: Final = ("utf-8", "utf8")


def classify(kind: int, raw: bytes) -> int:
    """Give what is known of a text, 0 if it is not legal."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return 0
    return _RULES[kind](text) if is_string(text) else 0


def _media_type(text: str) -> int:
    if not is_media_type(text):
        return 0
    if is_cloudevents(text):
        return at.J_LEGAL | (at.J_STRUCTURED if _is_json_format(text) else at.J_OTHER)
    if is_json(text):
        return at.J_LEGAL | at.J_JSON
    if is_text(text):
        return at.J_LEGAL | (at.J_TEXT if charset(text) in _UTF8 else at.J_CHARSET)
    return at.J_LEGAL


def _is_json_format(text: str) -> bool:
    try:
        return not is_batch(text) and isinstance(FORMATS.get(text, KafkaRecord()), JsonFormat)
    except EventError:
        return False


_RULES: Final[Mapping[int, Callable[[str], int]]] = {
    at.K_SOURCE: lambda text: at.J_LEGAL if is_uri_reference(text) else 0,
    at.K_MEDIA_TYPE: _media_type,
    at.K_SCHEMA: lambda text: at.J_LEGAL if is_uri(text) else 0,
}
