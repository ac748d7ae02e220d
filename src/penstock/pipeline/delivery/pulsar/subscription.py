"""The durable subscription of a pipeline: it keeps unread data, and shows the backlog to operators.

Its consumer asks for no messages (no permits): reading goes by positions, and a commit moves the cursor.
Failover, so that the one of a job that takes over need not wait until the former one is gone. What the broker
loses of it when a topic is unloaded is acknowledged again.
"""

from __future__ import annotations

from typing import Final, Self

from penstock.brokers.pulsar import SubscriptionType
from penstock.brokers.pulsar.consumer import PeekingConsumer
from penstock.pipeline.delivery.pulsar.log import PulsarLog, PulsarPosition
from penstock.wire.pulsar import EARLIEST, LATEST, MessageId

__all__ = ["PulsarSubscription"]

_NOWHERE: Final = PulsarPosition(-1)


class PulsarSubscription:
    """The subscription of one partition; made if it is not there."""

    def __init__(
        self,
        log: PulsarLog,
        name: str,
        *,
        from_latest: bool = False,
        consumer: PeekingConsumer | None = None,
    ) -> None:
        """A new one begins at the first message, or behind the last; one that exists stays where it is.

        `consumer` is one that was opened before, see `open`.
        """
        self._log = log
        self._last: tuple[MessageId, PulsarPosition] | None = None
        self.committed = _NOWHERE
        """The position that was acknowledged last by this object; index -1 before the first."""
        start = LATEST if from_latest else EARLIEST
        self._consumer = consumer or log.cluster.call(_opened(log, name, start))

    @classmethod
    async def open(cls, log: PulsarLog, name: str) -> Self:
        """Open it on the cluster's thread; a new one begins at the first message."""
        return cls(log, name, consumer=await _opened(log, name, EARLIEST))

    def close(self) -> None:
        """Let go; the subscription stays."""
        self._log.cluster.call(self._consumer.close())

    def commit(self, position: PulsarPosition) -> bool:
        """Acknowledge everything before a position; return False if the entry before it is not known.

        Inside of a batch a broker without `acknowledgmentAtBatchIndexLevelEnabled` takes the entries before
        it.
        """
        return self._log.cluster.call(self.acknowledge(position))

    def latest(self) -> PulsarPosition:
        """Return the position behind the last message that readers are given now.

        One question to the broker if nothing has come since the last time.
        """
        return self._log.cluster.call(self.find_latest())

    def delete(self) -> None:
        """Delete the subscription: unread data is kept no longer for its sake."""
        self._log.cluster.call(self._consumer.unsubscribe())

    # On the cluster's thread

    async def acknowledge(self, position: PulsarPosition) -> bool:
        """See `commit`."""
        place = position.place
        if place is None:
            return False
        if position.index > self.committed.index:
            if position.size:
                place = place._replace(batch_index=position.taken - 1)
            await self._consumer.acknowledge_up_to(place, batch_size=position.size)
            self.committed = position
        return True

    async def find_latest(self) -> PulsarPosition:
        """See `latest`."""
        last = await self._consumer.last_message_id()
        if self._last is None or self._last[0] != last:
            self._last = (last, await self._log.find_latest(last))
        return self._last[1]


async def _opened(log: PulsarLog, name: str, start: MessageId) -> PeekingConsumer:
    return await log.cluster.client.peeking_consumer(
        log.name,
        name,
        kind=SubscriptionType.FAILOVER,
        start=start,
        repeats_acknowledgement=True,
        # As for readers: a topic that was deleted stays deleted.
        create=False,
    )
