"""The offset of a produced batch: counted while our entry ids follow each other without a gap.

A gap, or a new ledger, means that somebody else wrote or that the ledger was closed: then the offset is
learnt from the broker-entry index of that very entry, and counting goes on from there.
"""

from __future__ import annotations

from penstock.wire.pulsar import MessageId

__all__ = ["OffsetCounter"]


class OffsetCounter:
    """What is known about the end of one partition.

    >>> counter = OffsetCounter()
    >>> counter.count(MessageId(5, 0), 3)        # nothing is known yet
    >>> counter.learn(MessageId(5, 0), 3, last_index=12)
    10
    >>> counter.count(MessageId(5, 1), 2), counter.next_offset
    (13, 15)
    >>> counter.count(MessageId(5, 3), 2)        # entry 2 was written by somebody else
    """

    def __init__(self) -> None:
        self.last: MessageId | None = None
        self.next_offset: int | None = None
        self.counted = 0
        self.learnt = 0

    def count(self, place: MessageId, messages: int) -> int | None:
        """Give the offset of the first message of an entry, or None if it must be learnt."""
        last, following = self.last, self.next_offset
        if last is None or following is None:
            return None
        if (place.ledger_id, place.entry_id) != (last.ledger_id, last.entry_id + 1):
            return None
        self.last, self.next_offset = place, following + messages
        self.counted += 1
        return following

    def learn(self, place: MessageId, messages: int, *, last_index: int) -> int:
        """Take the index of the last message of an entry; give the offset of its first."""
        if self.last is None or place[:2] >= self.last[:2]:
            self.last, self.next_offset = place, last_index + 1
        self.learnt += 1
        return last_index - messages + 1
