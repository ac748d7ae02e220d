"""The admin REST calls that a gateway needs: topics, policies, places in a topic, cursors (version 2).

Topic names are full, and one of a partitioned topic names the partition where a place is asked for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from penstock.brokers.pulsar.rest import AsyncRest
from penstock.brokers.rest import Answer
from penstock.config.secret import Secret
from penstock.errors import ClusterError, UsageError
from penstock.wire.pulsar import MessageId

__all__ = ["Admin", "Creation", "EntryHead", "EntryIndex", "NoEntry"]

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_DENIED: Final = frozenset({401, 403})
_INDEX: Final = "x-pulsar-broker-entry-metadata-index"
_COUNT: Final = "x-pulsar-num-batch-message"
_MARKER: Final = "x-pulsar-marker-type"
_ABORTED: Final = "x-pulsar-txn-aborted"
_UNCOMMITTED: Final = "x-pulsar-txn-uncommitted"


_TOPIC_METADATA: Final = "application/vnd.partitioned-topic-metadata+json"
"""The media type with which a topic is created together with its properties."""


_NO_TIME: Final = "1970-"
"""How a time begins that the broker's metadata store does not keep."""


class Creation(Enum):
    """What became of the wish for a topic."""

    CREATED = auto()
    EXISTS = auto()
    NO_NAMESPACE = auto()


_CREATIONS: Final[Mapping[int, Creation]] = {
    _CONFLICT: Creation.EXISTS,
    _NOT_FOUND: Creation.NO_NAMESPACE,
}
_ENTRIES_AT_ONCE: Final = 16
"""Entries that are asked for at a time: they come in crowds, and other questions shall not wait for them."""


_ABSENT: Final = ("not found", "LastConfirmedEntry is", "NonRecoverableLedger", "Incorrect parameter")
"""What a broker says, with status 500, of an entry that is not there. Of one that it cannot read now, because
bookies are away or it has too much to do, it says something else."""


class NoEntry(ClusterError):
    """An entry is not there: it was removed or never written."""


class EntryIndex(NamedTuple):
    """What the broker-entry metadata and the batch say about an entry."""

    last_index: int
    """The index of the last message in the entry."""
    num_messages: int


@dataclass(frozen=True, slots=True)
class EntryHead:
    """What the broker tells of an entry without its payload."""

    index: EntryIndex | None
    """None if the broker keeps no index."""
    is_hidden: bool
    """Whether no reader is ever given it: a marker, or a message of a transaction that was aborted."""
    is_held_back: bool
    """Whether a transaction that is open now lies before it, so that no reader is given it yet."""


class Admin:
    """An asyncio client of the admin API; the token is read again for each request."""

    def __init__(
        self,
        url: str,
        *,
        token: Secret | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        hosts: Iterable[str] = (),
    ) -> None:
        """`hosts` belong to the cluster as well; further brokers are taken from its own list of them."""
        base = f"{url.rstrip('/')}/admin/v2"
        self._rest = AsyncRest(base, name="pulsar", token=token, tls=tls, timeout=timeout, hosts=hosts)
        self._entries = asyncio.Semaphore(_ENTRIES_AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.aclose()

    # Namespaces

    async def create_namespace(self, namespace: str) -> None:
        """Create `tenant/namespace`, if it is not there; a role that may use one need not be able to."""
        answer, _ = await self._rest.ask("PUT", f"/namespaces/{quote(namespace)}", {})
        if answer.status == _CONFLICT:
            return
        if answer.status in _DENIED:
            # What every role of a namespace may ask. Not before: of a namespace that is not there a broker
            # remembers bundles that it will not have.
            found, _ = await self._rest.ask("GET", f"/persistent/{quote(namespace)}/partitioned")
            if found.ok:
                return
        self._accepted(f"namespace {namespace}", answer)

    async def namespace_retention(self, namespace: str) -> Mapping[str, int] | None:
        """Read the retention of `tenant/namespace`; None if it has none of its own."""
        found = await self._get(f"/namespaces/{quote(namespace)}/retention", f"namespace {namespace}")
        return found if isinstance(found, dict) else None

    # Topics

    async def topics(self, namespace: str) -> tuple[str, ...]:
        """Name the persistent topics of `tenant/namespace`, each partition by itself."""
        return await self._names(f"/persistent/{quote(namespace)}", f"namespace {namespace}")

    async def partitioned_topics(self, namespace: str) -> tuple[str, ...]:
        """Name the topics of `tenant/namespace` that have partitions."""
        return await self._names(f"/persistent/{quote(namespace)}/partitioned", f"namespace {namespace}")

    async def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Create a topic; 0 partitions make one without."""
        path = _path(topic)
        if partitions:
            await self._do("PUT", f"{path}/partitions", f"topic {topic}", partitions)
        else:
            await self._do("PUT", path, f"topic {topic}")

    async def create_partitioned_topic(
        self, topic: str, partitions: int, properties: Mapping[str, str]
    ) -> Creation:
        """Create a topic with partitions and properties in one step: of several callers one creates it."""
        value = {"partitions": partitions, "properties": dict(properties)}
        path = f"{_path(topic)}/partitions"
        answer, _ = await self._rest.ask("PUT", path, value, content_type=_TOPIC_METADATA)
        if answer.status not in _CREATIONS:
            self._accepted(f"topic {topic}", answer)
        return _CREATIONS.get(answer.status, Creation.CREATED)

    async def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions; Pulsar refuses fewer than there are."""
        await self._do("POST", f"{_path(topic)}/partitions", f"topic {topic}", total)

    async def delete_topic(self, topic: str, *, partitioned: bool, force: bool = False) -> None:
        """Delete a topic with everything in it; one that is in use only by force."""
        path = f"{_path(topic)}{'/partitions' if partitioned else ''}"
        await self._do("DELETE", f"{path}?force={str(force).lower()}", f"topic {topic}")

    async def unload(self, topic: str) -> None:
        """Let go of a topic; it is loaded again, maybe elsewhere, when somebody asks for it."""
        await self._do("PUT", f"{_path(topic)}/unload", f"topic {topic}")

    async def terminate(self, topic: str) -> None:
        """Let nothing more be written to a topic; what is in it can be read."""
        await self._do("POST", f"{_path(topic)}/terminate", f"topic {topic}")

    async def truncate(self, topic: str) -> None:
        """Delete everything that is in a topic now."""
        await self._do("DELETE", f"{_path(topic)}/truncate", f"topic {topic}")

    async def compact(self, topic: str) -> None:
        """Start a compaction; `compaction_status` says when it is done."""
        await self._do("PUT", f"{_path(topic)}/compaction", f"compaction of topic {topic}")

    async def compaction_status(self, topic: str) -> str:
        """Give NOT_RUN, RUNNING, SUCCESS or ERROR."""
        found = await self._get(f"{_path(topic)}/compaction", f"compaction of topic {topic}")
        return str(found.get("status")) if isinstance(found, dict) else ""

    async def stats(self, topic: str, *, internal: bool = False) -> Mapping[str, Any]:
        """Read the statistics of a topic, or those of its managed ledger."""
        path = f"{_path(topic)}/{'internalStats' if internal else 'stats'}"
        found = await self._get(path, f"topic {topic}")
        return found if isinstance(found, dict) else {}

    async def created(self, topic: str) -> str | None:
        """Read when a topic without partitions, or one partition, was created, as the broker writes it.

        None where the broker's metadata store keeps no times.
        """
        found = await self._get(f"{_path(topic)}/internal-info", f"topic {topic}")
        time = found.get("creationDate") if isinstance(found, dict) else None
        return time if isinstance(time, str) and not time.startswith(_NO_TIME) else None

    async def ledger_ends(self, topic: str) -> Mapping[int, int]:
        """Read when each ledger of a topic was closed, in milliseconds by the broker.

        That of an open one may be 0, or when it was begun.
        """
        found = await self._get(f"{_path(topic)}/internal-info", f"topic {topic}")
        rows = found.get("ledgers") if isinstance(found, dict) else None
        return {int(row["ledgerId"]): int(row.get("timestamp") or 0) for row in rows or ()}

    # Policies, by their name in the path: retention, compactionThreshold, maxMessageSize, ...

    async def policy(self, topic: str, name: str, *, applied: bool = False) -> Any:
        """Read a policy of a topic; None if nothing is set on it.

        `applied` reads what holds for the topic, be it by the policy of the namespace or of the broker.
        """
        query = "?applied=true" if applied else ""
        return await self._get(f"{_path(topic)}/{name}{query}", f"{name} of topic {topic}")

    async def set_policy(self, topic: str, name: str, value: Any) -> None:
        """Set a policy of a topic."""
        await self._do("POST", f"{_path(topic)}/{name}", f"{name} of topic {topic}", value)

    async def remove_policy(self, topic: str, name: str) -> None:
        """Let the policy of the namespace apply again."""
        await self._do("DELETE", f"{_path(topic)}/{name}", f"{name} of topic {topic}")

    async def properties(self, topic: str) -> Mapping[str, str] | None:
        """Read the properties of a topic; None if there is no such topic."""
        answer, _ = await self._rest.ask("GET", f"{_path(topic)}/properties")
        if answer.status == _NOT_FOUND:
            return None
        found = self._accepted(f"properties of topic {topic}", answer).value
        return found if isinstance(found, dict) else {}

    async def remove_property(self, topic: str, name: str) -> None:
        """Remove a property of a topic, if it has it."""
        path = f"{_path(topic)}/properties?key={_quoted(name)}"
        await self._do("DELETE", path, f"property {name} of topic {topic}")

    async def set_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Add properties to a topic; those it has under other names stay."""
        await self._do("PUT", f"{_path(topic)}/properties", f"properties of topic {topic}", dict(properties))

    async def broker_settings(self) -> Mapping[str, str]:
        """Read the settings that the broker runs with; a super user may."""
        found = await self._get("/brokers/configuration/runtime", "the broker's settings")
        return found if isinstance(found, dict) else {}

    # Places

    async def message_id_by_index(self, topic: str, index: int) -> MessageId | None:
        """Find the entry that holds an index; None behind the last one.

        For an index inside the first entry the broker answers -1:-1, which is EARLIEST.
        """
        return await self._place(f"{_path(topic)}/getMessageIdByIndex?index={index}", topic)

    async def message_id_by_time(self, topic: str, publish_time: int) -> MessageId | None:
        """Find the first entry published at or after a time in milliseconds."""
        return await self._place(f"{_path(topic)}/messageid/{publish_time}", topic)

    async def last_message_id(self, topic: str) -> MessageId | None:
        """Find the last message; its entry id is -1 in an empty topic."""
        return await self._place(f"{_path(topic)}/lastMessageId", topic)

    async def entry_index(self, topic: str, message_id: MessageId) -> EntryIndex | None:
        """Read the index of an entry; None if it has none, NoEntry if there is no such entry."""
        return (await self.entry_head(topic, message_id)).index

    async def entry_head(self, topic: str, message_id: MessageId) -> EntryHead:
        """Read what the broker tells of an entry; NoEntry if there is none."""
        ledger, entry = message_id[:2]
        subject = f"entry {ledger}:{entry} of topic {topic}"
        try:
            async with self._entries:
                answer, headers = await self._rest.ask("GET", f"{_path(topic)}/ledger/{ledger}/entry/{entry}")
            self._accepted(subject, answer)
        except ClusterError as exc:
            if _is_absent(exc):
                raise NoEntry(f"there is no {subject}", where=exc.where, why=exc.why) from exc
            raise
        index = None
        if _INDEX in headers:
            try:
                index = EntryIndex(int(headers[_INDEX]), int(headers.get(_COUNT, "1")))
            except ValueError as exc:
                what = f"the index of an entry of topic {topic} is no number"
                raise ClusterError(what, why=str(exc)) from exc
        return EntryHead(
            index,
            is_hidden=_MARKER in headers or headers.get(_ABORTED) == "true",
            is_held_back=headers.get(_UNCOMMITTED) == "true",
        )

    # Cursors

    async def create_subscription(self, topic: str, subscription: str, place: MessageId) -> None:
        """Create a subscription that begins behind a message."""
        path = f"{_path(topic)}/subscription/{_quoted(subscription)}"
        await self._do("PUT", path, f"subscription {subscription} of topic {topic}", _json(place))

    async def reset_cursor(self, topic: str, subscription: str, place: MessageId) -> None:
        """Move a subscription; its live consumers are disconnected."""
        path = f"{_path(topic)}/subscription/{_quoted(subscription)}/resetcursor"
        await self._do("POST", path, f"subscription {subscription} of topic {topic}", _json(place))

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Delete a subscription that nobody uses."""
        path = f"{_path(topic)}/subscription/{_quoted(subscription)}"
        await self._do("DELETE", path, f"subscription {subscription} of topic {topic}")

    # How requests end

    async def _get(self, path: str, subject: str) -> Any:
        answer, _ = await self._rest.ask("GET", path)
        return self._accepted(subject, answer).value

    async def _names(self, path: str, subject: str) -> tuple[str, ...]:
        found = await self._get(path, subject)
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            # What stands before the broker may answer with a page of its own.
            raise ClusterError(
                f"pulsar gave no names for {subject}", where=self._rest.address, why=repr(found)[:200]
            )
        return tuple(sorted(found))

    async def _do(self, method: str, path: str, subject: str, value: Any = None) -> None:
        answer, _ = await self._rest.ask(method, path, value)
        self._accepted(subject, answer)

    async def _place(self, path: str, topic: str) -> MessageId | None:
        answer, _ = await self._rest.ask("GET", path)
        if answer.status == _NOT_FOUND:
            return None
        found = self._accepted(f"topic {topic}", answer).value
        try:
            return MessageId(found["ledgerId"], found["entryId"], found.get("batchIndex", -1))
        except (KeyError, TypeError, AttributeError) as exc:
            raise ClusterError(
                f"no message id came for topic {topic}", where=self._rest.address, why=repr(found)[:200]
            ) from exc

    def _accepted(self, subject: str, answer: Answer) -> Answer:
        if not answer.ok:
            raise self._rest.refuse(subject, answer)
        return answer


def _is_absent(refused: ClusterError) -> bool:
    """Say whether the broker means that an entry is not there; one that gives no reason is taken to."""
    if type(refused) is not ClusterError:
        return False
    why = refused.why or ""
    return why.startswith("HTTP status") or any(sign in why for sign in _ABSENT)


def _json(place: MessageId) -> dict[str, int]:
    return {"ledgerId": place.ledger_id, "entryId": place.entry_id, "batchIndex": place.batch_index}


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _path(topic: str) -> str:
    """Write a topic's name as a path.

    >>> _path("persistent://acme/shop/orders eu")
    '/persistent/acme/shop/orders%20eu'
    """
    persistence, separator, rest = topic.partition("://")
    parts = rest.split("/", 2)
    if not separator or len(parts) != 3:
        raise UsageError(f"'{topic}' is not the full name of a topic", next="write persistent://tenant/ns/x")
    return "/" + "/".join(map(_quoted, (persistence, *parts)))
