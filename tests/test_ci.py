"""The rule of tests/conftest.py: in CI a test with real servers runs or fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SKIPPED_TEST = """
import pytest
@pytest.mark.server
def test_it(): pytest.skip("no Java")
"""
SKIPPED_FILE = """
import pytest
pytest.importorskip("no_such_module")
pytestmark = pytest.mark.server
def test_it(): pass
"""
EXPECTED_FAILURE = """
import pytest
@pytest.mark.server
@pytest.mark.xfail(strict=True)
def test_it(): assert False
"""
FAILURE_EXPECTED_WHILE_IT_RUNS = """
import pytest
@pytest.mark.server
def test_it(): pytest.xfail("no Java")
"""
ORDINARY_SKIP = """
import pytest
def test_it(): pytest.skip("not here")
"""

SIGNALS_OF_A_CHILD = """
import signal, subprocess, sys
ASK = "import signal; print([signal.getsignal(each) is signal.SIG_IGN for each in (2, 1)])"
def test_it():
    assert subprocess.check_output([sys.executable, "-c", ASK]) == b"[False, False]\\n"
"""


def run_pytest(folder: Path, code: str, ci: str, *, ignored: tuple[signal.Signals, ...] = ()) -> int:
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_sample.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = server: x\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sample.py"]
    if ignored:
        numbers = [int(each) for each in ignored]
        ignore = f"import os, signal, sys; [signal.signal(n, signal.SIG_IGN) for n in {numbers}]"
        command = [sys.executable, "-c", f"{ignore}; os.execv(sys.argv[1], sys.argv[1:])", *command]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "CI": ci}, capture_output=True, check=False
    ).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ci", "exit_code"),
    [
        (SKIPPED_TEST, "true", 1),
        (SKIPPED_TEST, "", 0),
        (SKIPPED_FILE, "true", 2),
        (SKIPPED_FILE, "", 5),
        (EXPECTED_FAILURE, "true", 0),
        (FAILURE_EXPECTED_WHILE_IT_RUNS, "true", 1),
        (ORDINARY_SKIP, "true", 0),
    ],
    ids=[
        "test in CI",
        "test at home",
        "file in CI",
        "file at home",
        "xfail in CI",
        "xfail at run time in CI",
        "no server in CI",
    ],
)
def test_a_skip(tmp_path: Path, code: str, ci: str, exit_code: int) -> None:
    assert run_pytest(tmp_path, code, ci) == exit_code


@pytest.mark.slow
def test_a_run_in_the_background_tests_signals_as_any_other(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, SIGNALS_OF_A_CHILD, "", ignored=(signal.SIGINT, signal.SIGHUP)) == 0


def test_the_ci_script_sets_what_the_rule_needs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "set -euo pipefail" in script
    assert "export CI=true" in script
    assert "unset PYTHONDONTWRITEBYTECODE" in script
    assert "make check" in script
    assert "make test" in script
