"""Message ids as Protocol Buffers, where -1 is the largest unsigned number; and sets of acknowledged ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageIdData

__all__ = ["LARGEST_BATCH", "ack_set", "first_unread", "from_wire", "to_wire"]

_UNSIGNED = (1 << 64) - 1
_SIGN = 1 << 63
_WORD = 64
LARGEST_BATCH = 1 << 20
"""Messages of a batch of which a part is acknowledged: 5 MiB hold no more. Producers may claim any number."""


def to_wire(message_id: MessageId, *, acked: Iterable[int] = ()) -> Any:
    """Write an id for a command; `acked` are the 64-bit words of an ack set."""
    return MessageIdData(
        ledger_id=message_id.ledger_id & _UNSIGNED,
        entry_id=message_id.entry_id & _UNSIGNED,
        partition=message_id.partition,
        batch_index=message_id.batch_index,
        ack_set=acked,
    )


def from_wire(data: Any) -> MessageId:
    """Read an id from an answer."""
    return MessageId(_signed(data.ledger_id), _signed(data.entry_id), data.batch_index, data.partition)


def ack_set(size: int, first: int, last: int) -> list[int]:
    """Return the words of a batch: a bit stays set for each of its `size` messages but first to last.

    >>> ack_set(4, 0, 1), ack_set(65, 0, 63), ack_set(2, 0, 1), ack_set(64, 0, 0), ack_set(3, 1, 1)
    ([12], [0, 1], [], [-2], [5])
    """
    done = (1 << last + 1) - (1 << first)
    left = ((1 << size) - 1) & ~done
    words = left.to_bytes((size + _WORD - 1) // _WORD * 8, "little")
    found = [int.from_bytes(words[at : at + 8], "little", signed=True) for at in range(0, len(words), 8)]
    while found and not found[-1]:
        found.pop()
    return found


def first_unread(words: Iterable[int]) -> int:
    """Give the index of the first message of a batch that is not done; 0 if there are no words.

    >>> first_unread(ack_set(4, 0, 1)), first_unread(ack_set(65, 0, 63)), first_unread([])
    (2, 64, 0)
    """
    for at, word in enumerate(words):
        if bits := word & _UNSIGNED:
            return _WORD * at + (bits & -bits).bit_length() - 1
    return 0


def _signed(value: int) -> int:
    return value - (1 << _WORD) if value >= _SIGN else value
