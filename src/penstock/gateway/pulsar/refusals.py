"""What a Kafka client is told when Pulsar does not take its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.brokers.pulsar import is_denied
from penstock.errors import ApiError, PenstockError, PulsarRefused, RecordsError
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["translated"]


def translated(exc: PenstockError) -> ApiError:
    """Say by Kafka's codes what went wrong; a client tries again unless Pulsar refused for good."""
    if isinstance(exc, ApiError):
        return exc
    if isinstance(exc, RecordsError):
        return ApiError(exc.what, error_code=exc.error_code)
    if is_denied(exc):
        return ApiError(exc.why or exc.what, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if isinstance(exc, PulsarRefused) and not exc.retriable:
        return ApiError(str(exc), error_code=_REFUSALS.get(exc.server_error, ErrorCode.UNKNOWN_SERVER_ERROR))
    return ApiError(str(exc), error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


_REFUSALS: Final[Mapping[int, ErrorCode]] = {
    ServerError.TOPIC_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ServerError.TOPIC_TERMINATED_ERROR: ErrorCode.POLICY_VIOLATION,
    # The broker's answer to a message that is larger than the policy of the topic.
    ServerError.NOT_ALLOWED_ERROR: ErrorCode.MESSAGE_TOO_LARGE,
    # One of our own former connections still has the name of the producer, or somebody has the topic for
    # himself: the client shall try again.
    ServerError.PRODUCER_BUSY: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # Pulsar says it to producers that are not shared; whatever ended ours, the next one may write.
    ServerError.PRODUCER_FENCED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
