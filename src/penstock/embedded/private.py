"""Files that only their owner can read, and temporary folders that do not outlive this process.

Passwords, keys, tokens, and the settings that hold them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["make_folder", "remove_folder", "remove_folders", "temporary_folder", "write_private"]

_folders: Final[dict[Path, None]] = {}
"""Those that are there."""


def make_folder(prefix: str) -> Path:
    """Make a temporary folder that only its owner can read; `remove_folder` removes it."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    _folders[path] = None
    return path


def remove_folder(path: Path) -> None:
    """Remove a folder that `make_folder` has made, as far as that is possible; any other one stays."""
    if path in _folders:
        shutil.rmtree(path, ignore_errors=True)
        del _folders[path]


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder and remove it at the end."""
    path = make_folder(prefix)
    try:
        yield path
    finally:
        remove_folder(path)


def remove_folders() -> None:
    """Remove all that are there: the process ends at once, without the code that would remove each."""
    for path in list(_folders):
        remove_folder(path)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # one that was there may have been open to others
        file.write(content)
