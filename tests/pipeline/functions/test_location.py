"""Functions found by reading files; nothing is imported."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from penstock.pipeline.functions.location import locate

SOURCE = """
raise RuntimeError("this module must not run")
from os import path as borrowed
def plain(batch): ...
async def later(batch): ...
def greedy(): ...
class Callable: ...
alias: object = plain
one = two = plain
if True:
    def inside(batch): ...
try:
    import fast
except ImportError:
    fast = None
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "top.py").write_text(SOURCE)
    (tmp_path / "package" / "deep").mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("from top import *")
    (tmp_path / "package" / "deep" / "inner.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "nulls.py").write_bytes(b"\0")
    (tmp_path / "fast.abi3.so").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("top:plain", None),
        ("top:borrowed", None),
        ("top:Callable", None),
        ("top:alias", None),
        ("top:two", None),
        ("top:inside", None),
        ("top:fast", None),
        ("package:anything", None),
        ("package.deep.inner:plain", None),
        ("fast:anything", None),
        ("zipped:f", None),
        ("top:later", "later is async; a function is called, not awaited"),
        ("top:greedy", "greedy takes no argument"),
        ("top:missing", "module top does not define missing"),
        ("elsewhere:f", "there is no module elsewhere"),
        ("package.deep.other:f", "there is no module package.deep.other"),
        ("broken:f", "broken.py cannot be read: invalid syntax"),
        ("nulls:f", "nulls.py cannot be read"),
    ],
)
def test_what_speaks_against_a_function(folder: Path, name: str, problem: str | None) -> None:
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("zipped.py", "def f(batch): ...")
    found = locate(name, [str(folder), str(archive)])
    assert (found.problem or "").startswith(problem or "")
    assert (found.problem is None) == (problem is None)
    assert "top" not in sys.modules
