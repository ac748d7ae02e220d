"""The first words on a connection: what the broker can do (ApiVersions), and who we are (SASL, KIP-152).

A broker may end a session after a time, with OAUTHBEARER when its token expires. The connection says who we
are again before that (KIP-368).
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Final

from penstock.brokers.kafka_raw.access_token import AccessToken, access_token
from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.refusal import check, login_refusal
from penstock.brokers.kafka_raw.scram import ScramClient
from penstock.brokers.kafka_raw.settings import OAUTHBEARER, Settings
from penstock.config import current
from penstock.errors import ClusterError, KafkaRefused, Unreachable, WireError
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["log_in"]


_RENEWED_BETWEEN: Final = (0.85, 0.95)
"""Parts of a session's time, as Kafka's own clients have them: connections shall not be renewed together."""
_LEAST_SECONDS: Final = 2.0
"""A shorter session is not renewed: brokers refuse a second login within a second."""
_MAX_REFUSAL: Final = 1000


def log_in(connection: Connection, settings: Settings, token: AccessToken | None = None) -> None:
    """Learn the versions, then prove who we are if a mechanism is set; close the connection if that fails.

    TCP, TLS and this together have `connect_timeout`; Unreachable if it takes longer. With OAUTHBEARER there
    is a token.
    """
    try:
        connection.versions = _versions(connection)
        if settings.mechanism is not None:
            _authenticate(connection, settings, settings.mechanism, token)
        connection.logged_in()
    except BaseException:
        connection.close()
        raise


def _versions(connection: Connection) -> dict[int, tuple[int, int]]:
    answer = connection.call(API_VERSIONS, ())
    check(answer.int16(), "the broker does not say what it serves", where=str(connection.peer))
    return dict(answer.array(lambda: (answer.int16(), (answer.int16(), answer.int16()))))


def _renew(connection: Connection, settings: Settings, mechanism: str) -> None:
    """Log in again on a connection with nothing under way; it is closed if that fails."""
    try:
        token = access_token(settings) if mechanism == OAUTHBEARER else None
        connection.logging_in()
        _authenticate(connection, settings, mechanism, token)
        connection.logged_in()
    except KafkaRefused as exc:
        connection.close()
        # A new connection finds out whether that is so for good.
        raise Unreachable(
            "the broker did not renew our session", where=str(connection.peer), why=exc.why or exc.what
        ) from exc
    except BaseException:
        connection.close()
        raise


def _authenticate(
    connection: Connection, settings: Settings, mechanism: str, bearer: AccessToken | None
) -> None:
    answer = connection.call(SASL_HANDSHAKE, (CLASSIC.string(mechanism),))
    check(
        answer.int16(),
        f"the broker does not log in by {mechanism}",
        where=str(connection.peer),
        why=f"it offers {', '.join(answer.array(answer.string)) or 'nothing'}",
    )
    if bearer is not None:
        lifetime_ms = _bear(connection, bearer.value)
    else:
        lifetime_ms = _with_password(
            connection, mechanism, settings.username or "", current(settings.password or "")
        )
    seconds = lifetime_ms / 1000
    if seconds >= _LEAST_SECONDS:
        connection.renew_after(
            seconds * random.uniform(*_RENEWED_BETWEEN), lambda: _renew(connection, settings, mechanism)
        )


def _with_password(connection: Connection, mechanism: str, username: str, password: str) -> int:
    """Log in by PLAIN or SCRAM; return the session's lifetime in milliseconds, 0 if it does not end."""
    if mechanism == "PLAIN":
        # RFC 4616: authorization id (none), authentication id, password.
        return _exchange(connection, f"\0{username}\0{password}".encode(), password)[1]
    scram = ScramClient(mechanism, username, password)
    server_first, _ = _exchange(connection, scram.first(), password)
    server_final, lifetime_ms = _exchange(connection, scram.final(server_first), password)
    scram.verify(server_final)
    return lifetime_ms


def _bear(connection: Connection, token: str) -> int:
    """Log in by OAUTHBEARER; return the session's lifetime in milliseconds, 0 if it does not end."""
    # RFC 7628, section 3.1: no channel binding, no other name; then pairs between bytes 1.
    said, lifetime_ms = _exchange(connection, f"n,,\1auth=Bearer {token}\1\1".encode(), "", issued=token)
    if said:
        # Section 3.2.3: a refusal is a challenge in JSON, and ends with the broker's answer to a byte 1.
        why = said[:_MAX_REFUSAL].decode(errors="replace")
        with suppress(ClusterError, WireError):
            _exchange(connection, b"\1", "", issued=token)
        raise login_refusal(
            ErrorCode.SASL_AUTHENTICATION_FAILED, "", where=str(connection.peer), why=why, issued=token
        )
    return lifetime_ms


def _exchange(
    connection: Connection, message: bytes, password: str, *, issued: str | None = None
) -> tuple[bytes, int]:
    """Send a message of SASL; return the broker's, and the session's lifetime in milliseconds."""
    answer: Answer = connection.call(SASL_AUTHENTICATE, (CLASSIC.length(len(message)), message))
    code, why = answer.int16(), answer.nullable_string()
    if code != ErrorCode.NONE:
        raise login_refusal(code, password, where=str(connection.peer), why=why, issued=issued)
    return bytes(answer.bytes()), answer.int64()
