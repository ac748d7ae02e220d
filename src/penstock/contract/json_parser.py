"""JSON (RFC 8259) to the events of the tree builder, without recursion, with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Final, NoReturn

from penstock.contract.node import NodeValue
from penstock.contract.rules import reading
from penstock.contract.scalars import NotJsonData, plain_scalar
from penstock.contract.tree import TreeBuilder

__all__ = ["feed_json"]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ATOM: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_OPENERS: Final[Mapping[str, Callable[[], NodeValue]]] = {"{": dict, "[": list}
_CLOSERS: Final = {"{": "}", "[": "]"}


def feed_json(text: str, builder: TreeBuilder) -> None:
    """Give every value of a JSON text to the builder; stops it at the first wrong character."""
    _JsonScanner(text, builder).run()


class _JsonScanner:
    """Walks over the text once; `open` is the stack of brackets that are not closed."""

    def __init__(self, text: str, builder: TreeBuilder) -> None:
        self.text = text
        self.builder = builder
        self.at = 0
        self.line = 1
        self.line_start = 0
        self.open: list[str] = []

    def run(self) -> None:
        """Read one value and nothing after it."""
        self._value()
        while self.open:
            self._after_value()
        if self._peek():
            self._fail("there is more text after the end of the document")

    def _value(self) -> None:
        """Read a scalar, or open an object or list and read its first member."""
        start = self._peek()
        if start in _OPENERS:
            self.builder.begin(_OPENERS[start](), *self._place())
            self._take()
            self.open.append(start)
            if self._peek() == _CLOSERS[start]:
                return
            self._member()
            return
        self._scalar(start)

    def _member(self) -> None:
        if self.open[-1] == "{":
            self._key()
        self._value()

    def _after_value(self) -> None:
        closer = _CLOSERS[self.open[-1]]
        sign = self._peek()
        if sign == closer:
            self._take()
            self.open.pop()
            self.builder.end()
        elif sign == ",":
            self._take()
            self._member()
        else:
            self._fail(f"expected ',' or '{closer}'")

    def _key(self) -> None:
        if self._peek() != '"':
            self._fail("expected a key in double quotes")
        line, column = self._place()
        self.builder.key(self._string(), line, column)
        if self._peek() != ":":
            self._fail("expected ':' after the key")
        self._take()

    def _scalar(self, start: str) -> None:
        line, column = self._place()
        if start == '"':
            self.builder.value(self._string(), line, column)
            return
        found = _ATOM.match(self.text, self.at)
        if found is None:
            self._fail("expected a value")
        self.at = found.end()
        try:
            self.builder.value(plain_scalar(found.group()), line, column)
        except NotJsonData as exc:
            self.builder.stop(reading.NOT_JSON_DATA, line, column, str(exc))

    def _string(self) -> str:
        try:
            found: tuple[str, int] = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as exc:
            self.at = min(exc.pos, len(self.text))
            self._fail(exc.msg)
        value, self.at = found
        if any("\ud800" <= char <= "\udfff" for char in value):
            self._fail("a text holds half of a surrogate pair")
        return value

    def _peek(self) -> str:
        """Skip white space, count its lines, and give the next character; empty at the end."""
        end = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        lines = self.text.count("\n", self.at, end)
        if lines:
            self.line += lines
            self.line_start = self.text.rindex("\n", self.at, end) + 1
        self.at = end
        return self.text[end : end + 1]

    def _take(self) -> None:
        self.at += 1

    def _place(self) -> tuple[int, int]:
        return self.line, self.at - self.line_start + 1

    def _fail(self, problem: str) -> NoReturn:
        self.builder.stop(reading.SYNTAX, *self._place(), problem)
