"""What a named producer has stored in a topic, read back from the topic's end.

A broker tells the highest sequence id that was pushed under a name: after a failed write that is ahead of
what is stored, and after `brokerDeduplicationProducerInactivityTimeoutMinutes` it has forgotten the name.
Entries carry the name and the ids, so the log itself is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery
from penstock.brokers.pulsar.ledgers import place_before_end
from penstock.errors import ClusterError, Unreachable
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.pipeline.delivery.pulsar.log import PulsarLog
from penstock.pipeline.delivery.pulsar.producer_names import names_of_run
from penstock.wire.pulsar import EARLIEST, LATEST, Entry, MessageId

__all__ = ["StoredIds", "find_stored", "has_all_since"]

_WINDOWS: Final = (16 << 20, 256 << 20, 4 << 30, 64 << 30)
"""Bytes before the end that are looked through, a larger one if the smaller does not answer; then all."""
_CLOCKS: Final = 600_000
"""Milliseconds by which the clocks of two machines may differ."""
_QUIET_SECONDS: Final = 3.0
"""After so long without an entry it is asked whether the last one is given to readers at all."""
_SECONDS: Final = 60.0
"""For the next entry of a look; how long all of them take is a matter of the topic's size."""


class StoredIds(NamedTuple):
    """The ids of the entries of one producer, as far as was looked."""

    highest: int
    """-1 if there is none."""
    entries: frozenset[int]
    """The highest id of each entry."""
    is_whole_log: bool
    oldest: int = -1
    """When the oldest entry of this run that was looked at was published, in milliseconds; -1: there is none.

    Whoever else writes to the topic may put any time into his entries, such as that of an old record.
    """


async def find_stored(
    cluster: PulsarCluster,
    topic: str,
    name: str,
    *,
    enough: Callable[[StoredIds], bool],
    since: int | None = None,
) -> StoredIds:
    """Look for entries of a producer, further and further back until it is `enough` or all was looked at.

    What was published before `since`, in milliseconds, is not looked for; clocks may differ by ten minutes.
    That is told by the times of this run's own entries, and by when the broker closed a ledger.

    Raises Unreachable if it takes too long: then nothing is known.
    """
    last = await _last(cluster, topic)
    if last.entry_id < 0:
        return StoredIds(-1, frozenset(), is_whole_log=True)
    until = -1 if since is None else since - _CLOCKS

    def suffices(found: StoredIds) -> bool:
        return enough(found) or found.is_whole_log or 0 <= found.oldest < until

    # Mostly nobody else has written since.
    found = await _look(cluster, topic, name, last, last)
    if suffices(found):
        return found
    floor = EARLIEST if since is None else _first_since(await cluster.admin.ledger_ends(topic), until)
    stats = await cluster.admin.stats(topic, internal=True)
    for size in _WINDOWS:
        start = max(place_before_end(stats, size), floor)
        found = await _look(cluster, topic, name, start, last)
        if suffices(found) or start == floor:
            return found
    return await _look(cluster, topic, name, floor, last)


async def has_all_since(cluster: PulsarCluster, topic: str, name: str, since: int | None) -> bool:
    """Return whether a topic certainly holds all that was written to it since a time, in milliseconds.

    A broker removes whole ledgers, the oldest first, and does not say how many. So it is certain only if a
    ledger is left that began before, an entry of this run is as old, or the first message ever is there.
    """
    # Asked first: what is removed from now on was looked for when it was there.
    if await PulsarLog(cluster, topic, 0, 0).holds_first():
        return True
    if since is None:
        return False
    until = since - _CLOCKS
    if any(0 < end < until for end in (await cluster.admin.ledger_ends(topic)).values()):
        return True
    last = await _last(cluster, topic)
    if last.entry_id < 0:
        return False
    found = await _look(cluster, topic, name, EARLIEST, last)
    return 0 <= found.oldest < until


def _first_since(ends: Mapping[int, int], until: int) -> MessageId:
    """Return where the last ledger begins that has a time before `until`: what is before is older.

    It is looked through itself: the time of a ledger that is open may be that at which it was begun.

    >>> [_first_since(ends, 60)[:2] for ends in ({3: 50, 7: 55, 9: 90}, {3: 50}, {9: 0}, {9: 60})]
    [(7, 0), (3, 0), (-1, -1), (-1, -1)]
    """
    older = max((ledger for ledger, end in ends.items() if 0 < end < until), default=None)
    return EARLIEST if older is None else MessageId(older, 0)


async def _last(cluster: PulsarCluster, topic: str) -> MessageId:
    reader = await cluster.client.reader(topic, start=LATEST, read_bytes=1, create=False)
    try:
        return await reader.last_message_id()
    finally:
        await reader.close()


async def _look(
    cluster: PulsarCluster, topic: str, name: str, start: MessageId, last: MessageId
) -> StoredIds:
    """Read the heads of entries from a place to one that is known to be there."""
    wanted, family = name.encode(), names_of_run(name).encode()

    def id_of(delivery: Delivery) -> tuple[int, int]:
        entry = delivery.entry
        if not isinstance(entry, Entry) or bytes(entry.producer_name[: len(family)]) != family:
            return -1, -1
        found = max(entry.highest_sequence_id, entry.sequence_id) if entry.producer_name == wanted else -1
        return found, entry.publish_time

    ids: set[int] = set()
    oldest = -1
    reader = await cluster.client.reader(topic, start=start, convert=id_of, create=False)
    try:
        async with asyncio.timeout(_SECONDS) as limit:
            while len(reader) or not _has_come(reader.received, start, last):
                try:
                    async with asyncio.timeout(_QUIET_SECONDS):
                        found, published = await reader.read()
                except TimeoutError:
                    # Anybody may write an entry that the broker counts and gives to no reader. Where that
                    # cannot be asked, it is waited for.
                    with suppress(ClusterError):
                        last = await PulsarLog(cluster, topic, 0, 0).without_hidden(last)
                    continue
                limit.reschedule(asyncio.get_running_loop().time() + _SECONDS)
                ids.add(found)
                oldest = published if oldest < 0 else oldest
    except TimeoutError as exc:
        raise Unreachable(
            f"{topic} could not be looked through: nothing came for {_SECONDS:g} s",
            why="What the producer of this range has stored must be known before more is written.",
            next="run again; an open transaction in the topic hides what is behind it until it ends",
        ) from exc
    finally:
        await reader.close()
    ids.discard(-1)
    return StoredIds(max(ids, default=-1), frozenset(ids), is_whole_log=start == EARLIEST, oldest=oldest)


def _has_come(received: MessageId | None, start: MessageId, last: MessageId) -> bool:
    """Return whether all entries from a place to the last one have come; there may be none."""
    return last.entry_id < 0 or last[:2] < start[:2] or (received is not None and received[:2] >= last[:2])
