"""What the tests of the embedded servers share: waiting, and looking at processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

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


@pytest.fixture
def leftovers() -> Iterator[Callable[[], set[int]]]:
    """Give the processes that this test has started and that still run; there is none at its end."""

    def ours() -> set[int]:
        return {process.pid for process in psutil.Process().children(recursive=True)}

    before = ours()
    yield lambda: ours() - before
    assert ours() <= before
