"""Tokens to a syntax tree: precedence climbing by one table (CESQL 1.0.0, 2.1 and 3.6).

From tight to loose: functions; NOT and unary minus; LIKE, EXISTS and IN; * / %; + -; comparisons; logic.
AND, OR and XOR are equal and are read from the left, as 3.6 says. (The specification's grammar file
reads them from the right; parentheses make both agree.)
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import InvalidExpression
from penstock.events.cesql.casts import read_integer
from penstock.events.cesql.syntax import (
    Binary,
    BooleanLiteral,
    Call,
    Exists,
    Expression,
    Identifier,
    In,
    IntegerLiteral,
    Like,
    Operator,
    StringLiteral,
    Unary,
    UnaryOperator,
    height,
)
from penstock.events.cesql.tokens import Kind, Token, syntax_error, tokenize

__all__ = ["BINDING", "MAX_DEPTH", "parse"]

MAX_DEPTH = 100
"""Levels of nesting, in the text and in the tree: whoever walks the tree may recurse."""

BINDING: dict[Operator, int] = {
    Operator.MULTIPLY: 4,
    Operator.DIVIDE: 4,
    Operator.REMAINDER: 4,
    Operator.ADD: 3,
    Operator.SUBTRACT: 3,
    Operator.EQUAL: 2,
    Operator.NOT_EQUAL: 2,
    Operator.LESS: 2,
    Operator.LESS_OR_EQUAL: 2,
    Operator.GREATER: 2,
    Operator.GREATER_OR_EQUAL: 2,
    Operator.AND: 1,
    Operator.OR: 1,
    Operator.XOR: 1,
}
"""How tightly each binary operator holds its operands (3.6)."""

_OPERATORS = {operator.value: operator for operator in BINDING}


def parse(text: str) -> Expression:
    """Read an expression; raises InvalidExpression with the position of the part that is wrong.

    >>> parse("subject LIKE 'order-%' AND hop < 5")
    Binary(operator=<Operator.AND: 'AND'>, left=Like(...), right=Binary(...))
    """
    parser = _Parser(tokenize(text))
    expression = parser.expression(0)
    parser.expect(Kind.END)
    if height(expression) > MAX_DEPTH:
        raise syntax_error(
            f"an expression of more than {MAX_DEPTH} levels", 0, next="use IN for long lists of OR"
        )
    return expression


class _Parser:
    """A position in a list of tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def take(self) -> Token:
        token = self.token
        self._next += token.kind is not Kind.END
        return token

    def at(self, *texts: str) -> bool:
        return self.token.kind in (Kind.SYMBOL, Kind.KEYWORD) and self.token.text in texts

    def accept(self, text: str) -> bool:
        found = self.at(text)
        self._next += found
        return found

    def expect(self, kind: Kind, text: str | None = None) -> Token:
        if self.token.kind is not kind or (text is not None and self.token.text != text):
            raise self.unexpected(text or _NAMES[kind])
        return self.take()

    def unexpected(self, wanted: str) -> InvalidExpression:
        token = self.token
        hint = "write a quote inside a string as \\' or \\\"" if token.kind is Kind.STRING else None
        return syntax_error(f"found {token.text!r}, expected {wanted}", token.position, next=hint)

    def expression(self, binding: int) -> Expression:
        """Read operands and the operators that bind more tightly than `binding`."""
        if self._depth == MAX_DEPTH:
            raise syntax_error(f"more than {MAX_DEPTH} levels of nesting", self.token.position)
        self._depth += 1
        left = self.postfixed(self.prefixed())
        while (operator := self.operator()) and BINDING[operator] > binding:
            self.take()
            left = Binary(operator, left, self.expression(BINDING[operator]))
        self._depth -= 1
        return left

    def operator(self) -> Operator | None:
        return _OPERATORS.get(self.token.text) if self.token.kind in (Kind.SYMBOL, Kind.KEYWORD) else None

    def prefixed(self) -> Expression:
        """Read NOT and unary minus and what they stand before; they bind more tightly than LIKE and IN."""
        prefixes: list[UnaryOperator] = []
        while self.at("NOT", "-"):
            prefixes.append(UnaryOperator(self.take().text))
        operand = self.primary()
        for prefix in reversed(prefixes):
            operand = Unary(prefix, operand)
        return operand

    def postfixed(self, operand: Expression) -> Expression:
        """Read any LIKE and IN that follow; they bind more tightly than the binary operators."""
        while self.at("LIKE", "IN", "NOT"):
            negated = self.accept("NOT")
            if self.accept("LIKE"):
                # 3.4.3: the pattern MUST be a string literal, otherwise the parser MUST return a parse error.
                operand = Like(operand, self.expect(Kind.STRING).text, negated)
            else:
                self.expect(Kind.KEYWORD, "IN")
                self.expect(Kind.SYMBOL, "(")
                operand = In(operand, self.listed(), negated)
        return operand

    def listed(self) -> tuple[Expression, ...]:
        """Read expressions between commas up to the closing bracket."""
        items = [self.expression(0)]
        while self.accept(","):
            items.append(self.expression(0))
        self.expect(Kind.SYMBOL, ")")
        return tuple(items)

    def primary(self) -> Expression:
        """Read a literal, an attribute, a function, EXISTS or an expression in brackets."""
        read = _BY_TEXT.get(self.token.text) if self.token.kind in (Kind.SYMBOL, Kind.KEYWORD) else None
        read = read or _BY_KIND.get(self.token.kind)
        if read is None:
            raise self.unexpected("a value")
        return read(self)

    def bracketed(self) -> Expression:
        self.take()
        inner = self.expression(0)
        self.expect(Kind.SYMBOL, ")")
        return inner

    def exists(self) -> Expression:
        self.take()
        return Exists(self.identifier(self.expect_name()))

    def expect_name(self) -> Token:
        # `EXISTS 5`: digits alone are a legal attribute name (2.2), and nothing else can be meant here.
        return self.take() if self.token.kind is Kind.INTEGER else self.expect(Kind.WORD)

    def boolean(self) -> Expression:
        return BooleanLiteral(self.take().text == "TRUE")

    def integer(self) -> Expression:
        token = self.take()
        value = read_integer(token.text)
        # 2.2: integer literals MUST be valid 32 bit signed integer values.
        if value is None:
            raise syntax_error(f"{token.text[:20]} is not a 32-bit integer", token.position)
        return IntegerLiteral(value)

    def string(self) -> Expression:
        return StringLiteral(self.take().text)

    def word(self) -> Expression:
        token = self.take()
        if not self.accept("("):
            return Identifier(self.identifier(token))
        # 2.4: function-identifier ::= char ( "_" | char )*
        if not token.text.replace("_", "").isalpha() or token.text[0] == "_":
            raise syntax_error(f"{token.text!r} is not a function name", token.position)
        return Call(token.text.upper(), () if self.accept(")") else self.listed())

    def identifier(self, token: Token) -> str:
        # 2.2: value-identifier ::= ( lowercase-char | digit )+; the language ignores case.
        if "_" in token.text or not token.text[0].isalnum():
            raise syntax_error(f"{token.text!r} is not an attribute name", token.position)
        return token.text.lower()


_NAMES = {
    Kind.STRING: "a string between quotes",
    Kind.WORD: "an attribute name",
    Kind.END: "an operator or the end of the expression",
}
_BY_TEXT: dict[str, Callable[[_Parser], Expression]] = {
    "(": _Parser.bracketed,
    "EXISTS": _Parser.exists,
    "TRUE": _Parser.boolean,
    "FALSE": _Parser.boolean,
}
_BY_KIND: dict[Kind, Callable[[_Parser], Expression]] = {
    Kind.STRING: _Parser.string,
    Kind.INTEGER: _Parser.integer,
    Kind.WORD: _Parser.word,
}
