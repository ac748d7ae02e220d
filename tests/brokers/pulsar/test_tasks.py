"""Tasks are held, watched, and run again if they have to run for ever."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from penstock.brokers.pulsar.tasks import Tasks, watched
from penstock.errors import ClusterError


async def until(check: Any) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.01)


def test_what_runs_for_ever_is_run_again(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[float] = []

    async def scenario() -> None:
        async def work() -> None:
            runs.append(asyncio.get_running_loop().time())
            if len(runs) < 4:
                raise KeyError("unforeseen")
            await asyncio.Event().wait()

        tasks = Tasks(first_delay=0.02, longest_delay=0.2)
        tasks.forever(work, name="the loop")
        await until(lambda: "the loop" in tasks.failing)
        assert tasks.failing_for() >= 0.0
        since = tasks.failing["the loop"]
        await until(lambda: len(runs) == 4)
        # It is not well because it was started again, but when it has run for a while.
        assert tasks.failing["the loop"] == since
        await until(lambda: not tasks.failing)
        assert tasks.failing_for() == 0.0
        await tasks.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert caplog.text.count("the loop has failed") == caplog.text.count("KeyError: 'unforeseen'") == 3
    # Later each time: each delay is between half and the whole of its step.
    assert runs[1] - runs[0] >= 0.01 and runs[2] - runs[1] >= 0.02 and runs[3] - runs[2] >= 0.04


def test_what_runs_for_ever_and_ends_is_run_again() -> None:
    async def scenario() -> None:
        runs = 0

        async def work() -> None:
            nonlocal runs
            runs += 1

        tasks = Tasks(first_delay=0.01, longest_delay=0.02)
        tasks.forever(work, name="the loop")
        await until(lambda: runs > 3)
        await tasks.close()
        assert not tasks.failing

    asyncio.run(scenario())


@pytest.mark.parametrize("held", [True, False], ids=["started", "watched"])
def test_a_task_that_fails_is_told_at_once(caplog: pytest.LogCaptureFixture, held: bool) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def scenario() -> None:
        tasks = Tasks()
        for error in (ZeroDivisionError("unforeseen"), ClusterError("foreseen")):
            if held:
                task = tasks.start(fail(error), name="a job")
            else:
                task = watched(asyncio.create_task(fail(error), name="a job"))
            await asyncio.wait([task])
            await asyncio.sleep(0)
        assert "the task a job has failed" in caplog.text and "ZeroDivisionError: unforeseen" in caplog.text

    asyncio.run(scenario())
    gc.collect()
    assert "never retrieved" not in caplog.text and "foreseen" not in caplog.text.replace("unforeseen", "")


def test_close_ends_them_all() -> None:
    async def scenario() -> None:
        tasks = Tasks()
        running = [tasks.start(asyncio.sleep(60), name="sleep")]
        running.append(tasks.forever(lambda: asyncio.sleep(60), name="for ever"))
        await tasks.close()
        assert all(task.cancelled() for task in running)

    asyncio.run(scenario())
