"""The type system of CloudEvents 1.0 (core, Type System): canonical text and native values.

An attribute is kept as its canonical text. A format that carries types (JSON, Avro, Protobuf)
also declares the type of an extension, so that the number 5 is written as a number again.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from uuid import UUID

from penstock.errors import InvalidEvent
from penstock.events.timestamp import read_timestamp, write_timestamp

__all__ = ["AttributeType", "AttributeValue", "canonical", "native"]

AttributeValue = str | int | bool | bytes | datetime | UUID
"""What a caller may give as the value of an attribute, subclasses and scalars of numpy included."""


class AttributeType(Enum):
    """The seven types of core; an attribute without a declared type is a String."""

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    BINARY = "Binary"
    URI = "URI"
    URI_REFERENCE = "URI-reference"
    TIMESTAMP = "Timestamp"


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,9})")


def read_integer(text: str) -> int:
    """Read core's Integer: a signed 32-bit whole number, no plus sign, no leading zeros."""
    # core, Type System: Integer is "a whole number in the range -2,147,483,648 to +2,147,483,647".
    if _INTEGER.fullmatch(text) and INT32_MIN <= (number := int(text)) <= INT32_MAX:
        return number
    raise ValueError("not an Integer of 32 bits")


def read_boolean(text: str) -> bool:
    """Read core's Boolean: `true` or `false`, case-sensitive."""
    try:
        return {"true": True, "false": False}[text]
    except KeyError:
        raise ValueError("not a Boolean: only true and false, in lower case") from None


def read_base64(text: str | bytes) -> bytes:
    """Read core's Binary: the base64 of RFC 4648 section 4, no line breaks, padded."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ValueError("not base64 of RFC 4648 section 4") from None


def write_base64(raw: bytes) -> str:
    """Write core's Binary."""
    return base64.b64encode(raw).decode("ascii")


def _integer_text(number: int) -> str:
    if not INT32_MIN <= number <= INT32_MAX:
        raise ValueError("not an Integer of 32 bits")
    return str(number)


_WRITERS: dict[type, tuple[AttributeType, Callable[..., str]]] = {
    str: (AttributeType.STRING, str),
    bool: (AttributeType.BOOLEAN, lambda value: "true" if value else "false"),
    int: (AttributeType.INTEGER, _integer_text),
    bytes: (AttributeType.BINARY, write_base64),
    datetime: (AttributeType.TIMESTAMP, write_timestamp),
}

_BASES: tuple[tuple[type, Callable[..., object]], ...] = (
    (str, str.__str__),  # of an enumeration its value, as its base class has it
    (int, int.__int__),
    (bytes, bytes),
    (UUID, str),
)
"""Types of which subclasses are taken, and how one becomes a value of the type itself."""


def _plain(value: object) -> object:
    """Give a value of a subclass, a scalar of numpy or a UUID as a type of `_WRITERS`; else itself."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if type(value) in _WRITERS or isinstance(value, datetime):
        return value
    return next((convert(value) for base, convert in _BASES if isinstance(value, base)), value)


READERS: dict[AttributeType, Callable[[str], AttributeValue]] = {
    AttributeType.STRING: str,
    AttributeType.INTEGER: read_integer,
    AttributeType.BOOLEAN: read_boolean,
    AttributeType.BINARY: read_base64,
    AttributeType.URI: str,
    AttributeType.URI_REFERENCE: str,
    AttributeType.TIMESTAMP: read_timestamp,
}


def canonical(name: str, value: object) -> tuple[str, AttributeType]:
    """Give the canonical text of a native value, and the type it declares."""
    try:
        plain = value if type(value) in _WRITERS else _plain(value)
        # A subclass of datetime writes itself: pandas has nanoseconds.
        kind, write = _WRITERS[datetime if isinstance(plain, datetime) else type(plain)]
        return write(plain), kind
    except KeyError:
        what = f"{type(value).__name__} is not a type of CloudEvents"
    except ValueError as exc:
        what = str(exc)
    raise InvalidEvent(
        f"attribute {name}: {what}",
        attribute=name,
        clause="core, Type System",
        fix="give a str, bool, int of 32 bits, bytes, UUID, or a datetime with an offset",
    )


def native(name: str, text: str, kind: AttributeType) -> AttributeValue:
    """Read canonical text as `kind`."""
    try:
        return READERS[kind](text)
    except ValueError as exc:
        raise InvalidEvent(
            f"attribute {name} does not hold a {kind.value}: {exc}",
            attribute=name,
            clause=f"core, Type System, {kind.value}",
            fix="correct the producer, or read the attribute as text",
        ) from exc
