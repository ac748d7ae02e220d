"""Bytes that somebody else owns: what the codecs accept, and how kernels see them without a copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buffer", "as_array"]

Buffer = bytes | bytearray | memoryview


def as_array(data: Buffer) -> NDArray[np.uint8]:
    """Show a buffer to a kernel: the same memory, not a copy."""
    return np.frombuffer(data, np.uint8)
