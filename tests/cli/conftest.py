"""A terminal of 100 columns, and verbs made for one test."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import types
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli import app

Terminal = Callable[..., tuple[int, str]]


@pytest.fixture
def terminal() -> Terminal:
    """Run Python code with a terminal as stdin, stdout and stderr; give the exit code and what it showed."""

    def run(code: str, **environ: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm-256color", **environ},
        )
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return process.wait(timeout=30), shown.decode().replace("\r\n", "\n")

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other side is closed
        return b""


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Register a function (or a typer app) as the verb `probe`."""

    def register(target: Any) -> None:
        module = types.ModuleType("penstock_test_verb")
        module.target = target  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(app.VERBS, "probe", app.Verb("penstock_test_verb:target", "A probe", "Test"))  # type: ignore[arg-type]

    return register
