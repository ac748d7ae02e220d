"""Which entries are acknowledged, and what a log is asked for; the broker is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar import Admin
from penstock.brokers.pulsar.admin import EntryHead, EntryIndex
from penstock.errors import Unreachable
from penstock.pipeline.delivery.pulsar import offsets as pulsar_offsets
from penstock.pipeline.delivery.pulsar.log import Numbering, PulsarLog, PulsarPosition, packed
from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.wire.pulsar import EARLIEST, MessageId

Patch = pytest.MonkeyPatch
TOPIC = "persistent://public/default/t"
ENTRIES = {0: (2, 3), 1: (3, 1), 2: (8, 4)}
"""Entries of ledger 7: the last index of each, and how many messages it has; 4 is the index of a marker."""


class Subscription:
    """Notes what is acknowledged."""

    made: list[Subscription]

    def __init__(self, committed: int = -1) -> None:
        self.committed = PulsarPosition(committed)
        self.taken: list[PulsarPosition] = []
        self.fails = False
        Subscription.made.append(self)

    @classmethod
    async def open(cls, log: PulsarLog, name: str) -> Subscription:
        return cls()

    async def acknowledge(self, position: PulsarPosition) -> bool:
        if self.fails:
            raise Unreachable("away")
        self.taken.append(position)
        return True

    async def find_latest(self) -> PulsarPosition:
        if self.fails:
            raise Unreachable("away")
        return PulsarPosition(9)


async def place_of(log: PulsarLog, index: int) -> MessageId | None:
    """Answer as a broker does: the first entry as EARLIEST, none behind the last one."""
    found = next((entry for entry, (last, _) in ENTRIES.items() if index <= last), None)
    return None if found is None else EARLIEST if found == 0 else MessageId(7, found)


async def head(log: PulsarLog, place: MessageId) -> EntryHead | None:
    found = ENTRIES.get(place.entry_id)
    return None if found is None else EntryHead(EntryIndex(*found), False, False)


@pytest.fixture
def offsets(monkeypatch: Patch) -> Iterator[PulsarOffsets]:
    Subscription.made = []
    monkeypatch.setattr(pulsar_offsets, "PulsarSubscription", Subscription)
    monkeypatch.setattr(PulsarLog, "place_of", place_of)
    monkeypatch.setattr(PulsarLog, "head", head)

    async def no_partitions(topic: str) -> int:
        return 0

    async def stats(*_: object, internal: bool) -> Any:
        return {"ledgers": [{"ledgerId": 7, "entries": 3, "size": 1}], "currentLedgerEntries": 3}

    with PulsarOffsets(PulsarSettings(service_url="pulsar://127.0.0.1:1")) as made:
        monkeypatch.setattr(made.cluster.client, "partitions", no_partitions)
        monkeypatch.setattr(Admin, "stats", stats)
        made._numbering[TOPIC] = Numbering.INDEX
        yield made


@pytest.mark.parametrize(
    ("index", "taken"),
    [
        (1, PulsarPosition(1, 7, 0, 1, 3)),
        (3, PulsarPosition(3, 7, 0)),
        (4, PulsarPosition(4, 7, 1)),
        (6, PulsarPosition(6, 7, 2, 1, 4)),
        (9, PulsarPosition(9, 7, 2)),
    ],
)
def test_nothing_behind_the_position_is_acknowledged(
    offsets: PulsarOffsets, index: int, taken: PulsarPosition
) -> None:
    offsets.commit("g", TOPIC, {0: index})
    [subscription] = Subscription.made
    assert subscription.taken == [taken]


def test_a_place_is_acknowledged_up_to_the_entry_before_it(offsets: PulsarOffsets) -> None:
    offsets._numbering[TOPIC] = Numbering.PLACE
    for index in (packed(7, 0), packed(7, 2), packed(7, 2) + 1):
        offsets.commit("g", TOPIC, {0: index})
    [subscription] = Subscription.made
    assert [(each.ledger, each.entry) for each in subscription.taken] == [(7, 1), (7, 2)]


def test_a_subscription_that_fails_is_opened_anew(offsets: PulsarOffsets) -> None:
    offsets.watch(TOPIC, "g")
    assert offsets.latest(TOPIC) == {0: 9}
    Subscription.made[0].fails = True
    with pytest.raises(Unreachable):
        offsets.latest(TOPIC)
    assert offsets.latest(TOPIC) == {0: 9} and len(Subscription.made) == 2


def test_positions_are_places_if_one_partition_has_no_index(
    offsets: PulsarOffsets, monkeypatch: Patch
) -> None:
    async def two_partitions(topic: str) -> int:
        return 2

    async def numbering(log: PulsarLog) -> Numbering:
        return Numbering.PLACE if log.partition else Numbering.INDEX

    monkeypatch.setattr(offsets.cluster.client, "partitions", two_partitions)
    monkeypatch.setattr(PulsarLog, "find_numbering", numbering)
    assert offsets.numbering("persistent://public/default/mixed") is Numbering.PLACE


# What a log is asked for


def test_a_log_begins_at_the_first_message_that_is_left(offsets: PulsarOffsets, monkeypatch: Patch) -> None:
    log = PulsarLog(offsets.cluster, TOPIC, 0, 0)
    assert offsets.cluster.call(log.start()) == 0
    monkeypatch.setitem(ENTRIES, 0, (12, 3))
    assert offsets.cluster.call(log.start()) == 10


def test_an_open_transaction_holds_back_the_end(offsets: PulsarOffsets, monkeypatch: Patch) -> None:
    async def held_back(log: PulsarLog, place: MessageId) -> EntryHead:
        return EntryHead(EntryIndex(*ENTRIES[place.entry_id]), False, place.entry_id == 2)

    async def last(*_: object) -> MessageId:
        return MessageId(7, 2)

    async def given(log: PulsarLog) -> MessageId:
        return MessageId(7, 1)

    monkeypatch.setattr(PulsarLog, "head", held_back)
    monkeypatch.setattr(PulsarLog, "_last_given", given)
    monkeypatch.setattr(Admin, "last_message_id", last)
    log = PulsarLog(offsets.cluster, TOPIC, 0, 0)
    assert offsets.cluster.call(log.ends()) == (4, 9, True)


def test_a_log_ends_behind_its_last_message(offsets: PulsarOffsets, monkeypatch: Patch) -> None:
    async def read(log: PulsarLog, place: MessageId) -> Any:
        return SimpleNamespace(broker_index=8)

    monkeypatch.setattr(PulsarLog, "_read", read)
    log = PulsarLog(offsets.cluster, TOPIC, 0, 0)
    assert offsets.cluster.call(log.find_latest(MessageId(7, 2))) == PulsarPosition(9, 7, 2)
