"""Topics and their settings, by Pulsar's admin API.

Every topic that a Kafka client makes is partitioned. A topic without partitions is shown as partition 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from penstock.brokers.pulsar import Admin, PulsarClient, is_denied
from penstock.errors import AccessDenied, ApiError, ClusterError, PulsarRefused, Unreachable
from penstock.gateway.ports import NewTopic, Topic
from penstock.gateway.pulsar.names import PARTITION_MARK, Names, partition_topic, without_partitions
from penstock.wire.kafka import ErrorCode

__all__ = ["Place", "PulsarTopics", "denied"]

_PATIENCE: Final = 2.0
"""A topic that is known is told after so many seconds, although Pulsar does not answer."""
_AT_ONCE: Final = 100
_MINUTE_MS: Final = 60_000
_COMPACTION_CURSOR: Final = "__compaction"
_TOPIC_NOT_FOUND: Final = 11
"""Pulsar's ServerError.TopicNotFound."""


@dataclass(frozen=True, slots=True)
class Place:
    """A topic with its Pulsar name, and whether it has partitions there."""

    topic: Topic
    full_name: str
    partitioned: bool

    def partition(self, index: int) -> str:
        """Name the Pulsar topic of a partition."""
        return partition_topic(self.full_name, index) if self.partitioned else self.full_name


@dataclass(frozen=True, slots=True)
class _Setting:
    """How a Kafka setting is written as a policy of Pulsar, and read from it."""

    policy: str
    default: str
    write: Callable[[str], Any]
    read: Callable[[Any], str]


def _retention(text: str) -> dict[str, int]:
    minutes = -1 if int(text) < 0 else max(1, int(text) // _MINUTE_MS)
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}


def _retention_ms(policy: Any) -> str:
    minutes = int(policy["retentionTimeInMinutes"])
    return "-1" if minutes < 0 else str(minutes * _MINUTE_MS)


def _compaction(text: str) -> int:
    words = {word.strip() for word in text.split(",")}
    if not words <= {"compact", "delete"}:
        raise ValueError(text)
    return 1 if "compact" in words else 0


SETTINGS: Final[Mapping[str, _Setting]] = {
    "retention.ms": _Setting("retention", "-1", _retention, _retention_ms),
    "cleanup.policy": _Setting(
        "compactionThreshold", "delete", _compaction, lambda policy: "compact" if policy else "delete"
    ),
    "max.message.bytes": _Setting("maxMessageSize", "5242880", int, str),
}
"""The settings that mean something to Pulsar; every other one is refused."""


class PulsarTopics:
    """The Topics port."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        names: Names,
        *,
        on_change: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.client = client
        self._admin = admin
        self._names = names
        self._on_change = on_change
        self._places: dict[str, Place] = {}
        self._by_id: dict[UUID, str] = {}

    async def place(self, name: str) -> Place:
        """Give a topic with its place on Pulsar; ApiError if there is none."""
        return self._places.get(name) or await self.refreshed(name)

    def found(self, name: str) -> Place | None:
        """Give the place of a topic that was seen before."""
        return self._places.get(name)

    async def refreshed(self, name: str) -> Place:
        """Ask Pulsar for the place of a topic; ApiError if there is none."""
        place = await self._find(name)
        if place is None:
            raise ApiError("there is no such topic", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return place

    async def is_compacted(self, name: str) -> bool:
        """Say whether Pulsar compacts a topic."""
        place = await self.place(name)
        try:
            return bool(await self._admin.policy(place.full_name, SETTINGS["cleanup.policy"].policy))
        except AccessDenied:
            # Only administrators of the tenant may read policies; others see what compaction leaves.
            stats = await self._admin.stats(place.partition(0), internal=True)
            return _COMPACTION_CURSOR in (stats.get("cursors") or {})

    async def all(self) -> Sequence[Topic]:
        """Give the topics of the default namespace."""
        namespace = self._names.default_namespace
        try:
            async with asyncio.timeout(_PATIENCE if self._places else None):
                shown = await self._listed(namespace)
            names = [self._names.to_kafka(full) for full in sorted(shown)]
        except AccessDenied:
            # Who may not list a namespace may still use topics of it.
            names = sorted(self._places)
        except (ClusterError, TimeoutError):
            # Pulsar does not answer: what is known keeps the clients going.
            return [place.topic for place in self._places.values()]
        found: list[Place | None] = []
        for begin in range(0, len(names), _AT_ONCE):
            found += await asyncio.gather(*map(self._seen, names[begin : begin + _AT_ONCE]))
        return [place.topic for place in found if place is not None]

    async def _seen(self, name: str) -> Place | None:
        """Find a topic for the list of all; one that Kafka has no name for is left out."""
        try:
            return await self._find(name)
        except ApiError:
            return None

    async def _listed(self, namespace: str) -> set[str]:
        partitioned = frozenset(await self._admin.partitioned_topics(namespace))
        alone = without_partitions(await self._admin.topics(namespace), partitioned)
        return {full for full in (*partitioned, *alone) if not self._names.is_hidden(full)}

    async def get(self, name: str) -> Topic | None:
        """Ask Pulsar for one topic."""
        place = await self._find(name)
        return place.topic if place else None

    async def by_id(self, topic_id: UUID) -> Topic | None:
        """Give a topic that was seen before by its id, or look through all of them."""
        if topic_id not in self._by_id:
            await self.all()
        return self.known(topic_id)

    def known(self, topic_id: UUID) -> Topic | None:
        """Give a topic that was seen before by its id."""
        name = self._by_id.get(topic_id)
        return self._places[name].topic if name in self._places else None

    async def _find(self, name: str) -> Place | None:
        full = self._names.to_pulsar(name)
        try:
            async with asyncio.timeout(_PATIENCE if name in self._places else None):
                partitions = await self.client.partitions(full)
        except TimeoutError:
            return self._places[name]
        except PulsarRefused as exc:
            if exc.server_error == _TOPIC_NOT_FOUND:
                self._forget(name)
                return None
            return self._known(name, exc)
        except ClusterError as exc:
            return self._known(name, exc)
        topic = Topic(name=name, topic_id=self._names.topic_id(full), partitions=partitions or 1)
        place = self._places[name] = Place(topic, full, partitions > 0)
        self._by_id[topic.topic_id] = name
        return place

    def _known(self, name: str, exc: ClusterError) -> Place:
        """Give what was known of a topic while Pulsar does not answer."""
        if is_denied(exc):
            self._forget(name)
            raise denied(exc) from exc
        if name not in self._places:
            raise ApiError(str(exc), error_code=ErrorCode.LEADER_NOT_AVAILABLE) from exc
        return self._places[name]

    def _forget(self, name: str) -> None:
        self._on_change(name)
        place = self._places.pop(name, None)
        if place is not None:
            self._by_id.pop(place.topic.topic_id, None)

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> Topic:
        """Make a partitioned topic with its policies."""
        full = self._names.to_pulsar(topic.name)
        if PARTITION_MARK in full:
            raise ApiError(
                f"Pulsar keeps names with {PARTITION_MARK} for partitions",
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        policies = _policies(topic.configs)
        if await self._find(topic.name) is not None:
            raise ApiError("the topic exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        if validate_only:
            return Topic(name=topic.name, topic_id=self._names.topic_id(full), partitions=topic.partitions)
        with _refusals():
            await self._make(topic, full)
            for policy, value in policies.items():
                await self._admin.set_policy(full, policy, value)
        return (await self.place(topic.name)).topic

    async def _make(self, topic: NewTopic, full: str) -> None:
        try:
            await self._admin.create_topic(full, topic.partitions)
        except ClusterError:
            # Somebody else may have been faster.
            if await self._find(topic.name) is not None:
                raise ApiError("the topic exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS) from None
            raise

    async def delete(self, name: str) -> None:
        """Remove a topic with all it holds."""
        place = await self.place(name)
        with _refusals():
            await self._admin.delete_topic(place.full_name, partitioned=place.partitioned, force=True)
        self._forget(name)

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions."""
        place = await self.place(name)
        if partitions <= place.topic.partitions or not place.partitioned:
            raise ApiError("partitions only grow", error_code=ErrorCode.INVALID_PARTITIONS)
        if not validate_only:
            with _refusals():
                await self._admin.add_partitions(place.full_name, partitions)
            await self._find(name)

    async def configs(self, name: str) -> Mapping[str, str]:
        """Read the policies that Kafka has a word for."""
        place = await self.place(name)
        values = {}
        with _refusals():
            for kafka_name, setting in SETTINGS.items():
                policy = await self._admin.policy(place.full_name, setting.policy)
                values[kafka_name] = setting.default if policy is None else setting.read(policy)
        return values

    async def configure(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Write the policies of a topic."""
        place = await self.place(name)
        policies = _policies(changes)
        removed = [SETTINGS[key].policy for key, value in changes.items() if value is None]
        with _refusals():
            for policy, value in policies.items():
                await self._admin.set_policy(place.full_name, policy, value)
            for policy in removed:
                await self._admin.remove_policy(place.full_name, policy)
        self._on_change(name)


def denied(exc: ClusterError) -> ApiError:
    """Tell a client that its role may not do this with a topic."""
    return ApiError(exc.why or exc.what, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _policies(configs: Mapping[str, str | None]) -> dict[str, Any]:
    policies = {}
    for name, value in configs.items():
        if name not in SETTINGS:
            raise ApiError(f"there is no setting {name} here", error_code=ErrorCode.INVALID_CONFIG)
        if value is not None:
            try:
                policies[SETTINGS[name].policy] = SETTINGS[name].write(value)
            except ValueError:
                raise ApiError(f"{name} cannot be {value}", error_code=ErrorCode.INVALID_CONFIG) from None
    return policies


class _refusals:
    """Turns what Pulsar refuses into Kafka's policy violation, with Pulsar's own words."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, Unreachable):
            raise ApiError(str(exc), error_code=ErrorCode.REQUEST_TIMED_OUT) from exc
        if isinstance(exc, ClusterError):
            if is_denied(exc):
                raise denied(exc) from exc
            raise ApiError(str(exc), error_code=ErrorCode.POLICY_VIOLATION) from exc
