"""Heads of JSON events: what one producer writes before `"data":` differs in the values only.

A sequence of members that keeps coming gets one compiled expression over the text of the head, which
checks and takes all values in one pass; only the data is then parsed, and its bytes are known at once.
What does not match is not wrong, only not plain: it goes the way of any other text. The expression
takes strings without escapes only, so a head that matches is JSON with every member there once.
"""

from __future__ import annotations

import re

import orjson

from penstock.events.cloudevent import CloudEvent, shaped
from penstock.events.content import json_of
from penstock.events.media import LONGEST_KEPT
from penstock.events.rules import NON_EMPTY, REQUIRED, is_name
from penstock.events.shapes import PATTERNS

__all__ = ["Heads"]

_CLOSE = ord("}")
_SEEN_OFTEN = 16
_MAX_HEADS = 4
_MAX_CANDIDATES = 512
_MAX_MEMBERS = 64
_MAX_NAMES = 2048
"""Characters of the names that are counted: they come from outside."""
_PLAIN = r"[ !#-\[\]-~]"
"""Characters that a JSON string may hold as they are: no quote, no backslash, printable ASCII."""


class _Head:
    """The members of one head, where they stand, and the expression that checks them."""

    __slots__ = ("content_type", "index", "match")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.index = {name: at for at, name in enumerate(names)}
        self.content_type = self.index.get("datacontenttype")
        members = ",".join(f'"{name}":"({_pattern(name)})"' for name in names)
        self.match = re.compile(r"\{" + members + ',"data":').match


def _pattern(name: str) -> str:
    free = _PLAIN + ("+" if name in NON_EMPTY else "*")
    # The patterns of `shapes` end a value at a line break, here it is the closing quote.
    return PATTERNS.get(name, free).replace(r"\n", '"')


class Heads:
    """The first few heads that were found to keep coming."""

    def __init__(self) -> None:
        self._heads: tuple[_Head, ...] = ()
        self._counts: dict[tuple[str, ...], int] = {}
        self._media_types: set[str] = set()
        """Valid media types of JSON that were met."""

    def decode(self, raw: bytes) -> CloudEvent | None:
        """Read an event whose head is known and whose data is compact JSON; None for any other."""
        try:
            text = raw.decode()
            for head in self._heads:
                match = head.match(text)
                if match is not None:
                    break
            else:
                return None
            texts = match.groups()
            if head.content_type is None or texts[head.content_type] in self._media_types:
                body = raw[match.end() : -1]  # the head is ASCII, so characters are bytes
                value = orjson.loads(body)
                # As in `jsontext.loads`: where writing gives the same bytes, orjson has hidden nothing.
                if orjson.dumps(value) == body and raw[-1] == _CLOSE:
                    return shaped(head.index, texts, json_of(value, body, None))
        except (ValueError, TypeError):
            pass  # not UTF-8, or data that is not JSON: the thorough way says what it is
        return None

    def meet(self, names: tuple[str, ...], media_type: str | None) -> None:
        """Count the members of a valid event with JSON data; compile them when they were seen often."""
        is_short = media_type is not None and len(media_type) <= LONGEST_KEPT
        if media_type is not None and is_short and len(self._media_types) < _MAX_CANDIDATES:
            self._media_types.add(media_type)
        if len(self._heads) >= _MAX_HEADS or len(names) > _MAX_MEMBERS or not {*REQUIRED} <= {*names}:
            return
        if sum(map(len, names)) > _MAX_NAMES:
            return
        if len(self._counts) >= _MAX_CANDIDATES:
            self._counts.clear()
        count = self._counts[names] = self._counts.get(names, 0) + 1
        if count == _SEEN_OFTEN and all(map(is_name, names)):
            self._heads = (*self._heads, _Head(names))
