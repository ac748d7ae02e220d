"""A value that may fail, as two plan expressions: for languages that have errors instead of nulls."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from penstock.pipeline.plan.nodes import (
    And,
    Attribute,
    Boolean,
    Call,
    Compare,
    Comparison,
    If,
    IsNull,
    Node,
    Not,
    Number,
    Or,
    Type,
)

__all__ = ["FALSE", "TRUE", "Checked", "cast_to", "either", "number"]

TRUE: Final = Boolean(True)
FALSE: Final = Boolean(False)


def number(value: int) -> Number:
    """Give a whole number as a literal."""
    return Number(Decimal(value))


def either(*errors: Node) -> Node:
    """Give one error of several; those that cannot happen are left out."""
    possible = [part for error in errors for part in (error.operands if isinstance(error, Or) else (error,))]
    missing = dict.fromkeys(part for part in possible if _is_missing(part))
    other = [part for part in possible if part != FALSE and not _is_missing(part)]
    found = (*missing, *other)
    return Or(found) if len(found) > 1 else found[0] if found else FALSE


def _is_missing(error: Node) -> bool:
    return isinstance(error, IsNull) and isinstance(error.operand, Attribute)


@dataclass(frozen=True, slots=True)
class Checked:
    """A value and whether it failed; `error` is never null, `value` may be null only where it is true."""

    value: Node
    error: Node
    type: Type

    @property
    def passes(self) -> Node:
        """The condition of a filter: CESQL 1.2, any error means that the event does not pass."""
        parts = self.value.operands if isinstance(self.value, And) else (self.value,)
        return self.value if self.error == FALSE else And((Not(self.error), *parts))


def _not_zero(node: Node) -> Node:
    return Compare(Comparison.NOT_EQUAL, node, number(0))


def cast_to(checked: Checked, want: Type) -> Checked:
    """Cast between text, number and boolean by CESQL 3.7; a text that cannot be read is an error."""
    if checked.type is want:
        return checked
    if want is Type.TEXT:
        function = "text_of_number" if checked.type is Type.NUMBER else "text_of_boolean"
        return Checked(Call(function, (checked.value,)), checked.error, want)
    if checked.type is Type.TEXT:
        function = "cesql_integer" if want is Type.NUMBER else "cesql_boolean"
        value = Call(function, (checked.value,))
        return Checked(value, either(checked.error, IsNull(value)), want)
    if want is Type.BOOLEAN:
        return Checked(_not_zero(checked.value), checked.error, want)
    return Checked(If(checked.value, number(1), number(0)), checked.error, want)
