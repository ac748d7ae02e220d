"""How far a source has come on a cluster that it only writes to: records in a compacted topic there.

A group offset can be part of a transaction only on the cluster that has the group and the topic that is read.
So a source whose output is on another cluster writes its mark as a record, in the transaction of the output:

    key    [group, id of the cluster that is read, topic, id of the topic, partition]
    value  {"offset": where to go on, and what `range_progress` keeps beside an offset}

    key    [group, id of the cluster that is read, topic, id of the topic, "plan"]
    value  what the program of a loop was made of, written before its first record

A loop that writes to Pulsar and to no other Kafka has its marks in its group, and keeps only the latter, on
the cluster that is read.

The id of the topic is part of the key: a topic that was deleted and made again has no marks.

`progress_reader` reads them. A source that reads Pulsar and writes nothing but Pulsar has no such cluster:
its marks are in topics of Pulsar (`pulsar_progress`), whose names are made here. No kernel is imported here:
the driver and what it packs use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.brokers.kafka_raw.group_offsets import GroupOffset

__all__ = [
    "PARTITION",
    "PLAN",
    "SETTINGS",
    "TOPIC",
    "ProgressKey",
    "PulsarProgress",
    "Snapshot",
    "mark_value",
]

TOPIC: Final = "__penstock_progress"
PARTITION: Final = 0
"""All marks are in one partition: no number of partitions, which may grow, says where a mark is."""
PLAN: Final = -1
"""Instead of a partition that is read: what the program was made of, where marks are in topics of Pulsar."""
_MOST_DIGITS: Final = 10
"""Of the number of a partition, which has 32 bits."""
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # Only closed segments are compacted, and each start reads what is left.
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class ProgressKey:
    """Whose marks: those of one topic, as one group reads it."""

    group: str
    cluster_id: str
    topic: str
    topic_id: str

    @property
    def prefix(self) -> bytes:
        """What the keys of all partitions begin with.

        >>> ProgressKey("g", "c", "t", "i").prefix
        b'["g","c","t","i",'
        """
        names = [self.group, self.cluster_id, self.topic, self.topic_id]
        return json.dumps(names, separators=(",", ":")).encode()[:-1] + b","

    def of(self, partition: int) -> bytes:
        """The key of one partition."""
        return b"%s%d]" % (self.prefix, partition)

    @property
    def plan(self) -> bytes:
        """The key of what the program was made of.

        >>> ProgressKey("g", "c", "t", "i").plan
        b'["g","c","t","i","plan"]'
        """
        return b'%s"plan"]' % self.prefix

    def partition_of(self, key: bytes) -> int | None:
        """Read the partition of a key; None if it is of another source.

        >>> ProgressKey("g", "c", "t", "i").partition_of(b'["g","c","t","i",12]')
        12
        """
        number = key.removeprefix(self.prefix).removesuffix(b"]")
        is_own = (
            key.startswith(self.prefix)
            and key.endswith(b"]")
            and number.isdigit()
            and len(number) <= _MOST_DIGITS
        )
        return int(number) if is_own else None


@dataclass(frozen=True, slots=True)
class PulsarProgress:
    """Where the marks of a source are that reads Pulsar and writes only Pulsar: one topic a partition."""

    sink: int
    """The cluster, as one that is written."""
    namespace: str
    """`tenant/namespace`."""
    others: tuple[tuple[int, str], ...] = ()
    """Where they may be instead, from before the routes were edited: other sinks and namespaces."""

    def topic(self, key: ProgressKey, partition: int) -> str:
        """Return the topic with the marks of one partition that is read, or with its plan (`PLAN`).

        Topics without partitions: a broker makes each when it is first opened, also when the source grows.

        >>> PulsarProgress(0, "t/n").topic(ProgressKey("g", "c", "in", ""), 3)
        'persistent://t/n/__penstock_progress-a48025b483e6b226-3'
        """
        digest = hashlib.sha256(key.prefix).hexdigest()[:16]
        which = "plan" if partition == PLAN else partition
        return f"persistent://{self.namespace}/{TOPIC}-{digest}-{which}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The marks of a source up to a position: from there on the topic is to be read again."""

    position: int | None = None
    """None: nothing was read yet."""
    marks: Mapping[int, GroupOffset] = field(default_factory=dict)
    plan: bytes | None = None
    """What the program of the last loop was made of; None: it is not kept."""


def mark_value(offset: int, text: str) -> bytes:
    """Write the value of a mark, by what `range_progress` keeps beside an offset.

    >>> mark_value(9, '{"start":5}')
    b'{"offset":9,"start":5}'
    """
    return f'{{"offset":{offset},{text[1:]}'.encode()
