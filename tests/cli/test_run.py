"""penstock run: what it refuses before it starts, its status lines and its summary."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import run
from penstock.cli.app import main
from penstock.cli.settings import Format, Settings, scope, use
from penstock.errors import ConfigError
from penstock.pipeline.job import Progress, Totals


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--once", "--until-idle"], "two ends"),
        (["--metrics", "nowhere:port"], "is no address"),
        (["missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_words_are_told_before_anything_starts(
    words: list[str], said: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_address_without_a_host_is_on_the_loopback_interface() -> None:
    assert run._address("9400") == ("127.0.0.1", 9400)
    assert run._address("[::1]:9400") == ("::1", 9400)
    assert run._address(None) is None
    with pytest.raises(ConfigError):
        run._address("host")


PROGRESS = Progress(
    source="kafka-orders",
    batch=42,
    counts={"n_in": 1204, "n_out": 1201, "n_dead": 0, "n_unmatched": 3, "n_expired": 0},
    seconds=0.81,
    lag=7,
)


def told(fmt: Format, capsys: pytest.CaptureFixture[str]) -> str:
    with scope():
        use(Settings(output=fmt))
        run._status_lines().batch(PROGRESS)
    return capsys.readouterr().err


def test_a_batch_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "kafka-orders · batch 42 · 1204 in · 1201 out · 0 dead · 3 unmatched · lag 7 · 0.8 s\n"
    assert told(Format.TABLE, capsys) == line


def test_a_batch_is_one_object_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(Format.JSON, capsys))
    assert (found["source"], found["batch"], found["in"], found["lag"]) == ("kafka-orders", 42, 1204, 7)


def test_the_summary_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    sources = {
        "a": Totals(counts=Counter(n_in=5, n_dead=1), batches=2, lost=3),
        "b": Totals(counts=Counter(n_in=2), batches=1, lag=9),
    }
    job: Any = SimpleNamespace(totals=sources, pipeline=SimpleNamespace(checkpoint="c"))
    with scope():
        use(Settings(output=Format.JSON))
        run._summary(job, 1.26)
    found = json.loads(capsys.readouterr().out)
    assert (found["total"]["in"], found["total"]["dead"], found["total"]["lost"]) == (7, 1, 3)
    assert [each["source"] for each in found["sources"]] == ["a", "b"]
    assert found["sources"][1]["lag"] == 9
    assert found["seconds"] == 1.3


def test_the_first_signal_asks_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "_exit", done.append)
    before = signal.getsignal(signal.SIGTERM)
    with run._signals(SimpleNamespace(stop=lambda: done.append("stop"))):  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert done[:2] == ["stop", 128 + signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before


CODE = """
from penstock.cli import output
output.status("batch 1 " + "x" * 300)
output.status("batch 2")
output.talk("the end")
"""


def test_a_terminal_has_one_status_line_that_is_written_over(terminal: Any) -> None:
    code, shown = terminal(CODE)
    assert code == 0
    lines = shown.replace("\r\n", "\n").split("\n")
    assert lines[0].startswith("\r\x1b[2Kbatch 1 xxx")
    assert lines[0].endswith("\r\x1b[2Kbatch 2")
    assert len(lines[0].split("\r")[1]) <= 100 + len("\x1b[2K")
    assert lines[1] == "the end"
