"""The compiled kernels of tasks: whether they are there, and how they are made before a job begins.

Spark's workers would compile them otherwise, for minutes in which the job seems to run.
Nothing of Numba is imported here: the driver of a Spark job needs none of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import penstock
from penstock.config import Child, child_environment
from penstock.errors import MachineError

__all__ = ["compile_kernels", "is_compiled"]

_LARGEST: Final = Path("wire", "kernels", "routing", "run.py")
"""The kernel that takes nearly all of the time; those it calls are compiled with it."""
_COMPILE_SECONDS: Final = 1800.0


def is_compiled(package: Path = Path(penstock.__file__).parent) -> bool:
    """Whether a cache of the largest kernel lies beside its source and is not older than that.

    True also where that cannot be told: in an archive, which carries its own, and where Numba has to keep its
    cache in another folder.
    """
    source = package / _LARGEST
    folder = source.parent / "__pycache__"
    if "NUMBA_CACHE_DIR" in os.environ or not os.access(
        folder if folder.exists() else source.parent, os.W_OK
    ):
        return True
    written = [path.stat().st_mtime for path in folder.glob(f"{source.stem}.*.nbi")]
    return max(written, default=0.0) >= source.stat().st_mtime


def compile_kernels() -> None:
    """Compile what the cache does not have, in a process of its own; MachineError if that fails."""
    command = [
        sys.executable,
        "-c",
        "import penstock.pipeline.evaluators.kernel.batch_router, penstock.pipeline.delivery.task",
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_SECONDS,
            check=False,
            env=child_environment(Child.PENSTOCK),
        )
    except subprocess.TimeoutExpired as exc:
        raise MachineError(
            f"the kernels were not compiled within {_COMPILE_SECONDS:.0f} s",
            next="look how busy this machine is",
        ) from exc
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise MachineError(
            "the kernels cannot be compiled",
            why="\n".join(said[-3:]) or f"exit code {done.returncode}",
            next="install the package and its extra spark again",
        )
