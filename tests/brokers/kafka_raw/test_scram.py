"""SCRAM as the RFC's own example has it, and against servers that lie."""

from __future__ import annotations

import pytest

from penstock.brokers.kafka_raw.scram import ScramClient
from penstock.errors import WireError

# RFC 7677 section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(SERVER_FINAL)


def test_names_are_escaped() -> None:
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "p", nonce="n").first() == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    "server_first",
    [
        b"",
        b"\xff\xfe",
        b"m=new," + SERVER_FIRST,
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"s=W22Z", b"s=*"),
        SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="),
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=999999999"),
        SERVER_FIRST.replace(b"i=4096", b"i=-5"),
    ],
)
def test_a_challenge_that_cannot_be_is_refused(server_first: bytes) -> None:
    with pytest.raises(WireError):
        client().final(server_first)


@pytest.mark.parametrize("server_final", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=***"])
def test_a_server_that_does_not_know_us_is_refused(server_final: bytes) -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(WireError):
        scram.verify(server_final)
