"""The functions that every engine has (CESQL 1.0.0, 3.5.1, 3.5.2), and the casts of 3.7 as functions.

IS_INT and IS_BOOL are from the drafts of the language: 1.0.0 does not ask for them, expressions in use do.
"""

from __future__ import annotations

from penstock.events.cesql.casts import cast
from penstock.events.cesql.functions import Failed, Function, Functions
from penstock.events.cesql.result import INTEGER_MAX, INTEGER_MIN, ZERO, ErrorKind, Type, Value

__all__ = ["BUILTINS", "MAX_TEXT"]

MAX_TEXT = 1 << 20
"""Characters that a concatenation may give: an expression is small, the attributes it repeats may not be."""

# Unicode's White_Space property; Python's strip() also takes U+001C to U+001F, which are only controls.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _absolute(number: int) -> int | Failed:
    # 3.5.2: for -2147483648 this returns 2147483647 as well as a MathError.
    if number == INTEGER_MIN:
        return Failed(INTEGER_MAX, f"ABS({number}) is not a 32-bit integer", ErrorKind.MATH)
    return abs(number)


def _joined(delimiter: str, *texts: str) -> str | Failed:
    size = sum(map(len, texts)) + len(delimiter) * max(len(texts) - 1, 0)
    if size > MAX_TEXT:
        return Failed("", f"a concatenation of {size} characters; at most {MAX_TEXT} are made")
    return delimiter.join(texts)


def _concatenated(*texts: str) -> str | Failed:
    return _joined("", *texts)


def _left(text: str, count: int) -> str | Failed:
    return text[:count] if count >= 0 else Failed(text, f"LEFT with a length of {count}")


def _right(text: str, count: int) -> str | Failed:
    return (
        text[max(len(text) - count, 0) :] if count >= 0 else Failed(text, f"RIGHT with a length of {count}")
    )


def _substring(text: str, position: int, length: int = INTEGER_MAX) -> str | Failed:
    if not -len(text) <= position <= len(text) or length < 0:
        return Failed("", f"SUBSTRING({position}, {length}) of {len(text)} characters")
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start : start + length]


def _casting(target: Type) -> Function:
    name = {Type.INTEGER: "INT", Type.BOOLEAN: "BOOL", Type.STRING: "STRING"}[target]

    def call(value: Value) -> Value | Failed:
        result = cast(value, target)
        if result is None:
            return Failed(ZERO[target], f"{value!r:.80} is not {_ARTICLE[target]}", ErrorKind.CAST)
        return result

    return Function(name=name, parameters=(Type.ANY,), returns=target, call=call)


_ARTICLE = {Type.INTEGER: "an Integer", Type.BOOLEAN: "a Boolean", Type.STRING: "a String"}


def _is_integer(value: Value) -> bool:
    return not isinstance(value, bool) and cast(value, Type.INTEGER) is not None


def _is_boolean(value: Value) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and cast(value, Type.BOOLEAN) is not None)


_S, _I, _B, _ANY = Type.STRING, Type.INTEGER, Type.BOOLEAN, Type.ANY

BUILTINS = Functions(
    Function(name="LENGTH", parameters=(_S,), returns=_I, call=len),
    Function(name="CONCAT", rest=_S, returns=_S, call=_concatenated),
    Function(name="CONCAT_WS", parameters=(_S,), rest=_S, returns=_S, call=_joined),
    Function(name="LOWER", parameters=(_S,), returns=_S, call=str.lower),
    Function(name="UPPER", parameters=(_S,), returns=_S, call=str.upper),
    Function(name="TRIM", parameters=(_S,), returns=_S, call=lambda text: text.strip(_WHITE_SPACE)),
    Function(name="LEFT", parameters=(_S, _I), returns=_S, call=_left),
    Function(name="RIGHT", parameters=(_S, _I), returns=_S, call=_right),
    Function(name="SUBSTRING", parameters=(_S, _I), returns=_S, call=_substring),
    Function(name="SUBSTRING", parameters=(_S, _I, _I), returns=_S, call=_substring),
    Function(name="ABS", parameters=(_I,), returns=_I, call=_absolute),
    _casting(_I),
    _casting(_B),
    _casting(_S),
    Function(name="IS_INT", parameters=(_ANY,), returns=_B, call=_is_integer),
    Function(name="IS_BOOL", parameters=(_ANY,), returns=_B, call=_is_boolean),
)
"""The functions of the language; a larger set comes from `BUILTINS.with_functions(...)`."""
