"""A shell for the commands of a page, in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.embedded import supervisor
from penstock.embedded.ports import choose_port

Run = Callable[..., str]


@pytest.fixture
def shell(furnished_home: Path) -> Iterator[Run]:
    """A shell in an empty project, in which `penstock` and `python` are ours."""
    port = str(choose_port(0, setting="port"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            words,
            input=given.replace("9092", port),
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    supervisor.down()
