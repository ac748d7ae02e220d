"""Where an entry went of which Pulsar only says that it is stored: read back, known by name and number."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Admin, Delivery, PulsarClient, Reader
from penstock.brokers.pulsar.ledgers import place_before_end
from penstock.errors import Unreachable
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.wire.pulsar import EARLIEST, Entry, MessageId

__all__ = ["Ending", "Trace", "find_trace"]

_MARGIN_MS: Final = 10_000
"""Entries are looked up by their publish time, which need not grow from one to the next."""
_NEAR_END_BYTES: Final = 16 * 1024 * 1024
"""Publish times are chosen by clients and may mislead; what is repeated was written a moment ago."""
_SECONDS: Final = 5.0


class Trace(NamedTuple):
    """What an entry tells of its producer."""

    producer: bytes
    sequence: int
    messages: int


class Ending(NamedTuple):
    """What is known of an entry that somebody else has sent."""

    producer: bytes
    last: int
    """The sequence of its last message."""


async def find_trace(
    client: PulsarClient,
    admin: Admin,
    topic: str,
    trace: Trace | Ending,
    *,
    publish_time: int,
    numbering: Numbering = BY_INDEX,
) -> int | None:
    """Give the offset of an entry; None if it is neither near its publish time nor near the end.

    Raises ClusterError if the log could not be read in a few seconds: then nothing is known.
    """
    place = await admin.message_id_by_time(topic, max(0, publish_time - _MARGIN_MS))
    by_time = place if place is not None and place.entry_id >= 0 else EARLIEST
    look = partial(_look_from, client, topic, trace, numbering)
    found = await look(by_time)
    if found is None:
        near_end = place_before_end(await admin.stats(topic, internal=True), _NEAR_END_BYTES)
        found = await look(near_end) if near_end[:2] < by_time[:2] else None
    return found


async def _look_from(
    client: PulsarClient, topic: str, trace: Trace | Ending, numbering: Numbering, start: MessageId
) -> int | None:
    """Read from a place to what is the end now."""
    reader = await client.reader(topic, start=start, convert=partial(_trace, numbering))
    try:
        async with asyncio.timeout(_SECONDS):
            return await _look(reader, start, trace)
    except TimeoutError as exc:
        raise Unreachable(f"{topic} could not be looked through in {_SECONDS:g} s") from exc
    finally:
        await reader.close()


async def _look(
    reader: Reader[tuple[Trace, int] | None], start: MessageId, trace: Trace | Ending
) -> int | None:
    last = await reader.last_message_id()
    if last.entry_id < 0 or start[:2] > last[:2]:
        # Nothing is there: a reader would wait for what comes next.
        return None
    while reader.received is None or reader.received[:2] < last[:2] or len(reader):
        found = await reader.read()
        if found is not None and _is(found[0], trace):
            return found[1]
    return None


def _is(found: Trace, wanted: Trace | Ending) -> bool:
    if isinstance(wanted, Trace):
        return found == wanted
    return found.producer == wanted.producer and found.sequence + found.messages - 1 == wanted.last


def _trace(numbering: Numbering, delivery: Delivery) -> tuple[Trace, int] | None:
    entry, first = delivery.entry, numbering.first_offset(delivery)
    if not isinstance(entry, Entry) or first < 0:
        return None
    return Trace(bytes(entry.producer_name), entry.sequence_id, entry.num_messages), first
