"""Where kernels from an archive are cached: by what they are, not by where the archive lies.

On a cluster each job unpacks its archive in a folder of its own; a cache beside that name would never be
found again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numba.core.caching import _CacheLocator

__all__ = ["ArchiveCacheLocator", "is_archived"]


def is_archived(file: str) -> bool:
    """Tell whether a module was imported from an archive.

    >>> is_archived("/job/penstock-package.zip/penstock/wire/kernels/utf8.py"), is_archived("/src/utf8.py")
    (True, False)
    """
    return ".zip/" in file


class ArchiveCacheLocator(_CacheLocator):  # type: ignore[misc]
    """Names a folder of the user for kernels whose names hold a digest of all that they are made of."""

    def get_cache_path(self) -> str:
        """Give the folder: below PENSTOCK_HOME, else below the user's cache folder."""
        home = os.environ.get("PENSTOCK_HOME")
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return str((Path(home) if home else base / "penstock") / "kernels")

    def get_source_stamp(self) -> str:
        """Give nothing that changes: the name of the kernel does."""
        return ""

    def get_disambiguator(self) -> str:
        """Give nothing that differs, for the same reason."""
        return "0"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> ArchiveCacheLocator | None:
        """Give a locator if its folder can be written."""
        locator = cls()
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator
