"""Topics and their settings, by Pulsar's admin API.

Every topic that a Kafka client makes is partitioned. A topic without partitions is shown as partition 0.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from penstock.brokers.pulsar import Admin, Creation, PulsarClient, is_denied
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import (
    AccessDenied,
    ApiError,
    ClusterError,
    PenstockError,
    PulsarRefused,
    Unreachable,
    WireError,
)
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.ports import NewTopic, Topic, TopicConfig
from penstock.gateway.pulsar.names import (
    PARTITION_MARK,
    Names,
    partition_topic,
    refuse_own,
    without_partitions,
)
from penstock.gateway.pulsar.retention import DefaultRetention
from penstock.gateway.pulsar.topic_ids import ID_PROPERTY, TopicIds
from penstock.gateway.pulsar.topic_policies import (
    COMPACTION,
    NO_RETENTION,
    POLICIES,
    PROPERTY_PREFIX,
    RETENTION,
    TopicState,
    Update,
)
from penstock.gateway.topic_settings import check_setting
from penstock.wire.kafka import ErrorCode

__all__ = ["Place", "PulsarTopics", "denied"]

log = logging.getLogger("penstock.gateway")

_PATIENCE: Final = 2.0
"""A topic that is known is told after so many seconds, although Pulsar does not answer."""
_AT_ONCE: Final = 100
"""Look-ups by the binary protocol at the same time."""
_LIST_SECONDS: Final = 30.0
"""A namespace is looked through for an unknown id at most this often."""
_PROPAGATION_SECONDS: Final = 5.0
"""Pulsar may give the former value of a policy for a moment: so long what was written counts."""
_COMPACTION_CURSOR: Final = "__compaction"
_TOPIC_NOT_FOUND: Final = 11
"""Pulsar's ServerError.TopicNotFound."""
_LARGEST_MESSAGE: Final = 5 * 1024 * 1024
"""Pulsar's default."""
_LISTING_SECONDS: Final = 1.0
"""For so long ids are read, one by one, while topics are listed."""
_NO_ID: Final = UUID(int=0)
"""The protocol's sign that a topic has no id: clients then go by its name. Told of topics in a list that is
too long for all their ids to be read; of a topic that is asked for by name the id is always read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A topic with its Pulsar name, and whether it has partitions there."""

    topic: Topic
    full_name: str
    partitioned: bool

    def partition(self, index: int) -> str:
        """Name the Pulsar topic of a partition."""
        return partition_topic(self.full_name, index) if self.partitioned else self.full_name


class PulsarTopics:
    """The Topics port."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        names: Names,
        *,
        on_change: Callable[[str], None] = lambda name: None,
        ids: TopicIds | None = None,
        retention_hours: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self._admin = admin
        self._names = names
        self._on_change = on_change
        self._ids = ids or TopicIds()
        self._retention = DefaultRetention(admin, retention_hours, clock)
        self._clock = clock
        self._places: dict[str, Place] = {}
        self._by_id: dict[UUID, str] = {}
        self._listed_at = -_LIST_SECONDS
        self._written: dict[tuple[str, str], tuple[Any, float]] = {}
        """The policies that were written a moment ago, and when."""
        self._tasks = Tasks()
        self._ids.watch(self._changed)

    def _changed(self, full_name: str) -> None:
        """Forget a topic that another gateway has created, deleted or changed."""
        for name in [name for name, place in self._places.items() if place.full_name == full_name]:
            self._forget(name)

    async def place(self, name: str) -> Place:
        """Give a topic with its place on Pulsar; ApiError if there is none."""
        return self._places.get(name) or await self.refreshed(name)

    async def _changeable(self, name: str) -> Place:
        """Give the place of a topic that clients may change; ApiError if it is the gateways' own."""
        place = await self.place(name)
        refuse_own(place.topic.internal)
        return place

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
            return bool(await self._policy(place.full_name, COMPACTION))
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
        until = self._clock() + _LISTING_SECONDS
        found = await gather_limited((self._seen(name, until) for name in names), _AT_ONCE)
        return [place.topic for place in found if place is not None]

    async def _seen(self, name: str, until: float) -> Place | None:
        """Find a topic for the list of all; one that Kafka has no name for is left out."""
        try:
            return await self._find(name, until=until)
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

    async def is_gone(self, name: str, partition: int) -> bool:
        """Ask Pulsar whether there is no such partition; ApiError if it does not say."""
        topic = await self.get(name)
        return topic is None or not 0 <= partition < topic.partitions

    async def by_id(self, topic_id: UUID) -> Topic | None:
        """Give a topic by its id: one that this gateway or another knows, or one of the default namespace."""
        found = self.known(topic_id)
        if found is not None or topic_id == _NO_ID:
            return found
        full_name = await self._ids.find(topic_id)
        if full_name is None:
            await self._look_through()
            return self.known(topic_id)
        try:
            place = await self._find(self._names.to_kafka(full_name))
        except ApiError:
            return None
        return place.topic if place is not None and place.topic.topic_id == topic_id else None

    async def _look_through(self) -> None:
        """Learn the ids of the default namespace, once in a while."""
        if self._clock() - self._listed_at >= _LIST_SECONDS:
            self._listed_at = self._clock()
            await self.all()

    def known(self, topic_id: UUID) -> Topic | None:
        """Give a topic that was seen before by its id."""
        place = self._places.get(self._by_id.get(topic_id, ""))
        if place is None or self._ids.topic_of(topic_id) != place.full_name:
            return None
        return place.topic

    async def _find(self, name: str, *, until: float | None = None) -> Place | None:
        """Ask Pulsar for a topic; with `until` any id that was read will do, and none after that time."""
        full, known = self._names.to_pulsar(name), self._places.get(name)
        try:
            async with asyncio.timeout(None if known is None else _PATIENCE):
                partitions = await self.client.partitions(full)
                topic_id = await self._id_of(full, partitions, until)
        except TimeoutError as exc:
            if known is None:
                raise ApiError("Pulsar does not answer", error_code=ErrorCode.LEADER_NOT_AVAILABLE) from exc
            return known
        except PulsarRefused as exc:
            if exc.server_error == _TOPIC_NOT_FOUND:
                self._ids.forget(full)
                self._forget(name)
                return None
            return self._known(name, exc)
        except (ClusterError, WireError) as exc:
            return self._known(name, exc)
        if topic_id is None:
            self._forget(name)
            return None
        topic = Topic(
            name=name, topic_id=topic_id, partitions=partitions or 1, internal=self._names.is_own(full)
        )
        return self._learn(name, Place(topic, full, partitions > 0))

    async def _id_of(self, full: str, partitions: int, until: float | None) -> UUID | None:
        if not partitions:
            # Gateways make topics with partitions only.
            return self._ids.by_name(full)
        if until is not None:
            known = self._ids.known_id(full)
            if known is not None:
                return known
            if self._clock() >= until:
                return _NO_ID
        return await self._ids.id_of(full, self._admin)

    def _learn(self, name: str, place: Place) -> Place:
        before, topic_id = self._places.get(name), place.topic.topic_id
        if before is not None and before.topic.topic_id not in (topic_id, _NO_ID):
            # It was deleted and made again, or may have been: what is open belongs to the former one.
            self._forget(name)
        self._places[name] = place
        if topic_id != _NO_ID:
            self._by_id[topic_id] = name
        return place

    def _known(self, name: str, exc: ClusterError | WireError) -> Place:
        """Give what was known of a topic while Pulsar does not answer, or what it answers makes no sense."""
        if isinstance(exc, ClusterError) and is_denied(exc):
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
        """Make a partitioned topic with its policies; without them there is no topic, either."""
        full = self._names.to_pulsar(topic.name)
        if PARTITION_MARK in full:
            raise ApiError(
                f"Pulsar keeps names with {PARTITION_MARK} for partitions",
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        refuse_own(self._names.is_own(full))
        changes = _checked(topic.configs)
        _check_values(changes)
        if await self._find(topic.name) is not None:
            raise ApiError("the topic exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        if validate_only:
            return Topic(name=topic.name, topic_id=_NO_ID, partitions=topic.partitions)
        # Whoever asks for it: from when it is there others may use it, so it is made to the end.
        making = self._tasks.start(self._make(topic, full, changes), name=f"create topic {full}")
        with _refusals():
            await asyncio.shield(making)
        return (await self.refreshed(topic.name)).topic

    async def _make(self, topic: NewTopic, full: str, changes: Mapping[str, str | None]) -> None:
        topic_id = uuid.uuid4()
        kept = {PROPERTY_PREFIX + name: value for name, value in changes.items() if value is not None}
        properties = kept | {ID_PROPERTY: str(topic_id)}
        made = await self._admin.create_partitioned_topic(full, topic.partitions, properties)
        if made is not Creation.CREATED:
            raise _not_created(made, full)
        self._forget_written(full)
        self._ids.created(full, topic_id)
        try:
            is_set = bool({"retention.ms", "retention.bytes"} & set(changes))
            given = await self._retention.apply(full, is_set=is_set)
            if given is not None and not is_set:
                self._note_written(full, RETENTION, given)
            await self._write_policies(full, (await self._new_state(full, changes)).update(changes))
        except BaseException:
            if changes:
                await self._undo(full)
            raise

    async def _undo(self, full: str) -> None:
        """Remove a topic without its policies: one to be compacted must not stay behind uncompacted."""
        self._ids.deleted(full)
        try:
            await self._admin.delete_topic(full, partitioned=True, force=True)
        except PenstockError as exc:
            log.warning("%s was created without its settings, and cannot be deleted: %s", full, exc)

    async def _new_state(self, full: str, changes: Mapping[str, str | None]) -> TopicState:
        """Give the state of a topic that has nothing of its own yet."""
        retention: Mapping[str, int] = NO_RETENTION
        if ("retention.ms" in changes) != ("retention.bytes" in changes):
            # Pulsar has both in one policy: the other stays what it is for the namespace.
            retention = await self._admin.policy(full, RETENTION, applied=True) or NO_RETENTION
        return TopicState(
            properties={}, policies={}, effective_retention=retention, largest_message=_LARGEST_MESSAGE
        )

    async def delete(self, name: str) -> None:
        """Remove a topic with all it holds."""
        place = await self._changeable(name)
        with _refusals():
            await self._admin.delete_topic(place.full_name, partitioned=place.partitioned, force=True)
        self._forget(name)
        self._ids.deleted(place.full_name)

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions."""
        place = await self._changeable(name)
        if partitions <= place.topic.partitions or not place.partitioned:
            raise ApiError("partitions only grow", error_code=ErrorCode.INVALID_PARTITIONS)
        if not validate_only:
            with _refusals():
                await self._admin.add_partitions(place.full_name, partitions)
            await self._find(name)

    async def configs(self, name: str) -> Mapping[str, TopicConfig]:
        """Read every setting that Kafka has."""
        place = await self.place(name)
        with _refusals():
            return (await self._state(place)).configs()

    async def configure(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Write settings; None takes one back."""
        place = await self._changeable(name)
        checked = _checked(changes)
        if validate_only:
            return
        with _refusals():
            update = (await self._state(place)).update(checked)
            await self._write_policies(place.full_name, update)
            if update.set_properties:
                await self._admin.set_properties(place.full_name, update.set_properties)
            for gone in update.removed_properties:
                await self._admin.remove_property(place.full_name, gone)
        self._on_change(name)
        if COMPACTION in update.policies:
            self._ids.changed(place.full_name)

    async def _state(self, place: Place) -> TopicState:
        full = place.full_name
        properties, retention, *policies = await asyncio.gather(
            self._admin.properties(full),
            self._admin.policy(full, RETENTION, applied=True),
            *(self._policy(full, name) for name in POLICIES),
        )
        if properties is None:
            self._forget(place.topic.name)
            raise ApiError("there is no such topic", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TopicState(
            properties=properties,
            policies=dict(zip(POLICIES, policies, strict=True)),
            effective_retention=retention or NO_RETENTION,
            largest_message=_LARGEST_MESSAGE,
        )

    async def _policy(self, full: str, name: str) -> Any:
        value, written_at = self._written.get((full, name), (None, -_PROPAGATION_SECONDS))
        if self._clock() - written_at < _PROPAGATION_SECONDS:
            return value
        return await self._admin.policy(full, name)

    async def _write_policies(self, full: str, update: Update) -> None:
        for policy, value in update.policies.items():
            if value is None:
                await self._admin.remove_policy(full, policy)
            else:
                await self._admin.set_policy(full, policy, value)
            self._note_written(full, policy, value)

    def _note_written(self, full: str, policy: str, value: Any) -> None:
        now = self._clock()
        recent = {key: row for key, row in self._written.items() if now - row[1] < _PROPAGATION_SECONDS}
        self._written = recent | {(full, policy): (value, now)}

    def _forget_written(self, full: str) -> None:
        """A topic that is made again has none of the policies of the former one."""
        self._written = {key: row for key, row in self._written.items() if key[0] != full}


def denied(exc: ClusterError) -> ApiError:
    """Tell a client that its role may not do this with a topic."""
    return ApiError(exc.why or exc.what, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _checked(changes: Mapping[str, str | None]) -> Mapping[str, str | None]:
    for name, value in changes.items():
        check_setting(name, value)
    return changes


def _check_values(configs: Mapping[str, str | None]) -> None:
    """A topic that is new has nothing that could be taken back."""
    for name, value in configs.items():
        if value is None:
            raise ApiError(f"{name} has no value", error_code=ErrorCode.INVALID_CONFIG)


def _not_created(made: Creation, full: str) -> ApiError:
    if made is Creation.EXISTS:
        return ApiError("the topic exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    namespace = full.removeprefix("persistent://").rpartition("/")[0]
    return ApiError(f"Pulsar has no namespace {namespace}", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)


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
