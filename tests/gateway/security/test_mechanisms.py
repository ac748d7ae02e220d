"""What clients say in PLAIN and OAUTHBEARER, well or badly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ApiError
from penstock.gateway.security.mechanisms import (
    MECHANISMS,
    Credentials,
    is_namespace,
    read_oauthbearer,
    read_plain,
)
from penstock.wire.kafka import ErrorCode


def bearer(token: str, head: str = "n,,", *pairs: str) -> bytes:
    return "\x01".join([head, f"auth=Bearer {token}", *pairs, "", ""]).encode()


@pytest.mark.parametrize(
    ("user", "namespace"),
    [
        ("acme", "acme/default"),
        ("acme/shop", "acme/shop"),
        ("a-b.c=d:e/x_y".replace("_", "-"), "a-b.c=d:e/x-y"),
    ],
)
def test_plain_names_a_tenant_or_a_namespace(user: str, namespace: str) -> None:
    said = read_plain(f"\0{user}\0token:abc".encode())
    assert (said.namespace, said.token.reveal()) == (namespace, "abc")


def test_a_token_may_hold_colons() -> None:
    assert read_plain(b"\0acme\0token:a:b:c").token.reveal() == "a:b:c"


def test_plain_may_repeat_its_user() -> None:
    assert read_plain(b"acme\0acme\0token:x").namespace == "acme/default"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "three parts"),
        (b"\0acme", "three parts"),
        (b"\0acme\0token:a\0b", "three parts"),
        (b"other\0acme\0token:a", "nobody acts as another"),
        (b"\0acme\0secret", "the password is token:<token>"),
        (b"\0acme\0basic:x", "the password is token:<token>"),
        (b"\0acme\0token:", "is no token"),
        (b"\0acme\0token:a b", "is no token"),
        (b"\0acme\0token:a\r\nX-Evil: 1", "is no token"),
        (b"\0acme\0token:" + b"x" * 70_000, "is no token"),
        ("\0acme\0token:ä".encode(), "is no token"),
        (b"\0\0token:a", "the user is tenant"),
        (b"\0a/b/c\0token:a", "the user is tenant"),
        (b"\0../x\0token:a", "the user is tenant"),
        (b"\0a/..\0token:a", "the user is tenant"),
        (b"\xff\0acme\0token:a", "no text"),
    ],
)
def test_plain_that_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        read_plain(message)
    assert caught.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_oauthbearer_is_the_token_and_maybe_a_namespace() -> None:
    plain = read_oauthbearer(bearer("a.b.c"))
    assert (plain.namespace, plain.token.reveal()) == (None, "a.b.c")
    assert read_oauthbearer(bearer("x", "n,a=me,", "namespace=acme/shop")).namespace == "acme/shop"
    assert read_oauthbearer(bearer("x", "y,,", "traceId=7")).namespace is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "is broken"),
        (b"n,,", "is broken"),
        (b"p=tls-unique,,\x01auth=Bearer x\x01\x01", "is broken"),
        (b"n,,\x01auth=Bearer x\x01", "is broken"),
        (b"n,,\x01\x01", "one token"),
        (b"n,,\x01auth=Basic x\x01\x01", "one token"),
        (bearer("x", "n,,", "auth=Bearer y"), "one token"),
        (bearer(""), "is no token"),
        (bearer("x", "n,,", "namespace=acme"), "the user is tenant"),
    ],
)
def test_oauthbearer_that_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        read_oauthbearer(message)


@given(st.binary(max_size=200), st.sampled_from(sorted(MECHANISMS)))
def test_any_bytes_are_credentials_or_refused(message: bytes, mechanism: str) -> None:
    try:
        said = MECHANISMS[mechanism](message)
    except ApiError as exc:
        assert exc.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    else:
        assert said.namespace is None or is_namespace(said.namespace)


def test_nothing_secret_is_shown() -> None:
    said = read_plain(b"\0acme\0token:hunter2")
    assert isinstance(said, Credentials)
    assert "hunter2" not in f"{said} {said!r}"
    for message in (b"\0acme\0hunter2", b"\0acme/a/b\0token:hunter2", b"\0acme\0token:hunter2 x"):
        with pytest.raises(ApiError) as caught:
            read_plain(message)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
