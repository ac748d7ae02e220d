"""Topics by their id: the same on every gateway, another one after a topic was made again; at little cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.errors import AccessDenied, ApiError
from penstock.gateway.ports import NewTopic
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.topic_ids import ID_PROPERTY, TopicIds
from penstock.wire.kafka import ErrorCode

ELSEWHERE = "acme/shop/orders"
FULL = f"persistent://{ELSEWHERE}"


Run = Callable[[Callable[..., Any]], None]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Gateways:
    """Gateways that hear each other, in the same order."""

    def __init__(self, count: int, pulsar: Any, topics_on: Any) -> None:
        self.clock = Clock()
        self.by_name_only = False
        self.messages: list[bytes] = []
        self.changes: list[str] = []
        self.ids = [self._ids() for _ in range(count)]
        self.topics = [
            topics_on(pulsar, ids, clock=self.clock, on_change=self.changes.append) for ids in self.ids
        ]

    def _ids(self) -> TopicIds:
        return TopicIds(
            tell=self._tell,
            has_peers=lambda: True,
            by_name_only=lambda: self.by_name_only,
            clock=self.clock,
        )

    async def _tell(self, data: bytes) -> None:
        self.messages.append(data)
        for ids in self.ids:
            ids.hear(data)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for ids in self.ids:
            await ids.close()


@pytest.fixture
def run(fake: Any, topics_on: Any) -> Run:
    """Runs a scenario with two gateways."""

    def whole(scenario: Callable[[Any, Gateways], Any]) -> None:
        async def within() -> None:
            gateways = Gateways(2, fake, topics_on)
            async with asyncio.timeout(30):
                await scenario(fake, gateways)
            await gateways.close()

        asyncio.run(within())

    return whole


def test_a_topic_elsewhere_is_known_by_id_on_every_gateway(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        one, other = gateways.topics
        made = await one.create(NewTopic(name=ELSEWHERE, partitions=3))
        assert other.known(made.topic_id) is None
        found = await other.by_id(made.topic_id)
        assert found is not None and (found.name, found.topic_id) == (ELSEWHERE, made.topic_id)
        # From then on without asking anybody.
        asked, told = dict(pulsar.asked), len(gateways.messages)
        assert await other.by_id(made.topic_id) == other.known(made.topic_id) == found
        assert (dict(pulsar.asked), len(gateways.messages)) == (asked, told)

    run(scenario)


def test_an_id_that_nobody_knows_costs_little_however_often_it_is_asked_for(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        for number in range(50):
            pulsar.topics_[f"persistent://public/default/t{number}"] = 1
            pulsar.properties_[f"persistent://public/default/t{number}"] = {}
        topics, unknown = gateways.topics[0], uuid4()
        assert await asyncio.gather(*(topics.by_id(unknown) for _ in range(20))) == [None] * 20
        assert len(gateways.messages) == 1
        assert pulsar.asked["list"] == 1
        asked = dict(pulsar.asked)
        for _ in range(100):
            assert await topics.by_id(unknown) is None
        assert await topics.by_id(uuid4()) is None
        assert dict(pulsar.asked) == asked
        assert len(gateways.messages) == 2
        # After a while it is asked for again: the topic may be there now.
        gateways.clock.now += 31
        await topics.by_id(unknown)
        assert len(gateways.messages) == 3
        assert pulsar.asked["list"] == 2

    run(scenario)


def test_one_who_leaves_does_not_take_the_answer_away_from_the_others(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        first, second = gateways.ids
        topic_id = uuid4()
        first.created(FULL, topic_id)
        waiting = [asyncio.create_task(second.find(topic_id)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        async with asyncio.timeout(5):
            assert await waiting[1] == FULL

    run(scenario)


def test_a_flood_of_unknown_ids_is_bounded(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        ids = gateways.ids[0]
        assert set(await asyncio.gather(*(ids.find(uuid4()) for _ in range(5000)))) == {None}
        [message] = gateways.messages
        assert len(json.loads(message)["unknown-topic-ids"]) == 256

    run(scenario)


def test_a_topic_that_is_made_again_has_another_id_on_every_gateway(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        one, other = gateways.topics
        first = (await one.create(NewTopic(name="orders", partitions=1))).topic_id
        assert (await other.get("orders")).topic_id == first
        gateways.changes.clear()
        await one.delete("orders")
        second = (await one.create(NewTopic(name="orders", partitions=1))).topic_id
        await gateways.settle()
        assert second != first
        # What the other had open of the former topic is let go.
        assert "orders" in gateways.changes
        for topics in (one, other):
            assert topics.known(first) is None and await topics.by_id(first) is None
            assert (await topics.by_id(second)).name == "orders"
            assert (await topics.get("orders")).topic_id == second

    run(scenario)


def test_made_again_by_pulsars_tools_is_noticed_when_it_is_asked_for(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        topics = gateways.topics[0]
        first = (await topics.create(NewTopic(name=ELSEWHERE, partitions=1))).topic_id
        await pulsar.delete_topic(FULL, partitioned=True, force=True)
        pulsar.topics_[FULL], pulsar.properties_[FULL] = 1, {}
        gateways.changes.clear()
        gateways.clock.now += 61
        assert (await topics.get(ELSEWHERE)).topic_id == Names().topic_id(FULL) != first
        assert gateways.changes == [ELSEWHERE]
        assert topics.known(first) is None

    run(scenario)


def test_that_a_topic_is_compacted_now_is_told_to_the_others(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        one, other = gateways.topics
        await one.create(NewTopic(name="orders", partitions=1))
        await gateways.settle()
        assert not await other.is_compacted("orders")
        gateways.changes.clear()
        await one.configure("orders", {"segment.ms": "1"})
        await gateways.settle()
        assert gateways.changes == ["orders"]
        await one.configure("orders", {"cleanup.policy": "compact"})
        await gateways.settle()
        assert gateways.changes == ["orders"] * 3
        assert await other.is_compacted("orders")

    run(scenario)


def test_what_was_read_before_a_change_is_not_kept(run: Run) -> None:
    """The answer of Pulsar is under way while another gateway makes the topic again."""

    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        one, other = gateways.topics
        await one.create(NewTopic(name="orders", partitions=1))
        asked, go_on = asyncio.Event(), asyncio.Event()
        now = pulsar.properties

        async def slow(topic: str) -> Any:
            found = dict(await now(topic) or {})
            asked.set()
            await go_on.wait()
            return found

        gateways.ids[1].forget("persistent://public/default/orders")
        pulsar.properties = slow  # type: ignore[method-assign]
        reading = asyncio.create_task(other.get("orders"))
        await asked.wait()
        pulsar.properties = now  # type: ignore[method-assign]
        await one.delete("orders")
        second = (await one.create(NewTopic(name="orders", partitions=1))).topic_id
        await gateways.settle()
        go_on.set()
        assert (await reading).topic_id == second

    run(scenario)


def test_beside_a_gateway_of_the_version_before_ids_are_computed_from_names(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        gateways.by_name_only = True
        one, other = gateways.topics
        made = await one.create(NewTopic(name="orders", partitions=1))
        full = "persistent://public/default/orders"
        assert made.topic_id == Names().topic_id(full)
        assert (await other.by_id(made.topic_id)).name == "orders"
        kept = UUID(pulsar.properties_[full][ID_PROPERTY])
        # The last one of the version before has gone.
        gateways.by_name_only = False
        gateways.clock.now += 61
        for topics in (one, other):
            assert (await topics.get("orders")).topic_id == kept != made.topic_id
            assert topics.known(made.topic_id) is None

    run(scenario)


def test_a_topic_of_pulsars_tools_has_the_id_it_always_had(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        for full, partitions in ((FULL, 0), (FULL + "2", 2), (FULL + "3", 2)):
            pulsar.topics_[full], pulsar.properties_[full] = partitions, {}
        pulsar.properties_[FULL + "3"] = {ID_PROPERTY: "no id"}
        for end in ("", "2", "3"):
            found = await gateways.topics[0].get(ELSEWHERE + end)
            assert found.topic_id == Names().topic_id(FULL + end)

    run(scenario)


class Denied:
    """The same Pulsar for one who may look topics up, but not read their properties."""

    def __init__(self, pulsar: Any) -> None:
        self._pulsar = pulsar

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pulsar, name)

    async def properties(self, topic: str) -> Any:
        raise AccessDenied("401")


def test_who_may_not_read_an_id_changes_it_for_nobody(run: Run, topics_on: Any) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        topics = gateways.topics[0]
        made = await topics.create(NewTopic(name="orders", partitions=1))
        denied = topics_on(Denied(pulsar), gateways.ids[0], clock=gateways.clock)
        gateways.changes.clear()
        gateways.clock.now += 61
        assert (await denied.get("orders")).topic_id == made.topic_id, "others have read it"
        assert topics.known(made.topic_id) == await topics.by_id(made.topic_id) == made
        asked = pulsar.asked["properties"]
        assert await topics.get("orders") == made
        assert pulsar.asked["properties"] == asked + 1, "what was not read has not become newer"
        assert gateways.changes == []

    run(scenario)


def test_who_may_not_read_an_id_has_one_until_others_read_it(run: Run, topics_on: Any) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        real, by_name = uuid4(), Names().topic_id(FULL)
        pulsar.topics_[FULL], pulsar.properties_[FULL] = 1, {ID_PROPERTY: str(real)}
        denied = topics_on(Denied(pulsar), gateways.ids[0], clock=gateways.clock)
        found = await denied.get(ELSEWHERE)
        assert found.topic_id == by_name
        assert denied.known(by_name) == await denied.by_id(by_name) == found
        assert (await gateways.topics[0].get(ELSEWHERE)).topic_id == real
        assert gateways.changes == []
        assert denied.known(by_name) is None and await denied.by_id(by_name) is None
        assert (await denied.get(ELSEWHERE)).topic_id == real
        # Where nobody has read it, nothing is left of it when the topic is gone.
        gateways.ids[0].forget(FULL)
        await denied.get(ELSEWHERE)
        gateways.ids[0].forget(FULL)
        assert denied.known(by_name) is None

    run(scenario)


def test_what_is_no_message_about_topics_is_ignored(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        known = await gateways.topics[0].create(NewTopic(name="orders", partitions=1))
        for data in (b"", b"\xff", b"[" * 100_000, b"7", b'{"topic-ids": [7, ["x"], ["x", 7], ["x", "y"]]}'):
            gateways.ids[0].hear(data)
        gateways.ids[0].hear(b'{"changed-topics": {"a": 1}, "unknown-topic-ids": [null, "x"]}')
        assert gateways.topics[0].known(known.topic_id) == known

    run(scenario)


def test_a_long_list_does_not_wait_for_all_ids(run: Run) -> None:
    """What there was no time for is told without an id: clients then go by names."""

    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        ids = {}
        for number in range(300):
            ids[f"t{number}"] = uuid4()
            full = f"persistent://public/default/t{number}"
            pulsar.topics_[full], pulsar.properties_[full] = 1, {ID_PROPERTY: str(ids[f"t{number}"])}
        read = pulsar.properties

        async def slow(topic: str) -> Any:
            gateways.clock.now += 0.02
            return await read(topic)

        pulsar.properties = slow
        topics = gateways.topics[0]
        found = {topic.name: topic.topic_id for topic in await topics.all()}
        known = {name for name, topic_id in found.items() if topic_id == ids[name]}
        assert {found[name] for name in ids if name not in known} == {UUID(int=0)}
        assert 50 <= len(known) <= 200
        assert (await topics.get("t299")).topic_id == ids["t299"]
        assert topics.known(UUID(int=0)) is None
        gateways.changes.clear()
        # Each list goes on where the one before had to stop; nothing was made again.
        for _ in range(8):
            found = {topic.name: topic.topic_id for topic in await topics.all()}
        assert found == ids
        assert gateways.changes == []

    run(scenario)


def test_pulsar_that_does_not_answer_in_time(run: Run) -> None:
    async def scenario(pulsar: Any, gateways: Gateways) -> None:
        topics = gateways.topics[0]
        known = await topics.create(NewTopic(name="orders", partitions=1))

        async def silent(topic: str) -> int:
            topics._changed("persistent://public/default/orders")
            raise TimeoutError

        pulsar.partitions = silent
        assert await topics.get("orders") == known
        with pytest.raises(ApiError) as caught:
            await topics.get("never-seen")
        assert caught.value.error_code == ErrorCode.LEADER_NOT_AVAILABLE

    run(scenario)
