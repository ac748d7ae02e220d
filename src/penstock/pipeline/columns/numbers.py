"""Numbers as columns: DECIMAL(37,18) where the value fits, a double beside it where it does not.

Spark narrows the result of wide decimal arithmetic; each form here keeps the digits that the plan promises
(`plan/numbers.py`), with intermediate types in which nothing can overflow or be rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.plan.nodes import ArithmeticOperator, Comparison
from penstock.pipeline.plan.numbers import MAX_DIGITS, MAX_FRACTION, MAX_WHOLE, NUMBER

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "DECIMAL",
    "Numeric",
    "compared_numbers",
    "decimal_text",
    "literal",
    "magnitude",
    "number_of",
    "only_whole",
    "quotient",
]

DECIMAL: Final = f"decimal({MAX_WHOLE + MAX_FRACTION},{MAX_FRACTION})"
_WHOLE: Final = f"decimal({MAX_WHOLE},0)"
_FRACTION: Final = f"decimal({MAX_FRACTION},{MAX_FRACTION})"
_LARGEST_DOUBLE: Final = 1.7976931348623157e308

_IS_NUMBER: Final = rf"\A{NUMBER}\z"
# The common kind of number, asked first: no exponent, and as many digits as a decimal has.
_IS_DECIMAL: Final = rf"\A-?(?:0|[1-9][0-9]{{0,{MAX_WHOLE - 1}}})(?:\.[0-9]{{1,{MAX_FRACTION}}}0*)?\z"
_SMALL_EXPONENT: Final = r"[eE]([+-]?)0*([0-9]{1,3})\z"


@dataclass(frozen=True, slots=True)
class Numeric:
    """A number: `decimal` is null where it does not fit, and then `double` has it; None: it always fits."""

    decimal: Column
    double: Column | None = None

    @property
    def is_null(self) -> Column:
        """Whether there is no number at all."""
        return self.decimal.isNull() if self.double is None else self.decimal.isNull() & self.double.isNull()

    @property
    def as_double(self) -> Column:
        """The number as the nearest double."""
        rounded = self.decimal.cast("double")
        return rounded if self.double is None else F.coalesce(rounded, self.double)


def literal(value: Decimal | None) -> Numeric:
    """Give a constant."""
    return Numeric(F.lit(None if value is None else format(value, "f")).cast(DECIMAL))


def number_of(text: Column) -> Numeric:
    """Read a number as JSON writes it."""
    is_number = (F.char_length(text) <= MAX_DIGITS) & text.rlike(_IS_NUMBER)
    common = (F.char_length(text) <= MAX_DIGITS) & text.rlike(_IS_DECIMAL)
    fits = text.rlike("[eE]") & _fits_with_exponent(text)
    decimal = F.when(common | (is_number & fits), text.try_cast(DECIMAL))
    double = F.when(~common & is_number & ~fits, text.try_cast("double"))
    return Numeric(decimal, F.when(F.abs(double) <= _LARGEST_DOUBLE, double))


def _fits_with_exponent(text: Column) -> Column:
    """Tell whether a number with an exponent of at most three digits fits, by counting its digits."""
    sign, size = (F.regexp_extract(text, _SMALL_EXPONENT, group) for group in (1, 2))
    exponent = F.concat(sign, size).try_cast("int")
    whole = F.regexp_extract(text, r"\A-?([0-9]+)", 1)
    fraction = F.regexp_extract(text, r"\.([0-9]+)", 1)
    digits = F.concat(whole, fraction)
    significant = F.rtrim(digits, F.lit("0"))
    zeros = F.char_length(digits) - F.char_length(significant)
    scale = F.char_length(fraction) - exponent - zeros
    before_point = F.char_length(F.ltrim(significant, F.lit("0"))) - scale
    small = (scale <= MAX_FRACTION) & (before_point <= MAX_WHOLE)
    return F.coalesce((significant == "") & exponent.isNotNull() | small & exponent.isNotNull(), F.lit(False))


COMPARISONS: Final[dict[Comparison, Callable[[Column, Column], Column]]] = {
    Comparison.EQUAL: lambda left, right: left == right,
    Comparison.NOT_EQUAL: lambda left, right: left != right,
    Comparison.LESS: lambda left, right: left < right,
    Comparison.LESS_OR_EQUAL: lambda left, right: left <= right,
    Comparison.GREATER: lambda left, right: left > right,
    Comparison.GREATER_OR_EQUAL: lambda left, right: left >= right,
}


def compared_numbers(operator: Comparison, left: Numeric, right: Numeric) -> Column:
    """Compare exactly where both are decimals, else as doubles."""
    compare = COMPARISONS[operator]
    exact = compare(left.decimal, right.decimal)
    if left.double is None and right.double is None:
        return exact
    return F.coalesce(exact, compare(left.as_double, right.as_double))


def _kept(value: Column) -> Numeric:
    """Give a result, or null where it is out of range."""
    return Numeric(value.try_cast(DECIMAL))


def _multiply(left: Column, right: Column) -> Numeric:
    """Multiply by parts: Spark gives a product of two such decimals only 6 digits after the point."""
    (a, b), (c, d) = _parts(left), _parts(right)
    products = (a * c, a * d, b * c, b * d)
    # All parts have the sign of the product, so one that is out of range means that the sum is.
    total, *rest = (product.try_cast(DECIMAL) for product in products)
    for part in rest:
        total = (total + part).try_cast(DECIMAL)
    return Numeric(total)


def _parts(value: Column) -> tuple[Column, Column]:
    whole = only_whole(value).cast(_WHOLE)
    return whole, (value - whole).cast(_FRACTION)


def magnitude(value: Column) -> Column:
    """Take the sign away; Spark's own abs and minus sign round to 34 digits, its subtraction does not."""
    return F.when(value < 0, (F.lit(0) - value).cast(DECIMAL)).otherwise(value)


def only_whole(value: Column) -> Column:
    """Cut the fraction off."""
    return F.when(value < 0, F.ceil(value)).otherwise(F.floor(value))


def quotient(left: Column, right: Column) -> Numeric:
    """Say how often one goes into the other; what is left is taken away first, so the division is exact."""
    return _kept(F.try_divide(left - F.try_mod(left, right), right))


ARITHMETIC: Final[dict[ArithmeticOperator, Callable[[Column, Column], Numeric]]] = {
    ArithmeticOperator.ADD: lambda left, right: _kept(left + right),
    ArithmeticOperator.SUBTRACT: lambda left, right: _kept(left - right),
    ArithmeticOperator.MULTIPLY: _multiply,
    ArithmeticOperator.DIVIDE: lambda left, right: _kept(F.try_divide(left, right)),
    ArithmeticOperator.REMAINDER: lambda left, right: _kept(F.try_mod(left, right)),
}

_FORMAT: Final = "0" * MAX_WHOLE + "." + "0" * MAX_FRACTION


def decimal_text(value: Column) -> Column:
    """Write a decimal as plain digits, with no trailing zeros after the point."""
    digits = F.to_char(magnitude(value), F.lit(_FORMAT))
    whole = F.ltrim(F.substring(digits, 1, MAX_WHOLE), F.lit("0"))
    fraction = F.rtrim(F.substring(digits, MAX_WHOLE + 2, MAX_FRACTION), F.lit("0"))
    return F.concat(
        F.when(value < 0, "-").otherwise(""),
        F.when(whole == "", "0").otherwise(whole),
        F.when(fraction == "", "").otherwise(F.concat(F.lit("."), fraction)),
    )
