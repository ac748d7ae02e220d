"""Bytes that somebody else owns: what the codecs accept, and how kernels see them without a copy."""

from __future__ import annotations

from penstock.errors import MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as exc:
    raise MissingExtra("gateway", "numpy", purpose="reading and writing batches") from exc

__all__ = ["Buffer", "as_array"]

Buffer = bytes | bytearray | memoryview


def as_array(data: Buffer) -> NDArray[np.uint8]:
    """Show a buffer to a kernel: the same memory, not a copy."""
    return np.frombuffer(data, np.uint8)
