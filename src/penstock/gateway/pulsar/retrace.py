"""Where an entry went of which Pulsar only says that it is stored: read back, known by name and number."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Admin, Delivery, PulsarClient, Reader
from penstock.errors import ClusterError
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.wire.pulsar import EARLIEST, Entry

__all__ = ["Trace", "find_trace"]

_MARGIN_MS: Final = 10_000
"""Entries are looked up by their publish time, which need not grow from one to the next."""
_SECONDS: Final = 5.0


class Trace(NamedTuple):
    """What an entry tells of its producer."""

    producer: bytes
    sequence: int
    messages: int


async def find_trace(
    client: PulsarClient,
    admin: Admin,
    topic: str,
    trace: Trace,
    *,
    publish_time: int,
    numbering: Numbering = BY_INDEX,
) -> int | None:
    """Give the offset of an entry; None if it is not found in a few seconds."""
    place = await admin.message_id_by_time(topic, max(0, publish_time - _MARGIN_MS))
    start = place if place is not None and place.entry_id >= 0 else EARLIEST
    reader = await client.reader(topic, start=start, convert=partial(_trace, numbering))
    try:
        async with asyncio.timeout(_SECONDS):
            return await _look(reader, trace)
    except (TimeoutError, ClusterError):
        return None
    finally:
        await reader.close()


async def _look(reader: Reader[tuple[Trace, int] | None], trace: Trace) -> int | None:
    last = await reader.last_message_id()
    while reader.received is None or reader.received[:2] < last[:2] or len(reader):
        found = await reader.read()
        if found is not None and found[0] == trace:
            return found[1]
    return None


def _trace(numbering: Numbering, delivery: Delivery) -> tuple[Trace, int] | None:
    entry, first = delivery.entry, numbering.first_offset(delivery)
    if not isinstance(entry, Entry) or first < 0:
        return None
    return Trace(bytes(entry.producer_name), entry.sequence_id, entry.num_messages), first
