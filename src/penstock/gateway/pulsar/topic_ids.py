"""The ids of topics (KIP-516), the same on every gateway, and which topic an id means.

A topic that a gateway creates gets a random id, kept as a property of the Pulsar topic: created again, it has
another one. A topic without the property, made by Pulsar's own tools or by a gateway of an earlier version,
has an id that is computed from its name. While a gateway lives that knows only computed ids, all use them.

A gateway that is asked for an id it does not know asks the others, through the topic in which gateways say
that they live; what nobody knows is not asked for again for a while. A gateway that creates or deletes a
topic tells the others to read its id again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import WeakMethod

from penstock.brokers.pulsar import Admin
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import AccessDenied, PenstockError
from penstock.gateway.pulsar.names import Names

__all__ = ["ID_PROPERTY", "TopicIds"]

log = logging.getLogger("penstock.gateway")

ID_PROPERTY: Final = "penstock.kafka.topic-id"
_VALID_SECONDS: Final = 60.0
"""After so long an id is read again when its topic is asked for by name."""
_UNKNOWN_SECONDS: Final = 10.0
"""For so long an id that nobody knows is not asked for again."""
_ANSWER_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.01
"""Questions that come up within this time are asked together."""
_READS_AT_ONCE: Final = 16
_MAX_QUESTIONS: Final = 256
"""Ids that are asked for at the same time; more are unknown at once."""
_MAX_KNOWN: Final = 100_000
_MAX_UNKNOWN: Final = 10_000
_TOGETHER: Final = 100
"""Rows of one message: with the longest names still far from the largest."""


class _Read(NamedTuple):
    topic_id: uuid.UUID
    at: float


class TopicIds:
    """What one gateway knows of ids, for all its principals; made in the running loop."""

    def __init__(
        self,
        *,
        tell: Callable[[bytes], Awaitable[None]] | None = None,
        has_peers: Callable[[], bool] = lambda: False,
        by_name_only: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` reaches all gateways, this one included; `by_name_only` says that one knows no others."""
        self._computed = Names().topic_id
        self._own = secrets.token_hex(8)
        """What this gateway's messages are known by when they come back."""
        self._changes: dict[str, int] = {}
        """How often a topic was forgotten: what was read meanwhile may be old."""
        self._tell = tell
        self._has_peers = has_peers
        self._by_name_only = by_name_only
        self._clock = clock
        self._ids: dict[str, _Read] = {}
        self._topics: dict[uuid.UUID, str] = {}
        self._unknown: dict[uuid.UUID, float] = {}
        self._questions: dict[uuid.UUID, asyncio.Future[str | None]] = {}
        self._unasked: list[uuid.UUID] = []
        self._watchers: list[WeakMethod[Callable[[str], None]]] = []
        self._turn = asyncio.Semaphore(_READS_AT_ONCE)
        self._tasks = Tasks()

    # The id of a topic

    def known_id(self, topic: str) -> uuid.UUID | None:
        """Give the id of a partitioned Pulsar topic if it was read once, however long ago."""
        if self._by_name_only():
            return self.by_name(topic)
        known = self._ids.get(topic)
        return None if known is None else known.topic_id

    async def id_of(self, topic: str, admin: Admin) -> uuid.UUID | None:
        """Give the id of a partitioned Pulsar topic, read with the rights of `admin`; None if it is gone."""
        if self._by_name_only():
            return self.by_name(topic)
        known = self._ids.get(topic)
        if known is not None and self._clock() - known.at < _VALID_SECONDS:
            return known.topic_id
        try:
            properties = await self._read(topic, admin)
        except AccessDenied:
            return self._unread(topic)
        if properties is None:
            self.forget(topic)
            return None
        found = _parse_id(properties.get(ID_PROPERTY)) or self._computed(topic)
        self._learn(topic, found)
        return found

    async def _read(self, topic: str, admin: Admin) -> Mapping[str, str] | None:
        """Read the properties, once more if the topic is said to have changed meanwhile."""
        while True:
            changes = self._changes.get(topic)
            async with self._turn:
                found = await admin.properties(topic)
            if self._changes.get(topic) == changes:
                return found

    def _unread(self, topic: str) -> uuid.UUID:
        """Give an id to one who may not read it: what others have read, or else the name has to do.

        That one leads to the topic until somebody has read the id, and is given to nobody who may read it.
        """
        known = self._ids.get(topic)
        if known is not None:
            return known.topic_id
        topic_id = self._computed(topic)
        self._lead(topic_id, topic)
        return topic_id

    def by_name(self, topic: str) -> uuid.UUID:
        """Give the id that is computed from the name of a Pulsar topic."""
        topic_id = self._computed(topic)
        if self._topics.get(topic_id) != topic:
            self._learn(topic, topic_id)
        return topic_id

    def created(self, topic: str, topic_id: uuid.UUID) -> None:
        """Note the id of a topic that this gateway has just created, and tell the others."""
        self._learn(topic, topic_id)
        self.changed(topic)

    def deleted(self, topic: str) -> None:
        """Note that a topic is gone, and tell the others."""
        self.forget(topic)
        self.changed(topic)

    def changed(self, topic: str) -> None:
        """Tell the others that what they know of a topic may be wrong."""
        self._say({"changed-topics": [topic]})

    def watch(self, on_change: Callable[[str], None]) -> None:
        """Call a method when another gateway has changed a topic, for as long as its object lives."""
        self._watchers.append(WeakMethod(on_change))

    def forget(self, topic: str) -> None:
        """Let the id of a topic be read again."""
        self._changes[topic] = self._changes.pop(topic, 0) + 1
        _shorten(self._changes, _MAX_UNKNOWN)
        self._drop(topic)

    def _drop(self, topic: str) -> None:
        known = self._ids.pop(topic, None)
        for topic_id in (self._computed(topic), known and known.topic_id):
            if topic_id is not None and self._topics.get(topic_id) == topic:
                del self._topics[topic_id]

    def _learn(self, topic: str, topic_id: uuid.UUID) -> None:
        self._drop(topic)
        self._ids[topic] = _Read(topic_id, self._clock())
        _shorten(self._ids, _MAX_KNOWN)
        self._lead(topic_id, topic)

    def _lead(self, topic_id: uuid.UUID, topic: str) -> None:
        self._topics[topic_id] = topic
        self._unknown.pop(topic_id, None)
        _shorten(self._topics, _MAX_KNOWN)

    # The topic of an id

    def topic_of(self, topic_id: uuid.UUID) -> str | None:
        """Give the Pulsar topic that has an id, if it is known here."""
        return self._topics.get(topic_id)

    async def find(self, topic_id: uuid.UUID) -> str | None:
        """Give the Pulsar topic that has an id; the other gateways are asked if it is not known here."""
        known = self._topics.get(topic_id)
        if known is not None or not self._may_ask(topic_id):
            return known
        if topic_id not in self._questions:
            self._questions[topic_id] = asyncio.get_running_loop().create_future()
            self._ask_later(topic_id)
        return await asyncio.shield(self._questions[topic_id])

    def _may_ask(self, topic_id: uuid.UUID) -> bool:
        if self._tell is None or not self._has_peers():
            return False
        if self._clock() < self._unknown.get(topic_id, 0.0):
            return False
        return topic_id in self._questions or len(self._questions) < _MAX_QUESTIONS

    def _ask_later(self, topic_id: uuid.UUID) -> None:
        if not self._unasked:
            self._tasks.start(self._ask(), name="ask for topic ids")
        self._unasked.append(topic_id)

    async def _ask(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        asked, self._unasked = self._unasked, []
        self._say({"unknown-topic-ids": [str(topic_id) for topic_id in asked]})
        await asyncio.wait([self._questions[topic_id] for topic_id in asked], timeout=_ANSWER_SECONDS)
        for topic_id in asked:
            answer = self._questions.pop(topic_id)
            if not answer.done():
                self._unknown[topic_id] = self._clock() + _UNKNOWN_SECONDS
                answer.set_result(None)
        _shorten(self._unknown, _MAX_UNKNOWN)

    # Among gateways

    def hear(self, data: bytes) -> None:
        """Take in what a gateway tells, this one included; anything else is ignored."""
        message = _read_message(data)
        if message.get("from") == [self._own]:
            return
        for topic in message.get("changed-topics", ()):
            self.forget(topic)
            self._watchers = [each for each in self._watchers if each() is not None]
            for watcher in self._watchers:
                if (on_change := watcher()) is not None:
                    on_change(topic)
        for row in message.get("topic-ids", ()):
            topic_id, topic = _parse_id(row[0]), row[1]
            answer = self._questions.get(topic_id) if topic_id is not None else None
            if answer is not None and not answer.done():
                answer.set_result(topic)
        self._answer([found for text in message.get("unknown-topic-ids", ()) if (found := _parse_id(text))])

    def _answer(self, asked: Sequence[uuid.UUID]) -> None:
        rows = [[str(topic_id), self._topics[topic_id]] for topic_id in asked if topic_id in self._topics]
        for begin in range(0, len(rows), _TOGETHER):
            self._say({"topic-ids": rows[begin : begin + _TOGETHER]})

    def _say(self, message: dict[str, list[Any]]) -> None:
        if self._tell is not None and self._has_peers():
            data = json.dumps(message | {"from": [self._own]}).encode()
            self._tasks.start(self._send(self._tell, data), name="tell topic ids")

    async def _send(self, tell: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
        try:
            await tell(data)
        except PenstockError as exc:
            log.debug("this gateway cannot tell the others of topic ids: %s", exc)

    async def close(self) -> None:
        """Stop asking and telling."""
        await self._tasks.close()


def _parse_id(text: object) -> uuid.UUID | None:
    """Read an id; None for anything else, and for 0, which means none in the protocol.

    >>> _parse_id("no id"), _parse_id(7), _parse_id("0" * 32)
    (None, None, None)
    """
    try:
        found = uuid.UUID(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.int else None


def _read_message(data: bytes) -> dict[str, list[Any]]:
    """Read what a gateway tells about topics; nothing from anything else.

    >>> _read_message(b'{"changed-topics": ["persistent://a/b/c", 7]}'), _read_message(b"[]")
    ({'changed-topics': ['persistent://a/b/c']}, {})
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(message, dict):
        return {}
    found = {}
    for key, is_fitting in _FITTING.items():
        rows = message.get(key)
        if isinstance(rows, list):
            found[key] = [row for row in rows if is_fitting(row)]
    return found


def _is_text(row: object) -> bool:
    return isinstance(row, str)


def _is_pair(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(map(_is_text, row))


_FITTING: Final[Mapping[str, Callable[[object], bool]]] = {
    "from": _is_text,
    "changed-topics": _is_text,
    "topic-ids": _is_pair,
    "unknown-topic-ids": _is_text,
}


def _shorten(table: dict[Any, Any], limit: int) -> None:
    for oldest in list(islice(table, max(0, len(table) - limit))):
        del table[oldest]
