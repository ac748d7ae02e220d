"""Inflating bytes from a stranger: never into more memory than the caller allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import MissingExtra
from penstock.wire.buffer import Buffer

__all__ = ["CannotInflate", "OutputTooLarge", "codec", "inflate_into", "inflate_slice"]


class CannotInflate(Exception):
    """The compressed bytes are not what they say; the layer above names the place."""


class OutputTooLarge(CannotInflate):
    """The bytes inflate to more than is allowed."""


_FULL = ("failed to write whole buffer", "is smaller than required", "buffer is too small")


def codec(name: str) -> Any:
    """Give cramjam's module for a compression."""
    try:
        import cramjam
    except ImportError as exc:
        raise MissingExtra("gateway", "cramjam", purpose="reading compressed records") from exc
    return getattr(cramjam, name)


def inflate_into(inflate: Callable[[Any, Any], int], data: Buffer, limit: int) -> memoryview:
    """Inflate into an output of `limit` bytes, of which only what is written is ever touched."""
    output = np.empty(limit, np.uint8)
    return output.data[: inflate_slice(inflate, data, output)]


def inflate_slice(inflate: Callable[[Any, Any], int], data: Buffer, output: Any) -> int:
    """Inflate into the beginning of an output; give how many bytes were written."""
    try:
        return int(inflate(data, output))
    except Exception as exc:
        kind = OutputTooLarge if any(sign in str(exc) for sign in _FULL) else CannotInflate
        raise kind(str(exc)) from exc
