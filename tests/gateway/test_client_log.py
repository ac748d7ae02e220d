"""What clients cause is logged at a limited rate, and what is left out is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.gateway import client_log
from penstock.gateway.client_log import RateLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    limit = RateLimit(3, 60.0, clock)
    client_log.log.addFilter(limit)
    yield clock
    client_log.log.removeFilter(limit)


def test_a_flood_is_a_few_lines(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(1_000):
            client_log.log.warning("closed %s: 100%% garbage", number)
        client_log.log.info("this is no warning")
        clock.now = 61.0
        client_log.log.warning("closed %s", 1_000)
        client_log.log.warning("closed %s", 1_001)
    assert [each.getMessage() for each in caplog.records] == [
        "closed 0: 100% garbage",
        "closed 1: 100% garbage",
        "closed 2: 100% garbage; more warnings about clients are left out for 60 s",
        "this is no warning",
        "closed 1000; 997 warnings about clients were left out before",
        "closed 1001",
    ]


def test_a_gateway_of_its_own_has_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.gateway import life
    from penstock.gateway.process import Options

    limited: list[bool] = []

    async def nothing(options: Options) -> bool:
        limited.append(any(isinstance(each, RateLimit) for each in client_log.log.filters))
        return False

    monkeypatch.setattr(life, "_serve", nothing)
    before = list(client_log.log.filters)
    life.run(Options(pulsar="pulsar://127.0.0.1:1"))
    assert limited == [True]
    # The logger is that of the whole process, which may have other gateways.
    assert client_log.log.filters == before
