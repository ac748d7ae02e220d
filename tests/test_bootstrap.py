"""The installation is hash-checked to its end: everything that it runs or builds with is in the lock."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_package_has_its_hashes(bootstrap: ModuleType) -> None:
    names = set(bootstrap.pinned())
    assert len(names) > 100
    for name in names:
        assert re.match(
            rf"{re.escape(name)}(\[.*\])?==\S+.*\\\n    --hash=sha256:", bootstrap.pins([name])
        ), name


def test_what_is_installed_first_is_in_the_lock(bootstrap: ModuleType) -> None:
    first = (*bootstrap.BUILDERS, *bootstrap.SPARK, "uv")
    assert set(first) <= set(bootstrap.pinned())
    found = re.findall(r"^([a-z0-9-]+)==", bootstrap.pins(first), re.MULTILINE)
    assert sorted(found) == sorted(first)


def test_uv_is_told_what_is_set_for_pip(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ":env:.find-links='/opt/wheels'\nglobal.cert='/etc/ca.pem'\nglobal.index-url='https://in.house/index'\n"

    def listed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, said, "")

    monkeypatch.setattr(subprocess, "run", listed)
    monkeypatch.setenv("SSL_CERT_FILE", "/mine.pem")
    told = bootstrap.uv_environment(Path("python"))
    assert told["UV_DEFAULT_INDEX"] == "https://in.house/index"
    assert told["UV_FIND_LINKS"] == "/opt/wheels"
    assert told["SSL_CERT_FILE"] == "/mine.pem"


def test_pip_installs_where_uv_cannot(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def fails_by_uv(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, int(command[0].endswith("/uv")), "", "")

    monkeypatch.setattr(subprocess, "run", fails_by_uv)
    bootstrap.by_uv(Path("venv/bin/python"), ["wheel"])
    by_uv, by_pip = (command for command in ran if "install" in command)
    assert by_uv[0] == "venv/bin/uv"
    assert {"--require-hashes", "--no-build-isolation-package"} <= set(by_uv)
    assert {"pip", "--require-hashes", "--no-build-isolation"} <= set(by_pip)


def test_an_environment_that_is_there_is_brought_up_to_date(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "pip", lambda python, names, *flags, **how: True)
    monkeypatch.setattr(bootstrap, "by_uv", lambda python, names: installed.append(sorted(names)))
    monkeypatch.setattr(bootstrap, "run", lambda command, **how: True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    for _ in range(2):
        bootstrap.main(tmp_path / "venv", jars=False)
    assert installed[0] == sorted(bootstrap.SPARK)
    assert len(installed) == 4
    assert (tmp_path / "venv" / "bin" / "python").exists()
