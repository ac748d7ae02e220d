"""Offsets made of a message id by packing its numbers side by side (spec 001, the MessageID offset).

| layout | ledger | entry | batch index | used by |
|---|---|---|---|---|
| `WRAPPER` | 35 | 28 | 0 | Pulsar's own Kafka wrapper; all messages of a batch share an offset |
| `OLD_KOP` | 19 | 32 | 12 | KoP before 2.8; ledger ids are soon used up |
| `PENSTOCK` | 34 | 17 | 12 | ours, for brokers without the index; offsets grow and are not continuous |

The sign bit stays free. What does not fit is refused, never cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import MessageId

__all__ = ["OLD_KOP", "PENSTOCK", "WRAPPER", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How many bits each number has.

    >>> PENSTOCK.pack(MessageId(5, 3, 7)), PENSTOCK.unpack(2684366855)[:3]
    (2684366855, (5, 3, 7))
    """

    ledger_bits: int
    entry_bits: int
    batch_bits: int

    @property
    def largest_batch(self) -> int:
        """How many messages of a batch have offsets of their own."""
        return 1 << self.batch_bits

    def pack(self, place: MessageId) -> int:
        """Give the offset of a message; ApiError if one of its numbers does not fit."""
        ledger, entry, index = place[:3]
        self._check("ledger id", ledger, self.ledger_bits)
        self._check("entry id", entry, self.entry_bits)
        index = max(index, 0) if self.batch_bits else 0
        self._check("batch index", index, self.batch_bits)
        return (ledger << self.entry_bits | entry) << self.batch_bits | index

    def unpack(self, offset: int) -> MessageId:
        """Give the message of an offset."""
        if offset < 0:
            raise ApiError(f"{offset} is no offset", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        rest, index = divmod(offset, 1 << self.batch_bits)
        ledger, entry = divmod(rest, 1 << self.entry_bits)
        return MessageId(ledger, entry, index if self.batch_bits else -1)

    def _check(self, what: str, value: int, bits: int) -> None:
        if not 0 <= value < 1 << bits:
            raise ApiError(
                f"{what} {value} does not fit into the {bits} bits that a packed offset has for it",
                error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )


WRAPPER: Final = Layout(35, 28, 0)
OLD_KOP: Final = Layout(19, 32, 12)
PENSTOCK: Final = Layout(34, 17, 12)
