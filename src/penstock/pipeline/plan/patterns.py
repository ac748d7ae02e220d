r"""LIKE patterns of the plan, in one form: `%`, `_`, and a backslash before `%`, `_` or itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = ["from_escaped", "matcher", "quoted"]

_ANY, _ONE, _ESCAPE = "%", "_", "\\"
_SPECIAL = re.compile(r"[%_\\]")
_PART = re.compile(r"\\.|.", re.DOTALL)


def quoted(text: str) -> str:
    r"""Write text so that a pattern takes it as it is.

    >>> quoted("100%")
    '100\\%'
    """
    return _SPECIAL.sub(r"\\\g<0>", text)


def from_escaped(pattern: str, escape: str) -> str:
    """Give the plan's form of a pattern with another escape character.

    SQL: the escape character may stand only before `%`, `_` or itself; ValueError otherwise.
    """
    written, characters = "", iter(pattern)
    for character in characters:
        if character != escape:
            written += character if character in (_ANY, _ONE) else quoted(character)
            continue
        following = next(characters, "")
        if following not in (_ANY, _ONE, escape) or not following:
            raise ValueError(f"{escape} stands before {following or 'the end'!r}, which needs no escape")
        written += quoted(following)
    return written


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a whole text matches; each piece is searched once, so the work is bounded.

    >>> matcher("order-%")("order-17"), matcher("_rde")("order")
    (True, False)
    """
    (first, _), *others = _pieces(pattern)
    if not others:
        return lambda text: first.fullmatch(text) is not None
    *middle, (last, length) = others

    def matches(text: str) -> bool:
        match = first.match(text)
        for piece, _ in middle:
            match = match and piece.search(text, match.end())
        start = len(text) - length
        return match is not None and match.end() <= start and last.match(text, start) is not None

    return matches


def _pieces(pattern: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    """Cut a pattern at its `%` into pieces of fixed length."""
    pieces: list[list[str]] = [[]]
    for part in _PART.findall(pattern):
        if part == _ANY:
            pieces.append([])
        else:
            pieces[-1].append("." if part == _ONE else re.escape(part[-1]))
    return tuple((re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces)
