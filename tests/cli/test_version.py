"""penstock version."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock import __version__
from penstock.cli import version
from penstock.cli.app import main


@pytest.mark.parametrize("module", ["penstock", "penstock.cli"])
def test_the_package_is_the_command_line(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"penstock {__version__}\n")


def test_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["penstock", __version__]
    assert len(lines) == 3 + len(version.PARTS)


def test_as_json_with_what_is_not_installed_as_null(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "PARTS", ("penstock", "no-such-distribution"))
    assert main(["version", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["penstock"] == __version__
    assert shown["no-such-distribution"] is None
