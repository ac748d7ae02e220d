"""The newest records of a topic on Kafka or on Pulsar, as bytes; nothing is written and nothing stays behind.

No group, no commit and no subscription: Read on the topic, or `consume` on its namespace, are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetched import Fetched
from penstock.brokers.kafka_raw.fetcher import Fetcher, Wanted
from penstock.brokers.kafka_raw.first_batches import bytes_per_offset
from penstock.brokers.kafka_raw.topic_offsets import earliest, latest
from penstock.errors import OffsetOutOfRange
from penstock.pipeline.delivery.offset_ranges import offset_ranges_of
from penstock.pipeline.delivery.source_cluster import PatientFetcher

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.settings import Settings
    from penstock.contract.credentials import Connection

__all__ = ["Bounds", "NewestRecords", "newest", "newest_on_kafka", "newest_on_pulsar"]

_PLACES: Final = "the broker keeps no index: as many entries as records were asked for"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is read at most."""

    records: int
    bytes: int
    """Of record batches, about: the last fetch may pass it."""
    seconds: float
    """How long is read, and how long a broker that is away is waited for."""


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """What was read of a topic."""

    partitions: int
    offsets: int
    """How many offsets lie in what was asked for."""
    fetched: Sequence[Fetched]
    ends: Offsets
    note: str
    """Why less was read than asked for; empty if all of it was."""


class _Reading(Protocol):
    """What gives the batches of several partitions until `waiting` is over."""

    @property
    def waiting(self) -> bool: ...
    def poll(self, timeout: float) -> Sequence[Fetched]: ...
    def seek(self, topic: str, partition: int, offset: int) -> None: ...


def newest(begin: Offsets, end: Offsets, count: int) -> dict[int, int]:
    """Return where to begin so that about `count` offsets remain, as even a part of each partition as it has.

    >>> newest({0: 0, 1: 0}, {0: 100, 1: 10}, 40)
    {0: 70, 1: 0}
    >>> newest({0: 5}, {0: 9}, 100), newest({0: 0, 1: 0, 2: 0}, {0: 9, 1: 9, 2: 9}, 4)
    ({0: 5}, {0: 8, 1: 8, 2: 7})
    """
    start, left = dict(end), count
    waiting = sorted((last - begin.get(part, 0), part) for part, last in end.items())
    for number, (held, part) in enumerate(waiting):
        taken = max(0, min(held, left // (len(waiting) - number)))
        start[part], left = end[part] - taken, left - taken
    return start


def newest_on_kafka(settings: Settings, topic: str, bounds: Bounds) -> NewestRecords:
    """Read the newest records of a topic on Kafka. Raises ClusterError."""
    until = monotonic() + bounds.seconds
    with Cluster(settings) as cluster:
        begin, ends = earliest(cluster, topic), latest(cluster, topic, read_committed=True)
        start: Offsets = newest(begin, ends, bounds.records)
        positions = {span.partition: span.start for span in offset_ranges_of(start, ends)}
        start, notes = _within(bounds, begin, ends, start, bytes_per_offset(cluster, topic, positions))
        with closing(Fetcher(cluster, _wanted(topic, start, ends))) as fetcher:
            fetched = _read(fetcher, topic, bounds, until, notes)
    return _found(start, ends, fetched, notes)


def newest_on_pulsar(connection: Connection, topic: str, bounds: Bounds) -> NewestRecords:
    """Read the newest records of a topic on Pulsar, with readers that leave nothing. Raises ClusterError."""
    # They load kernels, which a topic on Kafka does not need before it is routed.
    from penstock.pipeline.delivery.pulsar.log import Numbering
    from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
    from penstock.pipeline.delivery.pulsar.reader import PulsarFetcher
    from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
    from penstock.wire.kafka.record_batch import read_batches

    until = monotonic() + bounds.seconds
    with PulsarOffsets(PulsarSettings.of(connection), timeout=bounds.seconds) as offsets:
        partitions = offsets.partitions(topic)
        numbering = offsets.numbering(topic)
        begin, ends = offsets.earliest(topic), offsets.latest(topic)
        if numbering is Numbering.INDEX:
            held = {part: end - begin.get(part, 0) for part, end in ends.items()}
            sizes = offsets.sizes(topic, held)
            start, notes = _within(bounds, begin, ends, newest(begin, ends, bounds.records), sizes)
        else:
            share = max(bounds.records // len(ends), 1), bounds.bytes // len(ends)
            start, notes = offsets.newest_places(topic, *share), [_PLACES]
        wanted = _wanted(topic, start, ends)
        reader = PulsarFetcher(offsets.cluster, wanted, {topic: partitions}, numbering=numbering)
        with closing(PatientFetcher(reader, seconds=bounds.seconds)) as fetcher:
            fetched = _read(fetcher, topic, bounds, until, notes)
    found = _found(start, ends, fetched, notes)
    if numbering is Numbering.INDEX:
        return found
    counted = sum(batch.record_count for each in fetched for batch in read_batches(each.data))
    return replace(found, offsets=counted)


def _within(
    bounds: Bounds, begin: Offsets, ends: Offsets, start: Offsets, sizes: Mapping[int, float]
) -> tuple[Offsets, list[str]]:
    """Begin later if offsets of these sizes are too many bytes; return the start and what to say."""
    spans = offset_ranges_of(start, ends)
    usual = sum(sizes.values()) / len(sizes) if sizes else 0.0
    expected = sum(len(span) * sizes.get(span.partition, usual) for span in spans)
    if expected <= bounds.bytes:
        return start, []
    # Fewer of the newest, rather than the oldest of what was asked for.
    asked = sum(map(len, spans))
    fewer = max(len(ends), int(asked * bounds.bytes / expected))
    return newest(begin, ends, fewer), [f"the newest {bounds.bytes} bytes, about"]


def _wanted(topic: str, start: Offsets, ends: Offsets) -> list[Wanted]:
    return [Wanted(topic, span.partition, span.start, span.end) for span in offset_ranges_of(start, ends)]


def _read(fetcher: _Reading, topic: str, bounds: Bounds, until: float, notes: list[str]) -> Sequence[Fetched]:
    fetched: list[Fetched] = []
    size = 0
    while fetcher.waiting and size <= 2 * bounds.bytes and monotonic() < until:
        try:
            found = [each for each in fetcher.poll(max(0.0, until - monotonic())) if each.data]
        except OffsetOutOfRange as exc:
            # Deleted since the beginning was asked for.
            fetcher.seek(topic, exc.partition, exc.log_start)
            continue
        fetched += found
        size += sum(len(each.data) for each in found)
    if fetcher.waiting:
        notes.append(f"stopped after {size} bytes or {bounds.seconds:.0f} s")
    return fetched


def _found(start: Offsets, ends: Offsets, fetched: Sequence[Fetched], notes: list[str]) -> NewestRecords:
    offsets = sum(map(len, offset_ranges_of(start, ends)))
    if not offsets:
        notes.append("the topic is empty")
    return NewestRecords(len(ends), offsets, fetched, ends, "; ".join(notes))
