"""Histories of committed offsets through coordinators that crash, are fenced and take over.

What was acknowledged is there after a takeover: the last commit of a group, or nothing if its deletion was
the last. What was not acknowledged may be there or not. The real `OffsetsLog`, `Shard` and Pulsar client run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.brokers.pulsar import Options, PulsarClient
from penstock.errors import ApiError, PenstockError
from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.shard import Shard
from penstock.gateway.pulsar.offsets_log import OffsetsLog, mark_record
from penstock.wire.kafka import ErrorCode
from simulator.history import History
from simulator.pulsar import Pulsar
from simulator.pulsar_topic import Topic

__all__ = ["PLACE", "Coordinator", "World", "committing"]

TOPIC: Final = "persistent://public/__kafka/__consumer_offsets-partition-0"
LIMITS: Final = Limits(retention_check=0.5)
"""Sweeps often: nothing is old enough to go, but groups without offsets do."""
PLACE: Final = ("orders", 0)
ANYBODY: Final = Identity()


class Coordinator:
    """One process that coordinates groups whenever it is told to."""

    def __init__(self, history: History, pulsar: Pulsar, name: str, *, keeps_cursors: bool = False) -> None:
        self.name, self.history = name, history
        self._keeps_cursors = keeps_cursors
        self.shard: Shard | None = None
        self.failures = 0
        self._log: OffsetsLog | None = None
        options = Options(send_timeout=history.random.choice((2.0, 30.0)), open_timeout=5.0)
        self.client = history.loop.context_of(name).run(PulsarClient, pulsar.url, options=options)

    async def take(self) -> None:
        """Open the log and read it, again and again until that works; whoever had it is fenced."""
        while True:
            await self.let_go()
            try:
                self._log, records = await OffsetsLog.open(self.client, TOPIC, mark=mark_record(self.name))
                shard = Shard(
                    self._log,
                    LIMITS,
                    on_failure=self._failed,
                    clock=self.history.loop.time,
                    keeps_cursors=self._keeps_cursors,
                )
                self._log.watch(shard.fail)
                await shard.load(records)
                if shard.closed:
                    continue
            except PenstockError as exc:
                self.history.note(self.name, f"cannot take the log: {exc}")
                await self.history.pause(1)
                continue
            self.history.note(self.name, f"has read {len(records)} records")
            self.shard = shard
            return

    def _failed(self, error: BaseException) -> None:
        self.history.note(self.name, f"has lost the log: {error}")
        self.failures += 1
        self.shard = None

    async def let_go(self) -> None:
        """Coordinate nothing any more."""
        if self.shard is not None:
            self.shard.close()
            self.shard = None
        if self._log is not None:
            await self._log.close()


class Group:
    """The one client of a group: it commits and deletes, one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.possible: set[int | None] = {None}
        """What may be stored: None is nothing."""
        self.acknowledged = 0


class World:
    """One history of commits."""

    def __init__(self, history: History) -> None:
        self.history, self.random = history, history.random
        self.pulsar = Pulsar(history.network)
        self.pulsar.create(TOPIC)
        self.coordinators: list[Coordinator] = []
        self.keeps_cursors = False
        self.groups = [Group(f"group-{number}") for number in range(self.random.choice((1, 2, 5)))]
        actions: list[Callable[[], str]] = [self.take_over, self.crash, self.move, self.cut, self.kill]
        actions += [self.silence, self.slow, self.fail_writes, self.compact]
        self.actions = self.random.sample(actions, self.random.choice((0, 1, 2, 4)))

    @property
    def topic(self) -> Topic:
        return self.pulsar.topics[TOPIC]

    # Faults

    def take_over(self) -> str:
        name = f"gateway-{len(self.coordinators) + 1}"
        new = Coordinator(self.history, self.pulsar, name, keeps_cursors=self.keeps_cursors)
        self.coordinators.append(new)
        self.history.loop.start(new.name, self._keep(new))
        return f"{new.name} takes over"

    async def _keep(self, coordinator: Coordinator) -> None:
        """Coordinate; one that has lost the log takes it again if nobody else shall have it."""
        self.started(coordinator)
        await coordinator.take()
        while coordinator is self.coordinators[-1]:
            await asyncio.sleep(0.5)
            if coordinator.shard is None and coordinator is self.coordinators[-1]:
                await coordinator.take()
        # It hears in time that it is another's turn.
        await self.history.pause(3)
        await coordinator.let_go()

    def started(self, coordinator: Coordinator) -> None:
        """Hear, as part of its process, that a coordinator begins."""

    def crash(self) -> str:
        last = self.coordinators[-1]
        self.history.network.stop_node(last.name)
        return f"{last.name} is killed, {self.take_over()}"

    def move(self) -> str:
        self.pulsar.move(self.topic)
        return "the topic moves"

    def cut(self) -> str:
        links = list(self.history.network.links)
        if links:
            self.random.choice(links).cut()
        return "a connection is cut"

    def silence(self) -> str:
        links = list(self.history.network.links)
        if links:
            self.random.choice(links).fall_silent()
        return "a connection goes silent"

    def kill(self) -> str:
        broker = self.random.choice(self.pulsar.brokers)
        self.pulsar.kill(broker, self.random.uniform(0.1, 10))
        return f"broker {broker} dies"

    def slow(self) -> str:
        self.pulsar.slow_writes = self.random.choice((0.0, 0.5, 3.0))
        return f"storing takes up to {self.pulsar.slow_writes} s more"

    def fail_writes(self) -> str:
        self.topic.fail_writes()
        return "storing fails"

    def compact(self) -> str:
        self.topic.compact()
        self.topic.trim_compacted()
        return f"the topic is compacted to {len(self.topic.compacted)} entries"

    # Clients

    async def _client(self, group: Group) -> None:
        for offset in range(1, self.random.randint(2, 12)):
            await self.history.pause(self.random.choice((0.1, 2.0)))
            deletes = self.random.random() < 0.2
            wanted = None if deletes else offset
            group.possible.add(wanted)
            if await self._ask(group, wanted):
                group.possible = {wanted}
                group.acknowledged += 1

    async def _ask(self, group: Group, offset: int | None) -> bool:
        """Ask some coordinator to commit, or to delete; whether it was acknowledged."""
        what = "deletes" if offset is None else f"commits {offset}"
        for _ in range(3):
            # Clients mostly know who coordinates, and sometimes ask the one who did.
            coordinator = self.random.choice((self.coordinators[-1], *self.coordinators[-3:]))
            shard = coordinator.shard
            if shard is None or self.history.loop.is_stopped(coordinator.name):
                await self.history.pause(3)
                continue
            self.history.note(group.name, f"{what} at {coordinator.name}")
            task = self.history.loop.start(coordinator.name, _request(shard, group.name, offset))
            done, _ = await asyncio.wait([task], timeout=40)
            if done and task.exception() is None and task.result():
                self.history.note(group.name, f"{what}: acknowledged")
                return True
            self.history.note(group.name, f"{what}: {task.exception() if done else 'no answer'}")
        return False

    # The course and the laws

    async def run(self) -> None:
        self.history.note("world", self.take_over())
        clients = [asyncio.ensure_future(self._client(group)) for group in self.groups]
        for _ in range(self.random.choice((1, 3, 8)) if self.actions else 0):
            await self.history.pause(self.random.choice((0.5, 5)))
            self.history.note("world", self.random.choice(self.actions)())
        await asyncio.gather(*clients)
        self.pulsar.slow_writes = 0.0

    async def check(self) -> None:
        """Look at what the last coordinator knows, and at what the next one reads."""
        await asyncio.sleep(10)
        if not self.history.loop.is_stopped(self.coordinators[-1].name):
            self._check_commits(self.coordinators[-1].shard)
        self.history.note("world", self.take_over())
        last = self.coordinators[-1]
        for _ in range(600):
            if last.shard is not None:
                break
            await asyncio.sleep(1)
        self.history.check(last.shard is not None, "nobody could take the log in ten minutes")
        self._check_commits(last.shard)

    def _check_commits(self, shard: Shard | None) -> None:
        for group in self.groups if shard is not None else ():
            assert shard is not None
            found = shard.commits.get(group.name, {}).get(PLACE)
            offset = None if found is None else found.offset
            self.history.check(
                offset in group.possible,
                f"{group.name} has {offset} after a takeover, acknowledged was one of {group.possible}",
            )


async def _request(shard: Shard, group: str, offset: int | None) -> bool:
    try:
        if offset is None:
            return await shard.delete(group) is ErrorCode.NONE
        commit = Commit(offset=offset, committed_at=int(time.time() * 1000))
        errors = await shard.commit(group, ANYBODY, {PLACE: commit})
        return not any(errors.values())
    except ApiError:
        return False


async def committing(history: History) -> None:
    """Let a history of commits run, and check its laws."""
    world = World(history)
    await world.run()
    await world.check()
