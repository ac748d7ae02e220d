"""What an evaluation gives: a value and the errors on the way to it (CESQL 1.0.0, 3.1 and 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["INTEGER_MAX", "INTEGER_MIN", "ZERO", "ErrorKind", "EvaluationError", "Result", "Type", "Value"]

Value = str | int | bool

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1


class Type(StrEnum):
    """The three primitive types of 3.1, and ANY for parameters that take each of them."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    ANY = "Any"


ZERO: dict[Type, Value] = {Type.STRING: "", Type.INTEGER: 0, Type.BOOLEAN: False, Type.ANY: False}
"""The zero value of each type; where the type is not known it is Boolean's (3.2)."""


class ErrorKind(StrEnum):
    """The error types of 3.3, with the short names that the conformance suite gives them."""

    PARSE = "parse"
    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """One error of an evaluation: data, never raised."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """The two outputs of an expression; a value is always there, also beside errors."""

    value: Value
    errors: tuple[EvaluationError, ...] = ()

    @property
    def passes(self) -> bool:
        """Tell whether an event passes a filter with this result.

        1.2: if the output value is not a Boolean, or any errors are returned, the event MUST NOT pass.
        """
        return self.value is True and not self.errors
