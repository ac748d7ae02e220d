"""The memory of a gateway's process: what is looked at for cycles, and what is given back to the system.

Batches come and go by the thousand, each larger than what glibc keeps: it would give the memory of one back
and take the same for the next, which the system first fills with zeros, page by page. On a fetch that is a
quarter of the gateway's time.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

__all__ = ["keep_what_is_freed", "settle"]

_MIB: Final = 1024 * 1024
# The numbers of malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT: Final = 48 * _MIB
"""Free memory at the end of the heap that stays ours: what one busy producer has under way, with copies."""
_APART: Final = 2 * _MIB
"""From this size on a piece is taken from the system for itself, and given back when it is freed."""
_OBJECTS_UNTIL_COLLECTION: Final = 50_000


def keep_what_is_freed() -> bool:
    """Let freed batches be used again; False where the C library is not glibc."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_THRESHOLD, _APART) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
    return False


def settle() -> None:
    """Look for cycles seldom, and never in what lives until the end; called when all of that is there."""
    gc.collect()
    gc.freeze()
    # Little of a request is part of a cycle: looking for cycles every 700 objects is work for nothing.
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION, 20, 20)
