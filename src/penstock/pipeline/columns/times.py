"""Moments as columns: BIGINT microseconds, read and written without the session's time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.plan.times import FIRST, LAST

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "DATE_PARTS",
    "clock_part",
    "date_of",
    "floored",
    "in_range",
    "is_timestamp",
    "time_of",
    "time_text",
]

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND

# RFC 3339 5.6; year 0 is not one of the plan. Whether the day exists is asked of Spark.
_DATE_TIME: Final = (
    r"\A(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:"
    r"(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\z"
)
# Every day that exists in the Gregorian calendar, year 0 included, which core allows and the plan does not.
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY: Final = (
    "(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    f"|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_TIMESTAMP: Final = (
    rf"\A{_DAY}[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\z"
)
DATE_PARTS: Final = {"year": F.year, "month": F.month, "day": F.dayofmonth}


def in_range(micros: Column) -> Column:
    """Give a moment, or null outside of the years of the plan."""
    return F.when(micros.between(FIRST, LAST), micros)


def floored(micros: Column, unit: int) -> Column:
    """Say how many whole units there are, rounded down."""
    return F.call_function("div", micros - F.pmod(micros, F.lit(unit)), F.lit(unit))


def date_of(micros: Column) -> Column:
    """Give the day in UTC."""
    return F.date_from_unix_date(floored(micros, DAY).cast("int"))


def clock_part(micros: Column, unit: int, size: int) -> Column:
    """Give hours, minutes or seconds: units of the day, counted around `size`."""
    return F.pmod(floored(micros, unit), F.lit(size))


def time_of(text: Column) -> Column:
    """Read a date-time of RFC 3339; digits after the sixth are cut, a leap second is the next second."""
    leap = _is_leap(text)
    second = F.when(leap, "59").otherwise(F.substring(text, 18, 2))
    whole = F.concat(F.substring(text, 1, 10), F.lit("T"), F.substring(text, 12, 6), second, F.lit("Z"))
    digits = F.regexp_extract(text, r"\.([0-9]{1,6})", 1)
    fraction = F.rpad(digits, 6, "0").try_cast("int")
    offset = _offset_minutes(text).cast("bigint") * (60 * SECOND)
    micros = F.unix_micros(whole.try_cast("timestamp")) + fraction - offset
    real = ~leap | _may_leap(text)
    return F.when(text.rlike(_DATE_TIME) & real, in_range(micros + F.when(leap, SECOND).otherwise(0)))


def is_timestamp(text: Column) -> Column:
    """Tell whether a text is a date-time of RFC 3339, as the attribute `time` has it."""
    return F.when(text.rlike(_TIMESTAMP), ~_is_leap(text) | _may_leap(text)).otherwise(False)


def _is_leap(text: Column) -> Column:
    return F.substring(text, 18, 2) == "60"


def _may_leap(text: Column) -> Column:
    # RFC 3339 5.7: leap seconds are inserted at 23:59:60 UTC.
    minute_of_day = _digits(text, 12) * 60 + _digits(text, 15) - _offset_minutes(text)
    return F.pmod(minute_of_day, F.lit(1440)) == 1439


def _digits(text: Column, position: int) -> Column:
    return F.substring(text, position, 2).try_cast("int")


def _offset_minutes(text: Column) -> Column:
    minutes = _digits(text, -5) * 60 + _digits(text, -2)
    sign = F.substring(text, -6, 1)
    return F.when(text.rlike("[Zz]$"), 0).when(sign == "-", -minutes).otherwise(minutes)


def time_text(micros: Column) -> Column:
    """Write a moment in UTC, with 0, 3 or 6 digits of fraction."""
    clock = [clock_part(micros, unit, size) for unit, size in CLOCK.values()]
    padded = [F.lpad(part.cast("string"), 2, "0") for part in clock]
    fraction = F.lpad(F.pmod(micros, F.lit(SECOND)).cast("string"), 6, "0")
    tail = (
        F.when(fraction == "000000", "")
        .when(F.endswith(fraction, F.lit("000")), F.concat(F.lit("."), F.substring(fraction, 1, 3)))
        .otherwise(F.concat(F.lit("."), fraction))
    )
    return F.concat(date_of(micros).cast("string"), F.lit("T"), F.concat_ws(":", *padded), tail, F.lit("Z"))


CLOCK: Final = {"hour": (3_600 * SECOND, 24), "minute": (60 * SECOND, 60), "second": (SECOND, 60)}
"""The unit of each part of the day in microseconds, and how many make the next."""
