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

from penstock.events.rules import NON_EMPTY, REQUIRED, SPECVERSION, URI, URI_REFERENCE
from penstock.events.timestamp import COMMON

__all__ = ["Shape", "Shapes"]

_SEEN_OFTEN = 16
_MAX_SHAPES = 256
_MAX_CANDIDATES = 2048
_MAX_HEADERS = 64
SEPARATOR = b"\n"
"""No value that is valid holds this character."""
_PATTERNS: Mapping[str, str] = {
    "specversion": re.escape(SPECVERSION),
    "source": URI_REFERENCE,
    "time": COMMON,
    "dataschema": URI,
}

Pick = Callable[[tuple[bytes, ...]], tuple[bytes, ...]]


class Shape:
    """The attributes of one sequence of header names, and the check of their values."""

    __slots__ = ("attributes", "match", "pick")

    def __init__(self, attributes: tuple[str, ...], pick: Pick | None) -> None:
        self.attributes = attributes
        self.pick = pick
        """Takes our values from among foreign ones; None if all are ours."""
        self.match = re.compile("\n".join(map(_group, attributes))).fullmatch


def _group(attribute: str) -> str:
    text = "[ -~]+" if attribute in NON_EMPTY else "[ -~]*"
    return f"({_PATTERNS.get(attribute, text)})"


class Shapes:
    """The shapes seen, by header names; `attribute_of` is the table of names of a binding."""

    def __init__(self, attribute_of: Mapping[str, str | None]) -> None:
        self._attribute_of = attribute_of
        self._counts: dict[tuple[str, ...], int] = {}
        self.by_names: dict[tuple[str, ...], Shape] = {}

    def meet(self, names: tuple[str, ...]) -> None:
        """Count a sequence of names; compile it when it has been seen often."""
        if len(self.by_names) >= _MAX_SHAPES or len(names) > _MAX_HEADERS:
            return
        if len(self._counts) >= _MAX_CANDIDATES:
            self._counts.clear()
        count = self._counts[names] = self._counts.get(names, 0) + 1
        if count >= _SEEN_OFTEN:
            del self._counts[names]
            shape = self._shape(names)
            if shape is not None:
                self.by_names[names] = shape

    def _shape(self, names: tuple[str, ...]) -> Shape | None:
        ours = [(at, self._attribute_of.get(name, "")) for at, name in enumerate(names)]
        attributes = tuple(attribute for _, attribute in ours if attribute is not None)
        whole = all(attributes) and len(set(attributes)) == len(attributes) and {*REQUIRED} <= {*attributes}
        if not whole:
            return None
        pick = None
        if len(attributes) < len(names):
            pick = itemgetter(*(at for at, attribute in ours if attribute is not None))
        return Shape(attributes, pick)
