"""Kafka clients on the gateway, on a real Kafka, and Pulsar's own client on the broker behind the gateway.

One machine, one partition, no sync of the journal (Kafka does not sync either), deduplication on. After a
warm-up the sides take turns, the first round is thrown away, every figure is the median of the others. The
gateway is a process of its own; its CPU and memory, and those of the brokers, are the system's figures.
Everything is fetched twice: Kafka has what was just produced in the page cache, a Pulsar broker gets it from
the bookie at first and has it in its own cache then, for which it is given memory here. Topics are deleted
after each round, and retention is bounded besides.
"""

from __future__ import annotations

import compileall
import secrets
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pulsar as pulsar_client
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.embedded.gateway import Gateway
from penstock.embedded.kafka import Kafka
from penstock.embedded.kafka_tools import tool_command
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.server import Server
from quiet import cpu_seconds, settled
from table import Report

LIMIT = 120.0
"""Seconds that one measurement may take."""
SIZES = {"100 B": 100, "1 KiB": 1024}
HEADERS = [(f"ce_header{number}", b"value of it") for number in range(6)]
BOUNDED = {"defaultRetentionSizeInMB": "4096", "defaultRetentionTimeInMinutes": "10"}
CACHED = {"managedLedgerCacheSizeMB": "768", "managedLedgerCacheEvictionTimeThresholdMillis": "300000"}
DIRECT_MB = 1536
FIRST, AGAIN, JAVA = "fetch, first time,", "fetch", "consume, Java perf tool,"
FETCH_BYTES = 4 * 1024 * 1024
GOALS = {
    "produce": {100: 0.75, 1024: 0.6},
    AGAIN: {100: 0.7, 1024: 0.55},
    JAVA: {100: 0.7, 1024: 0.55},
}
WARM_UP = 3
"""Rounds of both brokers before the first that is thrown away."""
QUEUE = 100_000
ALONE = {"batch.num.messages": 1, "linger.ms": 0}
BATCHED = {"linger.ms": 5, "batch.size": 131072, "queue.buffering.max.messages": QUEUE}


@dataclass
class Side:
    """Where a Kafka client is pointed, and whose CPU that costs."""

    name: str
    bootstrap: str
    processes: dict[str, int]

    @contextmanager
    def topic(self) -> Iterator[str]:
        name = f"bench-{secrets.token_hex(6)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        try:
            yield name
        finally:
            admin.delete_topics([name])[name].result(30)

    def cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.processes.items()}


@dataclass
class Round:
    """Seconds of one measurement, and CPU seconds by process."""

    wall: float
    cpu: dict[str, float] = field(default_factory=dict)


def timed(side: Side, work: Callable[[], None]) -> Round:
    before, began = side.cpu(), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    return Round(wall, {name: spent - before[name] for name, spent in side.cpu().items()})


# Producing


def produce(side: Side, topic: str, count: int, value: bytes, **options: Any) -> None:
    """Send `count` records with librdkafka; a record that is not stored ends the benchmark."""
    message = {"key": b"a key 8B", "headers": HEADERS} if options.pop("full", False) else {}
    producer = Producer({"bootstrap.servers": side.bootstrap, "log_level": 0, **BATCHED, **options})
    failed: list[Any] = []

    def done(error: Any, _: Any) -> None:
        if error:
            failed.append(error)

    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=done, **message)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(LIMIT) or failed:
        raise SystemExit(f"{side.name}: not all records were stored: {failed[:1]}")


def latencies(side: Side, topic: str, count: int) -> list[float]:
    """Send 500 records a second, each by itself; give the milliseconds until each was acknowledged."""
    producer = Producer({"bootstrap.servers": side.bootstrap, "log_level": 0, "linger.ms": 0})
    taken: list[float] = []

    def send(value: bytes) -> None:
        sent = time.perf_counter()
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: taken.append(1000 * (time.perf_counter() - sent)),
        )

    with polled(producer):
        paced(count, send)
        producer.flush(LIMIT)
    return taken[len(taken) // 10 :]


@contextmanager
def polled(producer: Producer) -> Iterator[None]:
    """Let a thread wait for acknowledgments, as pulsar-client has one: who sends does not hear them late."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def paced(count: int, send: Callable[[bytes], None]) -> None:
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / 500 - time.perf_counter()))
        send(b"x" * 100)


# Fetching: our own loop, so that no client library is measured


def fetch(side: Side, topic: str, count: int) -> None:
    """Fetch everything from offset 0 on, one request at a time, looking at the heads of batches only."""
    host, _, port = side.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT) as link:
        offset, buffer = 0, bytearray(FETCH_BYTES * 2)
        while offset < count:
            link.sendall(fetch_request(topic, offset))
            offset = next_offset(receive(link, buffer), offset)


def fetch_request(topic: str, offset: int) -> bytes:
    """Encode Fetch version 11."""
    name = topic.encode()
    head = struct.pack(">hhih5s", 1, 11, 1, 5, b"bench")
    body = struct.pack(">iiiibiii", -1, 500, 1, FETCH_BYTES, 0, 0, -1, 1)
    body += struct.pack(f">h{len(name)}si", len(name), name, 1)
    body += struct.pack(">iiqqi", 0, -1, offset, -1, FETCH_BYTES) + struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(head) + len(body)) + head + body


def receive(link: socket.socket, buffer: bytearray) -> memoryview:
    view = memoryview(buffer)
    fill(link, view[:4])
    size = int.from_bytes(view[:4], "big")
    if size > len(buffer):
        raise SystemExit(f"an answer of {size} bytes")
    fill(link, view[:size])
    return view[:size]


def fill(link: socket.socket, view: memoryview) -> None:
    while view:
        count = link.recv_into(view)
        if not count:
            raise SystemExit("the connection was closed")
        view = view[count:]


def next_offset(answer: memoryview, offset: int) -> int:
    pos = 4 + 4 + 2 + 4 + 4  # correlation id, throttle, error, session, one topic
    pos += 2 + int.from_bytes(answer[pos : pos + 2], "big") + 4
    _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, pos)
    if error:
        raise SystemExit(f"Fetch was answered with error {error}")
    pos += 34 + 16 * max(aborted, 0) + 4
    end = pos + 4 + struct.unpack_from(">i", answer, pos)[0]
    pos += 4
    while pos + 61 <= end:
        base, size = struct.unpack_from(">qi", answer, pos)
        offset = base + struct.unpack_from(">i", answer, pos + 23)[0] + 1
        pos += 12 + size
    return offset


# Consuming: Kafka's own tool, a client that looks at every record


def consume(side: Side, topic: str, count: int) -> Round:
    """Consume everything with ConsumerPerformance; its own figure of the time it fetched is taken."""
    words = ["--bootstrap-server", side.bootstrap, "--topic", topic, "--group", f"perf-{topic}"]
    command = tool_command("consumer-perf-test", [*words, "--timeout", "60000", "--num-records", str(count)])
    command = [word for word in command if "TieredStopAtLevel" not in word]
    before = side.cpu()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    spent = {name: cpu - before[name] for name, cpu in side.cpu().items()}
    columns, figures = ([each.strip() for each in line.split(",")] for line in done.stdout.splitlines()[-2:])
    told = dict(zip(columns, figures, strict=True))
    return Round(int(told["data.consumed.in.nMsg"]) and count / float(told["fetch.nMsg.sec"]), spent)


# Pulsar's own client


class Direct:
    """pulsar-client on the broker, without a gateway."""

    def __init__(self, server: Pulsar) -> None:
        self._server = server
        self.side = Side("pulsar-client", "", {"broker": server.pid or 0})

    @contextmanager
    def _client(self) -> Iterator[Any]:
        quiet = pulsar_client.ConsoleLogger(pulsar_client.LoggerLevel.Error)
        client = pulsar_client.Client(self._server.service_url, logger=quiet)
        try:
            yield client
        finally:
            client.close()

    def produce(self, topic: str, count: int, value: bytes) -> None:
        with self._client() as client:
            producer = client.create_producer(
                f"{topic}-partition-0",
                batching_enabled=True,
                batching_max_messages=QUEUE,
                batching_max_allowed_size_in_bytes=131072,
                batching_max_publish_delay_ms=5,
                block_if_queue_full=True,
                max_pending_messages=QUEUE,
            )
            for _ in range(count):
                producer.send_async(value, checked)
            producer.flush()

    def fetch(self, topic: str, count: int) -> None:
        with self._client() as client:
            start = pulsar_client.MessageId.earliest
            reader = client.create_reader(f"{topic}-partition-0", start, receiver_queue_size=QUEUE)
            for _ in range(count):
                reader.read_next(int(LIMIT * 1000))

    def latencies(self, topic: str, count: int) -> list[float]:
        taken: list[float] = []
        with self._client() as client:
            producer = client.create_producer(f"{topic}-partition-0", batching_enabled=False)

            def send(value: bytes) -> None:
                sent = time.perf_counter()
                producer.send_async(
                    value,
                    lambda result, _: taken.append(1000 * (time.perf_counter() - sent)),
                )

            paced(count, send)
            producer.flush()
        return taken[len(taken) // 10 :]


def checked(result: Any, _: Any) -> None:
    if result != pulsar_client.Result.Ok:
        raise SystemExit(f"pulsar-client: {result}")


# The cases


@dataclass
class Bench:
    """The servers of one run."""

    report: Report
    kafka: Side
    gateway: Side
    direct: Direct
    gateway_pid: int
    rounds: int

    def volume(self, size: int) -> int:
        large = 1_000_000 if size == 100 else 300_000
        return large // 5 if self.report.quick else large

    def throughput(self, label: str, size: int) -> None:
        """Produce and fetch with every side, in turn."""
        count, value = self.volume(size), b"x" * size
        self._warm_up(count, value)
        found: dict[tuple[str, str], list[Round]] = {}
        for number in range(self.rounds + 1):
            for side in (self.gateway, self.kafka, self.direct.side):
                for what, one in self._one_round(side, count, value).items():
                    if number:
                        found.setdefault((what, side.name), []).append(one)
        for what in ("produce", FIRST, AGAIN, JAVA):
            rates = {
                s: self._tell(what, s, label, size, count, found[what, s]) for _, s in _sides(found, what)
            }
            against = rates["gateway"] / rates["kafka"]
            if "pulsar-client" in rates:
                self.report.figure(
                    f"{what} {label}: rate against pulsar-client", rates["gateway"] / rates["pulsar-client"]
                )
            if what in GOALS:
                self.report.goal(f"{what} {label}: rate against Kafka", against, GOALS[what][size])
            else:
                self.report.figure(f"{what} {label}: rate against Kafka", against)
        cpu = _median(found["produce", "gateway"], "gateway") * 1000 / (count * size / 1e6)
        self.report.goal(
            f"produce {label}: gateway CPU ms/MB", cpu, {100: 2.5, 1024: 1.4}[size], at_least=False
        )

    def _warm_up(self, count: int, value: bytes) -> None:
        """Let the brokers' compilers finish: at first a JVM spends more on them than on records."""
        for _ in range(0 if self.report.quick else WARM_UP):
            for side in (self.gateway, self.kafka):
                with side.topic() as topic:
                    produce(side, topic, count, value)
                    fetch(side, topic, count)
                    fetch(side, topic, count)

    def _settle(self) -> None:
        settled({*self.kafka.processes.values(), *self.gateway.processes.values()})

    def _one_round(self, side: Side, count: int, value: bytes) -> dict[str, Round]:
        self._settle()
        if side is self.direct.side:
            with self.gateway.topic() as topic:
                return {
                    "produce": timed(side, lambda: self.direct.produce(topic, count, value)),
                    FIRST: timed(side, lambda: self.direct.fetch(topic, count)),
                    AGAIN: timed(side, lambda: self.direct.fetch(topic, count)),
                }
        with side.topic() as topic:
            return {
                "produce": timed(side, lambda: produce(side, topic, count, value)),
                FIRST: timed(side, lambda: fetch(side, topic, count)),
                AGAIN: timed(side, lambda: fetch(side, topic, count)),
                JAVA: consume(side, topic, count),
            }

    def _tell(self, what: str, side: str, label: str, size: int, count: int, rounds: list[Round]) -> float:
        wall = statistics.median(one.wall for one in rounds)
        cpus = {name: _median(rounds, name) * 1e6 / count for name in rounds[0].cpu}
        self.report.row(
            f"{what} {label}",
            side,
            f"{count / wall:,.0f}",
            f"{count * size / wall / 1e6:,.0f}",
            "  ".join(f"{name} {cpu:.2f}" for name, cpu in cpus.items()),
        )
        self.report.figure(f"{what} {label} {side} records/s", count / wall)
        for name, cpu in cpus.items():
            self.report.figure(f"{what} {label} {side}: CPU s per million records, {name}", cpu)
        return count / wall

    def variant(self, label: str, count: int, goal: float | None, **options: Any) -> None:
        """Produce in another way, on the gateway and on Kafka."""
        walls: dict[str, list[float]] = {}
        for number in range(self.rounds + 1):
            for side in (self.gateway, self.kafka):
                self._settle()
                with side.topic() as topic:
                    one = timed(side, lambda: produce(side, topic, count, b"x" * 100, **options))  # noqa: B023
                if number:
                    walls.setdefault(side.name, []).append(one.wall)
        rates = {name: count / statistics.median(each) for name, each in walls.items()}
        for name, rate in rates.items():
            self.report.row(f"produce {label}", name, f"{rate:,.0f}", f"{rate / 1e4:,.0f}", "")
            self.report.figure(f"produce {label} {name} records/s", rate)
        if goal is not None:
            self.report.goal(f"produce {label}: rate against Kafka", rates["gateway"] / rates["kafka"], goal)

    def requests(self) -> None:
        """Send one record a request, as fast as it goes."""
        count = 3_000 if self.report.quick else 30_000
        rounds: dict[str, list[Round]] = {}
        for number in range(self.rounds + 1):
            for side in (self.gateway, self.kafka):
                self._settle()
                with side.topic() as topic:
                    one = timed(side, lambda: produce(side, topic, count, b"x" * 100, **ALONE))  # noqa: B023
                if number:
                    rounds.setdefault(side.name, []).append(one)
        for name, each in rounds.items():
            rate = count / statistics.median(one.wall for one in each)
            cpus = {which: _median(each, which) * 1e6 / count for which in each[0].cpu}
            told = "  ".join(f"{which} {cpu:.1f}" for which, cpu in cpus.items())
            self.report.row("one-record requests", name, f"{rate:,.0f}", "", told)
            self.report.figure(f"one-record requests/s {name}", rate)
            for which, cpu in cpus.items():
                self.report.figure(f"one-record requests {name}: CPU us per request, {which}", cpu)
        self.report.goal("one-record requests/s", self.report.figures["one-record requests/s gateway"], 9000)

    def latency(self) -> None:
        """Acknowledge 500 records a second."""
        count = 500 if self.report.quick else 2_500
        taken: dict[str, list[float]] = {}
        for number in range(self.rounds + 1):
            for name, one in self._latencies(count):
                if number:
                    taken.setdefault(name, []).extend(one)
        for name, each in taken.items():
            cuts = statistics.quantiles(each, n=100)
            self.report.row("latency at 500/s", name, f"p50 {cuts[49]:.2f} ms", f"p99 {cuts[98]:.2f} ms", "")
            self.report.figure(f"latency p50 ms {name}", cuts[49])
            self.report.figure(f"latency p99 ms {name}", cuts[98])
        above = statistics.median(taken["gateway"]) - statistics.median(taken["pulsar-client"])
        self.report.goal("latency p50: ms above pulsar-client", above, 0.4, at_least=False)

    def _latencies(self, count: int) -> Iterator[tuple[str, list[float]]]:
        for side in (self.gateway, self.kafka):
            self._settle()
            with side.topic() as topic:
                yield side.name, latencies(side, topic, count)
        self._settle()
        with self.gateway.topic() as topic:
            yield "pulsar-client", self.direct.latencies(topic, count)

    def memory(self) -> None:
        rss = most_memory(self.gateway_pid) / 1e6
        self.report.row("RSS of the gateway, at most", "gateway", f"{rss:.0f} MB", "", "")
        self.report.goal("RSS of the gateway, MB", rss, 350, at_least=False)


def most_memory(pid: int) -> int:
    """Give the most memory a process had; what it has now where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return peaks[0] if peaks else int(psutil.Process(pid).memory_info().rss)


def _sides(found: dict[tuple[str, str], Any], what: str) -> list[tuple[str, str]]:
    return [key for key in found if key[0] == what]


def _median(rounds: list[Round], name: str) -> float:
    return statistics.median(one.cpu[name] for one in rounds)


def started(stack: ExitStack, *servers: Server) -> None:
    with ThreadPoolExecutor() as pool:
        for server in pool.map(lambda server: server.start(), servers):
            stack.callback(server.close)


def ready_after(gateway: Gateway, *, keep: bool = False) -> float:
    """Start a gateway; give the seconds until it is ready for clients."""
    began = time.perf_counter()
    gateway.start()
    ready = time.perf_counter() - began
    if not keep:
        gateway.close()
    return ready


def side_of(gateway: Gateway, broker: Pulsar) -> Side:
    return Side("gateway", gateway.bootstrap, {"gateway": gateway.pid or 0, "broker": broker.pid or 0})


def main() -> None:
    report = Report.from_arguments(
        "The gateway beside Kafka and pulsar-client", ["what", "side", "records/s", "MB/s", "CPU s per M"]
    )
    # What an installer does, and a checkout may lack: without it a start compiles the package's sources.
    compileall.compile_dir(Path(penstock.__file__).parent, quiet=1)
    with ExitStack() as stack:
        kafka = Kafka(heap_mb=512, full_jit=True)
        broker = Pulsar(
            durable=False, heap_mb=512, direct_mb=DIRECT_MB, full_jit=True, settings=BOUNDED | CACHED
        )
        started(stack, kafka, broker)
        # The first one on a new cluster makes the topics of the groups.
        first_ready = ready_after(Gateway(broker))
        gateway = Gateway(broker)
        stack.callback(gateway.close)
        ready = ready_after(gateway, keep=True)
        bench = Bench(
            report,
            Side("kafka", kafka.bootstrap, {"broker": kafka.pid or 0}),
            side_of(gateway, broker),
            Direct(broker),
            gateway.pid or 0,
            1 if report.quick else 5,
        )
        for label, size in SIZES.items():
            bench.throughput(label, size)
        bench.variant("100 B, key and 6 headers", bench.volume(100) // 2, 0.7, full=True)
        bench.variant("100 B, lz4", bench.volume(100) // 2, None, **{"compression.type": "lz4"})
        bench.requests()
        bench.latency()
        bench.memory()
        report.row("ready for clients, on a new cluster", "gateway", f"{first_ready:.1f} s", "", "")
        report.row("ready for clients", "gateway", f"{ready:.1f} s", "", "")
        report.figure("ready for clients on a new cluster, s", first_ready)
        report.goal("ready for clients, s", ready, 2.0, at_least=False)
    if not report.quick:
        synced(report)
    report.finish()


def synced(report: Report) -> None:
    """One row with the journal synced: what a durable Pulsar costs."""
    with ExitStack() as stack:
        broker = Pulsar(durable=True, heap_mb=512, direct_mb=512, full_jit=True, settings=BOUNDED)
        started(stack, broker)
        gateway = Gateway(broker)
        started(stack, gateway)
        side, count = side_of(gateway, broker), 300_000
        walls = []
        for _ in range(6):
            with side.topic() as topic:
                walls.append(timed(side, lambda: produce(side, topic, count, b"x" * 100)).wall)
        rate = count / statistics.median(walls[1:])
        report.row("produce 100 B, journal synced", "gateway", f"{rate:,.0f}", f"{rate / 1e4:,.0f}", "")
        report.figure("produce 100 B journal synced records/s", rate)


if __name__ == "__main__":
    main()
