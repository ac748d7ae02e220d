"""What a Pulsar broker says no with (ServerError), as rows: whether waiting helps, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.brokers.conditions import Condition, condition_of_token, row_of
from penstock.errors import AccessDenied, PenstockError, PulsarDenied, PulsarRefused, Unreachable, WireError
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["FATAL_FOR_PRODUCERS", "Row", "is_denied", "is_retriable", "login_refusal", "refusal"]


class Row(NamedTuple):
    """One code: whether the same request may succeed later by itself, and the next step if not."""

    retriable: bool
    next: str | None = None


_NOT_KNOWN: Final = Row(retriable=False)

_ROWS: Final[Mapping[int, Row]] = {
    ServerError.UNKNOWN_ERROR: Row(retriable=True),
    ServerError.METADATA_ERROR: Row(retriable=True),
    ServerError.PERSISTENCE_ERROR: Row(retriable=True, next="look at the bookies: disk full, or too few"),
    ServerError.AUTHENTICATION_ERROR: Row(retriable=False),
    ServerError.AUTHORIZATION_ERROR: Row(retriable=False),
    ServerError.CONSUMER_BUSY: Row(retriable=False, next="close the other consumer of this subscription"),
    # Normal while a topic moves: the bundle is not served yet, the topic is closing.
    ServerError.SERVICE_NOT_READY: Row(retriable=True),
    # Two policies of a full backlog: hold producers until there is room, or tell them.
    ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR: Row(retriable=True, next="consume the backlog"),
    ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION: Row(retriable=False, next="consume the backlog"),
    ServerError.CHECKSUM_ERROR: Row(retriable=True),
    ServerError.UNSUPPORTED_VERSION_ERROR: Row(retriable=False, next="use a newer Pulsar"),
    ServerError.TOPIC_NOT_FOUND: Row(retriable=False, next="create the topic"),
    ServerError.SUBSCRIPTION_NOT_FOUND: Row(retriable=False),
    ServerError.CONSUMER_NOT_FOUND: Row(retriable=True),
    ServerError.TOO_MANY_REQUESTS: Row(retriable=True),
    ServerError.TOPIC_TERMINATED_ERROR: Row(retriable=False, next="write to another topic"),
    ServerError.PRODUCER_BUSY: Row(retriable=False, next="choose another producer name, or wait"),
    ServerError.INVALID_TOPIC_NAME: Row(retriable=False, next="write persistent://tenant/namespace/topic"),
    ServerError.INCOMPATIBLE_SCHEMA: Row(
        retriable=False,
        next="declare the Avro record of the topic as the payload of its channel, and penstock apply; "
        "or turn schemaValidationEnforced of the namespace off",
    ),
    ServerError.CONSUMER_ASSIGN_ERROR: Row(retriable=True),
    ServerError.TRANSACTION_COORDINATOR_NOT_FOUND: Row(retriable=True),
    ServerError.INVALID_TXN_STATUS: _NOT_KNOWN,
    ServerError.NOT_ALLOWED_ERROR: Row(retriable=False),
    ServerError.TRANSACTION_CONFLICT: _NOT_KNOWN,
    ServerError.TRANSACTION_NOT_FOUND: _NOT_KNOWN,
    ServerError.PRODUCER_FENCED: Row(retriable=False, next="stop: another producer has taken over"),
}

FATAL_FOR_PRODUCERS: Final = frozenset({ServerError.TOPIC_TERMINATED_ERROR, ServerError.PRODUCER_FENCED})
"""Answers to one entry that end the whole producer."""

_DENIALS: Final[Mapping[int, Condition]] = {
    ServerError.AUTHENTICATION_ERROR: Condition.WRONG_TOKEN,
    ServerError.AUTHORIZATION_ERROR: Condition.MISSING_RIGHT,
}

_MAX_REASON: Final = 2_000


def refusal(
    server_error: int, message: str, *, what: str | None = None, where: str | None = None
) -> PulsarRefused:
    """Make the error for a code; one that Pulsar invents later is not retried.

    >>> refusal(ServerError.SERVICE_NOT_READY, "moving").retriable
    True
    >>> print(refusal(77, "new"))
    Pulsar refused (error 77); new
    """
    if server_error in _DENIALS:
        why = ": ".join(filter(None, (what, message[:_MAX_REASON])))
        return _denial(server_error, _DENIALS[server_error], where, why)
    row = _ROWS.get(server_error, _NOT_KNOWN)
    name = (
        ServerError.Name(server_error).lower().replace("_", " ")
        if server_error in _ROWS
        else f"error {server_error}"
    )
    return PulsarRefused(
        f"{what or 'Pulsar refused'} ({name})",
        server_error=server_error,
        retriable=row.retriable,
        where=where,
        why=message[:_MAX_REASON] or None,
        next=row.next,
    )


def login_refusal(server_error: int, message: str, token: str | None, *, where: str) -> PulsarRefused:
    """Make the error for a CONNECT that was refused; a token itself may say why."""
    if server_error != ServerError.AUTHENTICATION_ERROR:
        return refusal(server_error, message, where=where)
    condition, since = condition_of_token(token)
    return _denial(server_error, condition, where, "; ".join(filter(None, (since, message[:_MAX_REASON]))))


def _denial(server_error: int, condition: Condition, where: str | None, why: str) -> PulsarDenied:
    row = row_of(condition)
    return PulsarDenied(
        row.what, server_error=server_error, retriable=False, where=where, why=why or None, next=row.next
    )


def is_denied(error: PenstockError) -> bool:
    """Say whether it was refused because of who we are, by the binary protocol or the admin API."""
    if isinstance(error, PulsarRefused):
        return error.server_error in _DENIALS
    return isinstance(error, AccessDenied)


def is_retriable(error: PenstockError) -> bool:
    """Say whether trying again can help: the broker said so, did not answer, or talked nonsense."""
    if isinstance(error, PulsarRefused):
        return error.retriable
    return isinstance(error, Unreachable | WireError)
