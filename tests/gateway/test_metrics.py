"""What is counted: requests as the server tells them, refusals of the ports, readings when asked."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from penstock.errors import ApiError, RecordsError
from penstock.gateway.dispatch import advertised
from penstock.gateway.handler import Services
from penstock.gateway.metrics import Counted, Metrics, Reading
from penstock.gateway.server import Limits, Server
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode


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


class Port:
    """A port that refuses in the two ways there are."""

    limit = 5

    def append(self, late: bool) -> Awaitable[int]:
        if not late:
            raise RecordsError("no", error_code=ErrorCode.CORRUPT_MESSAGE)
        return self.find(True)

    async def find(self, refuse: bool) -> int:
        if refuse:
            raise ApiError("no", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return 7


def test_the_refusals_of_a_port_are_counted() -> None:
    refusals: list[tuple[str, int]] = []
    counted = Counted(Port(), lambda *refusal: refusals.append(refusal))

    async def ask() -> None:
        assert await counted.find(False) == 7
        with pytest.raises(ApiError):
            await counted.find(True)
        with pytest.raises(ApiError):
            await counted.append(True)
        with pytest.raises(RecordsError):
            counted.append(False)

    asyncio.run(ask())
    late, early = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE
    assert refusals == [("find", late), ("append", late), ("append", early)]
    assert counted.limit == 5


def test_an_error_has_the_name_of_its_code() -> None:
    metrics = Metrics()
    metrics.refused("read", ErrorCode.OFFSET_OUT_OF_RANGE)
    metrics.refused("read", 999)
    assert value(metrics, 'errors_total{code="OFFSET_OUT_OF_RANGE",operation="read"}') == 1
    assert value(metrics, 'errors_total{code="999",operation="read"}') == 1


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
