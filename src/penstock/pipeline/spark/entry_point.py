"""What spark-submit runs: the driver of a Penstock application; its arguments are those of `penstock run`.

`penstock package` copies this file beside the archive of the application. It imports nothing of Penstock
before that archive, which brings it, is on the path.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

ARCHIVE: Final = "application.tar.gz"
UNPACKED: Final = "penstock_application"
"""The folder into which Spark unpacks the archive in a container: `--archives FILE#penstock_application`."""
DESCRIPTION: Final = "application.json"


def unpacked(here: Path) -> Path:
    """Give the folder of the application: Spark's if this runs in a container, else one beside this file."""
    folder = Path(UNPACKED).absolute()
    if (folder / DESCRIPTION).is_file():
        return folder
    archive = here / ARCHIVE
    found = archive.stat()
    folder = here / f"{UNPACKED}-{found.st_size:x}-{found.st_mtime_ns:x}"
    if folder.is_dir():
        return folder
    try:
        fresh = Path(tempfile.mkdtemp(prefix=f"{UNPACKED}-", dir=here))
    except OSError:  # the folder may not be written to
        fresh = folder = Path(tempfile.mkdtemp(prefix=f"{UNPACKED}-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(archive) as members:
        members.extractall(fresh, filter="data")
    if fresh != folder:
        try:
            fresh.rename(folder)
        except OSError:  # another driver was quicker
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def sent_files() -> list[str]:
    """Return the local files of `spark-submit --files`, as Spark's Java knows them before there is a session.

    In deploy mode `client` Spark sends them to the executors and leaves them where they are for the driver.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit
        return []
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    conf = SparkConf(_jvm=SparkContext._jvm)
    texts = (conf.get(name, "") or "" for name in ("spark.files", "spark.yarn.dist.files"))
    urls = (urlsplit(text.strip()) for text in ",".join(texts).split(","))
    return [unquote(url.path) for url in urls if url.path and url.scheme in ("", "file", "local")]


def refuse_other_machine(about: dict[str, Any]) -> None:
    """End if compiled libraries of the archive cannot be loaded by this Python."""
    wanted = (about["python"], about["platform"])
    found = (f"{sys.version_info[0]}.{sys.version_info[1]}", sysconfig.get_platform())
    if found != wanted:
        sys.exit(
            f"error: the application was packed for Python {wanted[0]} on {wanted[1]}; "
            f"this is Python {found[0]} on {found[1]} ({sys.executable})\n"
            "  next: choose another Python by spark.pyspark.python, or run `penstock package` with this one"
        )


def main() -> None:
    """Put the archive on the path, and run the pipeline in it."""
    files, folder = Path.cwd(), unpacked(Path(__file__).absolute().parent)
    about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    refuse_other_machine(about)
    python = str(folder / "python")
    sys.path.insert(0, python)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (python, os.environ.get("PYTHONPATH"))))
    if "PENSTOCK_FILES" not in os.environ:
        # In a container they are in the folder that it starts in, beside the archive.
        sent = [] if folder == files / UNPACKED else sent_files()
        os.environ["PENSTOCK_FILES"] = os.pathsep.join((*sent, str(files)))
    os.environ["PENSTOCK_CONTRACT_ROOT"] = str(folder / "application")
    os.chdir(folder / "application" / about["folder"])
    sys.argv[:1] = ["penstock", *about["options"], "run", about["pipeline"]]
    runpy.run_module("penstock.cli", run_name="__main__")


if __name__ == "__main__":
    main()
