"""The functions of the plan on whole columns: those that can be done exactly; the others are not here.

Each takes the cells of its arguments, none of them a JSON value but for the four that say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.arrow.buffers import buffers_of
from penstock.pipeline.arrow.cells import Cells, any_unsure, mask_of
from penstock.pipeline.arrow.found import Found, Path, Texts, texts_at
from penstock.pipeline.plan.times import FIRST, time_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["CALLS", "OF_JSON", "times_of"]

# RFC 3339 in UTC, to the microsecond: days that exist in every year, hours and minutes as they are.
_TIME = (
    r"^[1-9]\d{3}-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z$"
)
_TIMESTAMP = pa.timestamp("us", "UTC")


# JSON values


def _number_of_json(found: Found, path: Path) -> Cells:
    from penstock.wire.kernels.json import NUMBER

    there = found.kinds(path) == NUMBER
    numbers, unsure = _decimals(found.texts(path), there)
    return Cells(numbers, _or_none(unsure))


def _string_of_json(found: Found, path: Path) -> Cells:
    from penstock.wire.kernels.json import ESCAPED, STRING

    kinds = found.kinds(path)
    return Cells(texts_at(found.texts(path), kinds == STRING), _or_none(kinds == ESCAPED))


def _boolean_of_json(found: Found, path: Path) -> Cells:
    from penstock.wire.kernels.json import FALSE, TRUE

    kinds = found.kinds(path)
    return Cells(pa.array(kinds == TRUE, mask=(kinds != TRUE) & (kinds != FALSE)))


def _text_of_json(found: Found, path: Path) -> Cells:
    from penstock.wire.kernels.json import ESCAPED, FALSE, NUMBER, STRING, TRUE

    kinds, texts = found.kinds(path), found.texts(path)
    plain, unsure = _as_written(texts, kinds == NUMBER)
    there = (kinds == STRING) | (kinds == TRUE) | (kinds == FALSE) | plain
    return Cells(texts_at(texts, there), _or_none(unsure | (kinds == ESCAPED)))


def _as_written(texts: Texts, numbers: Mask) -> tuple[Mask, Mask]:
    """Say which numbers are written as the plan writes them, and which others there are."""
    digits, scales = _digits(texts, numbers)
    # No exponent, no zeros at the end of a fraction, no minus before zero.
    plain = (scales == 0) & ((digits != 0) | (texts.sizes == 1)) | (scales > 0) & (digits % 10 != 0)
    return numbers & plain, numbers & ~plain


OF_JSON: Final[Mapping[str, Callable[[Found, Path], Cells]]] = {
    "number_of_json": _number_of_json,
    "string_of_json": _string_of_json,
    "boolean_of_json": _boolean_of_json,
    "text_of_json": _text_of_json,
}
"""The functions of a JSON value; their argument is a path."""


# Numbers


def _digits(texts: Texts, there: Mask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from penstock.wire.kernels.json_values import read_decimals

    digits, scales = np.zeros(len(there), dtype=np.int64), np.zeros(len(there), dtype=np.int64)
    read_decimals(
        texts.buffer, np.where(there, texts.starts, 0), np.where(there, texts.sizes, -1), digits, scales
    )
    return digits, scales


def _decimals(texts: Texts, there: Mask) -> tuple[pa.DoubleArray, Mask]:
    """Read numbers; null where none is, or the text is not one."""
    digits, scales = _digits(texts, there)
    # Both are integers that a double holds, and IEEE 754 division rounds once: the nearest double.
    numbers = digits / 10.0 ** np.maximum(scales, 0)
    from penstock.wire.kernels.json_tokens import UNSURE

    return pa.array(numbers, mask=~there | (scales < 0)), there & (scales == UNSURE)


def _number_of_text(text: Cells) -> Cells:
    values = text.values
    buffer, offsets = buffers_of(values)
    there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    numbers, unsure = _decimals(Texts(buffer, offsets[:-1], np.diff(offsets)), there)
    return Cells(numbers, _both(_or_none(unsure), text.unsure))


# Times


def times_of(texts: pa.StringArray) -> Cells:
    """Read date-times of the common form, in UTC; of all others it is not certain."""
    common = pc.match_substring_regex(texts, _TIME)
    moments = pc.if_else(common, texts, None).cast(_TIMESTAMP)
    return Cells(moments.cast(pa.int64()), _or_none(mask_of(pc.invert(common))))


def _time_of_text(text: Cells) -> Cells:
    times = times_of(text.values)
    return Cells(times.values, _both(times.unsure, text.unsure))


def _part(function: Callable[..., pa.Array]) -> Callable[[Cells], Cells]:
    return lambda time: Cells(function(pc.cast(time.values, _TIMESTAMP)).cast(pa.float64()), time.unsure)


def _unix(unit: int) -> Callable[[Cells], Cells]:
    def count(time: Cells) -> Cells:
        # Shifted to be positive, so that the division rounds down.
        base = -FIRST // unit * unit + unit
        shifted = pc.divide(pc.add(time.values, base), unit)
        return Cells(pc.subtract(shifted, base // unit).cast(pa.float64()), time.unsure)

    return count


def _text_of_time(time: Cells) -> Cells:
    texts = [None if micros is None else time_text(micros) for micros in time.values.to_pylist()]
    return Cells(pa.array(texts, pa.utf8()), time.unsure)


# Texts


def _of_text(function: Callable[..., Any], kind: pa.DataType | None = None) -> Callable[[Cells], Cells]:
    def call(text: Cells) -> Cells:
        values = function(text.values)
        return Cells(values if kind is None else values.cast(kind), text.unsure)

    return call


def _test(function: Callable[..., Any]) -> Callable[[Cells, Cells], Cells]:
    """Make a test against a text that is the same for all rows; the caller sees to that."""

    def call(text: Cells, other: Cells) -> Cells:
        if not other.values.is_valid:
            return Cells(pa.scalar(None, pa.bool_()))
        return Cells(function(text.values, pattern=other.values.as_py()), any_unsure([text, other]))

    return call


def _concat(*texts: Cells) -> Cells:
    values = pc.binary_join_element_wise(*(text.values for text in texts), "") if texts else pa.scalar("")
    return Cells(values, any_unsure(texts))


def _boolean_of_text(text: Cells) -> Cells:
    true, false = pc.equal(text.values, "true"), pc.equal(text.values, "false")
    return Cells(pc.if_else(pc.or_(true, false), true, pa.scalar(None, pa.bool_())), text.unsure)


def _text_of_boolean(value: Cells) -> Cells:
    return Cells(pc.if_else(value.values, "true", "false"), value.unsure)


def _or_none(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    return right if left is None else left if right is None else left | right


CALLS: Final[Mapping[str, Callable[..., Cells]]] = {
    "number_of_text": _number_of_text,
    "boolean_of_text": _boolean_of_text,
    "time_of_text": _time_of_text,
    "text_of_boolean": _text_of_boolean,
    "text_of_time": _text_of_time,
    "lower": _of_text(pc.ascii_lower),
    "upper": _of_text(pc.ascii_upper),
    "length": _of_text(pc.utf8_length, pa.float64()),
    "concat": _concat,
    "starts_with": _test(pc.starts_with),
    "ends_with": _test(pc.ends_with),
    "contains": _test(pc.match_substring),
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "unix_seconds": _unix(1_000_000),
    "unix_millis": _unix(1_000),
}
"""The functions of everything else."""
