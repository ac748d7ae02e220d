"""A home of Spark for a local job: the installed package, without its copy of itself in an archive.

Spark puts `python/lib/pyspark.zip` of its home before everything else on the path of each Python that it
starts. Nothing compiled is in there, so each of them (workers, planners, the source of a query) compiles
PySpark anew, for most of a second. Without the archive they import what is installed, compiled once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.embedded.home import penstock_home

__all__ = ["lean_home", "lean_spark"]

_PARTS: Final = ("bin", "jars")
"""What Java is started with."""


@contextmanager
def lean_spark() -> Iterator[None]:
    """Start Spark from the lean home, unless the environment names one."""
    if "SPARK_HOME" in os.environ or (home := lean_home()) is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def lean_home() -> Path | None:
    """Give a folder that links to the installed package; None if it is not whole, or links cannot be made."""
    import pyspark

    package = Path(pyspark.__file__).absolute().parent
    # One name for one folder: the file of shared classes fits only the paths it was made with.
    home = (penstock_home() / "spark").resolve() / hashlib.sha256(os.fsencode(package)).hexdigest()[:12]
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            with suppress(FileExistsError):
                (home / part).symlink_to(package / part, target_is_directory=True)
    except OSError:
        return None
    return home if all((home / part).is_dir() for part in _PARTS) else None
