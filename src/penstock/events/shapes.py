"""Shapes of headers: records of one producer name the same headers in the same order.

A shape that keeps coming gets one compiled expression that checks all its values in one pass. What
the expression does not match is not wrong, only not plain; it goes the way of any other record.
Names are remembered, values never. Hostile producers cannot make this grow: a shape is compiled
only after it was seen often, and the number of shapes is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import itemgetter

from penstock.events import rules
from penstock.events.rules import (
    NON_EMPTY,
    REQUIRED,
    SPECVERSION,
    URI,
    URI_REFERENCE,
    is_name,
    media_types_seen,
)
from penstock.events.timestamp import COMMON

__all__ = ["PATTERNS", "Shape", "Shapes", "index_of"]

_SEEN_OFTEN = 16
_MAX_SHAPES = 256
_MAX_CANDIDATES = 2048
_MAX_HEADERS = 64
_MAX_NAMES = 2048
"""Characters of the names of a shape: they come from outside."""
PATTERNS: Mapping[str, str] = {
    "specversion": re.escape(SPECVERSION),
    "source": r"(?=[^\n])" + URI_REFERENCE,
    "time": COMMON,
    "dataschema": URI,
}

Pick = Callable[[tuple[bytes, ...]], tuple[bytes, ...]]


class Shape:
    """The attributes of one sequence of names, where they stand, and the check of their values."""

    __slots__ = ("content_type", "index", "match", "pick")

    def __init__(self, attributes: tuple[str, ...], pick: Pick | None, group: str) -> None:
        self.index = {name: at for at, name in enumerate(attributes)}
        self.content_type = self.index.get("datacontenttype")
        """Where the media type stands, which the expression does not check."""
        self.pick = pick
        """Takes our values from among foreign ones; None if all are ours."""
        self.match = re.compile("\n".join(group.format(_pattern(a)) for a in attributes)).fullmatch


def _pattern(attribute: str) -> str:
    return PATTERNS.get(attribute, "[ -~]+" if attribute in NON_EMPTY else "[ -~]*")


class Shapes:
    """The shapes seen, by their names; `attribute_of` gives the attribute, "" if illegal, None if foreign."""

    def __init__(self, attribute_of: Callable[[str], str | None], group: str = "({})") -> None:
        self._attribute_of = attribute_of
        self._group = group
        self._counts: dict[tuple[str, ...], int] = {}
        self.by_names: dict[tuple[str, ...], Shape] = {}

    def meet(self, names: tuple[str, ...]) -> None:
        """Count a sequence of names; compile it when it has been seen often."""
        if names in self.by_names or len(self.by_names) >= _MAX_SHAPES or len(names) > _MAX_HEADERS:
            return
        if sum(map(len, names)) > _MAX_NAMES:
            return
        if len(self._counts) >= _MAX_CANDIDATES:
            self._counts.clear()
        count = self._counts[names] = self._counts.get(names, 0) + 1
        if count >= _SEEN_OFTEN:
            self._counts.pop(names, None)
            shape = self._shape(names)
            if shape is not None:
                self.by_names[names] = shape

    def _shape(self, names: tuple[str, ...]) -> Shape | None:
        ours = [(at, self._attribute_of(name)) for at, name in enumerate(names)]
        attributes = tuple(attribute for _, attribute in ours if attribute is not None)
        whole = all(attributes) and len(set(attributes)) == len(attributes) and {*REQUIRED} <= {*attributes}
        if not whole:
            return None
        pick = None
        if len(attributes) < len(names):
            pick = itemgetter(*(at for at, attribute in ours if attribute is not None))
        return Shape(attributes, pick, self._group)


_shapes = Shapes(lambda name: name if is_name(name) else "", group="(?:{})")
_by_names = _shapes.by_names


def index_of(attributes: Mapping[str, str]) -> Mapping[str, int] | None:
    """Give where each attribute of a valid event stands; None if a rule is broken (see `rules.findings`)."""
    shape = _by_names.get(tuple(attributes))
    if shape is not None and shape.match("\n".join(attributes.values())) is not None:
        media_type = attributes.get("datacontenttype")
        if media_type is None or media_type in media_types_seen:
            return shape.index
    if not rules.is_valid(attributes):
        return None
    if shape is not None:
        return shape.index
    _shapes.meet(tuple(attributes))
    return {name: at for at, name in enumerate(attributes)}
