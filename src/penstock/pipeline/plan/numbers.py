"""Numbers of the plan: a decimal where it fits, else a double, else nothing.

A number written as JSON writes it is a *decimal* if its value has at most 19 digits before the point and 18
after it (trailing zeros do not count); any other is the nearest *double* (IEEE 754), and null if that
overflows. Two decimals compare exactly; as soon as one side is a double both compare as doubles, as in Spark.

Arithmetic is for decimals and gives null for a double. Results are exact but for `*`, rounded to 18 digits
after the point, and `/`, rounded to 6 (what Spark gives for decimals of this width); half goes away from
zero. A result out of range is null, and so is division by zero: in a filter that means "does not pass".
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

__all__ = [
    "MAX_FRACTION",
    "MAX_WHOLE",
    "NUMBER",
    "NumberValue",
    "decimal_text",
    "divided",
    "fits",
    "in_range",
    "multiplied",
    "number_of_int",
    "number_of_json_text",
    "read_number",
    "whole",
]

MAX_WHOLE: Final = 19
MAX_FRACTION: Final = 18
DIVISION_FRACTION: Final = 6
MAX_EXPONENT: Final = 999
"""An exponent beyond this makes a double at once: no engine should build a number of a million digits."""

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""RFC 8259 6, a number; the same text is a regular expression of Python and of Java."""

NumberValue = Decimal | float
"""A decimal of the plan (always finite, in range) or a double (always finite)."""

EXACT: Final = Context(prec=200, Emax=99_999, Emin=-99_999)
"""Enough digits for every intermediate result here."""

_is_number = re.compile(NUMBER).fullmatch
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)$")
_LIMIT = Decimal(10) ** MAX_WHOLE
_INT_LIMIT: Final = 10**MAX_WHOLE
_ZERO: Final = Decimal(0)
_STEP = Decimal(1).scaleb(-MAX_FRACTION)
MAX_DIGITS: Final = 4_000


def read_number(text: str) -> NumberValue | None:
    """Read a number as JSON writes it; None if it is none, or beyond the range of a double.

    >>> read_number("1.50e1"), read_number("1e-30"), read_number("1e999"), read_number("+1")
    (Decimal('15'), 1e-30, None, None)
    """
    return number_of_json_text(text) if len(text) <= MAX_DIGITS and _is_number(text) else None


def number_of_json_text(text: str) -> NumberValue | None:
    """Read a number whose text is known to be a JSON number of at most MAX_DIGITS characters."""
    if len(text) <= MAX_FRACTION and "e" not in text and "E" not in text:
        # So few digits always fit, on either side of the point.
        return EXACT.normalize(Decimal(text)) or _ZERO
    exponent = _EXPONENT.search(text)
    # int() of a hostile megabyte of digits is not for free: an exponent of many digits is beyond anyway.
    if exponent is None or len(exponent[1].lstrip("+-0")) <= len(str(MAX_EXPONENT)):
        value = Decimal(text)
        if fits(value):
            return EXACT.plus(EXACT.normalize(value))
    double = float(text)
    return double if math.isfinite(double) else None


def number_of_int(number: int) -> NumberValue | None:
    """Return what `read_number` gives for the digits of an integer."""
    if -_INT_LIMIT < number < _INT_LIMIT:
        return Decimal(number)
    try:
        return float(number)
    except OverflowError:
        return None


def fits(value: Decimal) -> bool:
    """Tell whether a value is a decimal of the plan."""
    if not value:
        return True
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # never infinite: read by the grammar above
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return value.adjusted() < MAX_WHOLE and exponent + zeros >= -MAX_FRACTION


def in_range(value: Decimal) -> Decimal | None:
    """Give a result back, without a signed zero; None where it has too many digits before the point."""
    return EXACT.plus(value) if -_LIMIT < value < _LIMIT else None


def multiplied(left: Decimal, right: Decimal) -> Decimal | None:
    """Multiply, rounded to 18 digits after the point."""
    return in_range(EXACT.multiply(left, right).quantize(_STEP, ROUND_HALF_UP, EXACT))


def divided(left: Decimal, right: Decimal) -> Decimal | None:
    """Divide, rounded to 6 digits after the point; None for a division by zero.

    >>> divided(Decimal(2), Decimal(3)), divided(Decimal(1), Decimal(0))
    (Decimal('0.666667'), None)
    """
    if not right:
        return None
    # Integers give the exact rounding: no second rounding after one to a number of digits.
    shift = 2 * MAX_FRACTION
    top, bottom = abs(int(left.scaleb(shift, EXACT))), abs(int(right.scaleb(shift, EXACT)))
    rounded = (2 * top * 10**DIVISION_FRACTION + bottom) // (2 * bottom)
    quotient = Decimal(rounded if (left < 0) is (right < 0) else -rounded)
    return in_range(quotient.scaleb(-DIVISION_FRACTION, EXACT))


def whole(value: NumberValue) -> int | None:
    """Give a count or position: a decimal without fraction in 32 bits, or None."""
    if isinstance(value, float) or value != value.to_integral_value():
        return None
    return int(value) if -(2**31) <= value < 2**31 else None


def decimal_text(value: Decimal) -> str:
    """Write a decimal as plain digits, with no trailing zeros after the point.

    >>> decimal_text(Decimal("10.50")), decimal_text(Decimal("1E+3"))
    ('10.5', '1000')
    """
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
