"""Verbs that change something ask first; where nobody can be asked they change nothing."""

from __future__ import annotations

import pytest
import typer

from penstock.cli import confirmation, output
from penstock.cli.settings import Settings
from penstock.errors import UsageError


def ask() -> None:
    confirmation.confirm("apply changes clusters", "do 2 steps?")


def given(monkeypatch: pytest.MonkeyPatch, *, yes: bool, person: bool, answer: bool | None) -> None:
    settings = Settings(yes=yes)
    monkeypatch.setattr(confirmation, "current", lambda: settings)
    monkeypatch.setattr(output, "interactive", lambda: person)

    def confirm(question: str, *, err: bool) -> bool:
        assert answer is not None, "nobody shall be asked"
        assert err, "the answer of a verb is on the other stream"
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)


def test_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, yes=False, person=False, answer=None)
    with pytest.raises(UsageError, match="apply changes clusters and nobody can be asked") as refused:
        ask()
    assert refused.value.next == "add --yes"


@pytest.mark.parametrize("person", [True, False])
def test_yes_asks_nobody(monkeypatch: pytest.MonkeyPatch, person: bool) -> None:
    given(monkeypatch, yes=True, person=person, answer=None)
    ask()


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_decides(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    given(monkeypatch, yes=False, person=True, answer=answer)
    if answer:
        ask()
    else:
        with pytest.raises(typer.Exit) as ended:
            ask()
        assert ended.value.exit_code == 1
