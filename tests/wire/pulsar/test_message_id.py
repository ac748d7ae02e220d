"""Message ids as text and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire.pulsar import EARLIEST, LATEST, MessageId

numbers = st.integers(-1, 1 << 60)


@given(numbers, numbers, numbers, numbers)
def test_text_there_and_back(ledger: int, entry: int, batch: int, partition: int) -> None:
    where = MessageId(ledger, entry, batch, partition)
    assert MessageId.parse(str(where)) == where


@pytest.mark.parametrize(
    ("text", "where"),
    [("1:2", MessageId(1, 2)), ("1:2:3", MessageId(1, 2, -1, 3)), ("1:2:3:4", MessageId(1, 2, 4, 3))],
)
def test_short_forms(text: str, where: MessageId) -> None:
    assert MessageId.parse(text) == where


@pytest.mark.parametrize("text", ["", "1", "a:b", "1:2:3:4:5", "1:", "1:2:3:4:"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        MessageId.parse(text)


def test_order_is_by_ledger_entry_and_batch_index() -> None:
    row = [
        EARLIEST,
        MessageId(1, 1),
        MessageId(1, 1, 0),
        MessageId(1, 1, 3),
        MessageId(1, 2),
        MessageId(2, 0),
        LATEST,
    ]
    assert sorted(row) == row
