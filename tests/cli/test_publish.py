"""penstock publish: words that contradict each other are refused before anything is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.app import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "{}"], "--data without --type"),
        (["--id", "1", "--subject", "s"], "--id, --subject without --type"),
        (["-A", "a=b"], "--attribute without --type"),
        (["events.jsonl", "--data", "{}"], "--data without --type"),
        (["events.jsonl", "--type", "t"], "leave --type or events.jsonl out"),
        (["--tombstone", "--key", "k", "--type", "t"], "a tombstone is no event"),
        (["--tombstone", "--key", "k", "events.jsonl"], "a tombstone is no event"),
    ],
)
def test_what_would_be_left_out_is_refused(
    words: list[str], said: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "orders", *words]) == 2
    assert said in capsys.readouterr().err
