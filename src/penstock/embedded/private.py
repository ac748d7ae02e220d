"""Files that only their owner can read: passwords, keys, tokens, and the settings that hold them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_private"]


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # one that was there may have been open to others
        file.write(content)
