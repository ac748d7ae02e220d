"""Where Penstock keeps what is shared between projects: jars, launchers, development servers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.errors import DiskSpaceError

__all__ = ["MINIMUM_FREE_BYTES", "penstock_home", "require_disk_space"]

MINIMUM_FREE_BYTES = 1_000_000_000
"""Under this a bookie turns read-only and a Kafka log directory goes offline."""


def penstock_home() -> Path:
    """Give `PENSTOCK_HOME`, else a folder under the user's cache directory."""
    if named := os.environ.get("PENSTOCK_HOME"):
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "penstock"


def require_disk_space(folder: Path, needed: int = MINIMUM_FREE_BYTES) -> None:
    """Refuse to go on when the disk that holds `folder` has less than `needed` bytes free."""
    # os.path: a folder that may not be looked into counts as not there, and the next above it is asked.
    there = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    free = shutil.disk_usage(there).free
    if free < needed:
        raise DiskSpaceError(
            f"only {free // 1_000_000} MB of disk are free, {needed // 1_000_000} MB are needed",
            where=str(folder),
            why="a server that runs out of disk turns read-only or stops",
            next="free some space, or put the data elsewhere (PENSTOCK_HOME, or the data option)",
        )
