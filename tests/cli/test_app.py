"""penstock.cli.app: lazy verbs, global options, one error boundary."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from penstock import __version__, errors
from penstock.cli import output
from penstock.cli.app import VERBS, main
from penstock.cli.settings import Format, Settings, current

Register = Callable[[Any], None]

HEAVY = (
    "pyspark",
    "py4j",
    "numba",
    "numpy",
    "httpx",
    "pydantic",
    "confluent_kafka",
    "rich",
    "ruamel",
    "asyncio",
    "ssl",
)


def test_help_names_every_verb_and_imports_none() -> None:
    code = "import sys; from penstock.cli.app import main; main(['-h']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert [name for name in HEAVY if name in loaded] == []
    assert [verb.target for verb in VERBS.values() if verb.target.split(":")[0] in loaded] == []
    for name, verb in VERBS.items():
        assert f"  {name} " in done.stdout
        assert verb.help in done.stdout


def test_help_takes_no_more_than_half_a_second_of_work() -> None:
    """Of the processor, and the best of five: on a busy machine it takes longer, and does not do more."""
    command = [sys.executable, "-c", "from penstock.cli.app import main; main(['--help'])"]
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(times) < 0.5


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_loads_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: penstock {name}")


@pytest.mark.parametrize("name", VERBS)
def test_the_lines_of_the_list_look_alike(name: str) -> None:
    help = VERBS[name].help
    assert help[0].isupper()
    assert not help.endswith(".")
    assert len(help) <= 60


@pytest.mark.parametrize("words", [["apply"], ["publish"], ["event", "decode"], ["run"]])
def test_an_optional_argument_has_one_pair_of_brackets(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0
    assert "[[" not in capsys.readouterr().out


def test_no_verb_is_wrong_usage_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: penstock")


def test_version_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    ("args", "said", "advice"),
    [
        (["vresion"], "no verb 'vresion'", "penstock version"),
        (["xyzzy"], "no verb 'xyzzy'", "penstock --help"),
        (["--nope"], "--nope", "penstock --help"),
        (["-o", "xml", "version"], "xml", "penstock --help"),
        (["version", "--nope"], "--nope", "penstock version --help"),
        (["version", "extra"], "extra", "penstock version --help"),
        (["-C"], "-C", "penstock --help"),
        (["apply", "--allow"], "--allow", "penstock apply --help"),
        (["run", "--engine", "x"], "'--engine': 'x' is not one of", "penstock run --help"),
    ],
)
def test_wrong_usage(args: list[str], said: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, last = captured.err.splitlines()[0], captured.err.splitlines()[-1]
    assert first.startswith("error[PK001]")
    assert said in first
    assert f"next: {advice}" in last


FAILURES = [
    (errors.PenstockError("x"), 1, "error[PK000] x"),
    (errors.ConfigError("x"), 2, "error[PK002] x"),
    (errors.Refused("x"), 4, "error[PK004] x"),
    (errors.Unreachable("x"), 5, "error[PK401] x"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (typer.Abort(), 130, "interrupted"),
    (typer.Exit(3), 3, ""),
    (ZeroDivisionError("by zero"), 1, "error[PK900] internal error: ZeroDivisionError: by zero"),
    (RecursionError("deep"), 1, "error[PK900] internal error: RecursionError: deep"),
    (OSError(28, "No space left on device"), 1, "error[PK100] the operating system refused: No space"),
]


@pytest.mark.parametrize(("failure", "code", "said"), FAILURES, ids=lambda value: type(value).__name__)
def test_the_boundary(
    failure: BaseException, code: int, said: str, verb: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def probe() -> None:
        raise failure

    verb(probe)
    assert main(["probe"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(said)
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("flags", [["-v", "-v"], ["-vv"]])
@pytest.mark.parametrize("before", [True, False])
def test_the_traceback_is_there_for_who_asks(
    flags: list[str], before: bool, verb: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def probe() -> None:
        raise ZeroDivisionError("by zero")

    verb(probe)
    assert main([*flags, "probe"] if before else ["probe", *flags]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in probe" in said


@pytest.mark.parametrize(("flags", "lines"), [([], 0), (["-v"], 1), (["-vv"], 2), (["-vv", "-q"], 0)])
def test_logs_are_talk(
    flags: list[str], lines: int, verb: Register, capsys: pytest.CaptureFixture[str], own_log: None
) -> None:
    def probe() -> None:
        logging.getLogger("penstock.x").info("one")
        logging.getLogger("penstock.x").debug("two")
        logging.getLogger("elsewhere").info("three")

    verb(probe)
    assert main(["probe", *flags]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["INFO penstock.x: one", "DEBUG penstock.x: two"][:lines]


@pytest.fixture
def own_log() -> Iterator[None]:
    logger = logging.getLogger("penstock")
    handlers, level = logger.handlers, logger.level
    logger.handlers = []
    yield
    logger.handlers = handlers
    logger.setLevel(level)


def test_what_a_library_logs_to_the_root_stays_away() -> None:
    code = (
        "import logging; from penstock.cli import output; output.show_logs(debug=False)\n"
        "logging.error('of a library'); logging.getLogger('py4j').error('too')\n"
        "logging.getLogger('penstock.x').warning('ours')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "WARNING penstock.x: ours\n"


def test_what_a_client_sends_cannot_look_like_a_log_line() -> None:
    code = (
        "import logging; from penstock.cli import output; output.show_logs(debug=False)\n"
        "logging.getLogger('penstock.x').warning('client %s', 'a\\nERROR penstock.x: forged')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "WARNING penstock.x: client a\n  ERROR penstock.x: forged\n"


def test_an_internal_error_says_how_to_see_more(verb: Register, capsys: pytest.CaptureFixture[str]) -> None:
    def probe() -> None:
        raise AssertionError("never")

    verb(probe)
    main(["probe"])
    assert "-v -v" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_cannot_be_encoded_is_escaped(encoding: str) -> None:
    code = (
        "import sys; from penstock.cli import app, output, version;"
        "version.command = lambda: (output.data('✓ \\udcff'), output.talk('✗ \\udcff'));"
        "sys.exit(app.main(['version']))"
    )
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b" \\udcff\n")


def test_a_closed_pipe_is_quiet() -> None:
    code = "import sys; from penstock.cli.app import main; sys.exit(main(['config', 'show', '-o', 'json']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


def test_a_closed_pipe_is_quiet_when_the_verb_ends_with_a_code() -> None:
    code = (
        "import sys, typer; from penstock.cli import app, output, version\n"
        "def command():\n    output.data('x')\n    raise typer.Exit(1)\n"
        "version.command = command\nsys.exit(app.main(['version']))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_interrupted_from_outside() -> None:
    code = (
        "import os, signal, sys; from penstock.cli import app, version;"
        "version.command = lambda: os.kill(os.getpid(), signal.SIGINT) or __import__('time').sleep(30);"
        "sys.exit(app.main(['version']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


ALL = ["-C", "c", "-f", "f.yaml", "-X", "a=1", "-X", "b=2", "-o", "json", "-q", "-v", "--no-color", "--yes"]
EXPECTED = Settings(
    context="c",
    contract=Path("f.yaml"),
    overrides=("a=1", "b=2"),
    output=Format.JSON,
    quiet=True,
    verbosity=1,
    color=False,
    yes=True,
)


@pytest.mark.parametrize("args", [[*ALL, "probe"], ["probe", *ALL], [*ALL[:6], "probe", *ALL[6:]]])
def test_global_options_stand_on_either_side(args: list[str], verb: Register) -> None:
    seen = []

    def probe() -> None:
        seen.append(current())

    verb(probe)
    assert main(args) == 0
    assert seen == [EXPECTED]
    assert current() == Settings()


def test_an_option_of_the_verb_is_the_verbs_own(verb: Register) -> None:
    seen = []

    def probe(file: Annotated[str, typer.Option("-f", "--file")], context: str = "mine") -> None:
        seen.append((file, context, current()))

    verb(probe)
    assert main(["-C", "root", "probe", "-f", "x", "-q"]) == 0
    assert seen == [("x", "mine", Settings(context="root", quiet=True))]


def test_a_verb_with_subcommands(verb: Register, capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(no_args_is_help=True, help="Does things.")

    @app.command()
    def one() -> None:
        """Do one."""
        output.data(current().output)

    @app.command()
    def two() -> None:
        """Do two."""

    verb(app)
    assert main(["probe", "one", "-o", "yaml"]) == 0
    assert capsys.readouterr().out == "yaml\n"
    assert main(["probe"]) == 2
    assert "Do two." in capsys.readouterr().err
    assert main(["probe", "tow"]) == 2
    assert "'two'" in capsys.readouterr().err
    assert main(["probe", "--help"]) == 0
    assert "completion" not in capsys.readouterr().out


def test_a_typer_app_with_one_command_is_that_command(verb: Register) -> None:
    app = typer.Typer()
    seen = []

    @app.command()
    def only(word: str) -> None:
        seen.append(word)

    verb(app)
    assert main(["probe", "x"]) == 0
    assert seen == ["x"]
