"""What one look at a Kafka cluster shows: topics, how they are spread, their settings, what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Cluster", "Setting", "TopicLayout", "TopicUsage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """How a topic is spread."""

    partitions: int
    replicas: tuple[int, ...]
    """The numbers of replicas that its partitions have; one number, unless somebody moved them by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One look at a cluster."""

    brokers: int
    topics: Mapping[str, TopicLayout]
    hidden: frozenset[str] = frozenset()
    """Topics that were asked for by name and may not be seen by this user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a topic as the broker applies it."""

    value: str
    source: str
    """topic, broker, dynamic-broker, default: which level it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUsage:
    """What would be lost with a topic."""

    records: int
    groups: tuple[str, ...]
