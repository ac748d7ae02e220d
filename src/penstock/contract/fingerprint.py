"""A short text that changes when a value changes: SHA-256 over its canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.errors import InternalError

__all__ = ["canonical", "fingerprint"]


def fingerprint(value: object) -> str:
    """Give the fingerprint of anything made of dataclasses, maps, lists, sets and scalars.

    >>> fingerprint({"a": 1, "b": {2, 3}}) == fingerprint({"b": {3, 2}, "a": 1})
    True
    """
    written = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def canonical(value: object) -> Any:
    """Give plain data: maps by name, sets sorted, dataclasses as maps."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: canonical(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): canonical(member) for key, member in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(canonical(member) for member in value)
    if isinstance(value, list | tuple):
        return [canonical(member) for member in value]
    raise InternalError(f"a {type(value).__name__} has no canonical form")
