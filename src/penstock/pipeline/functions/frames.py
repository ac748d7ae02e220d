"""Plain values as frames: four bytes of length, then a pickle that holds nothing but plain values.

What the other side sends is data: a frame that names a class or is longer than agreed is refused.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from typing import Any, Final, NoReturn

from penstock.errors import WireError

__all__ = ["LENGTH", "dump", "length_of", "load", "read_frame", "write_frame"]

LENGTH: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 20


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, bytes, tuples, lists and dicts."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every class and function."""
        raise WireError(f"a frame names {module[:60]}.{name[:60]}; only plain values travel")


def dump(value: object) -> bytes:
    """Write a plain value as a frame."""
    raw = pickle.dumps(value, protocol=5)
    return LENGTH.pack(len(raw)) + raw


def load(raw: bytes) -> Any:
    """Read the value of a frame, without its length.

    >>> load(dump(("done", [1, None, b"x"]))[4:])
    ('done', [1, None, b'x'])
    """
    try:
        return _Plain(io.BytesIO(raw)).load()
    except WireError:
        raise
    except Exception as exc:  # broken pickles raise a dozen kinds
        raise WireError(f"a frame cannot be read ({type(exc).__name__})") from exc


def length_of(head: bytes, largest: int) -> int:
    """Read the length of a frame; WireError if it is longer than agreed."""
    (length,) = LENGTH.unpack(head)
    if length > largest:
        raise WireError(f"a frame of {length} bytes; the limit is {largest}")
    return int(length)


def read_frame(descriptor: int) -> Any:
    """Wait for a frame and read it; EOFError if the other side is gone."""
    head = _exactly(descriptor, LENGTH.size)
    return load(_exactly(descriptor, LENGTH.unpack(head)[0]))


def write_frame(descriptor: int, frame: bytes) -> None:
    """Write a whole frame, however long it takes."""
    view = memoryview(frame)
    while view:
        view = view[os.write(descriptor, view) :]


def _exactly(descriptor: int, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = os.read(descriptor, min(left, _CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
