"""Message ids as Protocol Buffers, where -1 is the largest unsigned number; and sets of acknowledged ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageIdData

__all__ = ["ack_set", "first_unread", "from_wire", "to_wire"]

_UNSIGNED = (1 << 64) - 1
_SIGN = 1 << 63
_WORD = 64


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


def ack_set(size: int, done: Iterable[int]) -> list[int]:
    """Give the words of a batch of `size` messages: a bit stays set for each message that is not done.

    >>> ack_set(4, [0, 1]), ack_set(65, range(64)), ack_set(2, [0, 1])
    ([12], [0, 1], [])
    >>> ack_set(64, [0])
    [-2]
    """
    bits = (1 << size) - 1
    for index in done:
        bits &= ~(1 << index)
    words = []
    while bits:
        words.append(_signed(bits & _UNSIGNED))
        bits >>= _WORD
    return words


def first_unread(words: Iterable[int]) -> int:
    """Give the index of the first message of a batch that is not done; 0 if there are no words.

    >>> first_unread(ack_set(4, [0, 1])), first_unread(ack_set(65, range(64))), first_unread([])
    (2, 64, 0)
    """
    bits = 0
    for at, word in enumerate(words):
        bits |= (word & _UNSIGNED) << (_WORD * at)
    return max((bits & -bits).bit_length() - 1, 0)


def _signed(value: int) -> int:
    return value - (1 << _WORD) if value >= _SIGN else value
