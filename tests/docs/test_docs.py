"""README and docs: examples run, commands exist, tables are those of the code, the site builds."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.app import VERBS
from penstock.config import KEYS
from penstock.config.layers import check_tree
from penstock.config.tree import parse_tree
from penstock.config.values import Origin

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = ("sh", "bash", "shell", "console")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield text


def commands(page: Path) -> list[list[str]]:
    """Give the words of every command in a shell block, and of every command between backquotes."""
    lines = [line.removeprefix("$ ") for text in blocks(page, *SHELL) for line in text.splitlines()]
    lines += re.findall(r"`((?:penstock|make) [^`\n]+)`", FENCE.sub("", page.read_text(encoding="utf-8")))
    return [line.split() for line in lines if line.startswith(("penstock ", "make "))]


@every_page
def test_python_examples_run(page: Path, isolated_home: Path) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(page), module_relative=False, optionflags=options, encoding="utf-8")
    assert result.failed == 0


@every_page
def test_a_command_names_a_verb_or_a_target_that_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {"penstock": set(VERBS), "make": targets}
    wrong = [
        words for words in commands(page) if words[1] not in known[words[0]] and words[1][0] not in "-[("
    ]
    assert wrong == []


def test_the_readme_names_every_verb() -> None:
    told = {words[1] for words in commands(ROOT / "README.md") if words[0] == "penstock"}
    assert set(VERBS) <= told


def test_every_page_is_linked_from_the_index_or_the_one_above_it() -> None:
    docs = ROOT / "docs"
    hubs = [docs / "index.md", *docs.glob("*/index.md")]
    linked = {
        (hub.parent / target).resolve()
        for hub in hubs
        for target in re.findall(r"\]\(([^)#]+[.]md)", hub.read_text(encoding="utf-8"))
    }
    assert sorted(set(docs.rglob("*.md")) - linked - {docs / "index.md"}) == []


def test_the_readme_starts_with_the_two_commands() -> None:
    first = next(blocks(ROOT / "README.md", *SHELL))
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make run", "make test"]


def test_the_table_of_settings_is_that_of_the_code() -> None:
    rows = []
    for key in KEYS:
        form, default = key.kind.name.replace(" | ", ", "), f"`{key.default}`" if key.default else ""
        rows.append(f"| `{key.name}` | {form} | {default} | {key.doc} |")
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows


def test_the_yaml_examples_are_accepted() -> None:
    examples = list(blocks(ROOT / "docs" / "configuration.md", "yaml"))
    assert examples
    for example in examples:
        assert check_tree(parse_tree(example, "example"), Origin("example"))


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", FENCE.sub("", page.read_text(encoding="utf-8")))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_the_site_builds(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = tmp_path / "site" / "configuration.html"
    assert "contexts.*.servers.*.address" in built.read_text(encoding="utf-8")
