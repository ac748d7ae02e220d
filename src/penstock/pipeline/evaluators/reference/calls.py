"""The functions of the plan in plain Python; arguments are never null, a result of None is null."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

from penstock.events.cesql import Type as CesqlType
from penstock.events.cesql.casts import cast
from penstock.pipeline.evaluators.reference.json_data import number_text, number_value
from penstock.pipeline.plan.numbers import (
    EXACT,
    MAX_FRACTION,
    NumberValue,
    decimal_text,
    in_range,
    read_number,
    whole,
)
from penstock.pipeline.plan.times import moment, read_time, time_in_range, time_text

__all__ = ["CALLS"]

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER, _TO_UPPER = str.maketrans(_UPPER, _LOWER), str.maketrans(_LOWER, _UPPER)
_BOOLEANS: Final = {"true": True, "false": False}


def _text_of_json(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _text_of_boolean(value)
    number = number_value(value)
    # Beyond the range of decimals no digit is added, left out or rounded: the text is what came.
    return decimal_text(number) if isinstance(number, Decimal) else number_text(value)


def _text_of_number(number: NumberValue) -> str | None:
    return decimal_text(number) if isinstance(number, Decimal) else None


def _text_of_boolean(value: bool) -> str:
    return "true" if value else "false"


def _cesql_integer(text: str) -> Decimal | None:
    number = cast(text, CesqlType.INTEGER)
    return None if number is None else Decimal(number)


def _substring(text: str, position: NumberValue, length: NumberValue) -> str | None:
    start, count = whole(position), whole(length)
    if start is None or count is None:
        return None
    start = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(start, 0) : max(start + count, 0)]


def _left(text: str, length: NumberValue) -> str | None:
    count = whole(length)
    return None if count is None else text[: max(count, 0)]


def _right(text: str, length: NumberValue) -> str | None:
    count = whole(length)
    return None if count is None else text[len(text) - min(max(count, 0), len(text)) :]


def _replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


def _decimals(function: Callable[..., Decimal | None]) -> Callable[..., Decimal | None]:
    """Make a function of decimals null for doubles."""
    return lambda *numbers: None if any(isinstance(n, float) for n in numbers) else function(*numbers)


def _to_whole(rounding: str) -> Callable[..., Decimal | None]:
    return _decimals(lambda number: in_range(number.to_integral_value(rounding, EXACT)))


def _round(number: Decimal, digits: Decimal) -> Decimal | None:
    count = whole(digits)
    if count is None or not 0 <= count <= MAX_FRACTION:
        return None
    return in_range(number.quantize(Decimal(1).scaleb(-count), ROUND_HALF_UP, EXACT))


def _quotient(left: Decimal, right: Decimal) -> Decimal | None:
    return in_range(EXACT.divide_int(left, right)) if right else None


def _part(name: str) -> Callable[[int], Decimal]:
    return lambda micros: Decimal(getattr(moment(micros), name))


def _unix(unit: int) -> Callable[[int], Decimal]:
    return lambda micros: Decimal(micros // unit)


def _shift(micros: int, by: NumberValue) -> int | None:
    if isinstance(by, float) or by != by.to_integral_value():
        return None
    return time_in_range(micros + int(by))


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "number_of_json": number_value,
    "string_of_json": lambda value: value if isinstance(value, str) else None,
    "boolean_of_json": lambda value: value if isinstance(value, bool) else None,
    "text_of_json": _text_of_json,
    "number_of_text": read_number,
    "boolean_of_text": _BOOLEANS.get,
    "time_of_text": read_time,
    "text_of_number": _text_of_number,
    "text_of_boolean": _text_of_boolean,
    "text_of_time": time_text,
    "cesql_integer": _cesql_integer,
    "cesql_boolean": lambda text: cast(text, CesqlType.BOOLEAN),
    "lower": lambda text: text.translate(_TO_LOWER),
    "upper": lambda text: text.translate(_TO_UPPER),
    "unicode_lower": str.lower,
    "unicode_upper": str.upper,
    "length": lambda text: Decimal(len(text)),
    "substring": _substring,
    "left": _left,
    "right": _right,
    "concat": lambda *texts: "".join(texts),
    "trim": lambda text, characters: text.strip(characters) if characters else text,
    "ltrim": lambda text, characters: text.lstrip(characters) if characters else text,
    "rtrim": lambda text, characters: text.rstrip(characters) if characters else text,
    "replace": _replace,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda text, other: other in text,
    "position": lambda text, other: Decimal(text.find(other) + 1),
    "abs": _decimals(Decimal.copy_abs),
    "floor": _to_whole(ROUND_FLOOR),
    "ceil": _to_whole(ROUND_CEILING),
    "truncate": _to_whole(ROUND_DOWN),
    "round": _decimals(_round),
    "within": _decimals(lambda number, low, high: number if low <= number <= high else None),
    "quotient": _decimals(_quotient),
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
    "hour": _part("hour"),
    "minute": _part("minute"),
    "second": _part("second"),
    "unix_seconds": _unix(1_000_000),
    "unix_millis": _unix(1_000),
    "unix_micros": _unix(1),
    "shift": _shift,
}
"""Every function of `plan/functions.py`."""
