"""What Pulsar denies becomes Kafka's own error, and what was known before is not given any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.brokers.pulsar import Creation, is_denied
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.rest import Answer, Rest
from penstock.errors import AccessDenied, ApiError, ClusterError, Unreachable
from penstock.gateway.ports import NewTopic
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.topics import PulsarTopics
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar.pulsar_pb2 import ServerError

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class FakePulsar:
    """A client and an admin in one, which deny what is named in `denies`."""

    def __init__(self) -> None:
        self.denies: set[str] = set()
        self.cursors: dict[str, Any] = {}

    async def partitions(self, topic: str) -> int:
        if "lookup" in self.denies:
            raise refusal(ServerError.AUTHORIZATION_ERROR, "Client is not authorized to Lookup")
        return 2

    async def policy(self, topic: str, name: str, *, applied: bool = False) -> None:
        self._admin("policy")

    async def properties(self, topic: str) -> dict[str, str]:
        self._admin("properties")
        return {}

    async def stats(self, topic: str, *, internal: bool) -> dict[str, Any]:
        assert internal and topic.endswith("-partition-0")
        return {"cursors": self.cursors}

    async def topics(self, namespace: str) -> tuple[str, ...]:
        self._admin("list")
        return ()

    partitioned_topics = topics

    async def create_partitioned_topic(self, topic: str, partitions: int, properties: Any) -> Creation:
        self._admin("create")
        return Creation.CREATED

    async def delete_topic(self, topic: str, *, partitioned: bool, force: bool) -> None:
        self._admin("delete")

    def _admin(self, what: str) -> None:
        if what in self.denies:
            raise AccessDenied("pulsar refused", why=f"Unauthorized to {what}")


def topics_of(pulsar: Any, **options: Any) -> PulsarTopics:
    return PulsarTopics(pulsar, pulsar, Names(default_namespace="acme/shop"), **options)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (refusal(ServerError.AUTHORIZATION_ERROR, ""), True),
        (refusal(ServerError.AUTHENTICATION_ERROR, ""), True),
        (refusal(ServerError.TOPIC_NOT_FOUND, ""), False),
        (AccessDenied("no"), True),
        (ClusterError("no"), False),
        (Unreachable("no"), False),
    ],
)
def test_what_a_denial_is(error: ClusterError, verdict: bool) -> None:
    assert is_denied(error) is verdict


@pytest.mark.parametrize(("status", "verdict"), [(401, True), (403, True), (404, False), (409, False)])
def test_the_admin_api_denies_by_status(status: int, verdict: bool) -> None:
    rest = Rest("http://127.0.0.1:1", name="pulsar")
    assert is_denied(rest.refuse("topic x", Answer(status, {"reason": "why"}))) is verdict
    rest.close()


def test_a_topic_that_was_known_is_forgotten_with_the_right_to_it() -> None:
    async def scenario() -> None:
        pulsar, gone = FakePulsar(), []
        topics = topics_of(pulsar, on_change=gone.append)
        found = await topics.get("orders")
        assert found is not None and found.partitions == 2
        pulsar.denies = {"lookup"}
        with pytest.raises(ApiError, match="not authorized to Lookup") as caught:
            await topics.get("orders")
        assert caught.value.error_code == DENIED
        assert gone == ["orders"] and topics.known(found.topic_id) is None

    asyncio.run(scenario())


def test_who_may_not_list_sees_what_it_uses_and_may_use() -> None:
    async def scenario() -> None:
        pulsar = FakePulsar()
        pulsar.denies = {"list"}
        topics = topics_of(pulsar)
        assert await topics.all() == []
        await topics.get("orders")
        assert [topic.name for topic in await topics.all()] == ["orders"]
        pulsar.denies = {"list", "lookup"}
        assert await topics.all() == []

    asyncio.run(scenario())


@pytest.mark.parametrize(("cursors", "compacted"), [({}, False), ({"__compaction": {}, "g": {}}, True)])
def test_compaction_is_seen_without_the_right_to_read_policies(cursors: Any, compacted: bool) -> None:
    async def scenario() -> None:
        pulsar = FakePulsar()
        pulsar.denies, pulsar.cursors = {"policy"}, cursors
        assert await topics_of(pulsar).is_compacted("orders") is compacted

    asyncio.run(scenario())


def test_a_topic_whose_properties_are_denied_has_an_id_all_the_same() -> None:
    async def scenario() -> None:
        pulsar = FakePulsar()
        pulsar.denies = {"properties"}
        found = await topics_of(pulsar).get("orders")
        assert found is not None
        assert found.topic_id == Names().topic_id("persistent://acme/shop/orders")

    asyncio.run(scenario())


def test_administration_is_denied() -> None:
    async def scenario() -> None:
        pulsar = FakePulsar()
        pulsar.denies = {"delete", "policy"}
        topics = topics_of(pulsar)
        for attempt in (topics.delete("orders"), topics.configs("orders")):
            with pytest.raises(ApiError, match="Unauthorized to") as caught:
                await attempt
            assert caught.value.error_code == DENIED

        async def missing(topic: str) -> int:
            raise refusal(ServerError.TOPIC_NOT_FOUND, "")

        pulsar.denies, pulsar.partitions = {"create"}, missing  # type: ignore[method-assign]
        with pytest.raises(ApiError, match="Unauthorized to create") as caught:
            await topics.create(NewTopic(name="new", partitions=1))
        assert caught.value.error_code == DENIED

    asyncio.run(scenario())
