"""What the tests of the embedded servers share: waiting, processes, and a home whose jars are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.embedded.home import penstock_home

Eventually = Callable[..., None]
Gone = Callable[[int], bool]


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Wait until a condition holds; fail with its name when it does not within the time."""

    def wait(condition: Callable[[], object], *, within: float = 60.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within:.0f} s: {condition.__qualname__}"
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def gone() -> Gone:
    """Say whether a process has ended (one that nobody has waited for counts as ended)."""

    def has_ended(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return has_ended


@pytest.fixture(scope="session")
def real_home() -> Path:
    """The home of this machine, where the jars are."""
    return penstock_home()


@pytest.fixture
def home_with_jars(real_home: Path, isolated_home: Path, tmp_path: Path) -> Path:
    """A home of this test's own in which nothing has to be fetched or formatted."""
    from penstock.embedded.artifacts import ensure

    home = tmp_path / "home"
    home.mkdir()
    real_home.joinpath("jars").mkdir(parents=True, exist_ok=True)
    (home / "jars").symlink_to(real_home / "jars")
    ensure(["kafka", "pulsar", "registry"])
    return home
