"""The shape of the repository: imports point down, modules explain themselves, no machine is named."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for p in (ROOT / "src" / "penstock").rglob("*.py") if not p.name.endswith("_pb2.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_imports_point_down() -> None:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_module_says_the_one_thing_it_knows() -> None:
    assert [named(path) for path in SOURCES if not ast.get_docstring(tree(path))] == []


def test_files_stay_small() -> None:
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_stay_small() -> None:
    functions = [
        (f"{named(path)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > len(SOURCES)
    assert [(name, lines) for name, lines in functions if lines > MAX_FUNCTION_LINES] == []


def test_what_is_exported_exists() -> None:
    """A name in __all__ that is not there breaks `import *` and lies to the reader."""
    missing = {}
    for path in SOURCES:
        module = tree(path)
        exported = next((ast.literal_eval(n.value) for n in module.body if _assigns(n, "__all__")), ())
        missing[named(path)] = set(exported) - {name for node in module.body for name in _defined(node)}
    assert {name: names for name, names in missing.items() if names} == {}


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == name for t in node.targets
    )


def _defined(node: ast.stmt) -> set[str]:
    """Give the names that a statement of a module's top level binds, inside `if` and `try` too."""
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in inner.names}
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
    return names


# Written so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:w[o]rk|r[o]ot|h[o]me|f[a]rm)/"),
    "the host of a package registry": re.compile(
        r"py[p]i\.org|python[h]osted|repo1?\.m[a]ven|/maven[2]/|npmjs\.o[r]g|https?://\S+/s[i]mple|--(?:extra-)?index-u[r]l"
    ),
}


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git repository")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [
            f"{named(path)}: {line.strip()[:100]}"
            for line in text.splitlines()
            if FORBIDDEN[what].search(line)
        ]
    assert found == []


def test_the_kafka_source_of_spark_serves_only_sql_conditions_and_dataframes() -> None:
    users = {named(path) for path in SOURCES if 'format("kafka")' in path.read_text(encoding="utf-8")}
    assert users == {"src/penstock/pipeline/frames/topics.py", "src/penstock/pipeline/job/sources.py"}
    source = "penstock.pipeline.job.sources"
    importers = {named(path) for path in SOURCES if source in path.read_text(encoding="utf-8")}
    assert importers == {"src/penstock/pipeline/job/sql.py"}
