"""Histories of groups whose committed offsets are shown as Pulsar cursors, by whoever coordinates them.

When all is well again the cursor of each group stands at what it has committed, and a group that was deleted
has none. The real `CursorSync` and `Cursors` run, on top of what runs in `committing`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.gateway.pulsar.cursor_sync import CursorSync, Home
from penstock.gateway.pulsar.cursors import Cursors
from simulator.committing import PLACE, Coordinator, World
from simulator.history import History
from simulator.pulsar_admin import admin_of
from simulator.pulsar_topic import Topic

__all__ = ["moving_cursors"]

DATA: Final = "persistent://public/default/orders"
_PERIOD: Final = 2.0
_SECONDS: Final = 120
"""After so long the cursors are where they belong."""


async def _data_topic(topic: str, partition: int) -> str:
    return DATA


class CursorWorld(World):
    """One history of groups with cursors."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.keeps_cursors = True
        self.pulsar.create(DATA)
        for _ in range(self.random.randint(1, 6)):
            self.data.write_foreign(1, messages=self.random.choice((1, 1, 4)))
        self.actions += self.random.sample([self.move_data, self.fail_admin, self.produce], 2)

    @property
    def data(self) -> Topic:
        return self.pulsar.topics[DATA]

    def move_data(self) -> str:
        self.pulsar.move(self.data)
        return "the topic of the cursors moves"

    def fail_admin(self) -> str:
        self.pulsar.admin_failures = self.random.choice((0.0, 0.1, 0.4))
        return f"{self.pulsar.admin_failures:.0%} of admin calls fail"

    def produce(self) -> str:
        self.data.write_foreign(2, messages=self.random.choice((1, 3)))
        return "somebody produces"

    def started(self, coordinator: Coordinator) -> None:
        """Keep the cursors of the groups that a coordinator has."""
        home = Home(Cursors(coordinator.client, admin_of(self.pulsar)), _data_topic)
        sync = CursorSync(
            lambda group: (home, group),
            lambda: [] if coordinator.shard is None else [coordinator.shard],
            period=_PERIOD,
        )
        sync.start()

    async def check(self) -> None:
        self.pulsar.admin_failures = 0.0
        await super().check()
        wrong: list[str] = []
        for _ in range(_SECONDS):
            await asyncio.sleep(1)
            wrong = self._wrong()
            if not wrong:
                return
        self.history.check(False, f"after {_SECONDS} s: {wrong}")

    def _wrong(self) -> list[str]:
        shard = self.coordinators[-1].shard
        if shard is None or self.data.owner is None:
            return ["nobody serves"]
        found = []
        for group in self.groups:
            commit, cursor = shard.commits.get(group.name, {}).get(PLACE), self.data.cursors.get(group.name)
            wanted = None if commit is None else min(commit.offset, self.data.next_index)
            actual = None if cursor is None else cursor.offset(self.data)
            if wanted != actual:
                found.append(f"the cursor of {group.name} is at {actual}, and not at {wanted}")
        return found


async def moving_cursors(history: History) -> None:
    """Let a history of cursors run, and check its laws."""
    world = CursorWorld(history)
    await world.run()
    await world.check()
