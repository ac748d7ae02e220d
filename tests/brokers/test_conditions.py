"""The table of conditions: each has a sentence and a next step of its own; tokens tell their end."""

from __future__ import annotations

import base64
import json

import pytest

from penstock.brokers.conditions import Condition, condition_of_token, made, row_of, token_error
from penstock.errors import AccessDenied


def token(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_every_condition_has_its_own_sentence_and_next_step() -> None:
    rows = [row_of(condition) for condition in Condition]
    assert len({row.what for row in rows}) == len({row.next for row in rows}) == len(rows)
    assert all(row.kind.exit_code == 1 for row in rows)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (None, Condition.NO_CREDENTIALS),
        ("", Condition.EMPTY_TOKEN),
        (" \n", Condition.EMPTY_TOKEN),
        ("abc", Condition.WRONG_TOKEN),
        ("a.b.c", Condition.WRONG_TOKEN),
        ("a.W10.c", Condition.WRONG_TOKEN),
        (token(sub="x"), Condition.WRONG_TOKEN),
        (token(exp="x"), Condition.WRONG_TOKEN),
        (token(exp=None), Condition.WRONG_TOKEN),
        (token(exp=4_000_000_000), Condition.WRONG_TOKEN),
        (token(exp=0), Condition.EXPIRED_TOKEN),
        (token(exp=-(10**300)), Condition.EXPIRED_TOKEN),
        (token(exp=1_700_000_000), Condition.EXPIRED_TOKEN),
    ],
)
def test_what_a_token_says_of_itself(text: str | None, condition: Condition) -> None:
    assert condition_of_token(text)[0] is condition


def test_an_expired_token_says_since_when_and_is_not_shown() -> None:
    text = token(exp=1_700_000_000)
    error = token_error(text, where="h:1", why="refused")
    assert isinstance(error, AccessDenied)
    assert error.why == "it was valid until 2023-11-14T22:13:20Z; refused"
    assert text not in str(error)


def test_an_error_has_the_address() -> None:
    assert made(Condition.MISSING_RIGHT, where="h:1", why="topic t").where == "h:1"
