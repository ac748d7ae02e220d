"""Under which name and which ids output is written to Pulsar, so that a re-run writes under the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import Refused
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels import IntArray
from penstock.wire.routing_layout import ORDINAL_BITS

__all__ = [
    "ORDINAL_BITS",
    "PulsarTarget",
    "SinkBatch",
    "SinkSource",
    "names_of_run",
    "producer_name",
    "sequence_ids",
]

_INDEX_BITS: Final = 63 - ORDINAL_BITS


def sequence_ids(indexes: IntArray, ordinals: IntArray) -> IntArray:
    """Return the ids of records by the index of their input and their ordinal among its outputs.

    Raises Refused if one does not fit: an index below 2^47, an ordinal below 2^16.

    >>> sequence_ids(np.array([3, 3]), np.array([0, 1])).tolist()
    [196608, 196609]
    """
    if len(indexes) and int(indexes.max()) >= 1 << _INDEX_BITS:
        raise Refused(
            "a record has no sequence id",
            why=f"Its index is {int(indexes.max())}, and ids hold {_INDEX_BITS} bits of it. A Pulsar topic "
            "counts as many messages as a producer claims to have sent.",
            next="make the topic anew; or run with --at-least-once",
        )
    if len(indexes) and not (
        int(indexes.min()) >= 0 and int(ordinals.min()) >= 0 and int(ordinals.max()) < 1 << ORDINAL_BITS
    ):
        raise Refused(
            "a record has no sequence id",
            why=f"One input may have {1 << ORDINAL_BITS} outputs.",
            next="let a function give fewer events, or run with --at-least-once",
        )
    return (indexes.astype(np.int64) << ORDINAL_BITS) + ordinals


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSource:
    """Whose output is delivered exactly once: names and ids are made of it."""

    run: str
    """The identity of the run as the checkpoint keeps it; another one with `--replay`."""
    topic: str
    incarnation: str
    """What tells the source topic from one of the same name that was made later."""
    partition: int
    first: int
    """The index at which the range begins."""
    begun: bool = True
    """Whether the range may have been worked on before; False saves a look into the targets."""
    since: int | None = None
    """Nothing of the range was written before, in milliseconds; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTarget:
    """A topic that records go to."""

    topic: str
    partitions: int
    """As it was fixed with the range; 0 for a topic without partitions."""
    label: str = ""
    """Tells targets apart that name the same topic: each has an order of ids of its own."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Records for one partition of a target, with their ids in growing order; None at least once."""

    target: int
    partition: int
    body: BatchBody
    sequence_ids: IntArray | None = None


def producer_name(source: SinkSource, target: PulsarTarget, partition: int) -> str:
    """Return the name under which records of one source partition are written to one target partition.

    >>> name = producer_name(
    ...     SinkSource(run="r1", topic="t", incarnation="", partition=2, first=0),
    ...     PulsarTarget(topic="o", partitions=4), 3)
    >>> name.startswith("penstock-r1-"), name.endswith("-2-3"), len(name) < 150
    (True, True, True)
    """
    told = "\0".join((source.run, source.topic, source.incarnation, target.topic, target.label))
    digest = hashlib.sha256(told.encode()).hexdigest()[:24]
    # Readable by who looks at the producers of a topic; the digest alone tells names apart.
    run = "".join(each if each.isalnum() else "_" for each in source.run)[:64]
    return f"penstock-{run}-{digest}-{source.partition}-{partition}"


def names_of_run(name: str) -> str:
    """Return what the names of all producers of a run begin with.

    >>> names_of_run("penstock-r1-0123456789abcdef01234567-2-3")
    'penstock-r1-'
    """
    return name.rsplit("-", 3)[0] + "-"
