"""The function table of the plan: names, signatures, and in one line each what they give.

A call with a null argument is null. `text_of_...` and the like are the only ways from one type to another.
Text is counted and cut in code points. `lower` and `upper` change A to Z only, so that every engine agrees;
the two `unicode_` forms follow the tables of the Python that runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.pipeline.plan.nodes import Type

__all__ = ["FUNCTIONS", "Signature"]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives; `rest` is the type of any number of further arguments."""

    parameters: tuple[Type, ...]
    returns: Type
    meaning: str
    rest: Type | None = None

    def takes(self, count: int) -> bool:
        """Tell whether a call may have this many arguments."""
        return count == len(self.parameters) or (self.rest is not None and count > len(self.parameters))

    def parameter(self, index: int) -> Type:
        """Give the type of one argument."""
        if index < len(self.parameters):
            return self.parameters[index]
        return self.rest or Type.NULL


_TEXT, _NUMBER, _TIME, _JSON, _BOOLEAN = Type.TEXT, Type.NUMBER, Type.TIME, Type.JSON, Type.BOOLEAN
_TO_TEXT = ((_TEXT,), _TEXT)
_TO_NUMBER = ((_NUMBER,), _NUMBER)
_TEST = ((_TEXT, _TEXT), _BOOLEAN)
_PART = ((_TIME,), _NUMBER)

FUNCTIONS: Final[dict[str, Signature]] = {
    # Conversions. A JSON value keeps its type: only a JSON number is a number, only a JSON string is text.
    "number_of_json": Signature((_JSON,), _NUMBER, "the number, if it is a JSON number"),
    "string_of_json": Signature((_JSON,), _TEXT, "the text, if it is a JSON string"),
    "boolean_of_json": Signature((_JSON,), _BOOLEAN, "the boolean, if it is true or false"),
    "text_of_json": Signature((_JSON,), _TEXT, "a string as it is, a number or boolean as text"),
    "number_of_text": Signature((_TEXT,), _NUMBER, "the number, if the text is one as JSON writes it"),
    "boolean_of_text": Signature((_TEXT,), _BOOLEAN, "the boolean, if the text is true or false"),
    "time_of_text": Signature((_TEXT,), _TIME, "the moment, if the text is a date-time of RFC 3339"),
    "text_of_number": Signature((_NUMBER,), _TEXT, "plain digits without trailing zeros; null for a double"),
    "text_of_boolean": Signature((_BOOLEAN,), _TEXT, "true or false"),
    "text_of_time": Signature((_TIME,), _TEXT, "RFC 3339 in UTC with 0, 3 or 6 digits of fraction"),
    "cesql_integer": Signature((_TEXT,), _NUMBER, "a 32-bit integer as CESQL 3.7 reads it"),
    "cesql_boolean": Signature((_TEXT,), _BOOLEAN, "true or false in any case, as CESQL 3.7 reads it"),
    # Text.
    "lower": Signature(*_TO_TEXT, "A to Z in lower case"),
    "upper": Signature(*_TO_TEXT, "a to z in upper case"),
    "unicode_lower": Signature(*_TO_TEXT, "all letters in lower case"),
    "unicode_upper": Signature(*_TO_TEXT, "all letters in upper case"),
    "length": Signature((_TEXT,), _NUMBER, "the number of code points"),
    "substring": Signature(
        (_TEXT, _NUMBER, _NUMBER), _TEXT, "from a position, counted from 1 or from the end"
    ),
    "left": Signature((_TEXT, _NUMBER), _TEXT, "the first characters"),
    "right": Signature((_TEXT, _NUMBER), _TEXT, "the last characters"),
    "concat": Signature((), _TEXT, "one text after the other", rest=_TEXT),
    "trim": Signature((_TEXT, _TEXT), _TEXT, "without these characters at both ends"),
    "ltrim": Signature((_TEXT, _TEXT), _TEXT, "without these characters at the start"),
    "rtrim": Signature((_TEXT, _TEXT), _TEXT, "without these characters at the end"),
    "replace": Signature((_TEXT, _TEXT, _TEXT), _TEXT, "with every occurrence replaced"),
    "starts_with": Signature(*_TEST, "whether the text starts so"),
    "ends_with": Signature(*_TEST, "whether the text ends so"),
    "contains": Signature(*_TEST, "whether the text holds the other"),
    "position": Signature((_TEXT, _TEXT), _NUMBER, "where the other text begins, from 1; 0 if nowhere"),
    # Numbers, all on decimals; null for a double.
    "abs": Signature(*_TO_NUMBER, "without its sign"),
    "floor": Signature(*_TO_NUMBER, "the next whole number below"),
    "ceil": Signature(*_TO_NUMBER, "the next whole number above"),
    "truncate": Signature(*_TO_NUMBER, "without its fraction"),
    "round": Signature((_NUMBER, _NUMBER), _NUMBER, "to 0 to 18 digits after the point, half away from 0"),
    "within": Signature((_NUMBER,) * 3, _NUMBER, "the number, if it lies between the others"),
    "quotient": Signature((_NUMBER, _NUMBER), _NUMBER, "how often one goes into the other, cut to whole"),
    # Times, in UTC.
    "year": Signature(*_PART, "the year"),
    "month": Signature(*_PART, "the month, 1 to 12"),
    "day": Signature(*_PART, "the day of the month"),
    "hour": Signature(*_PART, "the hour, 0 to 23"),
    "minute": Signature(*_PART, "the minute"),
    "second": Signature(*_PART, "the second, without its fraction"),
    "unix_seconds": Signature(*_PART, "seconds since 1970, rounded down"),
    "unix_millis": Signature(*_PART, "milliseconds since 1970, rounded down"),
    "unix_micros": Signature(*_PART, "microseconds since 1970"),
    "shift": Signature((_TIME, _NUMBER), _TIME, "the moment so many microseconds later"),
}
"""Every function that a `Call` may name."""
