"""Facts of a log where the broker's answers do not fit together; the cluster is a fake."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar.admin import EntryHead, EntryIndex, NoEntry
from penstock.pipeline.delivery.pulsar import log as pulsar_log
from penstock.pipeline.delivery.pulsar.log import PulsarLog, packed
from penstock.wire.pulsar import MessageId

LAST = MessageId(7, 4)


@pytest.mark.parametrize(
    ("head", "index", "end"),
    [
        pytest.param(EntryHead(EntryIndex(41, 1), True, False), 99, 42, id="given to no reader"),
        pytest.param(None, 41, 42, id="removed meanwhile"),
        pytest.param(None, -1, packed(7, 5), id="removed, and no index is kept"),
        pytest.param(EntryHead(None, True, False), 41, packed(7, 5), id="without an index"),
    ],
)
def test_the_end_behind_an_entry_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, head: EntryHead | None, index: int, end: int
) -> None:
    """A place that is taken for an index would be an end that a batch of Spark never reaches."""
    monkeypatch.setattr(pulsar_log, "_ENTRY_SECONDS", 0.01)

    async def nothing(*_: object) -> Any:
        await asyncio.sleep(3600)

    async def entry_head(*_: object) -> EntryHead:
        if head is None:
            raise NoEntry("there is none")
        return head

    async def stats(*_: object, internal: bool) -> Any:
        return {"properties": {"index": str(index)} if index >= 0 else {}}

    cluster: Any = SimpleNamespace(
        client=SimpleNamespace(read_entry=nothing), admin=SimpleNamespace(entry_head=entry_head, stats=stats)
    )
    assert asyncio.run(PulsarLog(cluster, "t", 0, 0).find_latest(LAST)).index == end
