"""What goes wrong between us and a secured cluster, as one table: the sentence, and what to do about it.

Every client (librdkafka, the raw Kafka client, the binary protocol of Pulsar, REST) maps what it meets to a
condition here, so that every verb says the same of the same condition. The address is in `where`, the words
of the server or of OpenSSL are in `why`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from time import time
from typing import Any, Final, NamedTuple

from penstock.errors import AccessDenied, ClusterError, TlsFailed, Unreachable

__all__ = [
    "START",
    "Condition",
    "Row",
    "condition_of_tls",
    "condition_of_token",
    "made",
    "token_expiry",
    "row_of",
    "tls_cause",
    "tls_error",
    "tls_probe",
    "token_error",
]

START: Final = "start it, or correct its address in the context; penstock doctor"
"""What a person does about a cluster that does not answer."""
_PROBE_SECONDS: Final = 3.0
_ALERT_SECONDS: Final = 1.0
"""For the refusal of our certificate, where there is one: nothing else comes without a request."""
_MAX_TOKEN: Final = 64 * 1024


class Condition(Enum):
    """What is wrong; the value is its name in texts for machines."""

    WRONG_LOGIN = "wrong-login"
    WRONG_MECHANISM = "wrong-mechanism"
    NO_CREDENTIALS = "no-credentials"
    WRONG_TOKEN = "wrong-token"
    EXPIRED_TOKEN = "expired-token"
    EMPTY_TOKEN = "empty-token"
    WRONG_CLIENT = "wrong-client"
    WRONG_ISSUER = "wrong-issuer"
    UNKNOWN_AUTHORITY = "unknown-authority"
    OTHER_HOST = "other-host"
    EXPIRED_CERTIFICATE = "expired-certificate"
    WANTS_CERTIFICATE = "wants-certificate"
    NO_TLS = "no-tls"
    MISSING_RIGHT = "missing-right"


class Row(NamedTuple):
    """The type of the error, its first line, and the next step."""

    kind: type[ClusterError]
    what: str
    next: str


_ROWS: Final[Mapping[Condition, Row]] = {
    Condition.WRONG_LOGIN: Row(
        AccessDenied,
        "the cluster does not accept this user name and password",
        "correct username and password of this server in the context",
    ),
    Condition.WRONG_MECHANISM: Row(
        AccessDenied,
        "the cluster does not log in by this SASL mechanism",
        "set mechanism of this server in the context to one that it offers",
    ),
    Condition.NO_CREDENTIALS: Row(
        AccessDenied,
        "the cluster asks for a login, and no credentials are given",
        "give this server credentials in the context: a token, or username and password",
    ),
    Condition.WRONG_TOKEN: Row(
        AccessDenied,
        "the cluster does not accept this token",
        "set token of this server in the context to one that was signed for this cluster",
    ),
    Condition.EXPIRED_TOKEN: Row(
        AccessDenied,
        "the token has expired",
        "renew the token of this server; one that is given as ${file:PATH} is read again when it is used",
    ),
    Condition.EMPTY_TOKEN: Row(
        AccessDenied,
        "the token is empty",
        "write a token into what token of this server in the context names",
    ),
    Condition.WRONG_CLIENT: Row(
        AccessDenied,
        "the token endpoint does not accept this client id and secret",
        "correct username (client id), password (client secret) and token_url of this server in the context",
    ),
    Condition.WRONG_ISSUER: Row(
        AccessDenied,
        "the cluster does not accept the token that its token endpoint has given",
        "compare issuer, audience, claims and clock of token_url with what the broker's log says it expects",
    ),
    Condition.UNKNOWN_AUTHORITY: Row(
        TlsFailed,
        "the server's certificate is not signed by an authority that is trusted here",
        "set ca_file of this server in the context to the authority that signed its certificate",
    ),
    Condition.OTHER_HOST: Row(
        TlsFailed,
        "the server's certificate is for another host name than this address has",
        "write its address in the context with a host name of the certificate, or renew it for this name",
    ),
    Condition.EXPIRED_CERTIFICATE: Row(
        TlsFailed,
        "the server's certificate has expired, or is not valid yet",
        "renew the certificate of the server, or correct the clock of this machine",
    ),
    Condition.WANTS_CERTIFICATE: Row(
        TlsFailed,
        "the server does not accept our certificate, or asks for one",
        "set cert_file and key_file of this server in the context to a certificate that it trusts",
    ),
    Condition.NO_TLS: Row(
        TlsFailed,
        "there is no TLS at this address",
        "correct address and protocol of this server in the context: it may serve no TLS, or on another port",
    ),
    Condition.MISSING_RIGHT: Row(
        AccessDenied,
        "the user of this context may not do this",
        "grant what is missing, or use a context of another user; docs/rights.md lists what each verb needs",
    ),
}


def row_of(condition: Condition) -> Row:
    """Give the row of a condition."""
    return _ROWS[condition]


def made(condition: Condition, *, where: str | None, why: str | None = None) -> ClusterError:
    """Make the error of a condition.

    >>> str(made(Condition.EMPTY_TOKEN, where="h:1")).partition(";")[0]
    'the token is empty'
    """
    row = _ROWS[condition]
    return row.kind(row.what, where=where, why=why, next=row.next)


# Tokens


def condition_of_token(token: str | None) -> tuple[Condition, str | None]:
    """Say why a server may have refused a token, by what the token itself says, and since when.

    Only the claim `exp` is read; the signature is for the server to judge.

    >>> condition_of_token("")[0].name, condition_of_token("a.b.c")[0].name, condition_of_token(None)[0].name
    ('EMPTY_TOKEN', 'WRONG_TOKEN', 'NO_CREDENTIALS')
    """
    if token is None:
        return Condition.NO_CREDENTIALS, None
    if not token.strip():
        return Condition.EMPTY_TOKEN, None
    expires = token_expiry(token)
    if expires is not None and expires <= time():
        return Condition.EXPIRED_TOKEN, f"it was valid until {_date(expires)}"
    return Condition.WRONG_TOKEN, None


def token_error(token: str | None, *, where: str | None, why: str | None = None) -> ClusterError:
    """Make the error for a token that a server refused, with what it said."""
    condition, since = condition_of_token(token)
    return made(condition, where=where, why="; ".join(filter(None, (since, why))) or None)


def token_expiry(token: str) -> float | None:
    """Read the claim `exp` of a JWT (RFC 7519, section 4.1.4), in seconds; None if there is none."""
    parts = token[:_MAX_TOKEN].split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, RecursionError, TypeError, KeyError, OverflowError):
        return None


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "long ago"


# TLS

# X509_V_ERR_*, openssl/x509_vfy.h.
_VERIFY_CODES: Final[Mapping[int, Condition]] = {
    9: Condition.EXPIRED_CERTIFICATE,
    10: Condition.EXPIRED_CERTIFICATE,
    62: Condition.OTHER_HOST,
    64: Condition.OTHER_HOST,
}
# Reasons of OpenSSL: an alert of the server about us, or bytes that are no TLS.
_REASONS: Final[Mapping[str, Condition]] = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": Condition.WANTS_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": Condition.WANTS_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": Condition.WANTS_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Condition.WANTS_CERTIFICATE,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": Condition.WANTS_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": Condition.WANTS_CERTIFICATE,
}


def condition_of_tls(exc: ssl.SSLError) -> Condition:
    """Say which condition a failed handshake is; without a reason that is known it is no TLS at all."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return _VERIFY_CODES.get(exc.verify_code, Condition.UNKNOWN_AUTHORITY)
    return _REASONS.get(getattr(exc, "reason", None) or "", Condition.NO_TLS)


def tls_error(exc: ssl.SSLError, *, where: str | None) -> ClusterError:
    """Make the error for a handshake that failed; Unreachable if the server only went away meanwhile."""
    if isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return Unreachable("cannot reach the cluster", where=where, why=str(exc), next=START)
    why = getattr(exc, "verify_message", None) or getattr(exc, "reason", None) or str(exc)
    return made(condition_of_tls(exc), where=where, why=why)


def tls_cause(exc: BaseException) -> ssl.SSLError | None:
    """Find the error of OpenSSL below one of a library."""
    seen: BaseException | None = exc
    for _ in range(10):
        if seen is None or isinstance(seen, ssl.SSLError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def tls_probe(host: str, port: int, context: ssl.SSLContext, *, where: str) -> ClusterError | None:
    """Shake hands once, for a client that does not tell why it could not; None if that works."""
    try:
        with (
            socket.create_connection((host, port), _PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            # With TLS 1.3 our side of the handshake is over before the server judges our certificate.
            secured.settimeout(_ALERT_SECONDS)
            with contextlib.suppress(TimeoutError):
                secured.recv(1)
            return None
    except ssl.SSLError as exc:
        return tls_error(exc, where=where)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        return Unreachable("cannot reach the cluster", where=where, why=reason, next=START)
