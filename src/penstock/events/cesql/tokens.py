"""Text to tokens (CESQL 1.0.0, 2.2 to 2.4); one regular expression, no backtracking, bounded length."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from penstock.errors import InvalidExpression

__all__ = ["KEYWORDS", "MAX_LENGTH", "Kind", "Token", "syntax_error", "tokenize"]

MAX_LENGTH = 8192
"""Characters of an expression; a longer one is refused before it is read."""

KEYWORDS = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"})


class Kind(Enum):
    """What a token is; SYMBOL and KEYWORD are told apart by their text."""

    STRING = auto()
    INTEGER = auto()
    WORD = auto()
    KEYWORD = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` is canonical: keywords in upper case, strings without quotes, `<>` as `!=`."""

    kind: Kind
    text: str
    position: int


# A backslash takes the next character with it, so that an escaped quote does not end the string.
_TOKEN = re.compile(
    r"""
      (?P<space>   [\ \t\r\n]+ )
    | (?P<string>  '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<word>    [A-Za-z0-9_]+ )
    | (?P<symbol>  <> | <= | >= | != | [()=<>,*/%+\-] )
    """,
    re.VERBOSE | re.DOTALL,
)
_AFTER_OPERAND = {Kind.STRING, Kind.INTEGER, Kind.WORD}


def syntax_error(what: str, position: int, *, next: str | None = None) -> InvalidExpression:
    """Make the error that says where in the text the reader stopped (a ParseError in 3.3)."""
    return InvalidExpression(what, position=position, why="CESQL 1.0.0, section 2", next=next)


def tokenize(text: str) -> list[Token]:
    """Split the text; the last token is always END."""
    if len(text) > MAX_LENGTH:
        raise syntax_error(
            f"an expression of {len(text)} characters; at most {MAX_LENGTH} are read", MAX_LENGTH
        )
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        if match.lastgroup != "space":
            _append(tokens, str(match.lastgroup), match.group(), position)
        position = match.end()
    tokens.append(Token(Kind.END, "end of the expression", len(text)))
    return tokens


def _append(tokens: list[Token], group: str, raw: str, position: int) -> None:
    token = _MAKERS[group](raw, position)
    if token.kind is Kind.INTEGER and _is_sign(tokens, position):
        sign = tokens.pop()
        token = Token(Kind.INTEGER, sign.text + token.text, sign.position)
    tokens.append(token)


def _is_sign(tokens: list[Token], position: int) -> bool:
    """Tell whether the token before is the sign of this number: integer-literal ::= ('+' | '-')? digit+."""
    if not tokens or tokens[-1] not in (Token(Kind.SYMBOL, sign, position - 1) for sign in "+-"):
        return False
    return len(tokens) == 1 or not _is_operand_end(tokens[-2])


def _is_operand_end(token: Token) -> bool:
    return token.kind in _AFTER_OPERAND or token.text in (")", "TRUE", "FALSE")


def _string(raw: str, position: int) -> Token:
    quote = raw[0]
    # 2.2: only the quote that delimits the string is escaped; every other backslash stays, for LIKE.
    value = re.sub(r"\\(.)", lambda m: quote if m[1] == quote else m[0], raw[1:-1], flags=re.DOTALL)
    return Token(Kind.STRING, value, position)


def _word(raw: str, position: int) -> Token:
    if raw.isdecimal():
        return Token(Kind.INTEGER, raw, position)
    if raw.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, raw.upper(), position)
    return Token(Kind.WORD, raw, position)


def _symbol(raw: str, position: int) -> Token:
    return Token(Kind.SYMBOL, "!=" if raw == "<>" else raw, position)


_MAKERS = {"string": _string, "word": _word, "symbol": _symbol}


def _unreadable(text: str, position: int) -> InvalidExpression:
    if text[position] in "'\"":
        return syntax_error("a string that does not end", position, next=f"close it with {text[position]}")
    return syntax_error(f"{text[position]!r} has no meaning here", position)
