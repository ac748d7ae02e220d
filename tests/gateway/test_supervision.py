"""Nothing that runs as long as a gateway ends in silence, and operators' pages know of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.brokers.pulsar import Host
from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import ClusterError
from penstock.gateway.process import Gateway, Options
from penstock.gateway.pulsar.coordinators import PulsarGroups
from penstock.gateway.pulsar.cursor_sync import CursorSync
from penstock.gateway.pulsar.membership import Membership, Peer

NOBODY: Any = None


async def until(check: Any) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.01)


def supervisor() -> Tasks:
    return Tasks(first_delay=0.01, longest_delay=0.1)


class Loopback:
    """A topic in which a gateway hears what it says; both sides may fail once, in a way nobody foresaw."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.error = None
        self.failures = {"send": 1, "read": 1}

    def _fail(self, side: str) -> None:
        if self.failures[side]:
            self.failures[side] -= 1
            raise RuntimeError(f"unforeseen in {side}")

    async def producer(self, topic: str, *, name: str) -> Loopback:
        return self

    async def reader(self, topic: str, **_: Any) -> Loopback:
        return self

    async def stats(self, topic: str) -> dict[str, Any]:
        return {"publishers": [{}]}

    async def send_message(self, metadata: Any, data: bytes) -> asyncio.Future[None]:
        from penstock.gateway.pulsar.membership import read_peer

        self._fail("send")
        self.said.put_nowait(read_peer(data))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def read(self) -> Peer:
        found: Peer = await self.said.get()
        self._fail("read")
        return found

    async def close(self) -> None:
        return None


def test_a_gateway_gets_its_lease_back_whatever_happened(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        topic: Any = Loopback()
        tasks = supervisor()
        member = Membership(topic, topic, "gateways", tasks=tasks)
        await member.start(7, [Host("h", 1)])
        await until(lambda: member.has_lease)
        assert topic.failures == {"send": 0, "read": 0}
        await until(lambda: not tasks.failing)
        await member.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "RuntimeError: unforeseen in send" in caplog.text
    assert "RuntimeError: unforeseen in read" in caplog.text


def test_heartbeats_that_nobody_answers_are_forgotten() -> None:
    """A Pulsar that is away for hours is thousands of heartbeats."""

    async def scenario() -> None:
        topic: Any = Loopback()
        topic.failures = {"send": 0, "read": 0}
        now = 0.0
        member = Membership(topic, topic, "gateways", clock=lambda: now)
        member.node_id, member.addresses = 7, (Host("h", 1),)
        for _ in range(1_000):
            now += 0.5
            await member._say()
        assert len(member._sent) < 10
        # The last one still counts.
        member._settled_at = 0.0
        member.hear([topic.said.get_nowait() for _ in range(1_000)][-1])
        assert member.has_lease

    asyncio.run(scenario())


def test_cursors_go_on_whatever_happened() -> None:
    async def scenario() -> None:
        asked = 0

        def shards() -> list[Any]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise RuntimeError("unforeseen")
            return []

        sync = CursorSync(lambda group: None, shards, period=0.01, tasks=supervisor())
        sync.start()
        await until(lambda: asked > 3)
        await sync.close()

    asyncio.run(scenario())


def test_a_partition_of_the_groups_that_is_lost_leaves_no_unseen_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Several proofs are under way when the log is fenced; the first that fails lets the partition go."""

    class Fenced:
        epoch = 1

        def __init__(self) -> None:
            self.appended: list[asyncio.Future[None]] = []

        def append(self, records: Any) -> asyncio.Future[None]:
            self.appended.append(asyncio.get_running_loop().create_future())
            return self.appended[-1]

        async def close(self) -> None:
            for done in self.appended:
                if not done.done():
                    done.set_exception(ClusterError("the log is closed"))

    async def scenario() -> None:
        groups = PulsarGroups(NOBODY, NOBODY, partitions=1)
        kept: Any = Fenced()
        shard: Any = type("Shard", (), {"close": lambda self: None})()
        groups._led[0] = (shard, kept)
        for _ in range(3):
            groups._prove(0)
        kept.appended[0].set_exception(ClusterError("producer fenced"))
        await until(lambda: not groups._led and not groups._closing)
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
        gc.collect()
    assert "never retrieved" not in caplog.text


def test_pages_know_the_lease_and_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        gateway = Gateway(Options(pulsar="pulsar://127.0.0.1:1"))
        monkeypatch.setattr(gateway._client, "check", lambda: asyncio.sleep(0))
        gateway.serving = True
        assert (await gateway._readyz()).status is HTTPStatus.SERVICE_UNAVAILABLE
        assert b"no lease" in (await gateway._readyz()).body
        member = gateway._groups.membership
        member._settled_at = member._clock()
        member._heard_self = member._clock()
        assert (await gateway._readyz()).status is HTTPStatus.OK
        gateway._tasks.failing["cursor sync"] = member._clock()
        assert (await gateway._readyz()).body == b"failing: cursor sync\n"
        # It is tried again: that is no reason yet to end the process.
        assert (await gateway._healthz()).status is HTTPStatus.OK
        gateway._tasks.failing["cursor sync"] -= 61
        assert (await gateway._healthz()).status is HTTPStatus.SERVICE_UNAVAILABLE
        await gateway.drain(0.0)

    asyncio.run(scenario())


def test_no_task_is_started_unwatched() -> None:
    """A task that nobody watches can end in silence: each is started by `Tasks` or handed to `watched`."""
    root = Path(penstock.__file__).parent
    sources = [*(root / "gateway").rglob("*.py"), *(root / "brokers" / "pulsar").rglob("*.py")]
    unwatched = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sources
        for line in path.read_text().splitlines()
        if "create_task(" in line and "watched(" not in line
    ]
    # `Tasks` watches what it starts; requests tell their own failures; the others await their tasks.
    assert sorted(each.partition(":")[0] for each in unwatched) == [
        "brokers/pulsar/tasks.py",
        "gateway/client.py",
        "gateway/concurrency.py",
        "gateway/life.py",
    ]
