"""What a Pulsar cluster holds and how it is changed: tenants, namespaces, policies, topics, partitions.

The admin REST API, version 2. Topic names are full: `persistent://tenant/namespace/topic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

from penstock.brokers.rest import Answer, Rest, tls_context
from penstock.errors import ClusterError, ConfigError

__all__ = [
    "NamespaceState",
    "PulsarAdmin",
    "PulsarTopicState",
    "PulsarUsage",
    "Retention",
    "namespace_path",
    "quoted",
    "topic_path",
    "whole",
]

NOT_FOUND: Final = 404
WORKERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long acknowledged messages stay; -1 is without a limit."""

    minutes: int
    megabytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceState:
    """The policies of a namespace; None means that the broker's default applies."""

    retention: Retention | None = None
    ttl: int | None = None
    """Seconds."""
    replication: tuple[str, ...] = ()
    """The clusters to which the namespace is replicated, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopicState:
    """A topic with its own policies; None means that nothing is set on the topic."""

    partitions: int
    """0 is a topic without partitions."""
    deduplication: bool | None = None
    compaction: int | None = None
    """Threshold in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarUsage:
    """What would be lost with a topic."""

    entries: int
    """What is stored; an entry holds one message or a batch of them."""
    subscriptions: tuple[str, ...]


class PulsarAdmin:
    """A client of the admin API; `options` are url, authorization, the TLS files and `hosts`.

    `hosts` are further hosts of the cluster, between commas; other brokers are taken from its own list.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        name: str = "pulsar",
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        url = options.get("url")
        if not url:
            raise ConfigError(
                f"the admin address of {name} is not known",
                next="add `admin: http://host:8080` to the server in the context",
            )
        files = {key: options.get(key) for key in ("ca_file", "cert_file", "key_file", "key_password")}
        self._rest = Rest(
            f"{url.rstrip('/')}/admin/v2",
            name=name,
            authorization=options.get("authorization"),
            tls=tls_context(**files),
            timeout=timeout,
            connect_timeout=connect_timeout,
            hosts=options.get("hosts", "").split(","),
            brokers="/brokers",
        )

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # Looking

    def clusters(self) -> tuple[str, ...]:
        """Name the clusters that this broker knows."""
        return tuple(sorted(self._get("/clusters", "clusters") or ()))

    def has_tenant(self, tenant: str) -> bool:
        """Say whether a tenant is there; its own administrator may ask, too."""
        return self._find(f"/namespaces/{quoted(tenant)}", f"tenant {tenant}") is not None

    def namespace(self, namespace: str) -> NamespaceState | None:
        """Read the policies of `tenant/namespace`; None if it is not there."""
        found = self._find(f"/namespaces/{namespace_path(namespace)}", f"namespace {namespace}")
        if found is None:
            return None
        policies = self._object(found.value, f"namespace {namespace}")
        retention = policies.get("retention_policies")
        return NamespaceState(
            retention=self._retention(retention) if retention else None,
            ttl=whole(policies.get("message_ttl_in_seconds")),
            replication=tuple(sorted(policies.get("replication_clusters") or ())),
        )

    def topics(self, names: Sequence[str]) -> Mapping[str, PulsarTopicState | None]:
        """Read several topics side by side; None is a topic that is not there."""
        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            return dict(zip(names, pool.map(self._topic, names), strict=True))

    def usage(self, topic: str) -> PulsarUsage:
        """Count what a topic stores and name its subscriptions; those of Pulsar itself do not count."""
        path, subject = topic_path(topic), f"topic {topic}"
        found = self._get(f"{path}/subscriptions", subject)
        names = [str(name) for name in found if not str(name).startswith("__")] if found else []
        return PulsarUsage(entries=self._entries(topic), subscriptions=tuple(sorted(names)))

    # Changing

    def create_tenant(self, tenant: str) -> None:
        """Create a tenant that may use every cluster."""
        body = {"adminRoles": [], "allowedClusters": list(self.clusters())}
        self._do("PUT", f"/tenants/{quoted(tenant)}", f"tenant {tenant}", body)

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace with the broker's default policies."""
        self._do("PUT", f"/namespaces/{namespace_path(namespace)}", f"namespace {namespace}")

    def set_policy(self, namespace: str, policy: str, value: Retention | int | tuple[str, ...]) -> None:
        """Set one policy of a namespace: retention, ttl or replication."""
        path = f"/namespaces/{namespace_path(namespace)}/{_POLICIES[policy]}"
        self._do("POST", path, f"{policy} of namespace {namespace}", _body(value))

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; 0 partitions make one without."""
        path = topic_path(topic)
        if partitions:
            self._do("PUT", f"{path}/partitions", f"topic {topic}", partitions)
        else:
            self._do("PUT", path, f"topic {topic}")

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions; Pulsar refuses fewer than there are."""
        self._do("POST", f"{topic_path(topic)}/partitions", f"topic {topic}", total)

    def set_topic_policy(self, topic: str, policy: str, value: bool | int) -> None:
        """Set one policy of a topic: deduplication or compaction."""
        path = f"{topic_path(topic)}/{_TOPIC_POLICIES[policy]}"
        self._do("POST", path, f"{policy} of topic {topic}", value)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it; one that is in use is refused by the broker."""
        state = self._topic(topic)
        path = topic_path(topic)
        self._do("DELETE", f"{path}/partitions" if state and state.partitions else path, f"topic {topic}")

    # How requests end

    def _topic(self, topic: str) -> PulsarTopicState | None:
        path, subject = topic_path(topic), f"topic {topic}"
        found = self._find(f"{path}/partitions", subject)
        if found is None:
            return None
        policies = {name: self._get(f"{path}/{word}", subject) for name, word in _TOPIC_POLICIES.items()}
        return PulsarTopicState(
            partitions=whole(self._object(found.value, subject).get("partitions")) or 0,
            deduplication=None if policies["deduplication"] is None else bool(policies["deduplication"]),
            compaction=whole(policies["compaction"]),
        )

    def _entries(self, topic: str) -> int:
        if not topic.startswith("persistent://"):
            return 0
        path, subject = topic_path(topic), f"topic {topic}"
        state = self._topic(topic)
        if state is None or not state.partitions:
            stats = [self._get(f"{path}/internalStats", subject)]
        else:
            found = self._object(self._get(f"{path}/partitioned-internalStats", subject), subject)
            stats = [*self._object(found.get("partitions"), subject).values()]
        return sum(whole(self._object(one, subject).get("numberOfEntries")) or 0 for one in stats)

    def _retention(self, found: Any) -> Retention:
        values = self._object(found, "retention")
        return Retention(
            minutes=whole(values.get("retentionTimeInMinutes")) or 0,
            megabytes=whole(values.get("retentionSizeInMB")) or 0,
        )

    def _find(self, path: str, subject: str) -> Answer | None:
        answer = self._rest.call("GET", path)
        if answer.status == NOT_FOUND:
            return None
        return self._accepted(subject, answer)

    def _get(self, path: str, subject: str) -> Any:
        return self._accepted(subject, self._rest.call("GET", path)).value

    def _do(self, method: str, path: str, subject: str, body: Any = None) -> None:
        self._accepted(subject, self._rest.call(method, path, body))

    def _accepted(self, subject: str, answer: Answer) -> Answer:
        if not answer.ok:
            raise self._rest.refuse(subject, answer)
        return answer

    def _object(self, value: Any, subject: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise ClusterError(
                f"{self._rest.name} gave no object for {subject}",
                where=self._rest.address,
                why=repr(value)[:200],
            )
        return value


_POLICIES: Final[Mapping[str, str]] = {
    "retention": "retention",
    "ttl": "messageTTL",
    "replication": "replication",
}
_TOPIC_POLICIES: Final[Mapping[str, str]] = {
    "deduplication": "deduplicationEnabled",
    "compaction": "compactionThreshold",
}


def _body(value: Retention | int | tuple[str, ...]) -> Any:
    if isinstance(value, Retention):
        return {"retentionTimeInMinutes": value.minutes, "retentionSizeInMB": value.megabytes}
    return list(value) if isinstance(value, tuple) else value


def whole(value: Any) -> int | None:
    """Give a number of an answer; None if it is none."""
    return value if isinstance(value, int) else None


def quoted(name: str) -> str:
    """Write a name as one part of a path."""
    return quote(name, safe="")


def namespace_path(namespace: str) -> str:
    """Write the name of a namespace as a path."""
    return "/".join(map(quoted, namespace.split("/")))


def topic_path(topic: str) -> str:
    """Write a topic's name as a path.

    >>> topic_path("persistent://acme/shop/orders")
    '/persistent/acme/shop/orders'
    """
    persistence, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/" + "/".join(map(quoted, (persistence, tenant, namespace, name)))
