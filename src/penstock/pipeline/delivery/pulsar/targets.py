"""What topics on Pulsar are like that a job writes to: asked once, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import AccessDenied, Refused

if TYPE_CHECKING:
    from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster

__all__ = ["PulsarTopic", "inspect_topics", "require_deduplication"]

_HEAD_BYTES: Final = 512
"""Of a message's largest size, for what stands before its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopic:
    """One topic that is there."""

    limit: int
    """Bytes of a record that it takes."""
    deduplicates: bool | AccessDenied
    """Or why that cannot be seen."""


def inspect_topics(cluster: PulsarCluster, topics: Collection[str]) -> Mapping[str, PulsarTopic]:
    """Look at topics; those that are not there are left out. Raises ClusterError."""
    return cluster.call(_inspect(cluster, topics))


async def _inspect(cluster: PulsarCluster, topics: Collection[str]) -> Mapping[str, PulsarTopic]:
    largest = await cluster.client.max_message_bytes()
    present: set[str] = set()
    for namespace in {_namespace(topic) for topic in topics}:
        present |= {*await cluster.admin.topics(namespace)}
        present |= {*await cluster.admin.partitioned_topics(namespace)}
    found = {}
    for topic in sorted(present & {*topics}):
        policy = await _policy(cluster, topic, "maxMessageSize")
        limit = min(largest, policy) if isinstance(policy, int) and policy > 0 else largest
        known = await _policy(cluster, topic, "deduplicationEnabled")
        deduplicates = known if isinstance(known, AccessDenied) else known is True
        found[topic] = PulsarTopic(limit=limit - _HEAD_BYTES, deduplicates=deduplicates)
    return found


async def _policy(cluster: PulsarCluster, topic: str, name: str) -> Any:
    """Return what holds for a topic; what keeps us from seeing it is a value, too."""
    try:
        return await cluster.admin.policy(topic, name, applied=True)
    except AccessDenied as exc:
        return exc


def require_deduplication(topic: str, found: PulsarTopic) -> None:
    """Raise Refused if a topic does not deduplicate, AccessDenied if that cannot be seen."""
    if isinstance(found.deduplicates, AccessDenied):
        denied = found.deduplicates
        denied.why = f"{denied.why or denied.what}; whether {topic} deduplicates has to be read"
        tenant = topic.partition("://")[2].partition("/")[0]
        denied.next = (
            f"make the role an administrator of tenant {tenant} (pulsar-admin tenants update), whom alone "
            "Pulsar shows it; or run with --at-least-once"
        )
        raise denied
    if not found.deduplicates:
        raise Refused(
            f"{topic} does not deduplicate, so nothing can be written to it exactly once",
            why="Pulsar has deduplication off by default.",
            next=f"pulsar-admin namespaces set-deduplication {_namespace(topic)} --enable; or deduplication: "
            "true in the Pulsar binding of the channel and penstock apply; or run with --at-least-once",
        )


def _namespace(topic: str) -> str:
    """Return tenant and namespace of a topic.

    >>> _namespace("persistent://public/default/t")
    'public/default'
    """
    return topic.partition("://")[2].rpartition("/")[0]
