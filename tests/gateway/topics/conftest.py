"""A Pulsar that has topics, properties and policies, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.brokers.pulsar import Creation
from penstock.brokers.pulsar.refusal import refusal
from penstock.errors import ClusterError
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.topic_ids import TopicIds
from penstock.gateway.pulsar.topics import PulsarTopics
from penstock.wire.pulsar.pulsar_pb2 import ServerError

NAMESPACE_RETENTION = {"retentionTimeInMinutes": 4320, "retentionSizeInMB": -1}
LARGEST_MESSAGE = 5 * 1024 * 1024


class FakePulsar:
    """Client and admin in one; counts what it was asked."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = {"public/default", *namespaces}
        self.topics_: dict[str, int] = {}
        self.properties_: dict[str, dict[str, str]] = {}
        self.policies: dict[tuple[str, str], Any] = {}
        self.asked: Counter[str] = Counter()
        self.retention = NAMESPACE_RETENTION

    # The client

    async def partitions(self, topic: str) -> int:
        self.asked["partitions"] += 1
        if topic not in self.topics_:
            raise refusal(ServerError.TOPIC_NOT_FOUND, "")
        return self.topics_[topic]

    # The admin

    async def create_namespace(self, namespace: str) -> None:
        self.namespaces.add(namespace)

    async def topics(self, namespace: str) -> tuple[str, ...]:
        self.asked["list"] += 1
        return ()

    async def partitioned_topics(self, namespace: str) -> tuple[str, ...]:
        return tuple(topic for topic in self.topics_ if topic.startswith(f"persistent://{namespace}/"))

    async def create_partitioned_topic(
        self, topic: str, partitions: int, properties: Mapping[str, str]
    ) -> Creation:
        if topic.removeprefix("persistent://").rpartition("/")[0] not in self.namespaces:
            return Creation.NO_NAMESPACE
        if topic in self.topics_:
            return Creation.EXISTS
        self.topics_[topic] = partitions
        self.properties_[topic] = dict(properties)
        return Creation.CREATED

    async def delete_topic(self, topic: str, *, partitioned: bool, force: bool) -> None:
        del self.topics_[topic], self.properties_[topic]
        self.policies = {key: value for key, value in self.policies.items() if key[0] != topic}

    async def properties(self, topic: str) -> Mapping[str, str] | None:
        self.asked["properties"] += 1
        return self.properties_.get(topic)

    async def set_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        self.properties_[topic] |= properties

    async def remove_property(self, topic: str, name: str) -> None:
        self.properties_[topic].pop(name, None)

    async def policy(self, topic: str, name: str, *, applied: bool = False) -> Any:
        own = self.policies.get((topic, name))
        return self.retention if applied and own is None and name == "retention" else own

    async def set_policy(self, topic: str, name: str, value: Any) -> None:
        if name == "maxMessageSize" and value > LARGEST_MESSAGE:
            raise ClusterError("pulsar refused", why="must be smaller than that in the broker-level")
        if name == "retention" and len({0} & set(value.values())) and any(value.values()):
            raise ClusterError("pulsar refused", why="a single limit of 0 is invalid")
        self.policies[topic, name] = value

    async def remove_policy(self, topic: str, name: str) -> None:
        self.policies.pop((topic, name), None)


@pytest.fixture
def fake() -> FakePulsar:
    """A Pulsar with the namespaces `public/default` and `acme/shop`."""
    return FakePulsar("acme/shop")


@pytest.fixture
def topics_on() -> Callable[..., PulsarTopics]:
    """Gives the topics of a gateway on a Pulsar."""

    def make(pulsar: Any, ids: TopicIds | None = None, **options: Any) -> PulsarTopics:
        return PulsarTopics(pulsar, pulsar, Names(), ids=ids, **options)

    return make
