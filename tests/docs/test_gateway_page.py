"""The commands of the gateway's page, run as they are written there; only the port is one that is free."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.embedded import supervisor
from penstock.embedded.home import penstock_home

PAGE = Path(__file__).parents[2] / "docs" / "gateway" / "index.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Run = Callable[..., str]


def try_it() -> list[tuple[str, str]]:
    """The blocks of the section, in their order, each with its language."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Try it\n")[2].partition("\n## ")[0]
    return FENCE.findall(section)


@pytest.fixture(scope="module")
def jars() -> Path:
    """Where the jars are, before a test has a home of its own."""
    folder = penstock_home() / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def shell(jars: Path, isolated_home: Path, tmp_path: Path) -> Iterator[Run]:
    """A shell in an empty project, in which `penstock` and `python` are ours."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to(jars)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
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


@pytest.mark.server
@pytest.mark.slow
def test_the_section_to_try_works_by_copy_and_paste(shell: Run) -> None:
    said = []
    for language, text in try_it():
        runner = {"sh": ("sh", "-e"), "python": (sys.executable, "-")}[language]
        said.append(shell(*runner, given=text))
    console, python, down = said
    assert re.search(r"^gateway +ready ", console, re.MULTILINE)
    assert console.splitlines()[-2:] == ["hello from Kafka", "orders:0:1"]
    assert python == "b'hello from Kafka'\n"
    assert down == ""


def test_the_options_are_those_of_the_command() -> None:
    import inspect

    from penstock.cli.gateway import command

    text = PAGE.read_text(encoding="utf-8")
    table = re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE)
    names = {name.replace("_", "-") for name in inspect.signature(command).parameters}
    assert sorted(table) == sorted(f"--{name}" for name in names)
