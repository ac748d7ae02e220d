"""Kafka groups as Pulsar subscriptions: the backlog is the lag, and what Pulsar's tools do is noticed."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from penstock.gateway.pulsar.cursor_sync import CursorSync, Home
from penstock.gateway.pulsar.cursors import Cursors

pytestmark = pytest.mark.server

COMMIT, FETCH_OFFSETS, DELETE = 8, 9, 42
BATCHES, SIZE = 4, 10
"""Every topic here has four entries of ten records."""


class Subject:
    """A topic, a group, and Pulsar's view of both."""

    def __init__(self, gateway: Any, wire: Any, batch: Any, admin_url: str) -> None:
        self.gateway, self.wire, self.batch = gateway, wire, batch
        self.topic = wire.create()
        self.group = f"cursor-{uuid.uuid4().hex[:8]}"
        self.full_name = f"persistent://public/default/{self.topic}-partition-0"
        self._base = f"{admin_url}/admin/v2/{self.full_name.replace('://', '/')}"
        self.produced = 0
        for _ in range(BATCHES):
            self.produce()
        self.sync_on = self._sync()

    def _sync(self, **options: Any) -> CursorSync:
        async def name(topic: str, partition: int) -> str:
            place = await self.gateway.storage.topics.place(topic)
            return str(place.partition(partition))

        cursors = Cursors(self.gateway.client, self.gateway.admin)
        home = Home(cursors, name)
        # Groups of other tests are in the same shards: all of them are looked at each time.
        return CursorSync(
            lambda group_id: (home, group_id), self.gateway.groups.shards, looks=10_000.0, **options
        )

    def adopting(self) -> None:
        self.sync_on = self._sync(adopt=True)

    def produce(self) -> None:
        rows = [{"value": b"%d" % (self.produced + number)} for number in range(SIZE)]
        produced = self.wire.produce(self.topic, self.batch(rows))
        assert (produced.error_code, produced.base_offset) == (0, self.produced)
        self.produced += SIZE

    def sync(self) -> None:
        self.gateway.run(self.sync_on.sync())

    def commit(self, offset: int) -> None:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "words"}
        fields = {"group_id": self.group, "generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": self.topic, "partitions": [row]}]
        deadline = time.monotonic() + 20
        while (found := self.wire.ask(COMMIT, 9, **fields, topics=topics)).topics[0].partitions[0].error_code:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def committed(self) -> int:
        asked = [{"group_id": self.group, "topics": [{"name": self.topic, "partition_indexes": [0]}]}]
        [found] = self.wire.ask(FETCH_OFFSETS, 9, groups=asked).groups
        return int(found.topics[0].partitions[0].committed_offset)

    def subscriptions(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self._base}/stats").json()["subscriptions"]
        return found

    def entries(self) -> int:
        return int(self.subscriptions()[self.group]["msgBacklog"])

    def messages(self) -> int:
        """Count by analyzeBacklog, which looks into the batches."""
        path = f"{self._base}/subscription/{self.group}/analyzeBacklog"
        answer = httpx.post(path, content=b"null", headers={"content-type": "application/json"})
        return int(answer.json()["messages"])

    def tool(self, method: str, path: str = "", **more: Any) -> None:
        answer = httpx.request(method, f"{self._base}/subscription/{self.group}{path}", **more)
        assert answer.status_code < 300, answer.text


@pytest.fixture
def subject(gateway: Any, connect: Callable[[str], Any], batch: Any, pulsar: Any) -> Iterator[Subject]:
    wire = connect(gateway.bootstrap)
    yield Subject(gateway, wire, batch, pulsar.admin_url)
    wire.close()


@pytest.mark.parametrize("offset", [0, 3, 9, 10, 15, 20, 39, 40])
def test_the_backlog_is_the_lag(subject: Subject, offset: int) -> None:
    subject.commit(offset)
    subject.sync()
    left = BATCHES * SIZE - offset
    assert subject.entries() == -(-left // SIZE)
    # Pulsar 4.2.4 counts every message of an entry here, also those that the ack set has done.
    assert subject.messages() == subject.entries() * SIZE


@pytest.mark.parametrize("offset", [3, 10, 15, 39])
def test_a_pulsar_consumer_goes_on_with_the_next_record(subject: Subject, pulsar: Any, offset: int) -> None:
    """Also inside a batch: a client of Pulsar is given what the group has not read, and nothing else."""
    import pulsar as foreign

    subject.commit(offset)
    subject.sync()
    client = foreign.Client(pulsar.service_url, logger=logging.getLogger("quiet"))
    try:
        consumer = client.subscribe(subject.full_name, subject.group)
        values = [consumer.receive(20_000).data() for _ in range(BATCHES * SIZE - offset)]
    finally:
        client.close()
    assert values == [b"%d" % number for number in range(offset, BATCHES * SIZE)]


def test_a_cursor_follows_its_group_to_and_fro(subject: Subject) -> None:
    for offset in (10, 30, 0, 40, 20, 40, 10):
        subject.commit(offset)
        subject.sync()
        assert subject.messages() == BATCHES * SIZE - offset
    subject.produce()
    assert subject.messages() == (BATCHES + 1) * SIZE - 10


def test_a_group_that_is_deleted_takes_its_subscription_with_it(subject: Subject) -> None:
    subject.commit(12)
    subject.sync()
    assert subject.group in subject.subscriptions()
    assert subject.wire.ask(DELETE, 2, groups_names=[subject.group]).results[0].error_code == 0
    subject.sync()
    assert subject.group not in subject.subscriptions()


def test_a_pulsar_consumer_is_not_thrown_out(subject: Subject) -> None:
    subject.commit(10)
    subject.sync()
    consumer = subject.gateway.run(subject.gateway.client.consumer(subject.full_name, subject.group))
    try:
        subject.commit(30)
        subject.sync()
        assert len(subject.subscriptions()[subject.group]["consumers"]) == 1
        assert consumer.reconnects == 0
        assert subject.entries() == 3
    finally:
        subject.gateway.run(consumer.close())
    subject.sync()
    assert subject.entries() == 1


def test_what_pulsars_tools_do_is_told_and_not_done(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    subject.commit(30)
    subject.sync()
    subject.tool("POST", f"/resetcursor/{1}")
    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        subject.sync()
    assert f"subscription {subject.group}" in caplog.text
    assert "moved to offset 0" in caplog.text
    assert subject.committed() == 30
    caplog.clear()
    subject.sync()
    assert caplog.text == "", "it is told once"


def test_pulsars_tools_manage_groups_if_that_is_wanted(subject: Subject) -> None:
    subject.adopting()
    subject.commit(30)
    subject.sync()
    subject.tool("POST", "/resetcursor/1")
    subject.sync()
    assert subject.committed() == 0
    subject.tool("POST", "/skip/2")
    subject.sync()
    assert subject.committed() == 20
    subject.tool("POST", "/skip_all")
    subject.sync()
    assert subject.committed() == 40
    subject.tool("DELETE")
    subject.sync()
    assert subject.committed() == -1


@pytest.mark.parametrize("adopt", [False, True])
def test_what_a_pulsar_consumer_acknowledges_is_seen(
    subject: Subject, pulsar: Any, adopt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also records within an entry, and also when the consumer was there while the gateway looked."""
    import pulsar as foreign

    subject.sync_on = subject._sync(adopt=adopt)
    subject.commit(15)
    subject.sync()
    client = foreign.Client(pulsar.service_url, logger=logging.getLogger("quiet"))
    try:
        with caplog.at_level(logging.WARNING, "penstock.gateway"):
            for first, last in ((15, 18), (18, 23)):
                consumer = client.subscribe(subject.full_name, subject.group, batch_index_ack_enabled=True)
                received = [consumer.receive(20_000) for _ in range(last - first)]
                assert received[0].data() == b"%d" % first
                for message in received:
                    consumer.acknowledge(message)
                subject.sync()
                assert subject.committed() == (first if adopt else 15)
                consumer.close()
                subject.sync()
                assert f"moved to offset {last} by others" in caplog.text
                assert subject.committed() == (last if adopt else 15)
    finally:
        client.close()
    assert caplog.text.count("by others") == 2
    subject.commit(30)
    subject.sync()
    assert subject.messages() == BATCHES * SIZE - 30


def test_a_reset_within_one_entry_is_seen(subject: Subject) -> None:
    subject.adopting()
    subject.commit(5)
    subject.sync()
    subject.tool("POST", "/resetcursor/1")
    subject.sync()
    assert subject.committed() == 0


def test_a_group_that_is_deleted_right_after_a_restart_takes_its_subscription_with_it(
    subject: Subject,
) -> None:
    subject.commit(12)
    subject.sync()
    # What was placed is only in the memory of the one that is gone.
    subject.sync_on = subject._sync()
    assert subject.wire.ask(DELETE, 2, groups_names=[subject.group]).results[0].error_code == 0
    subject.sync()
    assert subject.group not in subject.subscriptions()
