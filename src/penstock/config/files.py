"""Files that the configuration names, on machines where they are not at the place that it names.

Certificates and tokens reach the containers of a cluster beside the job (`spark-submit --files`). The
environment variable PENSTOCK_FILES names there where they are: folders, or the files themselves, separated as
in PATH.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["FILES_VARIABLE", "located"]

FILES_VARIABLE: Final = "PENSTOCK_FILES"


def located(path: str | Path) -> Path:
    """Give the path itself if there is a file, else the file of the same name that came with the job.

    Without that variable, and where neither is there, it is the path as it was given.
    """
    given = Path(path)
    if given.exists():
        return given
    for entry in filter(None, os.environ.get(FILES_VARIABLE, "").split(os.pathsep)):
        sent = Path(entry, given.name) if Path(entry).is_dir() else Path(entry)
        if sent.name == given.name and sent.is_file():
            return sent.absolute()
    return given
