"""The APIs of topics and their settings on a storage in memory: what is changed and told, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from penstock.gateway.apis import (
    alter_configs,
    describe_configs,
    describe_topic_partitions,
    find_coordinator,
    incremental_alter_configs,
    metadata,
)
from penstock.gateway.handler import Handler, Request, Services
from penstock.gateway.ports import NewTopic, Topic
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_TOPIC, DEFAULT = 1, 5


class Storage(MemoryStorage):
    """Leaders are what the test says, if it says anything."""

    chosen: Sequence[int] | None = None

    async def leaders(self, topics: Sequence[Topic]) -> Any:
        if self.chosen is None:
            return await super().leaders(topics)
        return {topic.name: [self.chosen[index] for index in range(topic.partitions)] for topic in topics}


class Scene:
    """The topic `orders` with three partitions."""

    def __init__(self) -> None:
        self.storage = Storage()
        each: Any = self.storage
        self.services = Services(topics=each, log=each, producers=each, cluster=each)

    async def ask(self, api: Handler, version: int, **fields: Any) -> Any:
        assert api.handle is not None
        body = await api.handle(Request(version, SimpleNamespace(**fields), "l"), self.services)
        assert body is not None
        data = b"".join(bytes(piece) for piece in body)
        return entity_reader(load_response_schema(api.key, version))(data, 0)[0]

    async def alter(self, *resources: Any, validate_only: bool = False) -> list[int]:
        found = await self.ask(alter_configs.API, 2, resources=resources, validate_only=validate_only)
        return [each.error_code for each in found.responses]

    async def change(self, *resources: Any, validate_only: bool = False) -> list[int]:
        api = incremental_alter_configs.API
        found = await self.ask(api, 1, resources=resources, validate_only=validate_only)
        return [each.error_code for each in found.responses]

    async def set_here(self, topic: str = "orders") -> dict[str, str]:
        found = await self.storage.configs(topic)
        return {name: config.value for name, config in found.items() if config.is_set}

    async def pages(self, limit: int, *names: str) -> list[list[tuple[str, int]]]:
        """Give the partitions of each page, following the cursor."""
        found: list[list[tuple[str, int]]] = []
        cursor: Any = None
        while not found or cursor is not None:
            assert len(found) < 20, "the pages do not end"
            answer = await self.ask(
                describe_topic_partitions.API,
                0,
                topics=[SimpleNamespace(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            rows = [
                (topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions
            ]
            found.append(rows)
            cursor = answer.next_cursor
        return found


def resource(name: str, kind: int = TOPIC, **settings: str | None) -> Any:
    """A resource of AlterConfigs; an underscore stands for a dot."""
    configs = [SimpleNamespace(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return SimpleNamespace(resource_type=kind, resource_name=name, configs=configs)


def step(operation: int, name: str, value: str | None, topic: str = "orders") -> Any:
    """A resource of IncrementalAlterConfigs with one change."""
    config = SimpleNamespace(name=name, value=value, config_operation=operation)
    return SimpleNamespace(resource_type=TOPIC, resource_name=topic, configs=[config])


def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def life() -> None:
        scene = Scene()
        await scene.storage.create(NewTopic(name="orders", partitions=3))
        await scenario(scene)

    asyncio.run(life())


def test_alter_configs_takes_back_what_it_does_not_name() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.alter(resource("orders", retention_ms="1000", segment_ms="2000")) == [0]
        assert await scene.alter(resource("orders", retention_ms="3000")) == [0]
        assert await scene.set_here() == {"retention.ms": "3000"}

    run(scenario)


def test_only_validating_changes_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        wanted = resource("orders", retention_ms="1000")
        assert await scene.alter(wanted, validate_only=True) == [0]
        assert await scene.change(step(SET, "retention.ms", "1000"), validate_only=True) == [0]
        wrong = resource("orders", retention_ms="soon")
        assert await scene.alter(wrong, validate_only=True) == [ErrorCode.INVALID_CONFIG]
        assert await scene.set_here() == {}

    run(scenario)


def test_a_topic_that_is_named_twice_is_not_changed() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.storage.create(NewTopic(name="other", partitions=1))
        asked = [resource("orders", retention_ms="1"), resource("other", retention_ms="2")]
        codes = await scene.alter(*asked, resource("orders", retention_ms="3"))
        assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
        assert (await scene.set_here(), await scene.set_here("other")) == ({}, {"retention.ms": "2"})

    run(scenario)


@pytest.mark.parametrize("kind", [BROKER, 8])
def test_only_the_settings_of_topics_are_changed(kind: int) -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.alter(resource("1", kind, retention_ms="1")) == [ErrorCode.INVALID_REQUEST]

    run(scenario)


def test_lists_are_added_to_and_taken_from() -> None:
    async def scenario(scene: Scene) -> None:
        name = "cleanup.policy"
        # It was delete, which is the default and stays single.
        assert await scene.change(step(APPEND, name, "compact,delete")) == [0]
        assert await scene.set_here() == {name: "delete,compact"}
        assert await scene.change(step(SUBTRACT, name, "delete")) == [0]
        assert await scene.set_here() == {name: "compact"}
        assert await scene.change(step(DELETE, name, None)) == [0]
        assert await scene.change(step(APPEND, "retention.ms", "1")) == [ErrorCode.INVALID_CONFIG]
        assert await scene.set_here() == {}

    run(scenario)


def test_what_nobody_set_is_told_as_a_default() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.alter(resource("orders", retention_ms="1000"))
        asked = SimpleNamespace(
            resource_type=TOPIC, resource_name="orders", configuration_keys=["retention.ms", "segment.ms"]
        )
        answer = await scene.ask(
            describe_configs.API, 4, resources=[asked], include_synonyms=True, include_documentation=False
        )
        [found] = answer.results
        rows = {row.name: (row.value, row.config_source) for row in found.configs}
        assert rows == {"retention.ms": ("1000", DYNAMIC_TOPIC), "segment.ms": ("604800000", DEFAULT)}
        synonyms = {row.name: [(each.name, each.source) for each in row.synonyms] for row in found.configs}
        assert synonyms == {
            "retention.ms": [("retention.ms", DYNAMIC_TOPIC), ("log.retention.ms", DEFAULT)],
            "segment.ms": [("log.roll.ms", DEFAULT)],
        }

    run(scenario)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 2000])
@pytest.mark.parametrize("named", [False, True])
def test_every_partition_is_on_one_page(limit: int, named: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.storage.create(NewTopic(name="a", partitions=1))
        await scene.storage.create(NewTopic(name="z", partitions=2))
        pages = await scene.pages(limit, *(("z", "orders", "a") if named else ()))
        everything = [("a", 0), ("orders", 0), ("orders", 1), ("orders", 2), ("z", 0), ("z", 1)]
        assert [row for page in pages for row in page] == everything
        assert all(len(page) <= limit for page in pages)
        assert len(pages) == -(-len(everything) // limit)

    run(scenario)


def test_a_leader_without_this_listener_is_not_told() -> None:
    async def scenario(scene: Scene) -> None:
        scene.storage.chosen = (1, 7, -1)
        topics = [SimpleNamespace(name="orders", topic_id=None)]
        for version, elsewhere in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
            found = await scene.ask(metadata.API, version, topics=topics)
            parts = found.topics[0].partitions
            assert [part.leader_id for part in parts] == [1, -1, -1]
            assert [part.error_code for part in parts] == [0, elsewhere, ErrorCode.LEADER_NOT_AVAILABLE]
        answer = await scene.ask(
            describe_topic_partitions.API, 0, topics=topics, response_partition_limit=9, cursor=None
        )
        parts = answer.topics[0].partitions
        assert [part.leader_id for part in parts] == [1, -1, -1]

    run(scenario)


def test_the_coordinator_of_transactions_is_refused_for_good() -> None:
    async def scenario(scene: Scene) -> None:
        for kind, code in (
            (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (2, ErrorCode.INVALID_REQUEST),
        ):
            found = await scene.ask(find_coordinator.API, 4, coordinator_keys=["x"], key_type=kind)
            assert [each.error_code for each in found.coordinators] == [code]

    run(scenario)
