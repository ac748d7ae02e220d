"""How long the topics that Kafka clients make are kept: as long as Kafka's own, whatever Pulsar's default is.

Pulsar's own default keeps nothing: what no subscription waits for is removed with its ledger, acknowledged
records that nobody has read yet included. A Kafka client expects seven days. A topic whose namespace keeps
records for a shorter time gets a policy of its own, and a property that says that nobody has set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from penstock.brokers.pulsar import Admin
from penstock.errors import PenstockError
from penstock.gateway.client_log import log
from penstock.gateway.pulsar.topic_policies import (
    DEFAULT_RETENTION_PROPERTY,
    NO_RETENTION,
    RETENTION,
    retention_text,
)

__all__ = ["KAFKA_HOURS", "DefaultRetention", "keeps_nothing", "longer"]

KAFKA_HOURS: Final = 168
"""Kafka's log.retention.hours."""
_TIME, _SIZE = "retentionTimeInMinutes", "retentionSizeInMB"
_VALID_FOR: Final = 60.0
"""Seconds for which the retention of a namespace is not asked for again."""


class DefaultRetention:
    """Gives new topics the retention that Kafka clients expect; with 0 hours they have Pulsar's own."""

    def __init__(self, admin: Admin, hours: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._minutes = hours * 60 if hours > 0 else hours
        self._clock = clock
        self._known: dict[str, tuple[Mapping[str, int], float]] = {}
        """What holds in a namespace, and when that was asked for."""

    async def apply(self, topic: str, *, is_set: bool = False) -> Mapping[str, int] | None:
        """Let a topic that was just made keep records long enough; give the policy, if it needs one.

        With `is_set` its client has set a retention: the policy is only noted, for when that is taken back.
        A topic is not refused because its role may not set policies; that is logged.
        """
        if not self._minutes:
            return None
        try:
            wanted = longer(await self._effective(topic), self._minutes)
            if wanted is not None:
                if not is_set:
                    await self._admin.set_policy(topic, RETENTION, wanted)
                await self._admin.set_properties(topic, {DEFAULT_RETENTION_PROPERTY: retention_text(wanted)})
        except PenstockError as exc:
            log.warning("%s keeps records only as long as its namespace does: %s", topic, exc)
            return None
        return wanted

    async def _effective(self, topic: str) -> Mapping[str, int]:
        namespace = topic.rpartition("/")[0]
        known = self._known.get(namespace)
        if known is not None and self._clock() - known[1] < _VALID_FOR:
            return known[0]
        if await self._admin.policy(topic, RETENTION) is not None:
            # Of a former topic of this name: it goes in a moment, and says nothing about the namespace.
            return NO_RETENTION
        found = await self._admin.policy(topic, RETENTION, applied=True) or NO_RETENTION
        self._known[namespace] = (found, self._clock())
        return found


def longer(now: Mapping[str, int], minutes: int) -> dict[str, int] | None:
    """Give the policy that keeps records for some minutes, -1 for ever; None if they are kept so long now.

    A limit of size that somebody has set stays: it is there for the disks.

    >>> longer({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, 10080)
    {'retentionTimeInMinutes': 10080, 'retentionSizeInMB': -1}
    >>> longer({"retentionTimeInMinutes": 60, "retentionSizeInMB": 512}, 10080)
    {'retentionTimeInMinutes': 10080, 'retentionSizeInMB': 512}
    >>> longer({"retentionTimeInMinutes": -1, "retentionSizeInMB": 512}, 10080)
    """
    kept, size = now[_TIME], now[_SIZE]
    if kept < 0 or 0 <= minutes <= kept:
        return None
    # Pulsar refuses 0 beside another value.
    return {_TIME: minutes, _SIZE: size or -1}


def keeps_nothing(retention: Mapping[str, int]) -> bool:
    """Whether Pulsar removes what no subscription waits for.

    >>> keeps_nothing({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    True
    """
    return not retention[_TIME] or not retention[_SIZE]
