"""The consumer groups of a Kafka cluster: their states and members, and where they stand in topics.

Many groups and partitions are asked for at once: all requests are on their way before the first answer is
waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

from penstock.brokers.kafka_admin import CHUNK
from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.start import Start, StartKind
from penstock.errors import AccessDenied, ClusterError

__all__ = ["Group", "KafkaGroups", "Member", "Part"]

Part = tuple[str, int]
"""A topic and the number of a partition."""

_BETWEEN_LOOKS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as the cluster lists it."""

    name: str
    state: str
    """Kafka's word in small letters: stable, empty, preparing_rebalancing, ..."""
    type: str
    """classic or consumer."""

    @property
    def is_active(self) -> bool:
        """Say whether the group may have members."""
        return self.state not in ("empty", "dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer of a group."""

    id: str
    client: str
    host: str
    instance: str | None = None
    """The group.instance.id of a static member."""
    parts: tuple[Part, ...] = ()


class KafkaGroups(KafkaOffsets):
    """A client that looks at all groups of a cluster."""

    def groups(self) -> tuple[Group, ...]:
        """List all groups by name."""

        from confluent_kafka import KafkaException

        def look() -> tuple[Group, ...]:
            listed = self._client.list_consumer_groups(request_timeout=self._timeout).result(self._timeout)
            if listed.errors:  # a coordinator that does not answer would hide its groups
                raise KafkaException(listed.errors[0])
            return tuple(sorted((_group(each) for each in listed.valid), key=lambda group: group.name))

        return self._when_elected("consumer groups", look)

    def members(self, groups: Sequence[str]) -> Mapping[str, tuple[Member, ...]]:
        """Name the members of some groups, each with the partitions it has."""

        def look() -> Mapping[str, tuple[Member, ...]]:
            asked = self._client.describe_consumer_groups(list(groups), request_timeout=self._timeout)
            return {name: tuple(map(_member, self._described_members(asked[name]))) for name in groups}

        return self._when_elected("consumer groups", look) if groups else {}

    def _described_members(self, future: Any) -> Sequence[Any]:
        from confluent_kafka import KafkaError, KafkaException

        try:
            members: Sequence[Any] = future.result(self._timeout).members
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return ()  # it was deleted since it was listed
        return members

    def commits(self, groups: Sequence[str]) -> Mapping[str, Mapping[Part, int]]:
        """Give the offsets that groups have committed."""

        def look() -> Mapping[str, Mapping[Part, int]]:
            return {
                name: {(part.topic, part.partition): part.offset for part in parts}
                for name, parts in self._group_offsets(groups).items()
            }

        return self._when_elected("consumer groups", look)

    def partitions(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Count the partitions of topics; those that are not there are left out, and never created."""
        from confluent_kafka import KafkaException, TopicCollection

        names, found = list(dict.fromkeys(topics)), dict[str, int]()
        for start in range(0, len(names), CHUNK):
            asked = TopicCollection(names[start : start + CHUNK])
            futures = self._client.describe_topics(asked, request_timeout=self._timeout)
            for name, future in futures.items():
                with self._translated(f"topic {name}"):
                    try:
                        found[name] = len(future.result(self._timeout).partitions)
                    except KafkaException as exc:
                        if exc.args[0].name() not in _NOT_THERE:
                            raise
        return found

    def allowed(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | AccessDenied]:
        """Give the operations that our user may do on topics (KIP-430), or why one may not be seen.

        Topics that are not there are left out.
        """
        from confluent_kafka import TopicCollection

        if not topics:
            return {}
        asked = TopicCollection(list(dict.fromkeys(topics)))
        with self._translated("topics"):
            futures = self._client.describe_topics(
                asked, include_authorized_operations=True, request_timeout=self._timeout
            )
        found: dict[str, frozenset[str] | AccessDenied] = {}
        for name, future in futures.items():
            try:
                with self._translated(f"topic {name}"):
                    operations = future.result(self._timeout).authorized_operations
                found[name] = frozenset(operation.name for operation in operations or ())
            except AccessDenied as exc:
                found[name] = exc
            except ClusterError as exc:
                if "UNKNOWN_TOPIC" not in (exc.why or ""):
                    raise
        return found

    def places(self, parts: Iterable[Part], start: Start) -> Mapping[Part, int]:
        """Give the offset of a place in each partition; one that cannot be asked now is left out.

        A time behind the last record is the end. Numbers outside of a partition are its first or last offset.
        """
        asked = tuple(parts)
        if start.kind is StartKind.TIME:
            found, ends = self._listed(asked, start.number), self._listed(asked, "latest")
            return {part: place if (place := found.get(part, -1)) >= 0 else ends[part] for part in ends}
        if start.kind in _ENDS:
            return self._listed(asked, _ENDS[start.kind])
        first, last = self._listed(asked, "earliest"), self._listed(asked, "latest")
        return {
            part: min(max(first[part], _wanted(start, last[part])), last[part])
            for part in first
            if part in last
        }

    def _listed(self, parts: Sequence[Part], which: str | int) -> dict[Part, int]:
        """Ask for offsets, again for a while where a partition has no leader yet."""
        found, end = dict[Part, int](), monotonic() + self._connect_timeout
        while missing := [part for part in parts if part not in found]:
            answers, electing = self._asked(missing, which)
            found |= answers
            if not electing or monotonic() >= end:
                break
            sleep(_BETWEEN_LOOKS)
        return found

    def _asked(self, parts: Sequence[Part], which: str | int) -> tuple[dict[Part, int], bool]:
        """Give what could be said, and whether asking again may say more."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.for_timestamp(which) if isinstance(which, int) else getattr(OffsetSpec, which)()
        asked = {TopicPartition(*part): spec for part in parts}
        troubles, found = set[str](), dict[Part, int]()
        with self._translated("the offsets of topics"):
            for part, future in self._client.list_offsets(asked, request_timeout=self._timeout).items():
                try:
                    found[part.topic, part.partition] = future.result(self._timeout).offset
                except KafkaException as exc:
                    name = exc.args[0].name()
                    if name not in _NOT_NOW:
                        raise
                    troubles.add(name)
        return found, bool(troubles) and self._is_electing(troubles, parts)

    def _is_electing(self, troubles: set[str], parts: Sequence[Part]) -> bool:
        # librdkafka says _NOENT of topics that are not there and of those without any leader.
        return bool(troubles & _LEADERLESS) or (
            "_NOENT" in troubles and bool(self.partitions(topic for topic, _ in parts))
        )


_LEADERLESS: Final = frozenset({"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"})
_NOT_THERE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION"})
_NOT_NOW: Final = _LEADERLESS | _NOT_THERE | {"_NOENT"}
_ENDS: Final[Mapping[StartKind, str]] = {StartKind.BEGINNING: "earliest", StartKind.END: "latest"}


def _wanted(start: Start, last: int) -> int:
    return last - start.number if start.kind is StartKind.LAST else start.number


def _group(listed: Any) -> Group:
    return Group(name=listed.group_id, state=listed.state.name.lower(), type=_type(listed))


def _type(listed: Any) -> str:
    found = getattr(listed.type, "name", "UNKNOWN").lower()
    return "classic" if found == "unknown" else found  # brokers before KIP-848 have no other


def _member(described: Any) -> Member:
    parts = described.assignment.topic_partitions if described.assignment else ()
    return Member(
        id=described.member_id,
        client=described.client_id,
        host=described.host.removeprefix("/"),
        instance=described.group_instance_id or None,
        parts=tuple(sorted((part.topic, part.partition) for part in parts)),
    )
