"""What Spark's Java says at its start and nobody needs is left out; everything else it writes is passed on.

Spark writes these lines to the standard error of its process before any setting of ours is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

__all__ = ["filtered_stderr"]

_NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Setting Spark log level to",
    b"Using Spark's default log4j profile",
)
_STDERR: Final = 2


@contextmanager
def filtered_stderr() -> Iterator[int]:
    """Give a file for the standard error of a child that is started inside: a filter, as long as it lives.

    Our own standard error stays what it is, so that progress can be shown while the child starts.
    """
    reader, writer = os.pipe()
    real = os.dup(_STDERR)
    Thread(target=_pass_on, args=(reader, real), name="penstock-spark-stderr", daemon=True).start()
    try:
        yield writer
    finally:
        # From here on only the child holds the pipe: its end is the end of the thread.
        os.close(writer)


def _pass_on(reader: int, real: int) -> None:
    with os.fdopen(reader, "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(_NOISE):
                out.write(line)
