"""Which events have a message in the contract, as a column: the rule of `typed.form.choose`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.contract.selection import Selector
from penstock.pipeline.typed.form import Form

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["has_message"]


def has_message(forms: Sequence[Form]) -> Column:
    """Tell whether exactly one message is meant, by type and dataschema of the event."""
    fitting = [(form, _fits(form.selector)) for form in forms]
    named = [(form, fits) for form, fits in fitting if form.selector != Selector()]
    if not named:
        return _is_one(fitting)
    return F.when(_count(named) > 0, _is_one(named)).otherwise(_is_one(fitting))


def _is_one(candidates: Sequence[tuple[Form, Column]]) -> Column:
    by_name = (fits & (F.col("type") == form.name) for form, fits in candidates)
    return (_count(candidates) == 1) | reduce(or_, by_name)


def _count(candidates: Sequence[tuple[Form, Column]]) -> Column:
    return reduce(add, (fits.cast("int") for _, fits in candidates))


def _fits(selector: Selector) -> Column:
    allowed = {"type": selector.types, "dataschema": selector.dataschemas}
    column = F.lit(True)
    for name, values in allowed.items():
        if values is not None:
            column = column & F.coalesce(F.col(name).isin(list(values)), F.lit(False))
    return column
