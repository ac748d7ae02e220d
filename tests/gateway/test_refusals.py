"""What Kafka clients are told when Pulsar does not take records: for good, or to try again."""

from __future__ import annotations

import pytest

from penstock.brokers.pulsar.refusal import refusal
from penstock.errors import AccessDenied, ApiError, ClusterError, PenstockError, RecordsError, Unreachable
from penstock.gateway.pulsar.refusals import translated
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar.pulsar_pb2 import ServerError


def refused(error: int) -> PenstockError:
    return refusal(error, "words of the broker", what="it was refused")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (refused(ServerError.TOPIC_NOT_FOUND), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (refused(ServerError.TOPIC_TERMINATED_ERROR), ErrorCode.POLICY_VIOLATION),
        (refused(ServerError.NOT_ALLOWED_ERROR), ErrorCode.MESSAGE_TOO_LARGE),
        (refused(ServerError.PRODUCER_BUSY), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (refused(ServerError.PRODUCER_FENCED), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (refused(ServerError.SERVICE_NOT_READY), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (refused(ServerError.AUTHORIZATION_ERROR), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AccessDenied("may not"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Unreachable("away"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ClusterError("some"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (RecordsError("bad", error_code=ErrorCode.CORRUPT_MESSAGE), ErrorCode.CORRUPT_MESSAGE),
        (ApiError("as it is", error_code=ErrorCode.INVALID_RECORD), ErrorCode.INVALID_RECORD),
    ],
)
def test_each_refusal_has_its_code(error: PenstockError, code: ErrorCode) -> None:
    told = translated(error)
    assert isinstance(told, ApiError)
    assert told.error_code == code
