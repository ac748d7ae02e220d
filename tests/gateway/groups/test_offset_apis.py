"""OffsetCommit, OffsetFetch, OffsetDelete with partitions that there are not: each is refused by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from penstock.errors import ApiError
from penstock.gateway.apis import offset_commit, offset_delete, offset_fetch
from penstock.gateway.groups.solo import SoloGroups
from penstock.gateway.handler import Handler, Request, Services
from penstock.gateway.ports import NewTopic
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
WRONG = [-1, -(2**31), 3, 7, 2**31 - 1]


class Scene:
    """The topic `orders` with three partitions, and a group."""

    def __init__(self) -> None:
        self.storage, self.groups = MemoryStorage(), SoloGroups(1)
        self.services = Services(
            topics=self.storage,
            log=self.storage,
            producers=self.storage,
            cluster=self.storage,
            groups=self.groups,
        )

    async def ask(self, api: Handler, version: int, **fields: Any) -> Any:
        assert api.handle is not None
        body = await api.handle(Request(version, SimpleNamespace(**fields), "l"), self.services)
        assert body is not None
        await asyncio.sleep(0)
        data = b"".join(bytes(piece) for piece in body)
        return entity_reader(load_response_schema(api.key, version))(data, 0)[0]

    async def commit(self, *partitions: int, topic: str = "orders") -> dict[int, int]:
        rows = [
            SimpleNamespace(partition_index=index, committed_offset=5, committed_metadata="")
            for index in partitions
        ]
        found = await self.ask(
            offset_commit.API,
            7,
            group_id="g",
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[SimpleNamespace(name=topic, partitions=rows)],
        )
        return {each.partition_index: each.error_code for each in found.topics[0].partitions}

    async def delete(self, *partitions: int, topic: str = "orders") -> dict[int, int]:
        rows = [SimpleNamespace(partition_index=index) for index in partitions]
        topics = [SimpleNamespace(name=topic, partitions=rows)]
        found = await self.ask(offset_delete.API, 0, group_id="g", topics=topics)
        assert found.error_code == ErrorCode.NONE
        return {each.partition_index: each.error_code for each in found.topics[0].partitions}


def run(scenario: Any) -> None:
    async def life() -> None:
        scene = Scene()
        await scene.storage.create(NewTopic(name="orders", partitions=3))
        await scenario(scene)
        scene.groups.close()

    asyncio.run(life())


@pytest.mark.parametrize("wrong", WRONG)
def test_a_partition_that_is_not_there_is_refused_by_itself(wrong: int) -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.commit(0, wrong, 2) == {0: ErrorCode.NONE, wrong: UNKNOWN, 2: ErrorCode.NONE}
        assert set(scene.groups.shard("g").committed("g")) == {("orders", 0), ("orders", 2)}
        assert await scene.commit(wrong) == {wrong: UNKNOWN}
        assert await scene.commit(0, topic="none") == {0: UNKNOWN}
        assert set(scene.groups.shard("g").committed("g")) == {("orders", 0), ("orders", 2)}

    run(scenario)


@pytest.mark.parametrize("wrong", WRONG)
def test_offsets_of_partitions_that_are_not_there(wrong: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit(0, 1)
        topics = [SimpleNamespace(name="orders", partition_indexes=[0, wrong])]
        found = await scene.ask(offset_fetch.API, 5, group_id="g", topics=topics)
        rows = {each.partition_index: each.committed_offset for each in found.topics[0].partitions}
        assert rows == {0: 5, wrong: -1}
        assert await scene.delete(0, 2, wrong) == {0: ErrorCode.NONE, 2: ErrorCode.NONE, wrong: UNKNOWN}
        assert await scene.delete(0, topic="none") == {0: UNKNOWN}
        assert set(scene.groups.shard("g").committed("g")) == {("orders", 1)}

    run(scenario)


def test_offsets_of_a_topic_that_is_gone_can_be_deleted() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit(0)
        await scene.storage.delete("orders")
        assert await scene.delete(0) == {0: ErrorCode.NONE}
        assert scene.groups.shard("g").committed("g") == {}

    run(scenario)


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_topic_that_nobody_can_look_up_now_is_not_one_that_is_gone(
    error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client shall commit again, and not hear that the topic is unknown."""

    async def away(name: str) -> None:
        raise ApiError("Pulsar does not answer", error_code=error)

    async def scenario(scene: Scene) -> None:
        monkeypatch.setattr(scene.storage, "get", away)
        assert await scene.commit(0) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(scenario)
