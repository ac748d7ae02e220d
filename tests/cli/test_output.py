"""penstock.cli.output: stdout is data, stderr is talk; a terminal gets colour, a pipe gets everything."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from penstock.cli import output
from penstock.cli.settings import Settings, scope, use
from penstock.config import Secret
from penstock.errors import PenstockError

Terminal = Callable[..., tuple[int, str]]

COLUMNS = ("name", "events in")
ROWS = [("orders.paid", 12), ("dead", None), ("x" * 150, True)]


def test_data_and_talk_go_to_their_streams(capsys: pytest.CaptureFixture[str]) -> None:
    output.data("d\x1b[1m")
    output.talk("t")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("d\x1b[1m\n", "t\n")


def test_quiet_silences_talk_but_not_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with scope():
        use(Settings(quiet=True))
        output.talk("t")
        with output.progress("copying", 3) as bar:
            bar.advance()
        output.error(PenstockError("e"))
    assert capsys.readouterr().err == "error[PK000] e\n  next: more: penstock explain PK000\n"


def test_bytes_are_written_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output.data("before")
    output.data_bytes(b"\x00\xff\n")
    output.data("after")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"before\n\x00\xff\nafter\n"


def test_a_piped_table_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(COLUMNS, ROWS, "table", title="topics")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "topics"
    assert lines[1].split() == ["name", "events", "in"]
    assert lines[2].split() == ["orders.paid", "12"]
    assert lines[3].split() == ["dead", "-"]
    assert lines[4].split() == ["x" * 150, "yes"]
    assert all(line == line.rstrip() for line in lines)


def test_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(("n", "t"), [(1, "a"), (100, "b")], "table")
    assert capsys.readouterr().out == "  n  t\n  1  a\n100  b\n"


def test_markup_in_a_cell_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(("a",), [("[red]x[/red] :smile:",)], "table")
    assert "[red]x[/red] :smile:" in capsys.readouterr().out


@pytest.mark.parametrize(("fmt", "read"), [("json", json.loads), ("yaml", YAML(typ="safe", pure=True).load)])
def test_rows_as_objects(fmt: str, read: Callable[[str], object], capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(COLUMNS, ROWS, fmt)
    assert read(capsys.readouterr().out) == [
        {"name": "orders.paid", "events_in": 12},
        {"name": "dead", "events_in": None},
        {"name": "x" * 150, "events_in": True},
    ]


@pytest.mark.parametrize("fmt", ["table", "json", "yaml"])
def test_no_rows(fmt: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(COLUMNS, [], fmt)
    assert capsys.readouterr().out in ("name  events in\n", "[]\n")


@pytest.mark.parametrize("fmt", ["table", "json", "yaml"])
def test_secrets_stay_masked_in_every_form(fmt: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(("a",), [(Secret("hunter2"),)], fmt)
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert "******" in shown


def test_a_row_of_the_wrong_length_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="zip"):
        output.rows(("a", "b"), [(1,)], "json")


def test_an_error_is_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    output.error(PenstockError("it broke", where="f.yaml:1:2", why="first\nsecond", next="mend it"))
    assert capsys.readouterr().err == (
        "error[PK000] it broke\n"
        "  --> f.yaml:1:2\n"
        "  first\n"
        "  second\n"
        "  next: mend it; more: penstock explain PK000\n"
    )


def test_progress_without_a_terminal_is_one_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("sending", total=20_000) as bar:
        bar.advance(10_000)
        assert capsys.readouterr().err == ""
        bar.describe("sent")
    said = capsys.readouterr().err
    assert said.startswith("sent: 10 000 of 20 000 in ")
    assert said.count("\n") == 1


def test_progress_that_takes_long_is_reported_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "REPORT_SECONDS", 0.01)
    said = ""
    with output.progress("sending", total=20) as bar:
        bar.advance(5)
        while "so far" not in said:
            said += capsys.readouterr().err
    assert "sending: 5 of 20, 0 s so far" in said


def test_a_total_that_is_no_count_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("fetching", total=100, counted=False) as bar:
        bar.advance(100)
        bar.describe("fetching: 3 of 3 files")
    assert capsys.readouterr().err.startswith("fetching: 3 of 3 files: 0.")


def test_progress_that_came_nowhere_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("apply", total=3):
        pass
    assert capsys.readouterr().err.startswith("apply: 0 of 3 in 0.")


def test_progress_that_failed_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), output.progress("sending", total=2):
        raise ZeroDivisionError
    assert capsys.readouterr().err == ""


def test_a_person_can_be_asked_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert output.interactive() is False


ERROR = """
from penstock.cli import output
from penstock.errors import PenstockError
output.error(PenstockError("a\\x1bb"))
"""


def test_a_terminal_gets_colour_and_no_foreign_control(terminal: Terminal) -> None:
    code, shown = terminal(ERROR)
    assert code == 0
    assert "\x1b[1;31merror\x1b[0m[PK000]" in shown
    assert "a\\x1bb" in shown


def test_no_color_is_honoured(terminal: Terminal) -> None:
    assert "\x1b" not in terminal(ERROR, NO_COLOR="1")[1]
    assert "\x1b[" in terminal(ERROR, NO_COLOR="")[1]
    listing = "from penstock.cli.app import main; main(['--no-color', 'config', 'show'])"
    assert "\x1b" not in terminal(listing)[1]


def test_a_table_on_a_terminal_fits_it(terminal: Terminal) -> None:
    code, shown = terminal("from penstock.cli.app import main; main(['--no-color', 'config', 'show'])")
    assert code == 0
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_data_on_a_terminal_cannot_steer_it(terminal: Terminal) -> None:
    assert (
        terminal("from penstock.cli import output; output.data('a\\x1b]0;x\\x07b')")[1]
        == "a\\x1b]0;x\\x07b\n"
    )


def test_a_bar_on_a_terminal(terminal: Terminal) -> None:
    code, shown = terminal(
        "from penstock.cli import output\n"
        "with output.progress('sending [x]', 2) as bar:\n"
        "    bar.advance(2)\n"
        "with output.progress('waiting') as bar:\n"
        "    bar.describe('waited')\n"
        "with output.progress('fetching', 100, counted=False) as bar:\n"
        "    bar.advance(100)\n"
    )
    assert code == 0
    assert "sending [x]" in shown
    assert "2/2" in shown
    assert "✓ waited" in shown
    assert "100/100" not in shown


def test_data_reaches_its_pipe_while_a_bar_is_drawn(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "out"
    code = (
        f"import sys; sys.stdout = open({str(file)!r}, 'w')\n"
        "from penstock.cli import output\n"
        "with output.progress('sending', 1) as bar:\n"
        "    output.data('datum')\n"
        "    bar.advance()\n"
    )
    assert terminal(code)[0] == 0
    assert file.read_text() == "datum\n"


def test_a_task_that_failed_gets_no_tick(terminal: Terminal) -> None:
    code, shown = terminal(
        "from penstock.cli import output\nwith output.progress('waiting'):\n    raise SystemExit(7)"
    )
    assert code == 7
    assert "waiting" in shown
    assert "✓" not in shown


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = output._harmless(text)
    assert not any(ord(c) < 32 and c not in "\t\n" or 0x7F <= ord(c) < 0xA0 for c in shown)


@pytest.mark.parametrize("mark", "\u202e\u202a\u2066\u2069\u200f\u061c")
def test_marks_of_direction_are_written_visibly(mark: str) -> None:
    assert output._harmless(f"orders{mark}gpj") == f"orders\\u{ord(mark):04x}gpj"
