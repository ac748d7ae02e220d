"""The first words on a connection: what the broker can do (ApiVersions), and who we are (SASL, KIP-152)."""

from __future__ import annotations

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.refusal import check, login_refusal
from penstock.brokers.kafka_raw.scram import ScramClient
from penstock.brokers.kafka_raw.settings import Settings
from penstock.config import current
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["log_in"]


def log_in(connection: Connection, settings: Settings) -> None:
    """Learn the versions, then prove who we are if a mechanism is set; close the connection if that fails.

    TCP, TLS and this together have `connect_timeout`; Unreachable if it takes longer.
    """
    try:
        connection.versions = _versions(connection)
        if settings.mechanism is not None:
            _authenticate(connection, settings, settings.mechanism)
        connection.logged_in()
    except BaseException:
        connection.close()
        raise


def _versions(connection: Connection) -> dict[int, tuple[int, int]]:
    answer = connection.call(API_VERSIONS, ())
    check(answer.int16(), "the broker does not say what it serves", where=str(connection.peer))
    return dict(answer.array(lambda: (answer.int16(), (answer.int16(), answer.int16()))))


def _authenticate(connection: Connection, settings: Settings, mechanism: str) -> None:
    answer = connection.call(SASL_HANDSHAKE, (CLASSIC.string(mechanism),))
    check(
        answer.int16(),
        f"the broker does not log in by {mechanism}",
        where=str(connection.peer),
        why=f"it offers {', '.join(answer.array(answer.string)) or 'nothing'}",
    )
    username, password = settings.username or "", current(settings.password or "")
    if mechanism == "PLAIN":
        # RFC 4616: authorization id (none), authentication id, password.
        _token(connection, f"\0{username}\0{password}".encode(), password)
        return
    scram = ScramClient(mechanism, username, password)
    server_first = _token(connection, scram.first(), password)
    scram.verify(_token(connection, scram.final(server_first), password))


def _token(connection: Connection, token: bytes, password: str) -> bytes:
    answer: Answer = connection.call(SASL_AUTHENTICATE, (CLASSIC.length(len(token)), token))
    code, message = answer.int16(), answer.nullable_string()
    if code != ErrorCode.NONE:
        raise login_refusal(code, password, where=str(connection.peer), why=message)
    return bytes(answer.bytes())
