"""The ids of topics: of those that are there, from clusters that have any."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.errors import KafkaRefused
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.primitives import COMPACT

VERSIONS, METADATA = 18, 3
TAGS, NO_WAIT = b"\0", struct.pack(">i", 0)
ID = bytes(range(16))
TEXT = base64.urlsafe_b64encode(ID).decode().rstrip("=")
Open = Callable[..., Cluster]


def metadata(broker: Any, code: int, topic_id: bytes) -> bytes:
    """An answer of version 12: one broker, and the topic t with one partition."""
    node = struct.pack(">i", 1) + COMPACT.string("127.0.0.1") + struct.pack(">i", broker.port) + b"\0" + TAGS
    part = struct.pack(">hiii", 0, 0, 1, 0) + COMPACT.length(0) * 3 + TAGS
    topic = struct.pack(">h", code) + COMPACT.string("t") + topic_id + b"\0"
    topic += COMPACT.length(1) + part + struct.pack(">i", 0) + TAGS
    head = TAGS + NO_WAIT + COMPACT.length(1) + node + COMPACT.string("cluster") + struct.pack(">i", 1)
    return head + COMPACT.length(1) + topic + TAGS


@pytest.mark.parametrize(
    ("code", "topic_id", "found"),
    [
        (ErrorCode.NONE, ID, TEXT),
        (ErrorCode.NONE, bytes(16), None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ID, None),
        (ErrorCode.LEADER_NOT_AVAILABLE, ID, None),
    ],
)
def test_a_topic_that_is_there_has_an_id(
    broker: Any, open_cluster: Open, code: int, topic_id: bytes, found: str | None
) -> None:
    broker.answers[METADATA] = lambda _: metadata(broker, code, topic_id)
    assert open_cluster(broker).topic_id("t") == found


def test_a_cluster_that_is_too_old_has_no_ids(broker: Any, open_cluster: Open) -> None:
    row = struct.pack(">hhh", METADATA, 0, 11)
    broker.answers[VERSIONS] = lambda _: struct.pack(">hi", 0, 1) + row
    assert open_cluster(broker).topic_id("t") is None


def test_a_refusal_is_not_taken_for_having_no_ids(broker: Any, open_cluster: Open) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.answers[VERSIONS] = lambda _: struct.pack(">hi", code, 0)
    with pytest.raises(KafkaRefused) as caught:
        open_cluster(broker).topic_id("t")
    assert caught.value.error_code == code
