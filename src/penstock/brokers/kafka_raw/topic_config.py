"""One setting of a topic (DescribeConfigs v2)."""

from __future__ import annotations

import struct

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.refusal import check
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["config_request", "read_config"]

_TOPIC = 2
_NO_SYNONYMS = b"\0"


def config_request(topic: str, name: str) -> tuple[bytes, ...]:
    """Ask for a setting of a topic."""
    resource = struct.pack(">ib", 1, _TOPIC) + CLASSIC.string(topic)
    return resource, CLASSIC.length(1), CLASSIC.string(name), _NO_SYNONYMS


def read_config(answer: Answer) -> str | None:
    """Read its value, behind the throttle time; None if the broker does not have it."""

    def resource() -> tuple[str | None, ...]:
        code, message = answer.int16(), answer.nullable_string()
        answer.int8()
        check(code, f"the settings of topic {answer.string()} are not told", why=message)
        return answer.array(entry)

    def entry() -> str | None:
        answer.string()
        value = answer.nullable_string()
        answer.take(3)  # read-only, source, sensitive
        answer.array(lambda: (answer.string(), answer.nullable_string(), answer.int8()))
        return value

    values = [value for found in answer.array(resource) for value in found]
    return values[0] if values else None
