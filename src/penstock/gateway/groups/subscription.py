"""The topics that a member reads, from its metadata (ConsumerProtocolSubscription, all versions).

Only members of the protocol type `consumer` say it in this form; what cannot be read says nothing.
"""

from __future__ import annotations

from penstock.errors import WireError
from penstock.gateway.groups.fields import FieldReader
from penstock.gateway.groups.group import Group

__all__ = ["CONSUMER", "subscribed_topics", "topics_of"]

CONSUMER = "consumer"


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Read the topics of one member; None if it does not say them.

    >>> sorted(topics_of(bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")))
    ['a', 'b']
    """
    try:
        fields = FieldReader(metadata)
        fields.int16()
        return frozenset(fields.string() for _ in range(fields.count()))
    except WireError:
        return None


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Give the topics that a group reads now; None if its members do not say."""
    if group.protocol_type != CONSUMER or not group.members:
        return None
    said = [topics_of(data) for member in group.members.values() for _, data in member.protocols]
    known = [topics for topics in said if topics is not None]
    return frozenset().union(*known) if len(known) == len(said) else None
