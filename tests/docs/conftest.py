"""A shell for the commands of a page, in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.embedded import supervisor
from penstock.embedded.home import penstock_home
from penstock.embedded.ports import choose_port

Run = Callable[..., str]


SHARED = ("jars", "spark")
"""What is fetched or made once for a machine."""


@pytest.fixture(scope="module")
def shared() -> Path:
    """Where that is, before a test has a home of its own."""
    for name in SHARED:
        (penstock_home() / name).mkdir(parents=True, exist_ok=True)
    return penstock_home()


@pytest.fixture
def shell(shared: Path, isolated_home: Path, tmp_path: Path) -> Iterator[Run]:
    """A shell in an empty project, in which `penstock` and `python` are ours."""
    home = tmp_path / "home"
    home.mkdir()
    for name in SHARED:
        (home / name).symlink_to(shared / name)
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
