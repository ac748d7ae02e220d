"""The REST calls that the gateway makes, answered by the topics of a simulated Pulsar.

The real `Admin` is on top. An answer takes a while, may be an error of the server, and may be lost after the
call has had its effect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from penstock.brokers.pulsar import Admin
from penstock.brokers.rest import Answer, Rest
from penstock.errors import Unreachable
from penstock.wire.pulsar import MessageId
from simulator.pulsar import Pulsar
from simulator.pulsar_cursor import Cursor, first_place
from simulator.pulsar_topic import Topic

__all__ = ["admin_of"]

_TOPIC: Final = re.compile(r"/persistent/([^/]+/[^/]+/[^/?]+)(?:/([^?]*))?(?:\?(.*))?")
_Result = tuple[int, Any, Mapping[str, str]]
_NOT_FOUND: Final = (404, {"reason": "not found"}, {})


def admin_of(pulsar: Pulsar) -> Admin:
    """Give the admin client of a node."""
    admin = Admin.__new__(Admin)
    admin._rest = _SimulatedRest(pulsar)
    admin._entries = asyncio.Semaphore(16)
    return admin


class _SimulatedRest(Rest):
    """What `Admin` sends its requests with."""

    def __init__(self, pulsar: Pulsar) -> None:
        self.name, self.base, self.address = "pulsar", "http://simulated", "http://simulated"
        self._pulsar = pulsar

    async def ask(
        self, method: str, path: str, value: Any = None, *, content_type: str | None = None
    ) -> tuple[Answer, Mapping[str, str]]:
        pulsar = self._pulsar
        await asyncio.sleep(pulsar.network.delays.next())
        if pulsar.random.random() < pulsar.admin_failures:
            raise Unreachable("cannot reach pulsar", where=self.address)
        status, found, headers = self._answer(method, path, value)
        await asyncio.sleep(pulsar.network.delays.next())
        if pulsar.random.random() < pulsar.admin_failures:
            raise Unreachable("the answer of pulsar was lost", where=self.address)
        if status >= 500:
            raise Unreachable("pulsar is not serving", where=self.address)
        return Answer(status, found), headers

    async def aclose(self) -> None:
        return

    def _answer(self, method: str, path: str, value: Any) -> _Result:
        found = _TOPIC.fullmatch(path)
        if found is None:
            return 204, None, {}
        name = "persistent://" + unquote(found[1])
        rest, query = found[2] or "", found[3] or ""
        topic = self._pulsar.topics.get(name)
        if topic is None:
            return self._of_partitioned(name, rest)
        if topic.owner is None:
            return 503, {"reason": "not served"}, {}
        for pattern, handler in _CALLS:
            matched = re.fullmatch(pattern, f"{method} {rest}")
            if matched is not None:
                return handler(topic, matched, query, value)
        raise NotImplementedError(f"{method} {rest} is not simulated")

    def _of_partitioned(self, name: str, rest: str) -> _Result:
        if name not in self._pulsar.partitions:
            return _NOT_FOUND
        if rest == "properties":
            return 200, {}, {}
        # Policies: nothing is set.
        return 204, None, {}


def _place(place: MessageId) -> dict[str, int]:
    return {"ledgerId": place.ledger_id, "entryId": place.entry_id, "batchIndex": place.batch_index}


def _internal_stats(topic: Topic, *_: Any) -> _Result:
    *closed, current = topic.ledgers.items()
    rows = [
        {"ledgerId": ledger, "entries": len(entries), "size": 100 * len(entries)}
        for ledger, entries in closed
    ]
    rows.append({"ledgerId": current[0], "entries": 0, "size": 0})
    properties = {**topic.properties, "index": str(topic.next_index - 1)}
    cursors = {name: cursor.internal_stats() for name, cursor in topic.cursors.items()}
    found = {
        "ledgers": rows,
        "currentLedgerEntries": len(current[1]),
        "currentLedgerSize": 100 * len(current[1]),
        "properties": properties,
        "cursors": cursors,
    }
    return 200, found, {}


def _stats(topic: Topic, *_: Any) -> _Result:
    rows = {name: cursor.stats(topic) for name, cursor in topic.cursors.items()}
    return 200, {"subscriptions": rows}, {}


def _entry(topic: Topic, matched: re.Match[str], *_: Any) -> _Result:
    entry = topic.at(MessageId(int(matched[1]), int(matched[2])))
    if entry is None:
        return _NOT_FOUND
    headers = {
        "x-pulsar-broker-entry-metadata-index": str(entry.index),
        "x-pulsar-num-batch-message": str(entry.messages),
    }
    return 200, None, headers


def _by_time(topic: Topic, matched: re.Match[str], *_: Any) -> _Result:
    for entry in topic.entries():
        if entry.published >= int(matched[1]):
            return 200, _place(entry.place), {}
    last = topic.last_place()
    return 200, _place(MessageId(last.ledger_id, last.entry_id + 1)), {}


def _by_index(topic: Topic, _: re.Match[str], query: str, __: Any) -> _Result:
    index, first = int(query.removeprefix("index=")), True
    for entry in topic.entries():
        if entry.index >= index:
            inside_first = first and index < entry.index
            return 200, _place(MessageId(-1, -1) if inside_first else entry.place), {}
        first = False
    return _NOT_FOUND


def _last(topic: Topic, *_: Any) -> _Result:
    return 200, _place(topic.last_place()), {}


def _create_subscription(topic: Topic, matched: re.Match[str], _: str, value: Any) -> _Result:
    name = unquote(matched[1])
    if name in topic.cursors:
        return 409, {"reason": "exists"}, {}
    place = first_place(topic, MessageId(value["ledgerId"], value["entryId"]))
    topic.cursors[name] = Cursor(MessageId(place.ledger_id, place.entry_id + 1))
    return 204, None, {}


def _reset(topic: Topic, matched: re.Match[str], _: str, value: Any) -> _Result:
    name = unquote(matched[1])
    if name not in topic.cursors:
        return _NOT_FOUND
    cursor = topic.cursors[name]
    for consumer in [each for each in topic.consumers if each.cursor is cursor]:
        topic.consumers.remove(consumer)
        consumer.session.close_consumer(consumer.consumer_id)
    cursor.move(first_place(topic, MessageId(value["ledgerId"], value["entryId"])))
    return 204, None, {}


def _delete_subscription(topic: Topic, matched: re.Match[str], *_: Any) -> _Result:
    name = unquote(matched[1])
    if name not in topic.cursors:
        return _NOT_FOUND
    if any(consumer.cursor is topic.cursors[name] for consumer in topic.consumers):
        return 412, {"reason": "in use"}, {}
    del topic.cursors[name]
    return 204, None, {}


def _properties(topic: Topic, matched: re.Match[str], _: str, value: Any) -> _Result:
    if matched[1] == "PUT":
        topic.properties |= value
    return 200, dict(topic.properties), {}


def _no_policy(*_: Any) -> _Result:
    return 204, None, {}


_CALLS: Final[list[tuple[str, Callable[..., _Result]]]] = [
    (r"GET internalStats", _internal_stats),
    (r"GET stats", _stats),
    (r"GET internal-info", lambda *_: (200, {}, {})),
    (r"GET (compactionThreshold|retention|maxMessageSize)", _no_policy),
    (r"GET ledger/(-?\d+)/entry/(-?\d+)", _entry),
    (r"GET messageid/(\d+)", _by_time),
    (r"GET getMessageIdByIndex", _by_index),
    (r"GET lastMessageId", _last),
    (r"(GET|PUT) properties", _properties),
    (r"PUT subscription/([^/]+)", _create_subscription),
    (r"POST subscription/([^/]+)/resetcursor", _reset),
    (r"DELETE subscription/([^/]+)", _delete_subscription),
]
