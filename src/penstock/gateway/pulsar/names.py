"""Which Pulsar topic a Kafka name means, and back (spec 001, Topic).

| Kafka name | Pulsar topic |
|---|---|
| my-topic | persistent://<default tenant>/<default namespace>/my-topic |
| my-tenant/my-ns/my-topic | persistent://my-tenant/my-ns/my-topic |
| persistent://my-tenant/my-ns/my-topic | itself |
| x-partition-0 | persistent://<default tenant>/<default namespace>/x-partition=-0 |

Pulsar names partitions by `-partition-` and refuses that in the name of a topic. It takes `=`, which no Kafka
name has: behind `-partition` one is put in when a name goes to Pulsar, and taken out when it comes back.
Answers use the name that was asked with. Names that begin with two underscores are not listed, and those in
which Pulsar keeps its own state are no topics for Kafka clients. Those in which gateways keep theirs can be
read, as Kafka's `__consumer_offsets` can, and not changed.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode

__all__ = ["PARTITION_MARK", "Names", "partition_topic", "refuse_own", "without_partitions"]

_SCHEME = "persistent://"
_PART = re.compile(r"[A-Za-z0-9._=:\-]{1,249}")
PARTITION_MARK = "-partition-"
_TO_ESCAPE = re.compile(r"(-partition=*)(?=-)")
_ESCAPED = re.compile(r"(-partition=*)=(?=-)")
_PARTITION = re.compile(rf"(.+){PARTITION_MARK}(\d+)\Z")
_PARTS = 3
_OF_PULSAR = ("__change_events", "__transaction_")
"""How the names begin of the topics in which Pulsar keeps its own state."""
_IDS = uuid.UUID("6f6bd4ae-6f0c-5a5e-9a86-5f0d5b1d9a53")
"""The name space of topic ids: the same topic has the same id on every gateway."""


def partition_topic(topic: str, partition: int) -> str:
    """Name one partition of a partitioned Pulsar topic."""
    return f"{topic}-partition-{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The name table of one gateway."""

    default_namespace: str = "public/default"
    cluster: str = "penstock"
    own_namespaces: frozenset[str] = frozenset({"public/__kafka"})
    """Where gateways keep their state: groups, offsets, who lives."""

    def to_pulsar(self, name: str) -> str:
        """Give the full name of the Pulsar topic; ApiError if the name is none.

        >>> Names().to_pulsar("orders"), Names().to_pulsar("acme/shop/orders")
        ('persistent://public/default/orders', 'persistent://acme/shop/orders')
        >>> Names().to_pulsar("x-partition-0"), Names().to_kafka("persistent://public/default/x-partition=-0")
        ('persistent://public/default/x-partition=-0', 'x-partition-0')
        """
        path = name.removeprefix(_SCHEME)
        full = name != path
        parts = path.split("/")
        if len(parts) == 1 and not full:
            parts = [*self.default_namespace.split("/"), path]
        if len(parts) != _PARTS or not all(map(_PART.fullmatch, parts)) or {".", ".."} & set(parts):
            raise ApiError("the name is not legal", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        if parts[-1].startswith(_OF_PULSAR):
            raise ApiError("the name is one of Pulsar's own", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        # A full name is Pulsar's own and means what it says.
        local = parts[-1] if full else _TO_ESCAPE.sub(r"\1=", parts[-1])
        return _SCHEME + "/".join((*parts[:-1], local))

    def to_kafka(self, topic: str) -> str:
        """Give the shortest Kafka name of a Pulsar topic."""
        path = topic.removeprefix(_SCHEME)
        namespace, _, local = path.rpartition("/")
        if PARTITION_MARK in local:
            return topic
        name = _ESCAPED.sub(r"\1", local)
        return name if namespace == self.default_namespace else f"{namespace}/{name}"

    def is_own(self, topic: str) -> bool:
        """Say whether gateways keep their state in a topic.

        In a namespace that begins with two underscores that is every topic; in one that is shared with
        others, those whose names do.

        >>> Names().is_own("persistent://public/__kafka/x"), Names().is_own("persistent://public/default/__x")
        (True, False)
        """
        namespace, _, local = topic.removeprefix(_SCHEME).rpartition("/")
        own = namespace.partition("/")[2].startswith("__") or local.startswith("__")
        return namespace in self.own_namespaces and own

    def is_hidden(self, topic: str) -> bool:
        """Say whether a topic is not listed."""
        return topic.rpartition("/")[2].startswith("__")

    def topic_id(self, topic: str) -> uuid.UUID:
        """Give the id of a Pulsar topic."""
        return uuid.uuid5(_IDS, f"{self.cluster}|{topic}")


def refuse_own(is_own: bool) -> None:
    """ApiError if a topic is the gateways' own: clients may read it, and nothing else."""
    if is_own:
        what = "the topic holds the state of the gateways"
        raise ApiError(what, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)


def without_partitions(topics: tuple[str, ...], partitioned: frozenset[str]) -> list[str]:
    """Leave out the partitions of partitioned topics; a topic merely named so stays."""
    alone = []
    for topic in topics:
        found = _PARTITION.match(topic)
        if found is None or found.group(1) not in partitioned:
            alone.append(topic)
    return alone
