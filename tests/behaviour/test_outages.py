"""Kafka, Pulsar or both go away under jobs, a gateway with clients and `tail`: all go on by themselves.

What was acknowledged is written once, memory, threads, files and log lines are bounded, and what health pages
say is true at each moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.brokers.kafka_records import scan
from penstock.embedded.gateway import Gateway
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar

pytestmark = [pytest.mark.server, pytest.mark.slow]

AWAY = float(os.environ.get("OUTAGE_SECONDS", "150"))
"""Seconds of each outage of the long form: longer than a job waits for an answer."""
NOTICED = 40.0
"""Seconds within which health pages tell that a broker has gone, or is back."""
MEGABYTES, THREADS, FILES = 20, 4, 12
"""How much a process may grow while a broker is away."""
LINES = 12
"""Log lines of one process for each outage."""


def until(what: str, check: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Feeder:
    """Writes numbered events to a topic until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        patient = {"enable.idempotence": True, "delivery.timeout.ms": 1_200_000, "linger.ms": 5}
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **patient, **quick})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.acknowledged = 0
        self.failed: list[Any] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            headers = {"ce_specversion": "1.0", "ce_id": f"e-{self.sent}", "ce_source": "/s", "ce_type": "t"}
            self._producer.produce(
                self._topic, b"{}", b"k%d" % (self.sent % 7), headers=headers, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(error)

    def goes_on(self) -> None:
        """Wait until more is acknowledged."""
        before = self.acknowledged
        until(f"{self._topic}: nothing is acknowledged", lambda: self.acknowledged > before)

    def finish(self) -> set[str]:
        """Stop; give the ids of what was acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.failed, self.failed[:3]
        assert self.acknowledged == self.sent
        return {f"e-{number}" for number in range(self.sent)}


class Reader:
    """A member of a group on the gateway."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = {"auto.offset.reset": "earliest", "group.id": f"reader-{topic}", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **options})
        self._consumer.subscribe([topic])
        self.found: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found[dict(message.headers())["ce_id"].decode()] += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class Program:
    """A `penstock` that runs; what it says is in two files."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.name = " ".join(words[:2])
        self.stdout, self.stderr = (folder / f"{uuid.uuid4().hex[:6]}.{end}" for end in ("out", "err"))
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def told(self) -> str:
        return self.stderr.read_text(encoding="utf-8")

    def logged(self) -> list[str]:
        """The lines that are no progress."""
        return [line for line in self.told().splitlines() if " · batch " not in line]

    def check(self) -> None:
        assert self._process.poll() is None, f"{self.name} has ended: {self.told()[-2000:]}"

    def address(self) -> str:
        until("no metrics", lambda: self.check() or "metrics on http://" in self.told())
        return self.told().partition("metrics on ")[2].split("/metrics")[0]

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()


class Health:
    """Asks health pages twice a second, and notes whatever is not as it has to be."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.lies: list[str] = []
        self._ready: dict[str, bool | None] = {}
        """How each has to be; None while that changes."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self, name: str, address: str) -> None:
        self.pages[name] = address
        self.expect(name, ready=True)
        if not self._thread.ident:
            self._thread.start()

    def expect(self, name: str, *, ready: bool) -> None:
        """Wait until it is so; from then on it has to stay so."""
        self._ready[name] = None
        until(f"{name} ready={ready}: {self.ask(name)}", lambda: (self.ask(name)[0] == 200) is ready, NOTICED)
        self._ready[name] = ready

    def changes(self, name: str) -> None:
        self._ready[name] = None

    def ask(self, name: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.pages[name]}/readyz", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            for name, before in list(self._ready.items()):
                status, text = self.ask(name)
                if before is self._ready[name] and before not in (None, status == 200):
                    self.lies.append(f"{name} has to be ready={before}: {status} {text}")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@dataclass
class Usage:
    """What a process uses."""

    megabytes: int
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        process = psutil.Process(pid)
        with process.oneshot():
            return cls(process.memory_info().rss >> 20, process.num_threads(), process.num_fds())

    def grew(self, now: Usage) -> bool:
        return (
            now.megabytes - self.megabytes > MEGABYTES
            or now.threads - self.threads > THREADS
            or now.files - self.files > FILES
        )


@dataclass
class Site:
    """Brokers, a gateway, jobs, clients and readers."""

    folder: Path
    kafka: Kafka
    pulsar: Pulsar
    gateway: Gateway
    health: Health = field(default_factory=Health)
    jobs: dict[str, Program] = field(default_factory=dict)
    """By the channel that each writes to."""
    tails: dict[str, Program] = field(default_factory=dict)
    """By channel."""
    outages: int = 0

    def pids(self) -> dict[str, int]:
        programs = {each.name: each.pid for each in (*self.jobs.values(), *self.tails.values())}
        assert self.gateway.pid is not None
        return {**programs, "gateway": self.gateway.pid}

    def check(self) -> None:
        for program in (*self.jobs.values(), *self.tails.values()):
            program.check()
        assert not self.health.lies, self.health.lies[:5]

    def lose(self, *names: str) -> None:
        """Kill brokers; it has to be told, by who needs them alone."""
        self.outages += 1
        for name in names:
            for who in self._depend(name):
                self.health.changes(who)
            getattr(self, name).kill()
        for name in names:
            for who in self._depend(name):
                self.health.expect(who, ready=False)
                assert self.health.ask(who)[1] != "ready\n"

    def give_back(self, *names: str) -> None:
        for name in names:
            for who in self._depend(name):
                self.health.changes(who)
            getattr(self, name).start()
        for name in names:
            for who in self._depend(name):
                self.health.expect(who, ready=True)

    def stays_bounded(self, seconds: float) -> None:
        """Let an outage last; nothing grows meanwhile."""
        before = {name: Usage.of(pid) for name, pid in self.pids().items()}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            time.sleep(0.5)
        for name, pid in self.pids().items():
            now = Usage.of(pid)
            assert not before[name].grew(now), f"{name}: {before[name]} became {now}"

    def _depend(self, name: str) -> list[str]:
        return ["gateway"] if name == "pulsar" else list(self.jobs)


CHANNELS = {"in": "kafka", "out": "kafka", "spark": "kafka", "dead": "kafka", "parcels": "pulsar"}


def write_project(folder: Path, name: str, kafka: Kafka, pulsar: Pulsar) -> None:
    servers = {"kafka": ("kafka", kafka.bootstrap), "pulsar": ("pulsar", pulsar.service_url)}
    channels: dict[str, Any] = {
        channel: {"address": f"{channel}-{name}", "servers": [{"$ref": f"#/servers/{server}"}]}
        for channel, server in CHANNELS.items()
    }
    channels["in"]["x-penstock-dead-letter"] = {"$ref": "#/channels/dead"}
    operations = {"in": "receive", "out": "send", "spark": "send"}
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1.0.0"},
        "servers": {each: {"host": "unused:1", "protocol": kind} for each, (kind, _) in servers.items()},
        "channels": channels,
        "operations": {
            f"{action}-{channel}": {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
            for channel, action in operations.items()
        },
    }
    known = {each: {"kind": kind, "address": address} for each, (kind, address) in servers.items()}
    files = {
        "asyncapi": contract,
        "penstock": {"contexts": {"test": {"servers": known}}},
        **{
            channel: {
                "name": channel,
                "routes": {channel: {"receive": "receive-in", "send": f"send-{channel}"}},
            }
            for channel in ("out", "spark")
        },
    }
    (folder / ".git").mkdir()
    for file, content in files.items():
        (folder / f"{file}.yaml").write_text(json.dumps(content), encoding="utf-8")


def make_topics(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result(60)


ENGINES = {"out": "loop", "spark": "fused"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start everything, with jobs that write to these channels."""
    with ExitStack() as held:

        def make(name: str, *jobs: str) -> Site:
            kafka, pulsar = held.enter_context(Kafka()), held.enter_context(Pulsar())
            gateway = held.enter_context(Gateway(pulsar))
            write_project(tmp_path, name, kafka, pulsar)
            topics = [f"{channel}-{name}" for channel, server in CHANNELS.items() if server == "kafka"]
            make_topics(kafka.bootstrap, *topics)
            make_topics(gateway.bootstrap, f"parcels-{name}")
            site = Site(tmp_path, kafka, pulsar, gateway)
            for channel in jobs:
                words = ("run", f"{channel}.yaml", "--engine", ENGINES[channel], "--metrics", "127.0.0.1:0")
                site.jobs[channel] = Program(tmp_path, *words)
                held.callback(site.jobs[channel].close)
            for channel in (*jobs, "parcels"):
                words = ("tail", channel, "--from", "beginning", "-o", "json")
                site.tails[channel] = Program(tmp_path, *words)
                held.callback(site.tails[channel].close)
            held.callback(site.health.close)
            site.health.watch("gateway", gateway.metrics_url)
            for channel, job in site.jobs.items():
                site.health.pages[channel] = job.address()
                until(f"{channel} does not run", lambda each=channel: site.health.ask(each)[0] == 200)
                site.health.watch(channel, job.address())
            return site

        yield make


def shown(tail: Program) -> list[str]:
    lines = tail.stdout.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["event"]["id"] for line in lines]


def ids(bootstrap: str, topic: str) -> list[str]:
    options = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    return [dict(record.headers)["ce_id"].decode() for record in scan(options, topic)]  # type: ignore[union-attr]


def survive(site: Site, name: str, outages: Callable[[Site, Callable[[], None]], None]) -> None:
    """Let outages happen under load; then everything is there once, and little was said."""
    orders = Feeder(site.kafka.bootstrap, f"in-{name}")
    parcels = Feeder(site.gateway.bootstrap, f"parcels-{name}")
    reader = Reader(site.gateway.bootstrap, f"parcels-{name}")

    def all_go_on() -> None:
        orders.goes_on()
        parcels.goes_on()
        site.check()

    try:
        all_go_on()
        outages(site, all_go_on)
        made, sent = orders.finish(), parcels.finish()
        for channel in site.jobs:
            until(f"tail {channel}", lambda each=channel: made <= set(shown(site.tails[each])))
        until("tail parcels", lambda: sent <= set(shown(site.tails["parcels"])))
        until("the group has not read all", lambda: sent <= set(reader.found))
    finally:
        reader.close()
    site.check()
    for channel in site.jobs:
        assert Counter(ids(site.kafka.bootstrap, f"{channel}-{name}")) == Counter(made)
        assert Counter(shown(site.tails[channel])) == Counter(made)
    assert Counter(ids(site.gateway.bootstrap, f"parcels-{name}")) == Counter(sent)
    assert Counter(shown(site.tails["parcels"])) == Counter(sent)
    for program in (*site.jobs.values(), *site.tails.values()):
        assert len(program.logged()) <= LINES * (site.outages + 1), program.told()


@pytest.mark.timeout(240)
def test_outages_that_overlap_are_survived_and_told(start: Callable[..., Site]) -> None:
    name = uuid.uuid4().hex[:6]

    def outages(site: Site, all_go_on: Callable[[], None]) -> None:
        site.lose("kafka")
        site.lose("pulsar")
        site.stays_bounded(2)
        site.give_back("kafka")
        site.stays_bounded(1)
        site.give_back("pulsar")
        all_go_on()

    survive(start(name, "out"), name, outages)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_long_outages_are_survived_and_told(start: Callable[..., Site]) -> None:
    name = uuid.uuid4().hex[:6]

    def outages(site: Site, all_go_on: Callable[[], None]) -> None:
        for names in (("kafka",), ("pulsar",), ("kafka", "pulsar"), ("kafka",)):
            site.lose(*names)
            site.stays_bounded(AWAY)
            site.give_back(*names)
            all_go_on()

    survive(start(name, "out", "spark"), name, outages)
