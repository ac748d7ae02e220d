"""What a Kafka cluster holds and how it is changed: topics, partitions, replicas, settings.

One metadata call for all topics, settings in chunks. Brokers show a change a moment after it was made, which
is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Final, TypeVar

from penstock.brokers.kafka_contact import Contact
from penstock.brokers.kafka_layout import Cluster, Setting, TopicLayout, TopicUsage
from penstock.errors import AccessDenied, ClusterError, Unreachable

__all__ = ["KafkaAdmin"]

CHUNK: Final = 200
"""Topics per request for settings: a thousand topics have more than thirty thousand settings."""
_LOOKS: Final = 3
_BETWEEN_LOOKS: Final = 0.3
_BETWEEN_GLANCES: Final = 0.02
MAX_GROUPS: Final = 500
DEFAULT: Final = -1
"""Kafka's own word for the broker's default number of partitions or replicas."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


# Kafka protocol, DescribeConfigs: config_source.
_SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "dynamic-broker",
    3: "dynamic-default-broker",
    4: "broker",
    5: "default",
}


class KafkaAdmin:
    """A client of the admin API; `options` are those of librdkafka."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        name: str = "kafka",
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._options = options
        self.name = name
        self._renew()
        self.address = self._contact.address

    def _renew(self) -> None:
        """Make the client; anew after nobody answered.

        One whose coordinator went away asks it for ever, also when it is back (librdkafka 2.16).
        """
        self._contact = Contact("AdminClient", self._options, name=self.name, seconds=self._connect_timeout)
        self._client: Any = self._contact.client

    # Looking

    def cluster(self, expected: Sequence[str] = ()) -> Cluster:
        """Count the brokers and list every topic, with one request.

        Kafka leaves out a topic that the user may not see; an expected one is asked for by its name, and is
        named in `hidden` if it is such. A gateway lists one namespace of Pulsar, the others it has by name.
        """
        metadata = self._contact.metadata()
        topics = {
            name: TopicLayout(
                partitions=len(topic.partitions),
                replicas=tuple(sorted({len(part.replicas) for part in topic.partitions.values()})),
            )
            for name, topic in metadata.topics.items()
            if topic.partitions
        }
        hidden: set[str] = set()
        topics |= self._by_name([name for name in expected if name not in topics], hidden)
        return Cluster(
            brokers=len(metadata.brokers), topics=MappingProxyType(topics), hidden=frozenset(hidden)
        )

    def settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, Setting]]:
        """Read all settings of some topics; one that is not there any more is left out."""
        found: dict[str, Mapping[str, Setting]] = {}
        for attempt in range(_LOOKS):
            # A broker may list a topic for a moment that it already forgot, or not yet knows.
            missing = [topic for topic in topics if topic not in found]
            if missing and attempt:
                sleep(_BETWEEN_LOOKS)
            found |= self._described(missing)
        return found

    def _described(self, topics: Sequence[str]) -> dict[str, Mapping[str, Setting]]:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        futures: dict[Any, Any] = {}
        for start in range(0, len(topics), CHUNK):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics[start : start + CHUNK]]
            # All requests are on their way before the first answer is waited for.
            futures |= self._client.describe_configs(resources, request_timeout=self._timeout)
        found: dict[str, Mapping[str, Setting]] = {}
        for resource, future in futures.items():
            with self._translated(f"topic {resource.name}"):
                try:
                    found[resource.name] = MappingProxyType(_settings(future.result(self._timeout)))
                except KafkaException as exc:
                    if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        return found

    def unknown_settings(self, settings: Mapping[str, str]) -> frozenset[str]:
        """Say which settings this broker does not know, by creations of topics that are only checked."""
        from confluent_kafka.admin import NewTopic

        probes = {f"penstock-probe-{index}": key for index, key in enumerate(settings)}
        topics = [
            NewTopic(name, num_partitions=DEFAULT, replication_factor=DEFAULT, config={key: settings[key]})
            for name, key in probes.items()
        ]
        futures = self._client.create_topics(topics, request_timeout=self._timeout, validate_only=True)
        return frozenset(probes[name] for name, future in futures.items() if self._is_unknown(future))

    def usage(self, topic: str) -> TopicUsage:
        """Count the records of a topic and name the groups that have read it."""
        return TopicUsage(records=self._count(topic), groups=tuple(sorted(self._readers(topic))))

    # Changing

    def create_topic(
        self, topic: str, *, partitions: int | None, replicas: int | None, settings: Mapping[str, str]
    ) -> None:
        """Create a topic; None leaves a number to the broker."""
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(
            topic,
            num_partitions=DEFAULT if partitions is None else partitions,
            replication_factor=DEFAULT if replicas is None else replicas,
            config=dict(settings),
        )
        self._finish(f"topic {topic}", self._client.create_topics, [wanted], operation_timeout=self._timeout)
        self._until(lambda: topic in self._by_name([topic]))

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions; Kafka refuses fewer than there are."""
        from confluent_kafka.admin import NewPartitions

        wanted = NewPartitions(topic, total)
        self._finish(
            f"topic {topic}", self._client.create_partitions, [wanted], operation_timeout=self._timeout
        )
        self._until(lambda: any(each.partitions >= total for each in self._by_name([topic]).values()))

    def change_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set some settings of a topic and leave all others as they are."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._finish(f"topic {topic}", self._client.incremental_alter_configs, [resource])
        self._until(lambda: settings.items() <= self._values(topic).items())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it."""
        self._finish(f"topic {topic}", self._client.delete_topics, [topic], operation_timeout=self._timeout)
        self._until(lambda: topic not in self._by_name([topic]))

    def _values(self, topic: str) -> dict[str, str]:
        return {key: setting.value for key, setting in self._described([topic]).get(topic, {}).items()}

    # How requests end

    def _finish(self, subject: str, request: Callable[..., Mapping[Any, Any]], *args: Any, **kw: Any) -> None:
        with self._translated(subject):
            for future in request(*args, request_timeout=self._timeout, **kw).values():
                future.result(2 * self._timeout)

    def _until(self, seen: Callable[[], bool]) -> None:
        """Wait until a broker shows a change, but not for long: it is made, whatever is seen of it."""
        end = monotonic() + self._connect_timeout
        try:
            while not seen() and monotonic() < end:
                sleep(_BETWEEN_GLANCES)
        except ClusterError as exc:
            _log.debug("%s: a change is made and cannot be seen: %s", self.name, exc)

    def _by_name(self, topics: Sequence[str], hidden: set[str] | None = None) -> dict[str, TopicLayout]:
        """Describe topics that are not listed; those that are not there are left out.

        Those that may not be seen are added to `hidden`; without it, one of them is an error.
        """
        from confluent_kafka import TopicCollection

        found: dict[str, TopicLayout] = {}
        for start in range(0, len(topics), CHUNK):
            asked = TopicCollection(list(topics[start : start + CHUNK]))
            futures = self._client.describe_topics(asked, request_timeout=self._timeout)
            for name, future in futures.items():
                try:
                    with self._translated(f"topic {name}"):
                        parts = future.result(self._timeout).partitions
                except ClusterError as exc:
                    if hidden is not None and isinstance(exc, AccessDenied):
                        hidden.add(name)
                    elif "UNKNOWN_TOPIC" not in (exc.why or ""):
                        raise
                else:
                    replicas = tuple(sorted({len(part.replicas) for part in parts}))
                    found[name] = TopicLayout(partitions=len(parts), replicas=replicas)
        return found

    def _is_unknown(self, future: Any) -> bool:
        try:
            with self._translated("the check of a setting"):
                future.result(self._timeout)
        except ClusterError as exc:
            if "Unknown topic config name" in (exc.why or ""):
                return True
            raise
        return False

    def _count(self, topic: str) -> int:
        """Count the records."""
        return self._when_elected(
            f"topic {topic}", lambda: self._offsets(topic, "latest") - self._offsets(topic, "earliest")
        )

    def _when_elected(self, subject: str, look: Callable[[], _T]) -> _T:
        """Try again for a while: a topic, or the topic of groups, that is a moment old has no leaders yet."""
        end = monotonic() + self._connect_timeout
        while True:
            try:
                with self._translated(subject):
                    return look()
            except ClusterError as exc:
                if monotonic() >= end or not any(word in (exc.why or "") for word in _ELECTING):
                    raise
                sleep(0.05)

    def _offsets(self, topic: str, which: str) -> int:
        """The sum of the latest or earliest offsets of all partitions."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        layout = self.cluster().topics.get(topic)
        parts = [TopicPartition(topic, number) for number in range(layout.partitions if layout else 0)]
        if not parts:
            return 0
        asked = dict.fromkeys(parts, getattr(OffsetSpec, which)())
        with self._translated(f"topic {topic}"):
            answers = self._client.list_offsets(asked, request_timeout=self._timeout)
            return sum(future.result(self._timeout).offset for future in answers.values())

    def _readers(self, topic: str) -> Iterator[str]:
        with self._translated("consumer groups"):
            listed = self._client.list_consumer_groups(request_timeout=self._timeout).result(self._timeout)
        names = [group.group_id for group in listed.valid][:MAX_GROUPS]
        commits = self._when_elected("consumer groups", lambda: self._group_offsets(names))
        for name, parts in commits.items():
            if any(part.topic == topic for part in parts):
                yield name

    def _group_offsets(self, groups: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Give what groups have committed, as confluent-kafka tells it."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        if not groups:
            return {}
        self._require_coordinators(groups)
        asked = {
            name: self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=self._timeout
            )[name]
            for name in groups
        }
        return {name: future.result(self._timeout).topic_partitions for name, future in asked.items()}

    def _require_coordinators(self, groups: Sequence[str]) -> None:
        """Raise KafkaException if a coordinator of these groups is away, or still loading.

        librdkafka (2.16) ends the process when a coordinator refuses OffsetFetch or OffsetCommit to a client
        that is no consumer. It survives the same refusal of DescribeGroups.
        """
        from confluent_kafka import KafkaError, KafkaException

        described = self._client.describe_consumer_groups(list(groups), request_timeout=self._timeout)
        for future in described.values():
            try:
                future.result(self._timeout)
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

    # Translating errors

    @contextmanager
    def _translated(self, subject: str) -> Iterator[None]:
        from concurrent.futures import TimeoutError as NotInTime

        from confluent_kafka import KafkaException

        try:
            self._contact.require()
            yield
        except KafkaException as exc:
            self._contact.serve()
            error = self._contact.error(subject, exc.args[0])
            if isinstance(error, Unreachable):
                self._renew()
            raise error from exc
        except NotInTime as exc:
            error = self._contact.silence(self._timeout)
            self._renew()
            raise error from exc


def _settings(entries: Mapping[str, Any]) -> dict[str, Setting]:
    """A sensitive setting has no value in the answer, and is left out."""
    return {
        key: Setting(value=entry.value, source=_SOURCES.get(int(entry.source), "other"))
        for key, entry in entries.items()
        if entry.value is not None and not entry.is_sensitive
    }


# _NOENT: librdkafka found no leader for any partition that it was asked for.
_ELECTING: Final = ("NOT_LEADER", "LEADER_NOT_AVAILABLE", "COORDINATOR", "_NOENT")
