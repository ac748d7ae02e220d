"""ListOffsets asks about many partitions at once, a bounded number of them, and answers in their order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.errors import ApiError
from penstock.gateway.apis.list_offsets import API
from penstock.gateway.handler import Request
from penstock.gateway.ports import Found
from penstock.gateway.told import Told
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers import list_offsets as answers


class Log:
    """Answers when as many ask as may ask at once; partition 7 is not there."""

    def __init__(self, expected: int) -> None:
        self.now = self.most = 0
        self._expected = expected
        self._full = asyncio.Event()

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now >= self._expected:
            self._full.set()
        await self._full.wait()
        self.now -= 1
        if partition == 7:
            raise ApiError("no", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Found(offset=1000 + partition)


def test_many_partitions_are_asked_about_at_once(monkeypatch: Any) -> None:
    answered: list[Any] = []
    monkeypatch.setattr(
        "penstock.gateway.apis.list_offsets.encode_list_offsets",
        lambda answer, version: answered.append(answer) or answers.encode_list_offsets(answer, version),
    )
    rows = [SimpleNamespace(partition_index=number, timestamp=-1) for number in range(50)]
    topics = [SimpleNamespace(name=name, partitions=rows) for name in ("a", "b")]

    async def main() -> tuple[int, list[int]]:
        log = Log(expected=32)
        services: Any = SimpleNamespace(log=log)
        assert API.handle is not None
        with Told() as codes:
            async with asyncio.timeout(25):
                await API.handle(Request(7, SimpleNamespace(topics=topics), "kafka"), services)
        return log.most, codes

    most, codes = asyncio.run(main())
    assert most == 32
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    for topic, name in zip(answered[0].topics, ("a", "b"), strict=True):
        assert topic.name == name
        assert [each.index for each in topic.partitions] == list(range(50))
        assert [each.offset for each in topic.partitions if each.index != 7] == [
            1000 + number for number in range(50) if number != 7
        ]
