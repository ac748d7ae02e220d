"""The name of a message in Pulsar: ledger, entry, partition, index in the batch."""

from __future__ import annotations

from typing import NamedTuple, Self

from penstock.errors import WireError

__all__ = ["EARLIEST", "LATEST", "MessageId"]


class MessageId(NamedTuple):
    """A message id; -1 where Pulsar has nothing to say. Ordered as Pulsar orders them.

    >>> MessageId(12, 3, batch_index=7)
    MessageId(ledger_id=12, entry_id=3, batch_index=7, partition=-1)
    >>> str(MessageId(12, 3)), MessageId.parse("12:3:-1:7") > MessageId.parse("12:3")
    ('12:3:-1:-1', True)
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1

    def __str__(self) -> str:
        """Write it as Pulsar's tools do: ledger:entry:partition:batch index."""
        return f"{self.ledger_id}:{self.entry_id}:{self.partition}:{self.batch_index}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ledger:entry, with or without :partition and :batch index."""
        try:
            numbers = [int(part) for part in text.split(":")]
            ledger, entry, partition, batch = (*numbers, *(-1, -1)[len(numbers) - 2 :])
        except ValueError as exc:
            raise WireError(
                f"{text!r} is not a message id", next="write ledger:entry[:partition[:batch index]]"
            ) from exc
        return cls(ledger, entry, batch, partition)


EARLIEST = MessageId(-1, -1)
"""Before the first message, when a reader starts there."""
LATEST = MessageId((1 << 63) - 1, (1 << 63) - 1)
"""Behind the last message."""
