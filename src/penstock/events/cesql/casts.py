"""The six casts between String, Integer and Boolean (CESQL 1.0.0, 3.7)."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Decimal

from penstock.events.cesql.result import INTEGER_MAX, INTEGER_MIN, Type, Value

__all__ = ["CAST", "as_value", "cast", "read_integer", "type_of"]

# At most ten digits after the leading zeros, which int() is not given: it refuses more than 4300 digits,
# leading zeros included.
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,10})")
_BOOLEANS = {"true": True, "false": False}


def type_of(value: Value) -> Type:
    """Give the CESQL type of a value; in Python a bool is an int, so it is asked for first."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    return Type.INTEGER if isinstance(value, int) else Type.STRING


def as_value(attribute: object) -> Value:
    """Give an attribute's value in the type system.

    3.2: a value that is not of a primitive type MUST be represented by the String type.
    """
    match attribute:
        case bool():
            return attribute
        case int() if INTEGER_MIN <= attribute <= INTEGER_MAX:
            return int(attribute)
        case bytes():
            return base64.b64encode(attribute).decode("ascii")
        case int():
            return f"{Decimal(attribute):f}"  # str() refuses integers of more than 4300 digits
        case _:
            return str(attribute)


def read_integer(text: str) -> int | None:
    """Read a number with any count of leading zeros; None if it is none or has more than 32 bits.

    >>> read_integer("-0017"), read_integer("2147483648"), read_integer("x")
    (-17, None, None)
    """
    match = _INTEGER.fullmatch(text)
    number = None if match is None else int(match[1] + match[2])
    return number if number is not None and INTEGER_MIN <= number <= INTEGER_MAX else None


def _string_to_boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


def _boolean_to_string(value: bool) -> str:
    return "true" if value else "false"


CAST: dict[tuple[Type, Type], Callable[..., Value | None]] = {
    (Type.INTEGER, Type.STRING): str,
    (Type.INTEGER, Type.BOOLEAN): bool,
    (Type.STRING, Type.INTEGER): read_integer,
    (Type.STRING, Type.BOOLEAN): _string_to_boolean,
    (Type.BOOLEAN, Type.INTEGER): int,
    (Type.BOOLEAN, Type.STRING): _boolean_to_string,
}
"""From and to; a cast that fails gives None."""


def cast(value: Value, target: Type) -> Value | None:
    """Cast a value, or give None where 3.7 says that an error is returned."""
    source = type_of(value)
    return value if target in (source, Type.ANY) else CAST[source, target](value)
