"""Plain YAML scalars to JSON scalars by the core schema of YAML 1.2 (10.3.2): `yes` and `12:30` are texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["NotJsonData", "plain_scalar", "tagged_scalar"]

# Longer than any Kafka or Pulsar setting; Python itself refuses to read texts of more than 4300 digits.
MAX_DIGITS: Final = 400

_WORDS: Final[Mapping[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMBER_START: Final = frozenset("+-.0123456789")
_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")


class NotJsonData(Exception):
    """A scalar that JSON cannot say; the message is for the finding."""


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Resolve a scalar that has neither quotes nor a tag.

    >>> [plain_scalar(t) for t in ("12", "1.5", "yes", "12:30", "010", "~", "true", "0x1F")]
    [12, 1.5, 'yes', '12:30', 10, None, True, 31]
    """
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _NUMBER_START else text


def tagged_scalar(tag: str, text: str) -> str | int | float | bool | None:
    """Resolve a scalar by its tag.

    >>> tagged_scalar("tag:yaml.org,2002:str", "12")
    '12'
    """
    check = _TAGS.get(tag)
    if check is None:
        raise NotJsonData(f"the tag {tag} has no meaning in AsyncAPI")
    value = text if check is _is_text else plain_scalar(text)
    if not check(value):
        raise NotJsonData(f"the tag {tag} does not fit the value {text[:40]!r}")
    return value


def _number(text: str) -> str | int | float:
    if len(text) > MAX_DIGITS:
        return _long(text)
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return _finite(float(text), text)
    if _OCTAL.match(text):
        return int(text[2:], 8)
    if _HEX.match(text):
        return int(text[2:], 16)
    if _NOT_FINITE.match(text):
        raise NotJsonData(f"{text} is not a finite number")
    return text


def _long(text: str) -> str:
    if _INT.match(text) or _FLOAT.match(text):
        raise NotJsonData(f"a number of {len(text)} digits is too long")
    return text


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise NotJsonData(f"{text} is not a finite number")
    return number


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TAGS: Final[Mapping[str, Callable[[object], bool]]] = {
    "!": _is_text,
    "tag:yaml.org,2002:str": _is_text,
    "tag:yaml.org,2002:null": lambda value: value is None,
    "tag:yaml.org,2002:bool": lambda value: isinstance(value, bool),
    "tag:yaml.org,2002:int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "tag:yaml.org,2002:float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
