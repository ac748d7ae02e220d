"""Many look-ups at the same time, but not too many."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.apis import metadata
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.handler import Request, Services
from penstock.gateway.ports import Topic
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode


class Meter:
    """Counts what is under way; each takes three turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.begun = 0

    async def work(self, number: int, fails: bool = False) -> int:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if fails:
                raise ApiError("no", error_code=ErrorCode.INVALID_REQUEST)
            return number
        finally:
            self.now -= 1


@pytest.mark.parametrize("count", [0, 1, 4, 100])
def test_results_come_in_order_and_within_the_limit(count: int) -> None:
    meter = Meter()
    found = asyncio.run(gather_limited((meter.work(number) for number in range(count)), 8))
    assert found == list(range(count))
    assert meter.most == min(count, 8)


def test_results_come_in_order_whichever_is_ready_first() -> None:
    async def slow(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number

    found = asyncio.run(gather_limited((slow(number) for number in range(10)), 4))
    assert found == list(range(10))


def test_the_first_that_fails_ends_the_others() -> None:
    async def scenario() -> None:
        with pytest.raises(ApiError, match="no"):
            await gather_limited((meter.work(number, fails=number == 5) for number in range(100)), 4)
        assert meter.now == 0
        assert meter.begun < 20

    meter = Meter()
    asyncio.run(scenario())


def test_metadata_looks_up_many_topics_at_once() -> None:
    class Slow(MemoryStorage):
        async def get(self, name: str) -> Topic | None:
            await meter.work(0)
            return None

    async def scenario() -> None:
        storage: Any = Slow()
        services = Services(topics=storage, log=storage, producers=storage, cluster=storage)
        asked = [SimpleNamespace(name=f"t{number}", topic_id=None) for number in range(500)]
        body = SimpleNamespace(topics=asked, allow_auto_topic_creation=False)
        assert metadata.API.handle is not None
        await metadata.API.handle(Request(9, body, "kafka"), services)

    meter = Meter()
    asyncio.run(scenario())
    assert meter.begun == 500
    assert meter.most == 32


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_topic_that_cannot_be_made_is_told_so_that_clients_know_what_to_do(
    refused: ErrorCode, told: ErrorCode
) -> None:
    class Refusing(MemoryStorage):
        async def create(self, *_: Any, **__: Any) -> Topic:
            raise ApiError("no", error_code=refused)

    async def scenario() -> Any:
        storage: Any = Refusing()
        services = Services(topics=storage, log=storage, producers=storage, cluster=storage)
        body = SimpleNamespace(topics=[SimpleNamespace(name="t", topic_id=None)])
        [found] = await metadata._wanted(Request(9, body, "kafka"), services)
        return found

    assert asyncio.run(scenario()).error_code == told
