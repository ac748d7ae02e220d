"""A Kafka whose controller is away while a job writes: it goes on or waits, and nothing is lost or twice."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from directed import BATCH, Directed
from job_project import Running
from pulsar_project import wait_until

from penstock.embedded.kafka import Kafka
from penstock.embedded.server import Server
from penstock.errors import ClusterError

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
Make = Callable[..., Directed]
AWAY_SECONDS = 8.0
"""Twice the session of a broker."""


class Controller(Kafka):
    """A node without a broker; its port stays, because the broker knows it."""

    def _start_once(self) -> None:
        Server._start_once(self)

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        own = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://127.0.0.1:{self.port('controller-port')}",
        }
        left_out = ("advertised.listeners=", "inter.broker.listener.name=", *(f"{name}=" for name in own))
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(left_out)]
        path.write_text("\n".join([*kept, *map("=".join, own.items())]) + "\n", encoding="utf-8")
        return path


@contextmanager
def away(controller: Controller, how: str) -> Iterator[None]:
    """Let a controller be dead, or silent with its connections open."""
    assert controller.pid is not None
    if how == "killed":
        controller.kill()
    else:
        os.kill(controller.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if how == "killed":
            controller.start()
        else:
            os.kill(controller.pid, signal.SIGCONT)


def readable(made: Directed) -> int:
    """Count what is stored: a broker that was silent for its controller leads nothing for a moment."""
    try:
        return made.stored()
    except ClusterError:
        return 0


def ended_with_all(made: Directed, running: Running) -> None:
    wait_until(lambda: readable(made) >= made.sent, seconds=240)
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0, running.told()
    made.assert_law()


def test_a_loop_says_that_its_kafka_waits_for_a_controller(directed: Make) -> None:
    """A broker that starts without a controller serves nobody until there is one."""
    with Controller() as controller, Kafka(joins=controller) as broker:
        made = directed("K->K", kafka=broker).create().write()
        made.send(2000)
        running = made.spawn("--engine", "loop")
        with ThreadPoolExecutor(1) as pool:
            running.until(BATCH)
            controller.kill()
            broker.kill()
            starting = pool.submit(broker.start)
            try:
                running.until(r"lost, tried again until it is back")
                assert not starting.done(), "the broker does without"
            finally:
                controller.start()
            starting.result()
            running.until(r"back after")
            made.send(1000)
            ended_with_all(made, running)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("engine", ["loop", "spark"])
def test_a_kafka_without_its_controller(directed: Make, engine: str, how: str) -> None:
    """Who has its leaders and coordinators goes on; it waits where the broker lost them for a moment."""
    with Controller() as controller, Kafka(joins=controller) as broker:
        made = directed("K->K+P", kafka=broker).create().write()
        made.send(2000)
        words = ("--max-offsets", "500") if engine == "spark" else ()
        running = made.spawn("--engine", engine, *words)
        running.until(BATCH)
        with away(controller, how):
            made.send(2000)
            threading.Event().wait(AWAY_SECONDS)
        made.send(2000)
        ended_with_all(made, running)
