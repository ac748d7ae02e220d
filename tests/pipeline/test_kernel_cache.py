"""Whether the kernels are compiled is seen without Numba; compiling them is said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import sparkstart
from penstock.errors import MachineError
from penstock.pipeline import kernel_cache


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the source of the largest kernel."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    source = tmp_path / "wire" / "kernels" / "routing" / "run.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    os.utime(source, (1000, 1000))
    return tmp_path


def cache(package: Path, written: float) -> None:
    index = package / "wire" / "kernels" / "routing" / "__pycache__" / "run.run_0-1.py311.nbi"
    index.parent.mkdir(exist_ok=True)
    index.write_bytes(b"")
    os.utime(index, (written, written))


def test_a_cache_that_is_missing_or_older_than_its_source_is_none(package: Path) -> None:
    assert not kernel_cache.is_compiled(package)
    cache(package, 999)
    assert not kernel_cache.is_compiled(package)
    cache(package, 1001)
    assert kernel_cache.is_compiled(package)


def test_a_cache_elsewhere_is_not_looked_for(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    assert kernel_cache.is_compiled(package)


def test_compiling_is_said_and_done_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    monkeypatch.setattr(kernel_cache, "is_compiled", lambda: bool(done))
    monkeypatch.setattr(kernel_cache, "compile_kernels", lambda: done.append("compiled"))
    sparkstart.compile_kernels()
    assert "compiling kernels" in capsys.readouterr().err
    sparkstart.compile_kernels()
    assert done == ["compiled"]
    assert capsys.readouterr().err == ""


def test_a_compiler_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(returncode=1, stderr=b"Traceback\nImportError: no numba")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(MachineError, match="cannot be compiled"):
        kernel_cache.compile_kernels()
