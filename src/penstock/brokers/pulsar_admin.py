"""What a Pulsar cluster holds and how it is changed: tenants, namespaces, policies, topics, partitions.

The admin REST API, version 2. Topic names are full: `persistent://tenant/namespace/topic`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import quote

from penstock.brokers.rest import Answer, Rest, tls_context
from penstock.errors import AccessDenied, ClusterError, ConfigError, Unreachable

__all__ = [
    "NAMESPACE_POLICIES",
    "SCHEMA",
    "TOPIC_POLICIES",
    "NamespaceState",
    "Policies",
    "PulsarAdmin",
    "PulsarSchema",
    "PulsarTopicState",
    "PulsarUsage",
    "Retention",
    "namespace_path",
    "quoted",
    "topic_path",
    "whole",
]

NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405
"""The answer for a policy of a topic where the broker has switched those off."""
WORKERS: Final = 8
MAX_PARTITIONS: Final = 1_000_000
MAX_PROBED: Final = 20
"""Topics of a namespace that are asked at most for what its topics inherit."""
PARTITION: Final = "-partition-"
NAMESPACE_POLICIES: Final = ("retention", "ttl", "replication")
"""Policies that a contract declares for a namespace; a topic may have one of its own, which goes before."""
TOPIC_POLICIES: Final = ("deduplication", "compaction")
"""Policies that a contract declares for a topic."""
_NO_TIME: Final = "1970-"
"""How a time begins that the broker's metadata store does not keep."""
SCHEMA: Final = "schema"
"""Named among policies, it lets the schema of a topic be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long acknowledged messages stay; -1 is without a limit."""

    minutes: int
    megabytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Values of policies; None means that nothing is set, or that it is not known."""

    retention: Retention | None = None
    ttl: int | None = None
    """Seconds; 0 is without a limit."""
    replication: tuple[str, ...] | None = None
    """The names of clusters, sorted."""
    deduplication: bool | None = None
    compaction: int | None = None
    """Threshold in bytes; 0 is no compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceState:
    """The policies of a namespace; None means that the broker's default is in effect."""

    retention: Retention | None = None
    ttl: int | None = None
    """Seconds."""
    replication: tuple[str, ...] = ()
    """The clusters to which the namespace is replicated, sorted."""
    inherited: Policies = field(default=Policies(), compare=False)
    """The broker's defaults, as topics of the namespace without policies of their own show them."""
    is_empty: bool = field(default=False, compare=False)
    """The namespace has no topics, so that no policy can take anything away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSchema:
    """A schema of a topic, as Pulsar's own registry keeps it."""

    type: str
    """AVRO, JSON, STRING and so on."""
    definition: str
    version: int = field(default=0, compare=False)
    """Pulsar counts from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopicState:
    """A topic with its own policies; None means that nothing is set on the topic."""

    partitions: int
    """0 is a topic without partitions."""
    deduplication: bool | None = None
    compaction: int | None = None
    """Threshold in bytes."""
    retention: Retention | None = None
    ttl: int | None = None
    replication: tuple[str, ...] | None = None
    missing: tuple[int, ...] = ()
    """Partitions that the topic should have by its metadata and does not."""
    schema: PulsarSchema | None = None
    inherited: Policies = field(default=Policies(), compare=False)
    """What is in effect where the topic has no policy of its own: that of its namespace, or of the broker."""
    hidden: tuple[str, ...] = field(default=(), compare=False)
    """Policies that may not be seen."""


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
        return tuple(sorted(self._names(self._get("/clusters", "clusters"), "clusters")))

    def has_tenant(self, tenant: str) -> bool:
        """Say whether a tenant is there; its own administrator may ask, too."""
        return self._find(f"/namespaces/{quoted(tenant)}", f"tenant {tenant}") is not None

    def namespace(
        self, namespace: str, policies: Collection[str] = NAMESPACE_POLICIES
    ) -> NamespaceState | None:
        """Read the policies of `tenant/namespace`; None if it is not there.

        Pulsar tells the broker's defaults by its topics only: for those of `policies` that the namespace does
        not have itself, some of its topics are asked.
        """
        found = self._find(f"/namespaces/{namespace_path(namespace)}", f"namespace {namespace}")
        if found is None:
            return None
        values = self._object(found.value, f"namespace {namespace}")
        retention = values.get("retention_policies")
        own = Policies(
            retention=self._retention(retention) if retention else None,
            ttl=whole(values.get("message_ttl_in_seconds")),
        )
        wanted = [name for name in ("retention", "ttl") if name in policies and getattr(own, name) is None]
        topics = sorted(self._listed(namespace)) if wanted else ["not asked"]
        return NamespaceState(
            retention=own.retention,
            ttl=own.ttl,
            replication=tuple(sorted(self._names(values.get("replication_clusters"), "replication"))),
            inherited=self._defaults(wanted, topics) if wanted else Policies(),
            is_empty=not topics,
        )

    def topics(
        self, names: Sequence[str], policies: Collection[str] = (*NAMESPACE_POLICIES, *TOPIC_POLICIES, SCHEMA)
    ) -> Mapping[str, PulsarTopicState | AccessDenied | None]:
        """Read several topics with some of their policies, side by side; None is one that is not there.

        AccessDenied is a topic that may not be seen, which does not keep the others from being read.
        """
        stored = [name for name in names if name.startswith("persistent://")]
        namespaces = list(dict.fromkeys("/".join(name[13:].split("/")[:2]) for name in stored))
        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            lists = dict(zip(namespaces, pool.map(self._listed_if_allowed, namespaces), strict=True))
            states = pool.map(lambda name: self._seen(name, policies, lists), names)
            return dict(zip(names, states, strict=True))

    def _seen(
        self, topic: str, policies: Collection[str], lists: Mapping[str, frozenset[str] | None]
    ) -> PulsarTopicState | AccessDenied | None:
        try:
            return self._topic(topic, policies, lists.get("/".join(topic[13:].split("/")[:2])))
        except AccessDenied as denied:
            return denied

    def schema_refusal(self, topic: str, schema: PulsarSchema) -> str | None:
        """Ask whether a schema may become the next version; give the broker's reason if not, else None."""
        path, body = f"{_schema_path(topic)}/compatibility", _schema_body(schema)
        try:
            value = self._accepted(f"schema of topic {topic}", self._rest.call("POST", path, body)).value
        except (AccessDenied, Unreachable):
            raise
        except ClusterError as refused:
            # Pulsar answers a server error for one that is not compatible: the reason, then a stack trace.
            return _first_words(refused.why or refused.what)
        compatible = isinstance(value, dict) and value.get("compatibility") is True
        return None if compatible else "The schemas are not compatible."

    def schemas(self, topic: str) -> Sequence[PulsarSchema]:
        """Give all versions of the schema of a topic, the oldest first."""
        subject = f"schemas of topic {topic}"
        found = self._object(self._get(f"{_schema_path(topic)}/schemas", subject), subject)
        listed = found.get("getSchemaResponses")
        versions = [self._schema(each, subject) for each in (listed if isinstance(listed, list) else ())]
        return sorted(versions, key=lambda each: each.version)

    def created(self, topic: str) -> Mapping[int, str]:
        """Return when each partition of a persistent topic was created, 0 for a topic without partitions.

        A partition that was deleted and created again has another time. Where the broker's metadata store
        keeps no times there are none. Raises ClusterError, also if there is no such topic.
        """
        subject = f"topic {topic}"
        info = self._object(self._get(f"{topic_path(topic)}/internal-info", subject), subject)
        parts = info.get("partitions")
        rows = {topic: info} if parts is None else self._object(parts, subject)
        times = {
            _partition_number(name): self._object(one, subject).get("creationDate")
            for name, one in rows.items()
        }
        return {
            number: time
            for number, time in sorted(times.items())
            if isinstance(time, str) and not time.startswith(_NO_TIME)
        }

    def usage(self, topic: str) -> PulsarUsage:
        """Count what a topic stores and name its subscriptions; those of Pulsar itself do not count."""
        path, subject = topic_path(topic), f"topic {topic}"
        found = self._names(self._get(f"{path}/subscriptions", subject), f"subscriptions of {subject}")
        names = [name for name in found if not name.startswith("__")]
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

    def set_schema(self, topic: str, schema: PulsarSchema) -> None:
        """Make a schema the newest of a topic; Pulsar leaves one that is a version of it already as it is."""
        self._do("POST", f"{_schema_path(topic)}/schema", f"schema of topic {topic}", _schema_body(schema))

    def create_missed_partitions(self, topic: str) -> None:
        """Create the partitions that a topic should have by its metadata and does not."""
        self._do("POST", f"{topic_path(topic)}/createMissedPartitions", f"topic {topic}")

    def set_topic_policy(self, topic: str, policy: str, value: bool | int) -> None:
        """Set one policy of a topic: deduplication or compaction."""
        path = f"{topic_path(topic)}/{_POLICIES_OF_TOPICS[policy]}"
        self._do("POST", path, f"{policy} of topic {topic}", value)

    def remove_topic_policy(self, topic: str, policy: str) -> None:
        """Remove a policy of a topic, so that the namespace's is in effect."""
        path = f"{topic_path(topic)}/{_POLICIES_OF_TOPICS[policy]}"
        self._do("DELETE", path, f"{policy} of topic {topic}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it; one that is in use is refused by the broker."""
        state = self._topic(topic)
        path = topic_path(topic)
        self._do("DELETE", f"{path}/partitions" if state and state.partitions else path, f"topic {topic}")

    # How requests end

    def _topic(
        self, topic: str, policies: Collection[str] = (), there: Collection[str] | None = None
    ) -> PulsarTopicState | None:
        path, subject = topic_path(topic), f"topic {topic}"
        found = self._find(f"{path}/partitions", subject)
        if found is None:
            return None
        partitions = whole(self._object(found.value, subject).get("partitions")) or 0
        if not 0 <= partitions <= MAX_PARTITIONS:
            raise self._strange(f"number of partitions for {subject}", partitions)
        hidden: list[str] = []
        read = dict.fromkeys(policies, self._policy_if_allowed) | {SCHEMA: self._schema_if_allowed}
        own: dict[str, Any] = {name: read[name](topic, name, hidden) for name in policies}
        applied = [n for n in TOPIC_POLICIES if n in policies and own[n] is None and n not in hidden]
        inherited: dict[str, Any] = {name: self._policy(topic, name, applied=True) for name in applied}
        # Nothing lists the partitions of a topic that is not stored: they are there while they are used.
        stored = there is not None and topic.startswith("persistent://")
        return PulsarTopicState(
            partitions=partitions,
            **own,
            missing=tuple(
                number
                for number in range(partitions if stored else 0)
                if f"{topic}{PARTITION}{number}" not in (there or ())
            ),
            inherited=Policies(**inherited),
            hidden=tuple(hidden),
        )

    def _schema_if_allowed(self, topic: str, name: str, hidden: list[str]) -> PulsarSchema | None:
        try:
            answer = self._find(f"{_schema_path(topic)}/schema", f"schema of topic {topic}")
        except AccessDenied:
            hidden.append(name)
            return None
        if answer is None:
            return None
        return self._schema(answer.value, f"schema of topic {topic}")

    def _schema(self, found: Any, subject: str) -> PulsarSchema:
        value = self._object(found, subject)
        return PulsarSchema(
            type=str(value.get("type")),
            definition=str(value.get("data") or ""),
            version=whole(value.get("version")) or 0,
        )

    def _policy_if_allowed(self, topic: str, policy: str, hidden: list[str]) -> Any:
        """Read a policy of a topic; one that may not be seen is None and added to `hidden`."""
        try:
            return self._policy(topic, policy)
        except AccessDenied:
            hidden.append(policy)
            return None

    def _policy(self, topic: str, policy: str, *, applied: bool = False) -> Any:
        """Read a policy of a topic: its own, or with `applied` the one in effect; None if there is none."""
        path, subject = f"{topic_path(topic)}/{_POLICIES_OF_TOPICS[policy]}", f"{policy} of topic {topic}"
        answer = self._rest.call("GET", f"{path}?applied=true" if applied else path)
        if answer.status == NOT_ALLOWED:
            return None
        value = self._accepted(subject, answer).value
        if value is None:
            return None
        if policy == "retention":
            return self._retention(value)
        if policy == "replication":
            return tuple(sorted(map(str, value))) if isinstance(value, list) else None
        return bool(value) if policy == "deduplication" else whole(value)

    def _listed_if_allowed(self, namespace: str) -> frozenset[str] | None:
        try:
            return self._listed(namespace)
        except AccessDenied:
            return None

    def _listed(self, namespace: str) -> frozenset[str]:
        """Name the stored topics of a namespace, each partition by itself."""
        path, subject = f"/persistent/{namespace_path(namespace)}", f"topics of namespace {namespace}"
        answer = self._find(path, subject)
        return frozenset(map(str, answer.value)) if answer and isinstance(answer.value, list) else frozenset()

    def _defaults(self, policies: Iterable[str], topics: Sequence[str]) -> Policies:
        """Read what topics of a namespace inherit, from some that have no policies of their own."""
        names = list(dict.fromkeys(_without_partition(topic) for topic in topics))[:MAX_PROBED]
        found: dict[str, Any] = {}
        for policy in policies:
            inheriting = (name for name in names if self._policy(name, policy) is None)
            name = next(inheriting, None)
            found[policy] = None if name is None else self._policy(name, policy, applied=True)
        return Policies(**found)

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
            advice = next((text for words, text in _ADVICE.items() if words in answer.reason), None)
            if advice is None:
                raise self._rest.refuse(subject, answer)
            raise ClusterError(
                f"{self._rest.name} refused: {subject}",
                where=self._rest.address,
                why=answer.reason,
                next=advice,
            )
        return answer

    def _object(self, value: Any, subject: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._strange(f"object for {subject}", value)
        return value

    def _names(self, value: Any, subject: str) -> list[str]:
        """Give a list of names; none if there is no value."""
        names = [] if value is None else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._strange(f"names for {subject}", value)
        return names

    def _strange(self, wanted: str, value: Any) -> ClusterError:
        return ClusterError(
            f"{self._rest.name} gave no {wanted}", where=self._rest.address, why=repr(value)[:200]
        )


# Pulsar's words; the first two come with the status of a missing right.
_ADVICE: Final[Mapping[str, str]] = {
    "Invalid cluster id": "name clusters that this Pulsar knows in geo-replication of the contract",
    "allowed clusters": "let the tenant use this cluster, or leave it out of geo-replication in the contract",
    "backlog quota": "raise retention in the contract above the backlog quota of the namespace, or lower it",
}
_POLICIES: Final[Mapping[str, str]] = {
    "retention": "retention",
    "ttl": "messageTTL",
    "replication": "replication",
}
_POLICIES_OF_TOPICS: Final[Mapping[str, str]] = {
    **_POLICIES,
    "deduplication": "deduplicationEnabled",
    "compaction": "compactionThreshold",
}


def _body(value: Retention | int | tuple[str, ...]) -> Any:
    if isinstance(value, Retention):
        return {"retentionTimeInMinutes": value.minutes, "retentionSizeInMB": value.megabytes}
    return list(value) if isinstance(value, tuple) else value


def _schema_path(topic: str) -> str:
    return f"/schemas/{topic_path(topic).split('/', 2)[2]}"


def _schema_body(schema: PulsarSchema) -> dict[str, Any]:
    return {"type": schema.type, "schema": schema.definition, "properties": {}}


def _first_words(reason: str) -> str:
    """Give the message in an error of the broker, without the stack trace behind it."""
    return " ".join(reason.partition("Stacktrace:")[0].rpartition("Message:")[2].split())


def _without_partition(topic: str) -> str:
    name, mark, number = topic.rpartition(PARTITION)
    return name if mark and number.isdecimal() else topic


def _partition_number(topic: str) -> int:
    _, mark, number = topic.rpartition(PARTITION)
    return int(number) if mark and number.isdecimal() else 0


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
