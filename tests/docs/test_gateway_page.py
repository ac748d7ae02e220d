"""The commands of the gateway's page, run as they are written there; only the port is one that is free."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "gateway" / "index.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Run = Callable[..., str]


def try_it() -> list[tuple[str, str]]:
    """The blocks of the section, in their order, each with its language."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Try it\n")[2].partition("\n## ")[0]
    return FENCE.findall(section)


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
