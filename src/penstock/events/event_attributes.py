"""Attributes of an event as a tree: by dotted name, under a branch, and typed (spec 004, GetAttribute)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.errors import InvalidEvent

__all__ = ["as_bytes", "as_int", "as_str", "at", "under"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def at(attributes: Mapping[str, Any], key: str) -> Any:
    """Give one attribute; a name that is there as it stands comes before `outer.inner`."""
    if key in attributes:
        return attributes[key]
    value: Any = attributes
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def under(attributes: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    """Give the members of the object `prefix`, and the attributes whose names start with `prefix.`."""
    branch = at(attributes, prefix)
    flat = {n[len(prefix) + 1 :]: value for n, value in attributes.items() if n.startswith(f"{prefix}.")}
    return MappingProxyType({**(branch if isinstance(branch, Mapping) else {}), **flat})


def as_bytes(key: str, value: Any) -> bytes | None:
    """Take bytes, or text as UTF-8; InvalidEvent for anything else."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    raise _wrong(key, value, "bytes or text")


def as_str(key: str, value: Any) -> str | None:
    """Take text; InvalidEvent for anything else."""
    if value is None or isinstance(value, str):
        return value
    raise _wrong(key, value, "text")


def as_int(key: str, value: Any) -> int | None:
    """Take a whole number, or text that is one; InvalidEvent for anything else, a Boolean included."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise _wrong(key, value, "an integer")


def _wrong(key: str, value: object, wanted: str) -> InvalidEvent:
    return InvalidEvent(
        f"attribute {key!r:.60} is {value!r:.60} ({type(value).__name__}), not {wanted}",
        attribute=key,
        clause="spec 004, GetAttribute",
        fix="read it with attribute()",
    )
