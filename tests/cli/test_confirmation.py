"""Verbs that change something ask first; where nobody can be asked they change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest
import typer

from penstock.cli import apply, dlq, groups_reset, output
from penstock.cli.settings import Settings
from penstock.errors import UsageError

ASKS: Final[Mapping[str, Callable[[], None]]] = {
    "apply": lambda: apply._confirm(2),
    "dlq restore": lambda: dlq._confirm(2),
    "groups reset": lambda: groups_reset._confirm("move it?"),
}


@pytest.fixture(params=ASKS)
def ask(request: pytest.FixtureRequest) -> Callable[[], None]:
    return ASKS[request.param]


def given(monkeypatch: pytest.MonkeyPatch, *, yes: bool, person: bool, answer: bool | None) -> None:
    settings = Settings(yes=yes)
    for module in (apply, dlq, groups_reset):
        monkeypatch.setattr(module, "current", lambda: settings)
    monkeypatch.setattr(output, "interactive", lambda: person)

    def confirm(question: str, *, err: bool) -> bool:
        assert answer is not None, "nobody shall be asked"
        assert err, "the answer of a verb is on the other stream"
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)


def test_nobody_can_be_asked(ask: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, yes=False, person=False, answer=None)
    with pytest.raises(UsageError, match="nobody can be asked") as refused:
        ask()
    assert refused.value.next == "add --yes"


@pytest.mark.parametrize("person", [True, False])
def test_yes_asks_nobody(ask: Callable[[], None], monkeypatch: pytest.MonkeyPatch, person: bool) -> None:
    given(monkeypatch, yes=True, person=person, answer=None)
    ask()


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_decides(ask: Callable[[], None], monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    given(monkeypatch, yes=False, person=True, answer=answer)
    if answer:
        ask()
    else:
        with pytest.raises(typer.Exit) as ended:
            ask()
        assert ended.value.exit_code == 1
