"""Where a reader of a Kafka topic stands: the identity of the topic, its ends, and the offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.errors import ClusterError

__all__ = ["KafkaOffsets", "Offsets"]

Offsets = Mapping[int, int]
"""The offset of each partition."""

_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class KafkaOffsets(KafkaAdmin):
    """A client that looks at topics as a reader sees them, and commits for a group."""

    def cluster_id(self) -> str | None:
        """Give the id of the cluster; None if it does not tell."""
        try:
            with self._translated("the cluster's id"):
                described = self._client.describe_cluster(request_timeout=self._timeout)
                return described.result(self._timeout).cluster_id or None
        except ClusterError as exc:
            return _unless_unsupported(exc)

    def topic_id(self, topic: str) -> str | None:
        """Give the id that a topic got when it was created; None if the cluster has no such ids."""
        from confluent_kafka import TopicCollection

        asked = TopicCollection([topic])
        try:
            with self._translated(f"topic {topic}"):
                futures = self._client.describe_topics(asked, request_timeout=self._timeout)
                found = str(futures[topic].result(self._timeout).topic_id)
        except ClusterError as exc:
            return _unless_unsupported(exc)
        return None if found in ("", _ZERO_ID) else found

    def earliest(self, topic: str) -> Offsets:
        """Give the first offset that each partition still has."""
        return self._ends(topic, "earliest")

    def latest(self, topic: str) -> Offsets:
        """Give the offset that the next record of each partition gets."""
        return self._ends(topic, "latest")

    def committed(self, group: str, topic: str) -> Offsets:
        """Give what a group has committed for a topic."""

        def look() -> Offsets:
            found = self._group_offsets([group])[group]
            return {part.partition: part.offset for part in found if part.topic == topic and part.offset >= 0}

        return self._when_elected(f"group {group}", look)

    def commit(self, group: str, topic: str, offsets: Offsets) -> None:
        """Commit offsets for a group that has no members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(group, places)]

        def write() -> None:
            self._require_coordinators([group])
            futures = self._client.alter_consumer_group_offsets(asked, request_timeout=self._timeout)
            for part in futures[group].result(self._timeout).topic_partitions:
                if part.error is not None:
                    raise KafkaException(part.error)

        self._when_elected(f"group {group}", write)

    def _ends(self, topic: str, which: str) -> Offsets:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        layout = self.cluster([topic]).topics.get(topic)
        parts = [TopicPartition(topic, number) for number in range(layout.partitions if layout else 0)]
        if not parts:
            return {}
        asked = dict.fromkeys(parts, getattr(OffsetSpec, which)())

        def look() -> Offsets:
            answers = self._client.list_offsets(asked, request_timeout=self._timeout)
            return {part.partition: answers[part].result(self._timeout).offset for part in parts}

        return self._when_elected(f"topic {topic}", look)


def _unless_unsupported(exc: ClusterError) -> str | None:
    """Let pass that a cluster does not know a request: our gateway, or an old broker."""
    if "UNSUPPORTED" not in (exc.why or ""):
        raise exc
    return None
