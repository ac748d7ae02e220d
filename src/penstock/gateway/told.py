"""The errors that an answer tells: noted where the answer is made, counted where it is sent.

Handlers are many, and each has its own place for an error code: `tell` is written where the code is.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final

from penstock.wire.kafka import ErrorCode

__all__ = ["Codes", "Told", "name_of", "tell"]


class Codes(list[int]):
    """The codes of one answer, and what it says of some of them."""

    __slots__ = ("why",)

    def __init__(self) -> None:
        super().__init__()
        self.why: dict[int, str] = {}


_CODES: Final[ContextVar[Codes | None]] = ContextVar("told", default=None)


def tell(error_code: int, why: str | None = None) -> int:
    """Note a code that an answer tells, and give it back; 0 is no error.

    >>> with Told() as codes:
    ...     tell(0), tell(3)
    (0, 3)
    >>> codes
    [3]
    """
    if error_code:
        codes = _CODES.get()
        if codes is not None:
            codes.append(error_code)
            if why:
                codes.why.setdefault(int(error_code), why)
    return error_code


def name_of(error_code: int) -> str:
    """Name a code; a number if it has no name.

    >>> name_of(3), name_of(9999)
    ('UNKNOWN_TOPIC_OR_PARTITION', '9999')
    """
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return str(error_code)


class Told:
    """Collects what is told while an answer is made."""

    __slots__ = ("_token",)

    def __enter__(self) -> Codes:
        """Begin, with a list that is filled."""
        codes = Codes()
        self._token: Token[Codes | None] = _CODES.set(codes)
        return codes

    def __exit__(self, *_: object) -> None:
        """End: what is told from here on belongs to another answer."""
        _CODES.reset(self._token)
