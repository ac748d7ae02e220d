"""What is counted: requests as the server tells them, errors in their answers, readings when asked."""

from __future__ import annotations

import asyncio
import io
import re
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from kio.index import load_request_schema
from kio.serial import entity_writer

from penstock.gateway.dispatch import advertised
from penstock.gateway.entities import entity
from penstock.gateway.handler import Services
from penstock.gateway.metrics import Metrics, Reading
from penstock.gateway.server import Limits, Server
from penstock.gateway.told import Told, tell
from penstock.testing import MemoryStorage
from penstock.wire.kafka import APIS, ErrorCode
from penstock.wire.kafka.apis import is_flexible


def value(metrics: Metrics, name: str) -> float:
    """Give the number of one line, named with its labels."""
    found = re.search(rf"^penstock_gateway_{re.escape(name)} (\S+)$", metrics.text().decode(), re.MULTILINE)
    assert found is not None, metrics.text().decode()
    return float(found[1])


def test_a_request_is_counted_by_api_and_version() -> None:
    metrics = Metrics()
    metrics.served(0, 9, taken=100, given=30, seconds=0.003)
    metrics.served(0, 13, taken=50, given=30, seconds=0.3)
    assert value(metrics, 'requests_total{api="Produce",version="9"}') == 1
    assert value(metrics, 'received_bytes_total{api="Produce"}') == 150
    assert value(metrics, 'sent_bytes_total{api="Produce"}') == 60
    assert value(metrics, 'request_seconds_bucket{api="Produce",le="0.005"}') == 1
    assert value(metrics, 'request_seconds_count{api="Produce"}') == 2


def test_a_client_cannot_make_labels_without_end() -> None:
    metrics = Metrics()
    for version in range(1000, 1100):
        metrics.served(18, version, taken=1, given=1, seconds=0.0)
    assert value(metrics, 'requests_total{api="ApiVersions",version="?"}') == 100
    assert metrics.text().count(b"requests_total{") == 1


def test_readings_are_taken_when_somebody_asks() -> None:
    now = Reading()
    metrics = Metrics(lambda: now)
    assert value(metrics, "connections") == 0
    now = Reading(
        connections=2,
        requests_under_way=3,
        bytes_under_way=4,
        budget_used=0.5,
        reconnects=6,
        offsets_counted=7,
        offsets_learnt=8,
        undecodable={"chunked": 9},
    )
    expected = {
        "connections": 2,
        "requests_under_way": 3,
        "bytes_under_way": 4,
        "budget_used_ratio": 0.5,
        "pulsar_reconnects_total": 6,
        'offsets_total{how="counted"}': 7,
        'offsets_total{how="learnt"}': 8,
        'undecodable_total{reason="chunked"}': 9,
    }
    assert {name: value(metrics, name) for name in expected} == expected


def test_nothing_is_told_twice() -> None:
    names = re.findall(r"^# TYPE (\S+)", Metrics().text().decode(), re.MULTILINE)
    assert len(names) == len(set(names))
    assert not [name for name in names if name.endswith("_created")]


# The server as it tells them, on both kinds of loops


async def talk(send: bytes, metrics: Metrics, limits: Limits | None = None) -> bytes:
    """Send bytes to a server over the twin's storage; give what comes until it closes or has answered."""
    storage = MemoryStorage()
    services = Services(
        topics=storage, log=storage, producers=storage, cluster=storage, versions=advertised()
    )
    server = Server(services, observer=metrics, limits=limits)
    host, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(send)
    head = await reader.read(4)
    answer = await reader.readexactly(int.from_bytes(head, "big")) if head else b""
    writer.close()
    await server.drain(1.0)
    return answer


LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["plain", "uvloop"]
)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 77, -1)


def run(loop: Callable[[], asyncio.AbstractEventLoop], work: Awaitable[bytes]) -> bytes:
    async def wait() -> bytes:
        return await work

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(wait())


@LOOPS
def test_the_server_tells_of_requests(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    metrics = Metrics()
    answer = run(loop, talk(API_VERSIONS, metrics))
    assert answer[:6] == struct.pack(">ih", 77, 0)
    assert value(metrics, "connections_opened_total") == 1
    assert value(metrics, 'requests_total{api="ApiVersions",version="0"}') == 1
    assert value(metrics, 'received_bytes_total{api="ApiVersions"}') == 10
    assert value(metrics, 'sent_bytes_total{api="ApiVersions"}') == len(answer) + 4


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (struct.pack(">i", -5), "malformed"),
        (struct.pack(">ihhih", 10, 0, 2, 1, -1), "unserved"),
        (struct.pack(">ihhih", 10, 3, 1, 1, -1), "malformed"),
    ],
)
def test_the_server_tells_why_it_closed(send: bytes, reason: str) -> None:
    metrics = Metrics()
    assert asyncio.run(talk(send, metrics)) == b""
    assert value(metrics, f'connections_closed_total{{reason="{reason}"}}') == 1


def test_an_idle_connection_is_closed() -> None:
    metrics = Metrics()
    assert asyncio.run(talk(b"", metrics, Limits(idle_seconds=0.05))) == b""
    assert value(metrics, 'connections_closed_total{reason="idle"}') == 1


def test_a_connection_too_many_is_refused() -> None:
    metrics = Metrics()
    assert asyncio.run(talk(b"", metrics, Limits(connections=0))) == b""
    assert value(metrics, 'connections_closed_total{reason="refused"}') == 1


# The errors in answers

TOPIC = "nowhere"
PART = {"partition_index": 0, "partition": 0, "timestamp": -1, "offset": -1, "committed_offset": 1}
REFUSED: dict[int, tuple[int, dict[str, Any], str]] = {
    0: (
        9,
        {"acks": 7, "topic_data": [{"name": TOPIC, "partition_data": [{"records": b""}]}]},
        "REQUIRED_ACKS",
    ),
    1: (12, {"session_id": 77}, "FETCH_SESSION_ID_NOT_FOUND"),
    2: (7, {"topics": [{"name": TOPIC, "partitions": [PART]}]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    3: (
        12,
        {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False},
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    8: (8, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [PART]}]}, "NOT_AVAILABLE"),
    11: (5, {"group_id": "g", "session_timeout": 10_000}, "NOT_AVAILABLE"),
    12: (3, {"group_id": "g"}, "NOT_AVAILABLE"),
    14: (3, {"group_id": "g"}, "NOT_AVAILABLE"),
    15: (5, {"groups": ["g"]}, "NOT_AVAILABLE"),
    18: (99, {}, "UNSUPPORTED_VERSION"),
    19: (5, {"topics": [{"name": TOPIC, "num_partitions": 0}]}, "INVALID_PARTITIONS"),
    20: (5, {"topic_names": [TOPIC]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    21: (1, {"topics": [{"name": TOPIC, "partitions": [PART]}]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    22: (1, {"transactional_id": "t"}, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    23: (3, {"topics": [{"topic": TOPIC, "partitions": [PART]}]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    32: (2, {"resources": [{"resource_type": 2, "resource_name": TOPIC}]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    37: (1, {"topics": [{"name": TOPIC, "count": 2}]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    44: (1, {"resources": [{"resource_type": 4, "resource_name": "1"}]}, "INVALID_REQUEST"),
}
"""Version, fields and the end of the error's name, for each API that can tell one."""


def request(key: int, version: int, fields: dict[str, Any]) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1)
    if key == 18:
        return framed(head + b"\0")
    out = io.BytesIO()
    body = entity(load_request_schema(key, version), fields)
    entity_writer(type(body))(out, body)
    return framed(head + (b"\0" if is_flexible(key, version) else b"") + out.getvalue())


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("key", REFUSED)
def test_an_error_in_an_answer_is_counted_by_its_api(key: int) -> None:
    metrics = Metrics()
    version, fields, code = REFUSED[key]
    assert asyncio.run(talk(request(key, version, fields), metrics))
    found = re.findall(r'errors_total\{api="(\w+)",code="(\w+)"\} (\S+)', metrics.text().decode())
    assert [(api, name.endswith(code), count) for api, name, count in found] == [
        (APIS[key].name, True, "1.0")
    ], found


def test_what_is_told_belongs_to_one_answer() -> None:
    with Told() as outer:
        tell(ErrorCode.CORRUPT_MESSAGE)
        with Told() as inner:
            tell(ErrorCode.NONE)
            tell(ErrorCode.INVALID_RECORD)
    tell(ErrorCode.INVALID_RECORD)
    assert (outer, inner) == ([2], [87])
