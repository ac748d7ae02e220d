"""Memory for large answers, used again: new memory is filled with zeros twice before anything is in it.

On a fetch that is as much work as taking the bytes from the socket.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["AnswerMemory"]

_SMALL: Final = 64 * 1024
_LARGE: Final = 16 * 1024 * 1024
"""What is not kept: so much is not asked for at once, and only a single batch can be larger."""
_KEPT: Final = 2
"""One answer is worked on, or its end is still looked at, while the next one comes in."""


class AnswerMemory:
    """The last answers of a connection."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[bytearray] = deque(maxlen=_KEPT)

    def take(self, size: int) -> memoryview:
        """Give so many bytes to write into, those of an earlier answer if nobody looks at it any more."""
        if not _SMALL < size <= _LARGE:
            return memoryview(bytearray(size))
        free = next((each for each in self._kept if len(each) >= size and not _is_seen(each)), None)
        if free is None:
            free = bytearray(size)
            self._kept.append(free)
        return memoryview(free)[:size]


def _is_seen(memory: bytearray) -> bool:
    """Say whether there is a view of it: then its size cannot be changed."""
    try:
        memory.pop()
    except BufferError:
        return True
    memory.append(0)  # back to its size, where it is
    return False
