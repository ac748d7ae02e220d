"""Numbers of the plan: where they fit, how they round, how they are written."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.plan.numbers import (
    NumberValue,
    decimal_text,
    divided,
    fits,
    in_range,
    multiplied,
    read_number,
    whole,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Decimal(0)),
        ("-0", Decimal(0)),
        ("-0.0", Decimal(0)),
        ("1.50", Decimal("1.5")),
        ("1e3", Decimal(1000)),
        ("1000e-20", Decimal("1e-17")),
        ("9007199254740993", Decimal(9007199254740993)),
        ("9999999999999999999.999999999999999999", Decimal("9999999999999999999.999999999999999999")),
        ("0.100000000000000000000000000000", Decimal("0.1")),
        ("10000000000000000000", 1e19),
        ("0.0000000000000000001", 1e-19),
        ("12345678901234567890123", 1.2345678901234568e22),
        ("0e9999", 0.0),
        ("1e400", None),
        ("-1e400", None),
        ("1e-400", 0.0),
        ("1" * 4001, None),
        ("1e" + "9" * 3000, None),
        ("", None),
        ("+1", None),
        ("01", None),
        ("1.", None),
        (".5", None),
        (" 1", None),
        ("1\n", None),
        ("NaN", None),
        ("0x10", None),
        ("१", None),
    ],
)
def test_reading(text: str, value: NumberValue | None) -> None:
    found = read_number(text)
    assert found == value and type(found) is type(value)


def test_a_zero_has_no_sign() -> None:
    assert str(read_number("-0")) == "0"
    assert str(in_range(Decimal("-0"))) == "0"


decimals = st.decimals(-(10**19) + 1, 10**19 - 1, allow_nan=False, places=18).filter(fits)


@given(decimals, decimals)
def test_products_and_quotients_are_the_nearest_ones(left: Decimal, right: Decimal) -> None:
    product = multiplied(left, right)
    exact = Fraction(left) * Fraction(right)
    if product is None:
        assert abs(exact) >= Fraction(10**19) - Fraction(1, 10**18)
    else:
        assert abs(Fraction(product) - exact) <= Fraction(1, 2 * 10**18)
    quotient = divided(left, right) if right else None
    if quotient is not None:
        assert abs(Fraction(quotient) - Fraction(left) / Fraction(right)) <= Fraction(1, 2 * 10**6)


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [("1", "2000000", "0.000001"), ("-1", "2000000", "-0.000001"), ("1", "2000001", "0"), ("1", "0", None)],
)
def test_half_goes_away_from_zero(left: str, right: str, quotient: str | None) -> None:
    assert divided(Decimal(left), Decimal(right)) == (None if quotient is None else Decimal(quotient))


@given(decimals)
def test_text_is_read_back(value: Decimal) -> None:
    assert read_number(decimal_text(value)) == value


def test_positions_are_whole_and_small() -> None:
    assert whole(Decimal("2.0")) == 2
    assert [whole(value) for value in (Decimal("1.5"), 2.0, Decimal(2**31))] == [None, None, None]
    assert whole(Decimal(-(2**31))) == -(2**31)
