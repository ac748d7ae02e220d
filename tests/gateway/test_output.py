"""The sending side of a connection: what is unread is counted, for the right one, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.gateway.budget import Budgets
from penstock.gateway.limits import Limits
from penstock.gateway.output import Output


class Transport:
    """Holds what is written until the test says that the client has read it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.closed = False
        self.aborted = asyncio.Event()

    def writelines(self, pieces: list[bytes]) -> None:
        self.waiting += sum(map(len, pieces))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True
        self.aborted.set()


def connected(budgets: Budgets, key: str, limits: Limits) -> tuple[Output, Any]:
    output, transport = Output(limits, budgets, key=key), Transport()
    output.connected(transport)  # type: ignore[arg-type]
    return output, transport


def unread(budgets: Budgets, key: str, size: int, limits: Limits) -> tuple[Output, Any]:
    """A connection whose client has not read so many bytes."""
    output, transport = connected(budgets, key, limits)
    transport.waiting = size
    output.pause()
    return output, transport


def run(scenario: Callable[[Limits, Budgets], Awaitable[None]], **limits: Any) -> None:
    async def whole() -> None:
        chosen = Limits(**limits)
        await scenario(chosen, Budgets.of(chosen))

    asyncio.run(whole())


def test_what_is_unread_moves_to_the_principal() -> None:
    async def scenario(limits: Limits, budgets: Budgets) -> None:
        output, _ = unread(budgets, "/10.0.0.1", 100, limits)
        assert output.unread_share.key == "/10.0.0.1"
        output.move_to("ann")
        assert (output.unread_share.key, output.unread_share.used) == ("ann", 100)
        assert (budgets.answers.used, len(budgets.answers)) == (100, 1)
        output.lost()
        assert (budgets.answers.used, len(budgets.answers)) == (0, 0)

    run(scenario)


def test_who_reads_a_little_is_not_the_one_that_is_ended() -> None:
    async def scenario(limits: Limits, budgets: Budgets) -> None:
        slow, of_slow = unread(budgets, "/10.0.0.1", 80, limits)
        silent, of_silent = unread(budgets, "/10.0.0.1", 80, limits)
        # The first has been unread for longest, and has read something since.
        of_slow.waiting = 60
        unread(budgets, "/10.0.0.1", 80, limits)
        assert (of_slow.aborted.is_set(), of_silent.aborted.is_set()) == (False, True)
        assert slow.unread == 60 and silent.unread == 0
        assert budgets.answers.used == 140

    run(scenario, answer_bytes_in_all=1000, answer_bytes_per_principal=200)


def test_a_client_that_does_not_read_the_end_is_aborted() -> None:
    async def scenario(limits: Limits, budgets: Budgets) -> None:
        output, transport = connected(budgets, "/10.0.0.1", limits)
        output.write([b"last words"])
        output.close()
        assert transport.waiting and transport.closed and not transport.aborted.is_set()
        async with asyncio.timeout(5):
            await transport.aborted.wait()

    run(scenario, close_seconds=0.01)


def test_a_client_that_has_read_all_takes_nothing() -> None:
    async def scenario(limits: Limits, budgets: Budgets) -> None:
        output, transport = unread(budgets, "/10.0.0.1", 100, limits)
        transport.waiting = 0
        output.resume()
        assert (budgets.answers.used, output.unread, output.is_writable) == (0, 0, True)
        assert not budgets.answers.holders

    run(scenario)
