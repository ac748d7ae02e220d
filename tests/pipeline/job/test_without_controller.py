"""A Kafka whose controller is away while a job writes: it goes on or waits, and nothing is lost or twice."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from pulsar_project import wait_until
from to_pulsar import ToPulsar, events_with_poison

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.server import Server
from penstock.errors import ClusterError
from penstock.events.bindings.kafka import KafkaBinding

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
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


def readable(project: ToPulsar) -> int:
    """Count what is in `out`: a broker that was silent for its controller leads nothing for a moment."""
    try:
        return len(project.read("out"))
    except ClusterError:
        return 0


@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("engine", ["loop", "spark"])
def test_a_kafka_without_its_controller(tmp_path: Path, pulsar: Pulsar, engine: str, how: str) -> None:
    total = 6000
    events = iter(events_with_poison(total))
    with Controller() as controller, Kafka(joins=controller) as broker:
        project = ToPulsar(folder=tmp_path, servers={"kafka": broker}, pulsar=pulsar).create(partitions=2)
        project.write({"send": ["send-pout", "send"]}, **{"exactly-once": "required"})
        project.produce(islice(events, 2000))
        words = ("--max-offsets", "500") if engine == "spark" else ()
        running = project.spawn("run", "--engine", engine, *words)
        try:
            running.until(r"batch \d+ ")
            with away(controller, how):
                project.produce(islice(events, 2000))
                threading.Event().wait(AWAY_SECONDS)
            project.produce(events)
            wait_until(lambda: readable(project) >= total, seconds=240)
            wait_until(lambda: sum(map(len, project.messages("pout").values())) >= total, seconds=240)
            running.process.send_signal(signal.SIGTERM)
            assert running.ended() == 0, running.told()
        finally:
            running.process.kill()
            running.process.wait(30)
        project.assert_every_event_is_there_once(total)
        found = Counter(KafkaBinding().decode(each).id for each in project.read("out"))
    assert found == Counter(f"e-{number}" for number in range(total))
