"""LIKE patterns (CESQL 1.0.0, 3.4.3): `%` is any run of characters, `_` is one, a backslash takes both away.

A pattern is cut at its `%` into pieces of fixed length, and each is searched once, from the left. The work is
at most text times pattern, which one regular expression with many `.*` in it could not promise.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["like"]


class _Piece(NamedTuple):
    regex: re.Pattern[str]
    length: int


_PART = re.compile(r"\\[%_]|.", re.DOTALL)
_MEANING = {r"\%": "%", r"\_": "_", "_": "."}


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[_Piece, ...]:
    pieces: list[list[str]] = [[]]
    for part in _PART.findall(pattern):
        if part == "%":
            pieces.append([])
        else:
            pieces[-1].append(_MEANING.get(part) or re.escape(part))
    return tuple(_Piece(re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces)


def like(text: str, pattern: str) -> bool:
    r"""Tell whether the whole text matches the pattern; case counts.

    >>> like("order-17", "order-%"), like("100%", r"1__\%"), like("1000", r"1__\%")
    (True, True, False)
    """
    first, *others = _compiled(pattern)
    if not others:
        return first.regex.fullmatch(text) is not None
    match = first.regex.match(text)
    *middle, last = others
    for piece in middle:
        match = match and piece.regex.search(text, match.end())
    start = len(text) - last.length
    return match is not None and match.end() <= start and last.regex.match(text, start) is not None
