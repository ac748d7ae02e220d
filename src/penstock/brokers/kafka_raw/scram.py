"""The client's side of SCRAM (RFC 5802, with SHA-256 by RFC 7677; KIP-84): sans-IO, three messages.

Like Kafka's own clients it takes name and password as UTF-8, without the preparation of RFC 4013.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from penstock.errors import WireError

__all__ = ["ScramClient"]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# RFC 7677 section 4: at least 4096. The upper bound keeps a hostile server from keeping us busy.
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000
# RFC 5802 section 7: the header for "the client does not do channel binding", and its base64.
_GS2 = "n,,"
_BINDING = "c=biws"


class ScramClient:
    """One login: `first`, then `final` with what the server said, then `verify` that it knows us too."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str | None = None) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        # RFC 5802 section 5.1: "=" and "," are written =3D and =2C in a name.
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Give the client-first-message."""
        return f"{_GS2}{self._first}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Give the client-final-message for the server-first-message."""
        said = _attributes(server_first)
        nonce, salt, iterations = said.get("r", ""), _base64(said.get("s", "")), _number(said.get("i", ""))
        # RFC 5802 section 5.1: the server's nonce begins with ours, else it answers somebody else.
        # And an extension "m" that we do not know must not be ignored.
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt or "m" in said:
            raise WireError("the broker's SCRAM challenge does not belong to our login")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"{_BINDING},r={nonce}"
        message = f"{self._first},{server_first.decode()},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the server-final-message: only who knows the password's hash can write it."""
        shown = _base64(_attributes(server_final).get("v", ""))
        if not self._signature or not hmac.compare_digest(shown, self._signature):
            raise WireError(
                "the broker could not prove that it knows our password",
                next="look who answers at this address",
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as exc:
        raise WireError("a SCRAM message of the broker is not UTF-8") from exc
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise WireError("a SCRAM message of the broker has a part that is not base64") from exc


def _number(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not _LEAST_ITERATIONS <= value <= _MOST_ITERATIONS:
        raise WireError(
            "the broker's SCRAM challenge has a number of iterations that is not taken",
            why=f"from {_LEAST_ITERATIONS} to {_MOST_ITERATIONS} are taken",
        )
    return value
