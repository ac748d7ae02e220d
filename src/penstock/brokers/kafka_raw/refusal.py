"""A Kafka error code as an exception: its type, whether waiting helps, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.brokers.conditions import Condition, condition_of_token, row_of
from penstock.errors import KafkaDenied, KafkaRefused, MessageTooLarge, ProducerFenced
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["OF_RECORDS", "check", "login_refusal", "refusal"]

OF_RECORDS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)
"""Codes of a batch that is refused for the sake of what is in it: other batches would be taken."""

_TYPES: Final[Mapping[int, type[KafkaRefused]]] = {
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLarge,
    # KIP-360: brokers say INVALID_PRODUCER_EPOCH for a fenced producer where versions are old.
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ProducerFenced,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerFenced,
}

_NEXT: Final[Mapping[int, str]] = {
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise max.message.bytes of the topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise segment.bytes of the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or correct its name",
    ErrorCode.UNSUPPORTED_VERSION: "use another version of the broker, or another engine",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "stay within transaction.max.timeout.ms of the broker",
    ErrorCode.CONCURRENT_TRANSACTIONS: "look at the brokers, and at max.message.bytes of the topics",
}
_FENCED_NEXT: Final = "stop: a newer producer has taken over, or the transaction took longer than it may"
# A group may have members that joined; they, not we, own its offsets.
_WHY: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members that manage its offsets",
    ErrorCode.ILLEGAL_GENERATION: "the group has members that manage its offsets",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "batches that the broker had acknowledged are lost, or it does not remember what it has"
    ),
    # Said for a moment after each transaction; whoever gives up on it has waited for long.
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        "the end of the last transaction is not in all of its topics: a broker is away, "
        "or a topic takes less than the 78 bytes of a marker"
    ),
}


def refusal(code: int, what: str, *, where: str | None = None, why: str | None = None) -> KafkaRefused:
    """Make the error for a code; one that Kafka invents later is not retried.

    >>> refusal(6, "cannot fetch", where="t-0").retriable
    True
    >>> print(refusal(4242, "cannot fetch"))
    cannot fetch (error 4242)
    """
    known = ErrorCode(code) if code in _KNOWN else None
    if known is not None and code in _DENIALS:
        return _denial(known, _DENIALS[code], where, ": ".join(filter(None, (f"{what} ({known.name})", why))))
    kind = _TYPES.get(code, KafkaRefused)
    return kind(
        f"{what} ({known.name if known else f'error {code}'})",
        error_code=code,
        retriable=bool(known and known.retriable),
        where=where,
        why=why or _WHY.get(code),
        next=_NEXT.get(code) or (_FENCED_NEXT if kind is ProducerFenced else None),
    )


def login_refusal(
    code: int, password: str, *, where: str, why: str | None, issued: str | None = None
) -> KafkaRefused:
    """Make the error for a login that was refused; a gateway takes a token as the password.

    `issued` is the token of OAUTHBEARER, which came from an endpoint.
    """
    if code == ErrorCode.SASL_AUTHENTICATION_FAILED and issued is not None:
        _, since = condition_of_token(issued)
        return _denial(ErrorCode(code), Condition.WRONG_ISSUER, where, "; ".join(filter(None, (since, why))))
    if code != ErrorCode.SASL_AUTHENTICATION_FAILED or not password.startswith(_TOKEN):
        return refusal(code, "the broker refused our login", where=where, why=why)
    condition, since = condition_of_token(password.removeprefix(_TOKEN))
    return _denial(ErrorCode(code), condition, where, "; ".join(filter(None, (since, why))))


def _denial(code: ErrorCode, condition: Condition, where: str | None, why: str) -> KafkaDenied:
    row = row_of(condition)
    return KafkaDenied(row.what, error_code=code, where=where, why=why or None, next=row.next)


_TOKEN: Final = "token:"
_DENIALS: Final[Mapping[int, Condition]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Condition.MISSING_RIGHT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Condition.MISSING_RIGHT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Condition.MISSING_RIGHT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Condition.MISSING_RIGHT,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Condition.WRONG_LOGIN,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: Condition.WRONG_MECHANISM,
}
_KNOWN: Final = frozenset(int(code) for code in ErrorCode)


def check(code: int, what: str, *, where: str | None = None, why: str | None = None) -> None:
    """Raise the error for a code that is one."""
    if code != ErrorCode.NONE:
        raise refusal(code, what, where=where, why=why)
