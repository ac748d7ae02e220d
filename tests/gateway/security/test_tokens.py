"""What a token tells of itself, also when it is nonsense."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.security.tokens import expires_at, identity, subject


def token(claims: Any, signature: str = "s") -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.{signature}"


def test_a_subject_and_an_end() -> None:
    made = token({"sub": "ann", "exp": 1_700_000_000})
    assert (subject(made), expires_at(made)) == ("ann", 1_700_000_000.0)


@pytest.mark.parametrize("exp", [True, "1", None, [], 1e300, float("nan"), float("inf"), 10**400])
def test_an_end_that_is_none(exp: Any) -> None:
    assert expires_at(token({"exp": exp})) is None


@pytest.mark.parametrize("sub", ["", 7, None, "a\nb", "x" * 257])
def test_a_name_that_cannot_be_shown(sub: Any) -> None:
    assert subject(token({"sub": sub})) is None


def test_a_newer_token_of_the_same_principal() -> None:
    old = token({"sub": "ann", "aud": ["x"], "exp": 1, "iat": 0, "nbf": 0, "jti": "1"})
    new = token({"exp": 9, "aud": ["x"], "sub": "ann", "jti": "2"}, "t")
    assert identity(old) == identity(new)


def test_another_principal() -> None:
    known = {
        identity(token(claims)) for claims in ({"sub": "ann"}, {"sub": "bob"}, {"sub": "ann", "iss": "x"})
    }
    assert len(known) == 3


@pytest.mark.parametrize("opaque", ["abc", "a.b.c", "a.!.c", token([1]), token({}), token({"exp": 1})])
def test_a_token_that_tells_nothing_is_only_itself(opaque: str) -> None:
    assert identity(opaque) == opaque


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=80))
def test_any_text(text: str) -> None:
    for made in (text, f"{text}.{text}.{text}"):
        assert isinstance(identity(made), str)
        assert subject(made) is None or isinstance(subject(made), str)
        assert expires_at(made) is None or isinstance(expires_at(made), float)
