"""The topics of a Pulsar cluster with their subscriptions: what they hold, who reads them, and how far.

Pulsar counts a backlog in entries; an entry holds one message or a batch of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus

from penstock.brokers.pulsar_admin import WORKERS, PulsarAdmin, namespace_path, quoted, topic_path, whole
from penstock.brokers.start import Start, StartKind
from penstock.errors import AccessDenied, ClusterError, UsageError

__all__ = ["Consumer", "Cursor", "PulsarSubscriptions", "TopicPart", "TopicStats"]

_PARTITION: Final = "-partition-"
_LAST: Final = 2**63 - 1
"""Ledger and entry of Pulsar's word for the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Somebody who reads a subscription now."""

    name: str
    client: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A subscription on one partition."""

    name: str
    backlog: int
    """Entries."""
    consumers: tuple[Consumer, ...] = ()
    mark: str | None = None
    """ledger:entry up to which everything is acknowledged; None if the broker does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPart:
    """A partition, or a topic that has none."""

    topic: str
    entries: int
    cursors: tuple[Cursor, ...] = ()

    def cursor(self, name: str) -> Cursor | None:
        """Find a subscription."""
        return next((cursor for cursor in self.cursors if cursor.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """A topic with its partitions, by their numbers; one without partitions is number 0."""

    topic: str
    partitions: int
    """0 is a topic without partitions."""
    parts: Mapping[int, TopicPart]

    @property
    def entries(self) -> int:
        """What is stored."""
        return sum(part.entries for part in self.parts.values())

    def backlogs(self) -> dict[str, int]:
        """Sum up the backlog of each subscription."""
        found: dict[str, int] = {}
        for part in self.parts.values():
            for cursor in part.cursors:
                found[cursor.name] = found.get(cursor.name, 0) + cursor.backlog
        return found


class PulsarSubscriptions(PulsarAdmin):
    """A client that looks at all topics of a cluster, and moves subscriptions."""

    def namespaces(self) -> tuple[str, ...]:
        """Name all namespaces; only a super user may."""
        tenants = self._names("/tenants", "tenants")
        with ThreadPoolExecutor(WORKERS) as workers:
            found = workers.map(
                lambda tenant: self._names(f"/namespaces/{quoted(tenant)}", f"tenant {tenant}"), tenants
            )
            return tuple(sorted(name for names in found for name in names))

    def topic_names(
        self, namespaces: Sequence[str], *, absent_ok: bool = False
    ) -> tuple[Mapping[str, bool], tuple[str, ...]]:
        """Name the topics of namespaces, and whether they have partitions; those are named once.

        Second, those namespaces whose topics may not be listed; AccessDenied if that are all of them.
        A namespace that is not there is an error, or with `absent_ok` has no topics.
        """
        with ThreadPoolExecutor(WORKERS) as workers:
            names = workers.map(lambda name: self._topic_names_if_allowed(name, absent_ok), namespaces)
            found = dict(zip(namespaces, names, strict=True))
        denied = {name: each for name, each in found.items() if isinstance(each, AccessDenied)}
        if denied and len(denied) == len(found):
            raise next(iter(denied.values()))
        topics = {
            topic: partitioned
            for each in found.values()
            if not isinstance(each, AccessDenied)
            for topic, partitioned in each.items()
        }
        return topics, tuple(denied)

    def _topic_names_if_allowed(self, namespace: str, absent_ok: bool) -> dict[str, bool] | AccessDenied:
        path, subject = f"/persistent/{namespace_path(namespace)}/partitioned", f"namespace {namespace}"
        try:
            if absent_ok and self._find(path, subject) is None:
                return {}
            return self._topic_names(namespace)
        except AccessDenied as denied:
            return denied

    def _topic_names(self, namespace: str) -> dict[str, bool]:
        path, subject = namespace_path(namespace), f"namespace {namespace}"
        partitioned = {
            topic
            for domain in ("persistent", "non-persistent")
            for topic in self._names(f"/{domain}/{path}/partitioned", subject)
        }
        every = self._names(f"/namespaces/{path}/topics?mode=ALL", subject)
        alone = {topic for topic in every if topic.rpartition(_PARTITION)[0] not in partitioned}
        return {topic: topic in partitioned for topic in sorted(partitioned | alone)}

    def _names(self, path: str, subject: str) -> list[str]:
        found = self._get(path, subject)
        if not isinstance(found, list):
            what = f"{self._rest.name} gave no list for {subject}"
            raise ClusterError(what, where=self._rest.address, why=repr(found)[:200])
        return [str(name) for name in found]

    def stats(self, topics: Mapping[str, bool], *, ledgers: bool = True) -> Mapping[str, TopicStats]:
        """Look into topics, several at a time; one that is not there any more is left out.

        Entries and marks are in the ledgers, which are a second request for each topic.
        """
        with ThreadPoolExecutor(WORKERS) as workers:
            found = list(workers.map(lambda topic: self._stats(topic, topics[topic], ledgers), topics))
        return {stats.topic: stats for stats in found if stats is not None}

    def look(self, topics: Iterable[str]) -> Mapping[str, TopicStats]:
        """Look into topics of which only the names are known."""
        with ThreadPoolExecutor(WORKERS) as workers:
            found = list(workers.map(self._look, topics))
        return {stats.topic: stats for stats in found if stats is not None}

    def _look(self, topic: str) -> TopicStats | None:
        subject = f"topic {topic}"
        found = self._find(f"{topic_path(topic)}/partitions", subject)
        if found is None:
            return None
        return self._stats(topic, bool(whole(self._object(found.value, subject).get("partitions"))))

    def messages_in(self, topic: str) -> int:
        """Count the messages that a partitioned topic has got since its broker loaded it."""
        path, subject = f"{topic_path(topic)}/partitioned-stats?perPartition=false", f"topic {topic}"
        return whole(self._object(self._get(path, subject), subject).get("msgInCounter")) or 0

    def messages_left(self, topic: str, subscription: str) -> int | None:
        """Count the messages of a backlog; None if the broker gave up, because there are too many.

        The broker reads the backlog for this.
        """
        path = f"{topic_path(topic)}/subscription/{quoted(subscription)}/analyzeBacklog"
        subject = f"the backlog of {subscription}"
        # A position to begin at may be given; without one it is the cursor.
        found = self._object(self._accepted(subject, self._rest.call("POST", path)).value, subject)
        return None if found.get("aborted") else whole(found.get("messages"))

    def reset(self, topic: str, subscription: str, start: Start) -> None:
        """Move a subscription of a partition, or of a topic that has none."""
        path = f"{topic_path(topic)}/subscription/{quoted(subscription)}/resetcursor"
        subject = f"subscription {subscription} of topic {topic}"
        if start.kind is StartKind.TIME:
            return self._do("POST", f"{path}/{start.number}", subject)
        if start.kind not in _ENDS:
            raise UsageError("Pulsar has no offsets", next="give earliest, latest or a time")
        place = _ENDS[start.kind]
        self._do("POST", path, subject, {"ledgerId": place, "entryId": place, "partitionIndex": -1})

    def _stats(self, topic: str, partitioned: bool, ledgers: bool = True) -> TopicStats | None:
        path, subject, prefix = topic_path(topic), f"topic {topic}", "partitioned-" if partitioned else ""
        found = self._find(f"{path}/{prefix}stats?perPartition=true", subject)
        if found is None:
            return None
        inner = self._find(f"{path}/{prefix}internalStats", subject) if ledgers else None
        said, within = self._object(found.value, subject), _dict(inner.value if inner else None)
        if not partitioned:
            return TopicStats(topic=topic, partitions=0, parts={0: _part(topic, said, within)})
        parts, within = _dict(said.get("partitions")), _dict(within.get("partitions"))
        return TopicStats(
            topic=topic,
            partitions=whole(_dict(said.get("metadata")).get("partitions")) or len(parts),
            parts={
                _number(name): _part(name, _dict(parts[name]), within.get(name))
                for name in sorted(parts, key=_number)
            },
        )


_ENDS: Final[Mapping[StartKind, int]] = {StartKind.BEGINNING: -1, StartKind.END: _LAST}


def _number(partition: str) -> int:
    digits = partition.rpartition(_PARTITION)[2]
    if not digits.isascii() or not digits.isdigit():
        raise ClusterError(f"'{partition}' is no name of a partition")
    return int(digits)


def _part(topic: str, said: Mapping[str, Any], ledger: Any) -> TopicPart:
    inner = _dict(ledger)
    # Here names of cursors are written as in a URL.
    marks = {
        unquote_plus(name): _dict(each).get("markDeletePosition")
        for name, each in _dict(inner.get("cursors")).items()
    }
    return TopicPart(
        topic=topic,
        entries=whole(inner.get("numberOfEntries")) or 0,
        cursors=tuple(
            _cursor(name, _dict(each), marks.get(name))
            for name, each in sorted(_dict(said.get("subscriptions")).items())
            if not name.startswith("__")  # Pulsar's own, such as that of compaction
        ),
    )


def _cursor(name: str, said: Mapping[str, Any], mark: Any) -> Cursor:
    consumers = said.get("consumers")
    return Cursor(
        name=name,
        backlog=max(0, whole(said.get("msgBacklog")) or 0),
        consumers=tuple(map(_consumer, consumers if isinstance(consumers, list) else ())),
        mark=None if mark is None else str(mark),
    )


def _consumer(said: Any) -> Consumer:
    words = {key: str(_dict(said).get(key) or "-") for key in ("consumerName", "clientVersion", "address")}
    return Consumer(
        name=words["consumerName"], client=words["clientVersion"], address=words["address"].removeprefix("/")
    )


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
