"""What Spark's Java says at its start and nobody needs is left out; everything else it writes is passed on.

Of the traceback that spark-submit ends with the frames are left out, and its first line is kept. Of its
answer to an option that it does not know the sentence is kept, and the list of all options is not.

Spark writes these lines to the standard error of its process before any setting of ours is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

__all__ = ["FilteredStderr", "filtered_stderr"]

_NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Setting Spark log level to",
    b"Using Spark's default log4j profile",
)
_FAILED: Final = b'Exception in thread "main" '
"""How the traceback begins that spark-submit ends with."""
_REFUSED: Final = b"Error: "
"""How the line begins in which spark-submit refuses an option."""
_USAGE: Final = b"Usage: spark-submit "
"""How the list of all options begins, behind which spark-submit ends."""
_MOST_CAUSE: Final = 2000
_STDERR: Final = 2


class FilteredStderr:
    """The standard error of a child, as `subprocess` takes it; it is passed on while the child lives."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self._failed = b""
        self._thread = Thread(
            target=self._pass_on, args=(reader, os.dup(_STDERR)), name="penstock-spark-stderr", daemon=True
        )
        self._thread.start()

    def fileno(self) -> int:
        """Return the file that the child writes to."""
        return self._writer

    def close(self) -> None:
        """Leave the pipe to the child: its end is the end of the thread."""
        os.close(self._writer)

    def failure(self, seconds: float) -> str:
        """Return what the main thread of Java has failed of, or refused; wait so long for its end."""
        self._thread.join(seconds)
        return self._failed.decode(errors="replace").strip()[:_MOST_CAUSE]

    def _pass_on(self, reader: int, real: int) -> None:
        in_traceback = in_usage = False
        refused = b""
        with os.fdopen(reader, "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
            for line in lines:
                is_frame = line.startswith(b"\t") or not line.strip()
                if line.startswith(_FAILED):
                    self._failed, in_traceback = line.removeprefix(_FAILED), True
                elif not is_frame and not line.startswith(b"Caused by: "):
                    in_traceback = False
                if line.startswith(_REFUSED):
                    refused = line.removeprefix(_REFUSED)
                elif line.startswith(_USAGE):
                    self._failed, in_usage = refused, True
                if not in_usage and not line.startswith(_NOISE) and not (in_traceback and is_frame):
                    out.write(line)


@contextmanager
def filtered_stderr() -> Iterator[FilteredStderr]:
    """Give the standard error of a child that is started inside: a filter, as long as the child lives.

    Our own standard error stays what it is, so that progress can be shown while the child starts.
    """
    stderr = FilteredStderr()
    try:
        yield stderr
    finally:
        stderr.close()
