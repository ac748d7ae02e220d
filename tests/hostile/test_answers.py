"""Clients that do not read their answers: what waits for them is bounded, and others are served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.gateway.server import Limits

Play = Callable[..., None]
MIB = 1024 * 1024


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.{}"], ids=["one address", "many addresses"])
def test_fetches_that_are_not_read(play: Play, tools: Any, source: str) -> None:
    """Thirty clients ask for 50 MiB each and read nothing of it."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        answers = scene.server.budgets.answers
        most = 0
        for number in range(30):
            (await scene.connect(source.format(number + 1))).write(tools.fetch("huge") * 3)
            await scene.until(lambda seen=number: len(scene.storage.reads) > seen)
            most = max(most, answers.used)
            await neighbour.is_served(1)
        assert answers.used == sum(holder.unread for holder in answers.holders)
        # Each has one answer at most, and the fuller the budget is the smaller they are.
        assert 16 * MIB < most <= 64 * MIB
        assert max(scene.storage.reads) == 24 * MIB > 4 * min(scene.storage.reads)
        # One who reads is served in full although the others have taken all there is.
        reader = await scene.connect("127.0.0.77")
        assert len(await reader.ask(tools.fetch("huge"))) >= MIB
        await neighbour.is_served()

    play(scenario, limits=Limits(answer_bytes_in_all=64 * MIB, answer_bytes_per_principal=48 * MIB))


def test_the_longest_unread_are_ended_first(play: Play, tools: Any) -> None:
    """A single batch is given however large it is, so answers cannot be made small enough."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        answers = scene.server.budgets.answers
        slow, dead = await scene.connect("127.0.0.2"), await scene.connect("127.0.0.3")
        for number, peer in enumerate((slow, dead)):
            peer.write(tools.fetch("boulder", size=1))
            await scene.until(lambda seen=number: len(answers.holders) > seen)
        for number in range(4, 10):
            # It goes on reading, more than what the systems hold between us; the others do not.
            await slow.reader.readexactly(2 * MIB)
            (await scene.connect(f"127.0.0.{number}")).write(tools.fetch("boulder", size=1))
            await scene.until(lambda seen=number: len(scene.storage.reads) >= seen - 1)
            assert answers.used <= answers.limit
            await neighbour.is_served(1)
        assert await dead.is_closed()
        await slow.reader.readexactly(12 * MIB)

    play(scenario, limits=Limits(answer_bytes_in_all=80 * MIB, answer_bytes_per_principal=80 * MIB))


def test_a_principal_that_reads_nothing_ends_its_own_connections(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        other = await scene.connect("127.0.0.2")
        other.write(tools.fetch("boulder", size=1))
        answers = scene.server.budgets.answers
        await scene.until(lambda: len(answers.holders) == 1)
        first = await scene.connect()
        first.write(tools.fetch("boulder", size=1))
        for number in range(8):
            (await scene.connect()).write(tools.fetch("boulder", size=1))
            await scene.until(lambda seen=number: len(scene.storage.reads) >= seen + 3)
        assert await first.is_closed()
        # It has waited longer than all of them, but it is another principal.
        assert len(await other.answer()) > 24 * MIB

    play(scenario, limits=Limits(answer_bytes_per_principal=60 * MIB))


def test_one_who_never_reads_is_ended(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        peer = await scene.connect()
        peer.write(tools.fetch("huge"))
        await scene.until(lambda: scene.server.budgets.answers.used > 0)
        await scene.until(lambda: not scene.server.clients)
        assert scene.server.budgets.answers.used == 0

    play(scenario, limits=Limits(idle_seconds=1.0))


def test_answers_of_one_that_does_not_read_are_not_made(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        peer = await scene.connect()
        peer.write(tools.fetch("huge") * 50 + tools.request(tools.METADATA, 1, b"\xff\xff\xff\xff") * 1000)
        await scene.until(lambda: scene.server.budgets.answers.used > 0)
        await neighbour.is_served()
        assert len(scene.storage.reads) == 1
        # It is not even read: requests wait in the client's own socket.
        assert scene.server.budgets.requests.used < 600_000

    play(scenario)
