"""Whether the topic that is read is still the one of which the offsets are: it may be deleted and made again.

Kafka gives each topic a random id when it is made, and so does our gateway. A gateway of an older version, or
beside one, computes ids from names, and so does every gateway for a topic that Pulsar's own tools have made:
such an id says nothing of this. No kernel is imported: the planner on the driver asks, too.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import JobFailed, PenstockError

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster

__all__ = [
    "are_certainly_two",
    "deleted_topic",
    "is_of_the_name",
    "refuse_other_incarnation",
    "refuse_other_topic",
]

_BY_NAME: Final = 5
"""The version of a UUID that is computed from a name (RFC 9562); random ones have version 4."""


def is_of_the_name(topic_id: str) -> bool:
    """Say whether an id is computed from the name of its topic: then it is the same after a re-creation.

    >>> is_of_the_name("z1F125UNQMKaAbNdytGHag"), is_of_the_name("b2vUrm8MWl6ahl8NWx2aUw")
    (False, True)
    """
    try:
        # Clients write ids with either of the two alphabets.
        raw = base64.b64decode(topic_id.translate({45: 43, 95: 47}) + "==", validate=True)
        return uuid.UUID(bytes=raw).version == _BY_NAME
    except (ValueError, binascii.Error):
        return False


def are_certainly_two(was: str | None, now: str | None) -> bool:
    """Say whether two ids were given to a topic and to another one of its name."""
    if was is None or now is None or was == now:
        return False
    return not is_of_the_name(was) and not is_of_the_name(now)


def refuse_other_topic(cluster: Cluster, topic: str, topic_id: str | None) -> None:
    """Raise JobFailed if a topic has another id than it had.

    Offsets of the old topic would skip as many records of the new one. Nothing is said while nobody answers
    or the topic is away: who reads it finds that out.
    """
    if topic_id is None or is_of_the_name(topic_id):
        return
    try:
        found = cluster.topic_id(topic)
    except PenstockError as exc:
        if not is_retriable(exc):
            raise
        return
    refuse_other_incarnation(topic, topic_id, found)


def refuse_other_incarnation(topic: str, was: str | None, now: str | None) -> None:
    """Raise JobFailed if two ids, or two times of creation on Pulsar, are certainly of two topics."""
    if was and now and are_certainly_two(was, now):
        raise JobFailed(
            "the topic was deleted and made again while it was read",
            where=topic,
            why=f"Its id was {was}, now it is {now}: the offsets so far mean nothing in it.",
            next="--fresh-checkpoint reads it from its beginning",
        )


def deleted_topic(topic: str) -> JobFailed:
    """Return the error for a topic that is not there any more, or not there again yet."""
    return JobFailed(
        "the topic was deleted while it was read",
        where=topic,
        why="Offsets so far mean nothing in a topic that is made again under this name.",
        next="create the topic again and read it from its beginning with --fresh-checkpoint",
    )
