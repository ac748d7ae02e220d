"""The process of an invocation: every signal that ends it, and every stream that may be closed or full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.process import as_machine_error, end_by_signals

RUN = "import sys; from penstock.cli.app import main; sys.exit(main(sys.argv[1:]))"


def probe(body: str) -> str:
    """Give a program whose verb `version` runs `body`."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        "import os, signal, sys, time, asyncio\nfrom penstock.cli import app, output, version\n"
        f"def command():\n{lines}\nversion.command = command\nsys.exit(app.main(['version', *sys.argv[1:]]))"
    )


def run(code: str, *args: str, redirect: str = "", prefix: str = "") -> subprocess.CompletedProcess[str]:
    command = f'{prefix} "$0" -c "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, code, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
CLEAN_UP = "finally:\n    print('cleaned up')"


@pytest.mark.parametrize(("signum", "code"), SIGNALS)
def test_every_signal_is_an_interruption_with_its_clean_up(signum: signal.Signals, code: int) -> None:
    done = run(probe(f"try:\n    os.kill(os.getpid(), {signum})\n    time.sleep(30)\n{CLEAN_UP}"))
    assert (done.returncode, done.stdout, done.stderr) == (code, "cleaned up\n", "interrupted\n")


@pytest.mark.parametrize(("signum", "code"), SIGNALS)
def test_an_event_loop_is_ended_in_order(signum: signal.Signals, code: int) -> None:
    work = (
        "async def work():\n"
        "    try:\n"
        f"        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), {signum})\n"
        "        await asyncio.sleep(30)\n"
        "    except asyncio.CancelledError:\n"
        "        print('cancelled')\n"
        "        raise\n"
        "asyncio.run(work())"
    )
    done = run(probe(work))
    assert (done.returncode, done.stdout, done.stderr) == (code, "cancelled\n", "interrupted\n")


def test_a_background_job_that_ignores_sigint_is_ended_by_sigterm() -> None:
    body = f"try:\n    os.kill(os.getpid(), {signal.SIGTERM})\n    time.sleep(30)\n{CLEAN_UP}"
    done = run(probe(body), prefix="trap '' INT;")
    assert (done.returncode, done.stdout) == (143, "cleaned up\n")


def test_below_nohup_the_end_of_the_terminal_is_no_end() -> None:
    done = run(probe(f"os.kill(os.getpid(), {signal.SIGHUP})\nprint('goes on')"), prefix="trap '' HUP;")
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_signals_are_as_they_were_afterwards() -> None:
    before = [signal.getsignal(number) for number, _ in SIGNALS]
    with end_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number, _ in SIGNALS] == before


@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        (">/dev/full", "cannot use standard output: No space left on device"),
        (">&-", "cannot use standard output: Bad file descriptor"),
    ],
)
@pytest.mark.parametrize("args", [("version",), ("config", "show", "-o", "json"), ("--version",)])
def test_what_stdout_does_not_take_is_an_error_of_the_machine(
    args: tuple[str, ...], redirect: str, said: str
) -> None:
    done = run(RUN, *args, redirect=redirect)
    assert done.returncode == 1
    assert said in done.stderr
    assert "PK100" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_verb_without_data_needs_no_stdout(tmp_path: Path) -> None:
    done = run(probe("output.talk('done')"), redirect=">&-")
    assert (done.returncode, done.stderr) == (0, "done\n")


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_talk_that_nobody_takes_is_no_failure(redirect: str) -> None:
    done = run(probe("output.talk('talk')\noutput.data('data')"), redirect=redirect)
    assert (done.returncode, done.stdout) == (0, "data\n")
    wrong = run(RUN, "nosuch", redirect=redirect)
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize(
    "args", [("event", "decode"), ("event", "check"), ("publish", "kafka:orders", "-X", "context=x")]
)
def test_a_closed_stdin_is_an_error_with_a_next(args: tuple[str, ...]) -> None:
    done = run(RUN, *args, redirect="<&-")
    assert done.returncode in (1, 2)
    assert "PK900" not in done.stderr


@pytest.mark.parametrize("verb", [("dev", "status"), ("dev", "up", "kafka"), ("dev", "down")])
def test_a_home_that_is_a_file_is_an_error_of_the_machine(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "file"))
    done = run(RUN, *verb)
    assert done.returncode == 1
    assert "error[PK1" in done.stderr
    assert str(tmp_path / "file") in done.stderr
    assert "next:" in done.stderr


def test_an_error_of_the_system_names_file_and_next() -> None:
    error = as_machine_error(PermissionError(13, "Permission denied", "/x/y"))
    assert (error.what, error.where) == ("cannot use /x/y: Permission denied", "/x/y")
    assert "PENSTOCK_HOME" in str(error.next)
    assert as_machine_error(OSError("odd")).what == "the operating system refused: odd"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (("nosuch", "-o", "json"), "PK001", 2),
        (("-o", "json", "nosuch"), "PK001", 2),
        (("version", "--nosuch", "--output=json"), "PK001", 2),
        (("event", "decode", "/nosuch", "-ojson"), "PK100", 1),
        (("dev", "logs", "-o", "json"), "PK001", 2),
    ],
)
def test_with_json_an_error_is_one_json_object(
    args: tuple[str, ...], code: str, exit_code: int, isolated_home: Path
) -> None:
    done = run(RUN, *args)
    assert (done.returncode, done.stdout) == (exit_code, "")
    (line,) = done.stderr.splitlines()
    error = json.loads(line)["error"]
    assert error.keys() == {"code", "kind", "exit_code", "what", "where", "why", "next"}
    assert (error["code"], error["exit_code"]) == (code, exit_code)


def test_without_json_it_is_a_block() -> None:
    assert run(RUN, "nosuch").stderr.startswith("error[PK001] there is no verb")


def test_an_internal_error_is_an_object_too() -> None:
    done = run(probe("raise ZeroDivisionError('x')"), "-o", "json")
    assert json.loads(done.stderr)["error"]["code"] == "PK900"
    assert os.linesep in done.stderr
