"""Up to where clients have removed the records of a partition: a property of its Pulsar topic.

Pulsar removes whole ledgers. What is removed inside of one is only marked here, so that no Kafka client sees
it any more on any gateway; the ledger goes when retention removes it. With the topic the mark goes, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.brokers.pulsar import Admin

__all__ = ["mark_removed", "removed_to"]

_PROPERTY: Final = "penstock.removed-to"


def removed_to(stats: Mapping[str, Any]) -> int:
    """Read the mark in the internal statistics of a topic; -1 if nothing was removed.

    >>> removed_to({"properties": {"penstock.removed-to": "12"}}), removed_to({})
    (12, -1)
    """
    value = str((stats.get("properties") or {}).get(_PROPERTY, ""))
    return int(value) if value.isdecimal() else -1


async def mark_removed(admin: Admin, topic: str, offset: int) -> None:
    """Let the log of a partition begin at an offset."""
    await admin.set_properties(topic, {_PROPERTY: str(offset)})
