"""Kafka, Pulsar and the schema registry go away under jobs, a gateway with clients and `tail`.

All go on by themselves: what was acknowledged is written once, memory, threads, files and log lines are
bounded, and what health pages say is true at each moment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from penstock.brokers.kafka_records import scan
from penstock.contract.schema_ids import SchemaId, encode_payload
from penstock.embedded.gateway import Gateway
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.server, pytest.mark.slow]

AWAY = float(os.environ.get("OUTAGE_SECONDS", "600"))
"""Seconds for which everything is away in the long form; each server alone is away for a tenth of it."""
NOTICED = 40.0
"""Seconds within which health pages tell that a server has gone."""
BACK = 300.0
"""Seconds within which all go on after a server is back: a job is ready again when it has written a batch."""
STILL = 30.0
"""A job that says for a minute that nothing was written shows nothing new for so long at least."""
MEGABYTES, THREADS, FILES, CHILDREN = 20, 4, 12, 2
"""How much a process may grow while a server is away."""
JAVA_THREADS = 300
"""Threads of Spark's Java at most: two of its pools grow to 228 and shrink after an idle minute."""
WARM = 10
"""Batches of each source before the first outage."""
LINES = 12
"""Log lines of one process for each outage."""


def until(what: str, check: Callable[[], Any], seconds: float = BACK) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


HEADERS = {"ce_specversion": "1.0", "ce_source": "/s", "ce_type": "t"}


class Feeder:
    """Writes numbered events to a topic until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, *, every: float = 0.01) -> None:
        patient = {"enable.idempotence": True, "delivery.timeout.ms": 1_800_000, "linger.ms": 5}
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **patient, **quick})
        self._topic = topic
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.acknowledged = 0
        self.failed: list[Any] = []
        self._thread.start()

    def _message(self) -> tuple[bytes, dict[str, str]]:
        return b"{}", HEADERS

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            value, headers = self._message()
            self._producer.produce(
                self._topic,
                value,
                b"k%d" % (self.sent % 7),
                headers={**headers, "ce_id": f"e-{self.sent}"},
                on_delivery=self._delivered,
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


class AvroFeeder(Feeder):
    """Writes Avro; from time to time with a schema that its readers have not seen yet."""

    def __init__(self, bootstrap: str, topic: str, schemas: list[int]) -> None:
        self._schemas = schemas
        super().__init__(bootstrap, topic, every=0.05)

    def change_schema(self) -> None:
        del self._schemas[0]

    def _message(self) -> tuple[bytes, dict[str, str]]:
        # An Avro long below 64 is one byte, zigzag.
        body = encode_payload(SchemaId(number=self._schemas[0]), bytes([2 * (self.sent % 32)]))
        return body, {**HEADERS, "content-type": "application/avro"}


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
        self._consumer.close()

    def close(self) -> None:
        # A consumer waits for its coordinator when it is closed: a test that fails in an outage must end.
        self._stop.set()
        self._thread.join(30)


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
        self.outputs: list[tuple[str, Path]] = []
        """What is shown of the output of each source, by how names of sources begin."""
        self.lies: list[str] = []
        self._ready: dict[str, bool | None] = {}
        """How each has to be; None while that changes."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self) -> None:
        """Begin: from now on each has to be ready, and to say so."""
        for name in self.pages:
            self.expect(name, ready=True)
        self._thread.start()

    def expect(self, name: str, *, ready: bool) -> None:
        """Wait until it is so; from then on it has to stay so."""
        self._ready[name] = None
        until(
            f"{name} ready={ready}", lambda: (self.ask(name)[0] == 200) is ready, BACK if ready else NOTICED
        )
        self._ready[name] = ready

    def changes(self, name: str) -> None:
        self._ready[name] = None

    def ask(self, name: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.pages[name]}/readyz", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    def _stands_still(self, text: str) -> bool:
        """Tell whether nothing is written where that is said: on a busy machine a batch may take a minute."""
        said = [line for line in text.splitlines() if "records wait, and nothing was written" in line]
        outputs = [path for line in said for source, path in self.outputs if line.startswith(source)]
        ages = [time.time() - path.stat().st_mtime for path in outputs]
        return bool(ages) and max(ages) > STILL and len(said) == len(text.splitlines())

    def metric(self, job: str, name: str) -> dict[str, float]:
        """Give a metric of a job, by the server and channel of each source."""
        with urllib.request.urlopen(f"{self.pages[job]}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        rows = [line.split('"') for line in lines if line.startswith(f"penstock_pipeline_{name}{{")]
        return {source.rpartition("-")[0]: float(value.strip("} ")) for _, source, value in rows}

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            for name, before in list(self._ready.items()):
                try:
                    status, text = self.ask(name)
                except OSError as exc:
                    self.lies.append(f"{name} does not answer: {exc!r}")
                    continue
                changed = before is not self._ready[name] or before is None
                if not changed and before is not (status == 200) and not self._stands_still(text):
                    self.lies.append(f"{name} has to be ready={before}: {status} {text}")

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join()


def live_heap(pid: int) -> int:
    """Collect the garbage of a Java process by HotSpot's attach protocol; give the megabytes left."""
    door = Path(f"/tmp/.java_pid{pid}")
    if not door.exists():
        call = Path(f"/tmp/.attach_pid{pid}")
        call.touch()
        try:
            os.kill(pid, signal.SIGQUIT)
            until(f"Java {pid} does not answer", door.exists, 30)
        finally:
            call.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(door))
        connection.sendall(b"1\0jcmd\0GC.class_histogram\0\0\0")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    return int(text.splitlines()[-1].split()[-1]) >> 20


@dataclass(frozen=True)
class Use:
    """What one process uses."""

    kind: str
    megabytes: int
    """Resident memory of Python, live objects on the heap of Java."""
    threads: int
    files: int

    @classmethod
    def of(cls, process: psutil.Process) -> Use | None:
        """Measure; None if it has ended meanwhile, or is neither Python nor Java."""
        try:
            kind = process.name()
            if kind == "java":
                # A job that goes on has a batch on its heap, or not.
                megabytes = min(live_heap(process.pid) for _ in range(3))
            elif kind.startswith(("python", "penstock")):
                megabytes = process.memory_info().rss >> 20
            else:
                return None
            return cls(kind, megabytes, process.num_threads(), process.num_fds())
        except psutil.NoSuchProcess:
            return None  # A worker of Spark.

    def growth(self, now: Use) -> list[str]:
        """Name what has grown beyond its bound."""
        threads = (
            (0, now.threads, JAVA_THREADS) if self.kind == "java" else (self.threads, now.threads, THREADS)
        )
        rows = {
            "MB": (self.megabytes, now.megabytes, MEGABYTES),
            "threads": threads,
            "files": (self.files, now.files, FILES),
        }
        return [f"{what} {was} -> {is_}" for what, (was, is_, most) in rows.items() if is_ - was > most]


@dataclass
class Usage:
    """What a program and its children use."""

    name: str
    pid: int
    processes: dict[int, Use]

    @classmethod
    def of(cls, name: str, pid: int) -> Usage:
        process = psutil.Process(pid)
        found = {each.pid: Use.of(each) for each in (process, *process.children(recursive=True))}
        return cls(name, pid, {pid: use for pid, use in found.items() if use is not None})

    def growth(self, now: Usage) -> list[str]:
        """Name what has grown beyond its bound.

        Spark starts Python workers as it needs them, and a young one grows with its first batches: each is
        compared with the largest that was there before.
        """
        workers = [use for pid, use in self.processes.items() if pid != self.pid and use.kind != "java"]
        largest = max((use.megabytes for use in workers), default=0)
        rows = []
        for pid, use in now.processes.items():
            before = self.processes.get(pid, use)
            if pid != self.pid and use.kind != "java":
                before = replace(before, megabytes=max(before.megabytes, largest))
            rows += [f"{self.name}: {use.kind} {pid}: {each}" for each in before.growth(use)]
        was, is_ = len(self.processes), len(now.processes)
        return [*rows, *([f"{self.name}: processes {was} -> {is_}"] if is_ - was > CHILDREN else [])]

    def __str__(self) -> str:
        uses = (
            f"{use.kind} {use.megabytes} MB {use.threads} t {use.files} f" for use in self.processes.values()
        )
        return f"{self.name}: {'; '.join(uses)}"


NEEDS = {"gateway": {"pulsar"}, "out": {"kafka"}, "spark": {"kafka", "registry"}}
"""What each needs to be ready; the job on Spark has a second source whose schemas are in the registry."""


@dataclass
class Site:
    """Servers, a gateway, jobs, clients and readers."""

    folder: Path
    servers: dict[str, Kafka | Pulsar | Registry]
    gateway: Gateway
    health: Health = field(default_factory=Health)
    jobs: dict[str, Program] = field(default_factory=dict)
    """By the channel that each writes to."""
    tails: dict[str, Program] = field(default_factory=dict)
    feeders: dict[str, Feeder] = field(default_factory=dict)
    """Both by channel."""
    outages: int = 0
    away: set[str] = field(default_factory=set)

    def pids(self) -> dict[str, int]:
        programs = {each.name: each.pid for each in (*self.jobs.values(), *self.tails.values())}
        assert self.gateway.pid is not None
        return {**programs, "gateway": self.gateway.pid}

    def check(self) -> None:
        for program in (*self.jobs.values(), *self.tails.values()):
            program.check()
        assert not self.health.lies, self.health.lies[:5]

    def lose(self, *names: str) -> None:
        """Kill servers; that has to be told, by what needs them alone."""
        self.outages += 1
        self._changes(names)
        for name in names:
            self.servers[name].kill()
        self.away |= set(names)
        avro = self.feeders.get("avro")
        if "registry" in names and isinstance(avro, AvroFeeder):
            avro.change_schema()
        self._expect(names)

    def give_back(self, *names: str) -> None:
        self._changes(names)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: self.servers[name].start(), names))
        self.away -= set(names)
        self._expect(names)

    def _changes(self, names: tuple[str, ...]) -> None:
        for who in self._concerned(names):
            self.health.changes(who)

    def _expect(self, names: tuple[str, ...]) -> None:
        for who in self._concerned(names):
            self.health.expect(who, ready=not NEEDS[who] & self.away)

    def _concerned(self, names: tuple[str, ...]) -> list[str]:
        return [who for who in self.health.pages if NEEDS[who] & set(names)]

    def stays_bounded(self, seconds: float) -> None:
        """Let an outage last; nothing grows meanwhile, and what needs none of the servers goes on."""
        before = {name: Usage.of(name, pid) for name, pid in self.pids().items()}
        self.others_go_on()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            time.sleep(0.5)
        now = {name: Usage.of(name, pid) for name, pid in self.pids().items()}
        for name, was in before.items():
            log.info("away: %s, %.0f s: %s -> %s", sorted(self.away), seconds, was, now[name])
        grown = [each for name, was in before.items() for each in was.growth(now[name])]
        assert not grown, grown
        self.lag_is_told()

    def lag_is_told(self) -> None:
        """Check the metrics in an outage: for how long Kafka is away, what waits for the registry."""
        for job in self.jobs:
            silent = self.health.metric(job, "outage_seconds")
            assert all((seconds > 0) is ("kafka" in self.away) for seconds in silent.values()), (job, silent)
        if self.away & {"kafka", "registry"} == {"registry"}:
            lag = self.health.metric("spark", "lag")["kafka-avro"]
            assert lag > 0
            until("the lag does not grow", lambda: self.health.metric("spark", "lag")["kafka-avro"] > lag)

    def others_go_on(self) -> None:
        """Wait until more is shown of each channel that needs nothing that is away."""
        for channel, tail in self.tails.items():
            if not self.away & ROUTES[channel]:
                before = tail.stdout.stat().st_size
                until(
                    f"{channel} stands still without {self.away}",
                    lambda t=tail, n=before: t.stdout.stat().st_size > n,
                )


ROUTES = {"out": {"kafka"}, "spark": {"kafka"}, "typed": {"kafka", "registry"}, "parcels": {"pulsar"}}
"""What a channel needs to get more events."""
CHANNELS = {name: "pulsar" if name == "parcels" else "kafka" for name in ("in", "avro", "dead", *ROUTES)}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
PIPELINES = {
    "out": {"out": {"receive": "receive-in", "send": "send-out"}},
    "spark": {
        "spark": {"receive": "receive-in", "send": "send-spark"},
        "typed": {"receive": "receive-avro", "send": "send-typed", "where": "data.n >= 0"},
    },
}
"""By the job."""
ENGINES = {"out": "loop", "spark": "spark"}


def write_project(folder: Path, name: str, servers: dict[str, Any]) -> None:
    registry = {"schemaRegistryUrl": "http://unused:1/apis/ccompat/v7", "schemaRegistryVendor": "apicurio"}
    binding = {"bindingVersion": "0.5.0"}
    channels: dict[str, Any] = {
        channel: {"address": f"{channel}-{name}", "servers": [{"$ref": f"#/servers/{server}"}]}
        for channel, server in CHANNELS.items()
    }
    ids = {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "4", **binding}
    channels["avro"]["messages"] = {
        "order": {
            "contentType": "application/avro",
            "payload": {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": ORDER},
            "bindings": {"kafka": ids},
        }
    }
    channels["typed"]["messages"] = {
        "order": {"contentType": "application/json", "payload": {"type": "object"}}
    }
    for channel in ("in", "avro"):
        channels[channel]["x-penstock-dead-letter"] = {"$ref": "#/channels/dead"}
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1.0.0"},
        "servers": {
            "kafka": {
                "host": "unused:1",
                "protocol": "kafka",
                "bindings": {"kafka": {**registry, **binding}},
            },
            "pulsar": {"host": "unused:1", "protocol": "pulsar"},
        },
        "channels": channels,
        "operations": {
            f"{action}-{channel}": {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
            for channel in channels
            for action in ("receive", "send")
        },
    }
    context = {
        "servers": {
            "kafka": {"kind": "kafka", "address": servers["kafka"].bootstrap},
            "pulsar": {"kind": "pulsar", "address": servers["pulsar"].service_url},
        },
        "registry": {"address": servers["registry"].url if "registry" in servers else "http://unused:1"},
    }
    jobs = {
        job: {"name": job, "checkpoint": f"state/{job}", "routes": routes}
        for job, routes in PIPELINES.items()
    }
    files = {"asyncapi": contract, "penstock": {"contexts": {"test": context}}, **jobs}
    (folder / ".git").mkdir()
    for file, content in files.items():
        (folder / f"{file}.yaml").write_text(json.dumps(content), encoding="utf-8")


def make_topics(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        made.result(60)


def register(url: str, name: str, count: int) -> list[int]:
    """Register schemas that mean the same, of a subject that the contract does not name: jobs know none."""
    with SchemaRegistryClient({"url": url}) as client:
        texts = [json.dumps({**ORDER, "doc": f"{name} {number}"}) for number in range(count)]
        return [client.register_schema(f"elsewhere-{name}", Schema(text, "AVRO")) for text in texts]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start everything, with these jobs."""
    with ExitStack() as held:

        def make(name: str, *jobs: str) -> Site:
            servers: dict[str, Any] = {"kafka": Kafka(), "pulsar": Pulsar()}
            if "spark" in jobs:
                servers["registry"] = Registry()
            with ThreadPoolExecutor() as pool:
                for server in servers.values():
                    held.callback(server.close)
                list(pool.map(lambda server: server.start(), servers.values()))
            gateway = held.enter_context(Gateway(servers["pulsar"]))
            write_project(tmp_path, name, servers)
            topics = [f"{channel}-{name}" for channel, server in CHANNELS.items() if server == "kafka"]
            make_topics(servers["kafka"].bootstrap, *topics)
            make_topics(gateway.bootstrap, f"parcels-{name}")
            site = Site(tmp_path, servers, gateway)
            for job in jobs:
                words = ("run", f"{job}.yaml", "--engine", ENGINES[job], "--metrics", "127.0.0.1:0")
                site.jobs[job] = Program(tmp_path, *words)
                held.callback(site.jobs[job].close)
            for channel in (*(channel for job in jobs for channel in PIPELINES[job]), "parcels"):
                words = ("tail", channel, "--from", "beginning", "-o", "json")
                site.tails[channel] = Program(tmp_path, *words)
                held.callback(site.tails[channel].close)
                site.health.outputs.append((f"kafka-{SOURCES[channel]}-", site.tails[channel].stdout))
            held.callback(site.health.close)
            site.health.pages["gateway"] = gateway.metrics_url
            for job, program in site.jobs.items():
                site.health.pages[job] = program.address()
                until(f"{job} does not run", lambda each=job: site.health.ask(each)[0] == 200)
            return site

        yield make


def shown(tail: Program) -> list[str]:
    """Give the ids of the events that were shown; an event whose data was written anew names its cause."""
    lines = tail.stdout.read_text(encoding="utf-8").split("\n")[:-1]
    events = [json.loads(line)["event"] for line in lines]
    return [event.get("causationid", event["id"]) for event in events]


def ids(bootstrap: str, topic: str) -> list[str]:
    options = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    headers = [dict(record.headers) for record in scan(options, topic)]
    return [(each.get("ce_causationid") or each["ce_id"] or b"").decode() for each in headers]


def survive(site: Site, name: str, outages: Callable[[Callable[[], None]], None]) -> None:
    """Let outages happen under load; then everything is there once, and little was said."""
    kafka: Any = site.servers["kafka"]
    site.feeders["in"] = Feeder(kafka.bootstrap, f"in-{name}")
    site.feeders["parcels"] = Feeder(site.gateway.bootstrap, f"parcels-{name}")
    registry: Any = site.servers.get("registry")
    if registry is not None:
        schemas = register(registry.url, name, 10)
        site.feeders["avro"] = AvroFeeder(kafka.bootstrap, f"avro-{name}", schemas)
    reader = Reader(site.gateway.bootstrap, f"parcels-{name}")

    def all_go_on() -> None:
        for feeder in site.feeders.values():
            feeder.goes_on()
        site.others_go_on()
        site.check()

    try:
        all_go_on()
        for job in site.jobs:
            # Python's workers grow while they see their first batches.
            until(
                f"{job} is slow",
                lambda j=job: min(site.health.metric(j, "batches_total").values(), default=0) >= WARM,
            )
        site.health.watch()
        outages(all_go_on)
        sent = {channel: feeder.finish() for channel, feeder in site.feeders.items()}
        expected = {channel: sent[SOURCES[channel]] for channel in site.tails}
        for channel, tail in site.tails.items():
            until(f"tail {channel}", lambda c=channel, t=tail: expected[c] <= set(shown(t)))
        until("the group has not read all", lambda: sent["parcels"] <= set(reader.found))
        for job in site.jobs:
            until(f"{job} tells a lag", lambda j=job: not any(site.health.metric(j, "lag").values()))
    finally:
        reader.close()
    site.check()
    for channel, tail in site.tails.items():
        there = Counter(ids((site.gateway if channel == "parcels" else kafka).bootstrap, f"{channel}-{name}"))
        assert Counter(shown(tail)) == there
        assert there == Counter(expected[channel])
    assert ids(kafka.bootstrap, f"dead-{name}") == []
    for program in (*site.jobs.values(), *site.tails.values()):
        assert len(program.logged()) <= LINES * (site.outages + 1), program.told()
        log.info("%s: %d log lines", program.name, len(program.logged()))
    lines = site.gateway.log.read_text(encoding="utf-8").splitlines()
    log.info(
        "gateway: %d log lines; written: %s", len(lines), {each: len(found) for each, found in sent.items()}
    )
    assert len(lines) <= LINES * (site.outages + 1), lines


SOURCES = {"out": "in", "spark": "in", "typed": "avro", "parcels": "parcels"}


@pytest.mark.timeout(240)
def test_outages_that_overlap_are_survived_and_told(start: Callable[..., Site]) -> None:
    name = uuid.uuid4().hex[:6]
    site = start(name, "out")

    def outages(all_go_on: Callable[[], None]) -> None:
        site.lose("pulsar")
        site.others_go_on()
        site.lose("kafka")
        site.stays_bounded(1)
        site.give_back("pulsar")
        site.others_go_on()
        site.give_back("kafka")
        all_go_on()

    survive(site, name, outages)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_long_outages_are_survived_and_told(start: Callable[..., Site]) -> None:
    name = uuid.uuid4().hex[:6]
    site = start(name, "out", "spark")

    def outages(all_go_on: Callable[[], None]) -> None:
        for names in (
            ("kafka",),
            ("pulsar",),
            ("registry",),
            ("kafka", "pulsar"),
            ("kafka", "pulsar", "registry"),
        ):
            site.lose(*names)
            site.stays_bounded(AWAY if len(names) == len(site.servers) else AWAY / 10)
            site.give_back(*names)
            all_go_on()

    survive(site, name, outages)
