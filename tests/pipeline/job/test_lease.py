"""One writer of a checkpoint at a time, on stores whose create is exclusive and on others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.errors import JobFailed, MachineError, PenstockError, Refused, Unreachable
from penstock.pipeline.job import lease as module
from penstock.pipeline.job.lease import StopAsked, leased, until_reachable
from penstock.pipeline.spark import file_system
from penstock.pipeline.spark.file_system import LocalFileSystem

RENEW_SECONDS, LEASE_SECONDS = module.RENEW_SECONDS, module.LEASE_SECONDS


def test_a_lease_outlives_two_renewals_that_fail() -> None:
    assert LEASE_SECONDS > 3 * RENEW_SECONDS


class Shared(LocalFileSystem):
    """A store without locks, as machines that share it see it."""

    has_locks = False

    @contextmanager
    def lock(self) -> Iterator[bool]:
        yield True


class Loose(Shared):
    """A store that looks before it writes: of two that create a file at the same time, both succeed."""

    is_atomic = False

    def __init__(self, folder: Path, between: Any = lambda: None) -> None:
        super().__init__(folder)
        self.between = between

    def create(self, path: str, text: str) -> bool:
        if self.exists(path):
            return False
        self.between()
        (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / path).write_text(text)
        return True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.3)


def test_only_one_job_of_a_machine_holds_a_folder(tmp_path: Path) -> None:
    files = LocalFileSystem(tmp_path / "c")
    with leased(files), pytest.raises(Refused, match="another job") as caught, leased(files):
        pass
    assert f"process {os.getpid()}" in (caught.value.why or "")
    with leased(files) as second:
        assert second.epoch == 2
    # Epochs that are over are not kept.
    assert [name for name in files.list(".writer") if name.isdecimal()] == ["2"]


def test_the_successor_of_a_killed_job_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 3600.0)
    program = (
        "import sys, time; from pathlib import Path\n"
        "from penstock.pipeline.job.lease import leased\n"
        "from penstock.pipeline.spark.file_system import LocalFileSystem\n"
        "with leased(LocalFileSystem(Path(sys.argv[1]))): print('held', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None and first.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match="another job"), leased(LocalFileSystem(tmp_path)):
            pass
        first.send_signal(signal.SIGKILL)
    notes: list[str] = []
    with leased(LocalFileSystem(tmp_path), notes.append) as second:
        assert second.epoch == 2
    assert notes == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file")
    with pytest.raises(MachineError, match="checkpoint"), leased(LocalFileSystem(tmp_path / "c")):
        pass


class Waits(threading.Event):
    """An end that nobody asks for; it counts the seconds that were waited."""

    seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds += timeout or 0.0
        return super().wait(timeout)


def test_a_second_job_is_refused_while_the_first_renews_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 60.0)
    waits = Waits()
    with leased(Shared(tmp_path)):
        with pytest.raises(Refused, match="another job"), leased(Shared(tmp_path), stop=waits):
            pass
        assert waits.seconds < 60.0  # it saw a renewal, and not that the lease has run out
    notes: list[str] = []
    with leased(Shared(tmp_path), notes.append):
        assert notes == []  # it was given back: nobody waits


def abandoned(folder: Path, seconds_ago: float = 0.0) -> None:
    """Leave an epoch behind as a killed job of another machine does."""
    (folder / ".writer").mkdir()
    about = {"id": "x", "host": "elsewhere", "pid": 7, "machine": "m", "released": False}
    (folder / ".writer" / "4").write_text(json.dumps(about))
    at = time.time() - seconds_ago
    os.utime(folder / ".writer" / "4", (at, at))


def test_a_lease_that_is_not_renewed_is_waited_for_and_runs_out(tmp_path: Path) -> None:
    abandoned(tmp_path)
    notes: list[str] = []
    with leased(Shared(tmp_path), notes.append) as lease:
        assert lease.epoch == 5
    assert ["process 7 on elsewhere" in note for note in notes] == [True]


def test_who_waits_for_a_lease_can_be_asked_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 3600.0)
    abandoned(tmp_path)
    stop = threading.Event()
    with pytest.raises(StopAsked), leased(Shared(tmp_path), lambda waits: stop.set(), stop):
        pass
    assert LocalFileSystem(tmp_path).list(".writer") == ["4"]  # it has left no epoch of its own


@pytest.mark.parametrize("released", [True, False])
def test_a_lease_that_is_waited_for_may_be_given_back_or_renewed_meanwhile(
    released: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 60.0)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    abandoned(tmp_path, seconds_ago=1.0)

    def write(note: str) -> None:
        path = tmp_path / ".writer" / "4"
        path.write_text(json.dumps({**json.loads(path.read_text()), "released": released}))

    if released:
        with leased(Shared(tmp_path), write) as lease:
            assert lease.epoch == 5
    else:
        with pytest.raises(Refused, match="another job"), leased(Shared(tmp_path), write):
            pass


def test_an_epoch_that_its_successor_removes_just_now_is_not_followed(tmp_path: Path) -> None:
    class Vanishing(Shared):
        def modified(self, path: str) -> float | None:
            return None if path.endswith("/4") else super().modified(path)

    abandoned(tmp_path, seconds_ago=3600.0)
    with pytest.raises(Refused, match="another job"), leased(Vanishing(tmp_path)):
        pass


def test_an_error_of_java_does_not_end_the_renewal(tmp_path: Path) -> None:
    class Failing(Shared):
        left = 3

        def write(self, path: str, text: str) -> None:
            if self.left:
                self.left -= 1
                raise Py4JError("an error of Java")
            super().write(path, text)

    files = Failing(tmp_path)
    with leased(files) as lease:
        before = files.modified(f".writer/{lease.epoch}")
        end = time.monotonic() + 30
        while files.modified(f".writer/{lease.epoch}") == before:
            assert time.monotonic() < end
            time.sleep(0.01)
        lease.require()


def test_a_lease_that_ran_out_long_ago_is_not_waited_for(tmp_path: Path) -> None:
    abandoned(tmp_path, seconds_ago=3600.0)
    notes: list[str] = []
    with leased(Shared(tmp_path), notes.append) as lease:
        assert lease.epoch == 5
    assert notes == []


def test_an_epoch_that_was_half_written_can_run_out_too(tmp_path: Path) -> None:
    (tmp_path / ".writer").mkdir()
    (tmp_path / ".writer" / "1").write_text('{"id": "x", "ho')
    with leased(Shared(tmp_path)) as lease:
        assert lease.epoch == 2


def test_a_job_that_was_suspended_ends_when_another_took_over(tmp_path: Path) -> None:
    files = Shared(tmp_path)
    with leased(files) as first:
        first.require()
        first._ended.set()  # the machine stands still: nothing is renewed
        first._thread.join()
        with leased(files) as second:
            first.look()
            with pytest.raises(JobFailed, match="another job took over") as caught:
                first.require()
            assert str(os.getpid()) in (caught.value.why or "")
            second.look()
            second.require()
    # Who was superseded does not touch what belongs to its successor.
    with leased(files) as third:
        assert third.epoch == 3


def test_a_running_job_sees_by_itself_that_it_was_superseded(tmp_path: Path) -> None:
    with leased(Shared(tmp_path)) as lease:
        (tmp_path / ".writer" / "2").write_text("")
        end = time.monotonic() + 10
        with pytest.raises(JobFailed, match="took over"):
            while time.monotonic() < end:
                lease.require()
                time.sleep(0.01)


def test_a_renewal_that_is_under_way_does_not_undo_the_release(tmp_path: Path) -> None:
    renewing, given_back = threading.Event(), threading.Event()

    class Slow(Shared):
        def write(self, path: str, text: str) -> None:
            if threading.current_thread() is threading.main_thread():
                super().write(path, text)
                given_back.set()
            else:
                renewing.set()
                given_back.wait(0.5)  # in vain, if the release waits for this renewal
                super().write(path, text)

    with leased(Slow(tmp_path)) as lease:
        assert renewing.wait(30)
    lease._thread.join()
    assert json.loads((tmp_path / ".writer" / "1").read_text())["released"] is True


def test_of_two_that_create_the_same_epoch_at_most_one_goes_on(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=10)
    found: list[object] = []
    done = threading.Event()

    def job() -> None:
        try:
            with ExitStack() as stack:
                stack.enter_context(leased(Loose(tmp_path, both.wait)))
                found.append("runs")
                done.wait(10)
        except PenstockError as exc:
            found.append(exc)

    jobs = [threading.Thread(target=job) for _ in range(2)]
    for each in jobs:
        each.start()
    end = time.monotonic() + 10
    while len(found) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    done.set()
    for each in jobs:
        each.join()
    assert sorted(map(type, found), key=str) == [Refused, str]


def test_two_writers_of_one_epoch_do_not_both_go_on(tmp_path: Path) -> None:
    """The settling time may be too short for a slow store: the next renewal finds the other one."""
    with leased(Loose(tmp_path)) as lease:
        lease._ended.set()
        lease._thread.join()
        path = tmp_path / ".writer" / "1"
        path.write_text(json.dumps({**json.loads(path.read_text()), "id": "other"}))
        lease.look()
        with pytest.raises(JobFailed, match="took over"):
            lease.require()


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    in_safe_mode = Unreachable("safe mode", where="hdfs://n/ck/f")
    answers: list[Any] = [in_safe_mode, in_safe_mode, "there"]
    notes: list[str] = []
    stop = threading.Event()

    def ask() -> str:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    def asked(seconds: float | None) -> str | None:
        return until_reachable(ask, where="hdfs://n/ck", stop=stop, seconds=seconds, note=notes.append)

    assert asked(10.0) == "there"
    assert notes == ["safe mode; waiting", "the file system of the checkpoint can be used after 0 s"]
    answers[:] = [Unreachable("away", where="hdfs://n/ck")]
    with pytest.raises(Unreachable, match="away"):
        asked(0.05)
    answers[:] = [Unreachable("a broker", where="k:9092"), "there"]
    with pytest.raises(Unreachable, match="a broker"):
        asked(None)
    answers[:] = [StopAsked(), "there"]
    assert asked(None) is None
    stop.set()
    assert asked(None) is None


@pytest.mark.parametrize("text", [b"\xff\xfe", b" " * 2000], ids=["no UTF-8", "too large"])
def test_a_file_that_is_something_else_does_not_end_the_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(file_system, "LARGEST_FILE", 1000)
    files = Shared(tmp_path)
    with leased(files) as lease:
        path = tmp_path / ".writer" / str(lease.epoch)
        path.write_bytes(text)
        end = time.monotonic() + 30
        while path.read_bytes() == text:
            assert time.monotonic() < end
            time.sleep(0.01)
        lease.require()
    # Who finds such a file of an earlier writer waits for it as for any other.
    path.write_bytes(text)
    with leased(files) as lease:
        assert lease.epoch == int(path.name) + 1
