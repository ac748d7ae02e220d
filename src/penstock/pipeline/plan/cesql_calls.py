"""The functions of CESQL (3.5.1, 3.5.2) as plan nodes, with the cases in which they fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.events.cesql.builtins import MAX_TEXT
from penstock.events.cesql.result import INTEGER_MAX, INTEGER_MIN
from penstock.pipeline.plan.checked import FALSE, TRUE, Checked, cast_to, either, number
from penstock.pipeline.plan.nodes import (
    Arithmetic,
    ArithmeticOperator,
    Call,
    Compare,
    Comparison,
    If,
    IsNull,
    Node,
    Not,
    Or,
    Text,
    Type,
)

__all__ = ["CALLS"]

Arguments = list[Checked]

# Unicode's White_Space property, as CESQL's TRIM takes it.
_WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _errors(arguments: Arguments) -> Node:
    return either(*(argument.error for argument in arguments))


def _text(function: str, arguments: Arguments) -> Checked:
    value = Call(function, tuple(argument.value for argument in arguments))
    return Checked(value, _errors(arguments), Type.TEXT)


def _length(arguments: Arguments) -> Checked:
    return Checked(Call("length", (arguments[0].value,)), arguments[0].error, Type.NUMBER)


def _trim(arguments: Arguments) -> Checked:
    return _text("trim", [arguments[0], Checked(Text(_WHITE_SPACE), FALSE, Type.TEXT)])


def _concat(arguments: Arguments) -> Checked:
    if not arguments:
        return Checked(Text(""), FALSE, Type.TEXT)
    value = Call("concat", tuple(argument.value for argument in arguments))
    long = Compare(Comparison.GREATER, Call("length", (value,)), number(MAX_TEXT))
    return Checked(value, either(_errors(arguments), long), Type.TEXT)


def _concat_ws(arguments: Arguments) -> Checked:
    delimiter, *texts = arguments
    parts: Arguments = []
    for text in texts:
        parts += [delimiter, text] if parts else [text]
    joined = _concat(parts)
    return Checked(joined.value, either(delimiter.error, joined.error), Type.TEXT)


def _end(function: str, arguments: Arguments) -> Checked:
    result = _text(function, arguments)
    negative = Compare(Comparison.LESS, arguments[1].value, number(0))
    return Checked(result.value, either(result.error, negative), Type.TEXT)


def _substring(arguments: Arguments) -> Checked:
    text, position = arguments[0].value, arguments[1].value
    length = arguments[2].value if len(arguments) > 2 else number(INTEGER_MAX)
    size = Call("length", (text,))
    outside = Or(
        (
            Compare(Comparison.GREATER, position, size),
            Compare(Comparison.LESS, position, Arithmetic(ArithmeticOperator.SUBTRACT, number(0), size)),
            Compare(Comparison.LESS, length, number(0)),
        )
    )
    # Position 0 gives an empty text here, and the first character in SQL.
    value = If(
        Compare(Comparison.EQUAL, position, number(0)), Text(""), Call("substring", (text, position, length))
    )
    return Checked(value, either(_errors(arguments), outside), Type.TEXT)


def _absolute(arguments: Arguments) -> Checked:
    value = arguments[0].value
    # 3.5.2: for -2147483648 this returns 2147483647 as well as a MathError.
    lowest = Compare(Comparison.EQUAL, value, number(INTEGER_MIN))
    return Checked(Call("abs", (value,)), either(arguments[0].error, lowest), Type.NUMBER)


def _is(want: Type, arguments: Arguments) -> Checked:
    value = arguments[0]
    if value.type is Type.TEXT:
        function = "cesql_integer" if want is Type.NUMBER else "cesql_boolean"
        readable: Node = Not(IsNull(Call(function, (value.value,))))
    else:
        readable = TRUE if value.type is want else FALSE
    return Checked(readable, value.error, Type.BOOLEAN)


CALLS: Final[dict[str, Callable[[Arguments], Checked]]] = {
    "LENGTH": _length,
    "CONCAT": _concat,
    "CONCAT_WS": _concat_ws,
    "LOWER": partial(_text, "unicode_lower"),
    "UPPER": partial(_text, "unicode_upper"),
    "TRIM": _trim,
    "LEFT": partial(_end, "left"),
    "RIGHT": partial(_end, "right"),
    "SUBSTRING": _substring,
    "ABS": _absolute,
    "INT": lambda arguments: cast_to(arguments[0], Type.NUMBER),
    "BOOL": lambda arguments: cast_to(arguments[0], Type.BOOLEAN),
    "STRING": lambda arguments: cast_to(arguments[0], Type.TEXT),
    "IS_INT": partial(_is, Type.NUMBER),
    "IS_BOOL": partial(_is, Type.BOOLEAN),
}
"""Every built-in function, by its name in upper case."""
