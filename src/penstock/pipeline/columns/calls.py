"""The functions of the plan as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from penstock.events.cesql.result import INTEGER_MAX, INTEGER_MIN
from penstock.pipeline.columns.numbers import (
    DECIMAL,
    Numeric,
    decimal_text,
    magnitude,
    number_of,
    only_whole,
    quotient,
)
from penstock.pipeline.columns.times import (
    CLOCK,
    DATE_PARTS,
    clock_part,
    date_of,
    floored,
    in_range,
    time_of,
    time_text,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CALLS", "is_number", "is_string"]

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_FARTHEST: Final = 10**18
"""More microseconds than between any two moments of the plan."""


def is_string(leaf: Column) -> Column:
    """Tell whether a JSON value, as tagged text, is a string."""
    return F.startswith(leaf, F.lit("s"))


def is_number(leaf: Column) -> Column:
    """Tell whether a JSON value, as tagged text, is a number."""
    return leaf.rlike(r"\A[-0-9]")


def _string_of_json(leaf: Column) -> Column:
    return F.when(is_string(leaf), F.substring(leaf, 2, 2**31 - 1))


def _boolean(text: Column) -> Column:
    return F.when(text == "true", True).when(text == "false", False)


def _lower(text: Column) -> Column:
    return F.translate(text, _UPPER, _LOWER)


def _cesql_integer(text: Column) -> Numeric:
    number = F.when(text.rlike(r"\A[+-]?0*[0-9]{1,10}\z"), text.try_cast("decimal(20,0)"))
    return Numeric(F.when(number.between(INTEGER_MIN, INTEGER_MAX), number.cast(DECIMAL)))


def _whole(number: Numeric) -> Column:
    """Give a count or position: a decimal without fraction in 32 bits, or null."""
    value = number.decimal
    fits = (only_whole(value) == value) & value.between(INTEGER_MIN, INTEGER_MAX)
    return F.when(fits, value.try_cast("int"))


def _counted(number: Column) -> Numeric:
    return Numeric(number.cast(DECIMAL))


def _round(number: Numeric, digits: int) -> Numeric:
    return Numeric(F.round(number.decimal, digits).try_cast(DECIMAL))


def _within(number: Numeric, low: Numeric, high: Numeric) -> Numeric:
    return Numeric(F.when(number.decimal.between(low.decimal, high.decimal), number.decimal))


def _shift(micros: Column, by: Numeric) -> Column:
    value = by.decimal
    near = (only_whole(value) == value) & value.between(-_FARTHEST, _FARTHEST)
    return in_range(micros + F.when(near, value.try_cast("bigint")))


def _date_part(name: str) -> Callable[[Column], Numeric]:
    return lambda micros: _counted(DATE_PARTS[name](date_of(micros)))


def _clock_part(name: str) -> Callable[[Column], Numeric]:
    return lambda micros: _counted(clock_part(micros, *CLOCK[name]))


def _unix(unit: int) -> Callable[[Column], Numeric]:
    return lambda micros: _counted(floored(micros, unit))


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "number_of_json": number_of,  # the tag of a string is no part of a number
    "string_of_json": _string_of_json,
    "boolean_of_json": _boolean,
    "number_of_text": number_of,
    "boolean_of_text": _boolean,
    "time_of_text": time_of,
    "text_of_number": lambda number: decimal_text(number.decimal),
    "text_of_boolean": lambda value: F.when(value, "true").when(~value, "false"),
    "text_of_time": time_text,
    "cesql_integer": _cesql_integer,
    "cesql_boolean": lambda text: _boolean(_lower(text)),
    "lower": _lower,
    "upper": lambda text: F.translate(text, _LOWER, _UPPER),
    "length": lambda text: _counted(F.char_length(text)),
    "substring": lambda text, start, length: F.substring(text, _whole(start), _whole(length)),
    "left": lambda text, length: F.left(text, _whole(length)),
    "right": lambda text, length: F.right(text, _whole(length)),
    "concat": F.concat,
    "trim": F.btrim,
    "ltrim": F.ltrim,
    "rtrim": F.rtrim,
    "replace": F.replace,
    "starts_with": F.startswith,
    "ends_with": F.endswith,
    "contains": F.contains,
    "position": lambda text, other: _counted(F.call_function("instr", text, other)),
    "abs": lambda number: Numeric(magnitude(number.decimal)),
    "floor": lambda number: Numeric(F.floor(number.decimal).try_cast(DECIMAL)),
    "ceil": lambda number: Numeric(F.ceil(number.decimal).try_cast(DECIMAL)),
    "truncate": lambda number: Numeric(only_whole(number.decimal).try_cast(DECIMAL)),
    "round": _round,
    "within": _within,
    "quotient": lambda left, right: quotient(left.decimal, right.decimal),
    **{name: _date_part(name) for name in DATE_PARTS},
    **{name: _clock_part(name) for name in CLOCK},
    "unix_seconds": _unix(1_000_000),
    "unix_millis": _unix(1_000),
    "unix_micros": _unix(1),
    "shift": _shift,
}
"""Every function of the plan but text_of_json, made of others, and those that `limits.py` refuses."""
