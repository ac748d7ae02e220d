"""The same route job by Penstock, by Spark's passthrough, and by what a Python user might pick instead.

Binary CloudEvents with about 200 B of JSON from 4 partitions; filtered by type and a number in the data, the
subject set from the data, written in structured mode to one real Kafka on this machine. The sides take turns,
the first round is thrown away, every figure is the median of the others. Penstock and passthrough run in one
warm JVM and the whole query is counted; the others are processes of their own, counted from their first
output on. CPU is user and system time of the process tree, without the broker's.
The RSS of the sides in the JVM is that of a JVM that has run them all; `penstock run` is also measured alone.
Topics are deleted.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.config import Context, load
from penstock.embedded.kafka import Kafka
from penstock.errors import PenstockError
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import MAX_OFFSETS_PER_TRIGGER, Job, JobOptions
from penstock.pipeline.spark.session import spark_session
from table import Report

PARTITIONS = 4
LIMIT = 600.0
"""Seconds that one measurement may take."""
TYPE = "com.shop.order.placed"
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PEERS = Path(__file__).parent / "peers" / "pipeline"
TRICKLE = 100
"""Records a second of the trickle."""

CONTRACT = """\
asyncapi: 3.0.0
info: {{title: bench, version: 1.0.0}}
defaultContentType: application/json
servers:
  kafka: {{host: '{bootstrap}', protocol: kafka}}
channels:
  in:
    address: {source}
    messages:
      order: {{$ref: '#/components/messages/order'}}
  out:
    address: {target}
    messages:
      order: {{$ref: '#/components/messages/routed'}}
  dead:
    address: {dead}
    messages:
      letter: {{$ref: '#/components/messages/letter'}}
operations:
  onOrder: {{action: receive, channel: {{$ref: '#/channels/in'}}}}
  sendLarge: {{action: send, channel: {{$ref: '#/channels/out'}}}}
components:
  messages:
    order:
      headers:
        type: object
        required: [ce_specversion, ce_id, ce_source, ce_type]
        properties:
          ce_type: {{type: string, const: com.shop.order.placed}}
    routed:
      contentType: application/cloudevents+json
      x-penstock-type: com.shop.order.placed
    letter:
      headers:
        type: object
        required: [ce_specversion, ce_id, ce_source, ce_type]
        properties:
          ce_type: {{type: string, const: io.penstock.deadletter}}
"""
PIPELINE = """\
contract: asyncapi.yaml
checkpoint: checkpoint
routes:
  large:
    receive: onOrder
    where: type = 'com.shop.order.placed' AND data.amount > 100
    set:
      subject: data.customer
    send: sendLarge
    mode: structured
    delivery:
      deadLetterSink: dead
"""
CONTEXT = """\
context: bench
contexts:
  bench:
    servers:
      kafka: {{kind: kafka, address: '{bootstrap}'}}
"""


# Kafka


@dataclass
class Broker:
    """The Kafka of the run."""

    bootstrap: str

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @contextmanager
    def topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        name = f"bench-{secrets.token_hex(6)}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        try:
            while not self._is_ready(name, partitions):
                time.sleep(0.05)
            yield name
        finally:
            self.admin.delete_topics([name])[name].result(30)

    def _is_ready(self, name: str, partitions: int) -> bool:
        """Say whether every partition has its leader, and the broker knows it."""
        found = self.admin.list_topics(timeout=30).topics.get(name)
        leaders = [each.leader for each in found.partitions.values()] if found else []
        return len(leaders) == partitions and min(leaders) >= 0

    def end(self, topic: str) -> int:
        """Give how many records a topic holds."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in found]
            return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
        finally:
            consumer.close()


def headers_of(number: int, content_type: bytes = b"application/json") -> list[tuple[str, bytes]]:
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"order-%09d" % number),
        ("ce_source", b"/shop/orders"),
        ("ce_type", TYPE.encode()),
        ("ce_time", b"2026-11-16T02:%02d:%02d.%03dZ" % (number // 60 % 60, number % 60, number % 1000)),
        ("ce_traceparent", TRACE),
        ("content-type", content_type),
    ]


def body_of(number: int) -> bytes:
    """Give about 200 B of JSON; every second one is above 100."""
    whole = number * 37 % 100 + (101 if number % 2 else 0)
    return (
        b'{"order":"o-%09d","customer":"customer-%05d","amount":%d.%02d,"currency":"EUR","items":'
        b'[{"sku":"A-1001","qty":2},{"sku":"B-2002","qty":1}],"note":"leave it at the door please","x":%d}'
        % (number, number % 1000, whole, number % 100, number)
    )


def fill(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    body: Callable[[int], bytes] = body_of,
    content_type: bytes = b"application/json",
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 20,
            "batch.size": 262144,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for number in range(count):
        while True:
            try:
                key = b"customer-%05d" % (number % 1000)
                producer.produce(
                    topic,
                    body(number),
                    key,
                    partition=number % PARTITIONS,
                    headers=headers_of(number, content_type),
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(LIMIT):
        raise SystemExit("the input was not stored")


# CPU and memory


def tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_of(process: psutil.Process) -> float:
    """Give the CPU seconds of a process, what it started, and what of that has ended."""
    spent = 0.0
    for each in tree(process):
        try:
            spent += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return spent


@contextmanager
def watched(process: psutil.Process) -> Iterator[list[float]]:
    """Note the resident size of a process tree, in MB, five times a second."""
    seen: list[float] = [0.0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            total = 0
            for each in tree(process):
                try:
                    total += each.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            seen.append(total / 1e6)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


@dataclass
class Round:
    """One measurement: input records a second, CPU seconds per million, resident MB at most."""

    rate: float
    cpu: float
    rss: float = 0.0


# Inside Spark


@dataclass
class Spark:
    """One warm session, with the two jobs that run in it."""

    broker: Broker
    source: str
    count: int
    session: Any = None
    jvm: psutil.Process | None = None

    def start(self) -> None:
        before = {child.pid for child in psutil.Process().children()}
        self.session = spark_session("bench")
        started = [child for child in psutil.Process().children() if child.pid not in before]
        self.jvm = next(child for child in started if "java" in child.name())

    def _timed(self, work: Callable[[], None]) -> Round:
        assert self.jvm is not None
        with watched(self.jvm) as seen:
            before, began = cpu_of(self.jvm), time.perf_counter()
            work()
            wall = time.perf_counter() - began
            spent = cpu_of(self.jvm) - before
        return Round(self.count / wall, spent * 1e6 / self.count, max(seen))

    def penstock(self) -> Round:
        with (
            self.broker.topic() as target,
            self.broker.topic(1) as dead,
            tempfile.TemporaryDirectory() as folder,
        ):
            pipeline = write_pipeline(Path(folder), self.broker.bootstrap, self.source, target, dead)
            with Job(pipeline, JobOptions(once=True)) as job:
                job.prepare()
                found = self._timed(lambda: job.run(self.session))
                (totals,) = job.totals.values()
            counted = totals.counts["n_in"], totals.counts["n_out"]
            require(counted == (self.count, self.count // 2), f"Penstock lost records: {counted}")
            # Marks of transactions are in the log beside the records.
            require(self.broker.end(target) >= self.count // 2, "Penstock counted what it did not write")
        return found

    def passthrough(self) -> Round:
        with self.broker.topic() as target, tempfile.TemporaryDirectory() as folder:
            read = (
                self.session.readStream.format("kafka")
                .option("kafka.bootstrap.servers", self.broker.bootstrap)
                .option("subscribe", self.source)
                .option("startingOffsets", "earliest")
                .option("includeHeaders", "true")
                .option("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER)
                .load()
            )
            written = (
                read.select("key", "value", "headers")
                .writeStream.format("kafka")
                .option("kafka.bootstrap.servers", self.broker.bootstrap)
                .option("topic", target)
                .option("includeHeaders", "true")
                .option("kafka.linger.ms", "20")
                .option("kafka.batch.size", "262144")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
            )
            found = self._timed(lambda: written.start().awaitTermination())
            require(self.broker.end(target) == self.count, "passthrough lost records")
        return found


def write_pipeline(folder: Path, bootstrap: str, source: str, target: str, dead: str) -> Any:
    names = {"bootstrap": bootstrap, "source": source, "target": target, "dead": dead}
    (folder / "asyncapi.yaml").write_text(CONTRACT.format(**names))
    (folder / "pipeline.yaml").write_text(
        PIPELINE.replace("checkpoint: checkpoint", f"checkpoint: {folder}/cp")
    )
    (folder / "penstock.yaml").write_text(CONTEXT.format(**names))
    return load_pipeline(folder / "pipeline.yaml", context=bench_context(folder))


def bench_context(folder: Path) -> Context | None:
    return load(start=folder).context("bench")


def require(good: bool, what: str) -> None:
    if not good:
        raise SystemExit(what)


# Peers: processes of their own


@dataclass(frozen=True)
class Peer:
    """How a peer is started, and what it promises."""

    name: str
    command: tuple[str, ...]
    guarantee: str


PEER_LIST = (
    Peer("SDK loop", ("sdk_loop.py",), "may lose records"),
    Peer("quixstreams", ("quix.py",), "at least once"),
    Peer("bytewax", ("-m", "bytewax.run", "bytewax_flow:flow"), "may lose records"),
)


def peers_python() -> Path:
    """Give the Python of the peers' venv, made from their pinned requirements if it is not there."""
    python = PEERS / ".venv" / "bin" / "python"
    done = PEERS / ".venv" / ".installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / ".venv")], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--only-binary", ":all:", "-r"]
        subprocess.run(
            [*install, str(PEERS / "requirements.txt")], check=True, capture_output=True, text=True
        )
        done.touch()
    return python


def peer_round(peer: Peer, python: Path, broker: Broker, source: str, count: int) -> Round:
    """Run a peer until its output is complete; count from its first output on."""
    with broker.topic() as target:
        environment = os.environ | {
            "BENCH_BOOTSTRAP": broker.bootstrap,
            "BENCH_SOURCE": source,
            "BENCH_TARGET": target,
            "BENCH_GROUP": f"bench-{secrets.token_hex(6)}",
            "PYTHONWARNINGS": "ignore",
        }
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen(
                [str(python), *peer.command], cwd=PEERS, env=environment, stdout=log, stderr=log
            )
            try:
                with watched(psutil.Process(child.pid)) as seen:
                    found = _until_complete(child, broker, target, count)
            except SystemExit:
                log.seek(0)
                sys.stderr.write(log.read().decode(errors="replace")[-2000:])
                raise
            finally:
                child.kill()
                child.wait()
        return Round(found.rate, found.cpu, max(seen))


def _until_complete(child: subprocess.Popen[bytes], broker: Broker, target: str, count: int) -> Round:
    wanted, process, deadline = count // 2, psutil.Process(child.pid), time.monotonic() + LIMIT
    first = 0
    while not first:
        first = _looked(child, broker, target, deadline)
    before, began = cpu_of(process), time.perf_counter()
    while (end := _looked(child, broker, target, deadline)) < wanted:
        pass
    wall, spent = time.perf_counter() - began, cpu_of(process) - before
    done = 2 * (end - first)
    require(done > 0, "a peer had too few records to measure")
    return Round(done / wall, spent * 1e6 / done)


def _looked(child: subprocess.Popen[bytes], broker: Broker, target: str, deadline: float) -> int:
    time.sleep(0.05)
    if child.poll() is not None:
        raise SystemExit("a process under measurement ended by itself")
    require(time.monotonic() < deadline, "a process under measurement did not end in time")
    return broker.end(target)


# Latency


def trickle(broker: Broker, session: Any, seconds: float, options: JobOptions) -> list[float]:
    """Send 100 records a second through the job; give the milliseconds until a reader has each."""
    with ExitStack() as stack:
        source, target = (stack.enter_context(broker.topic(1)) for _ in range(2))
        dead = stack.enter_context(broker.topic(1))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pipeline = write_pipeline(Path(folder), broker.bootstrap, source, target, dead)
        job = stack.enter_context(Job(pipeline, options))
        job.prepare()
        failed: list[BaseException] = []
        runner = threading.Thread(target=_run, args=(job, session, failed))
        runner.start()
        try:
            with arrivals(broker, target) as taken:
                _send_slowly(broker, source, 8.0, failed)
                warm = len(taken)
                _send_slowly(broker, source, seconds, failed)
            return taken[warm:]
        finally:
            job.stop()
            runner.join(60)


@contextmanager
def arrivals(broker: Broker, target: str) -> Iterator[list[float]]:
    """Read what is committed as it comes; give the milliseconds since the time that each has for a key."""
    options = {"bootstrap.servers": broker.bootstrap, "group.id": "arrivals", "log_level": 0}
    consumer, over, taken = Consumer(options), threading.Event(), []
    consumer.assign([TopicPartition(target, 0, 0)])

    def read() -> None:
        while not over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                taken.append((time.time_ns() - int(message.key())) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield taken
    finally:
        over.set()
        reader.join()
        consumer.close()


def _run(job: Job, session: Any, failed: list[BaseException]) -> None:
    try:
        job.run(session)
    except PenstockError as exc:
        failed.append(exc)


def _send_slowly(broker: Broker, source: str, seconds: float, failed: list[BaseException]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
    began = time.perf_counter()
    for number in range(int(seconds * TRICKLE)):
        while time.perf_counter() < began + number / TRICKLE:
            producer.poll(0)
            time.sleep(0.0005)
        if failed:
            raise failed[0]
        odd = 2 * number + 1
        producer.produce(source, body_of(odd), b"%d" % time.time_ns(), headers=headers_of(odd))
    producer.flush(30)
    time.sleep(2)


# A process from nothing


@contextmanager
def penstock_run(broker: Broker, source: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start `penstock run --once` on the topic as users do; give the process and its target."""
    with ExitStack() as stack:
        target, dead = stack.enter_context(broker.topic()), stack.enter_context(broker.topic(1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_pipeline(folder, broker.bootstrap, source, target, dead)
        command = [sys.executable, "-m", "penstock.cli", "run", "pipeline.yaml", "--once", *options]
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield child, target
        finally:
            child.terminate()
            child.wait()


def first_output(broker: Broker, source: str) -> float:
    """Give the seconds from `penstock run` to its first record."""
    began = time.perf_counter()
    with penstock_run(broker, source, "--max-offsets", "1000") as (child, target):
        while not _looked(child, broker, target, time.monotonic() + LIMIT):
            pass
        return time.perf_counter() - began


def resident(broker: Broker, source: str) -> float:
    """Give how many MB `penstock run` holds at most while it reads the whole topic.

    Pages that its processes share are counted once for each of them.
    """
    with penstock_run(broker, source) as (child, _), watched(psutil.Process(child.pid)) as seen:
        require(child.wait(LIMIT) == 0, "penstock run failed")
    return max(seen)


# The table


@dataclass
class Bench:
    """The sides of one run, and what they have shown so far."""

    report: Report
    broker: Broker
    spark: Spark
    rounds: int
    found: dict[str, list[Round]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def throughput(self) -> None:
        sides: dict[str, Callable[[], Round]] = {
            "penstock": self.spark.penstock,
            "passthrough": self.spark.passthrough,
        }
        try:
            python = peers_python()
            for peer in PEER_LIST:
                sides[peer.name] = self._peer(peer, python)
        except subprocess.CalledProcessError as exc:
            reason = (exc.stderr or str(exc)).strip().splitlines()[-1][:80]
            self.missing = {peer.name: f"not installed: {reason}" for peer in PEER_LIST}
        for number in range(self.rounds + 1):
            for name, side in sides.items():
                one = side()
                told = f"{name}: {one.rate:,.0f} records/s, {one.cpu:.1f} CPU s per M"
                sys.stderr.write(f"round {number} of {self.rounds}, {told}\n")
                if number:
                    self.found.setdefault(name, []).append(one)

    def _peer(self, peer: Peer, python: Path) -> Callable[[], Round]:
        def measure() -> Round:
            if peer.name in self.missing:
                return Round(0.0, 0.0)
            try:
                return peer_round(peer, python, self.broker, self.spark.source, self.spark.count)
            except SystemExit as exc:
                self.missing[peer.name] = f"failed: {exc}"
                return Round(0.0, 0.0)

        return measure

    def tell(self) -> None:
        promises = {"penstock": "exactly once"} | {peer.name: peer.guarantee for peer in PEER_LIST}
        base = self._median("passthrough", "rate"), self._median("passthrough", "cpu")
        for name in self.missing:
            self.found.pop(name, None)
        for name in self.found:
            rate, cpu, rss = (self._median(name, what) for what in ("rate", "cpu", "rss"))
            promise = promises.get(name, "at least once")
            self.report.row(
                name,
                f"{rate:,.0f}",
                f"{rate / base[0]:.2f}",
                f"{cpu:.1f}",
                f"{cpu / base[1]:.2f}",
                f"{rss:,.0f}",
                promise,
            )
            for what, value in (("records/s", rate), ("CPU s per M", cpu), ("peak RSS MB", rss)):
                self.report.figure(f"{name}: {what}", value)
        for name, why in self.missing.items():
            sys.stderr.write(f"{name}: {why}\n")
            self.report.row(name, why.partition(":")[0], "", "", "", "", promises[name])
        self._goals()

    def _median(self, name: str, what: str) -> float:
        return float(statistics.median(getattr(one, what) for one in self.found[name]))

    def _goals(self) -> None:
        ours, cpu = self._median("penstock", "rate"), self._median("penstock", "cpu")
        goal = self.report.goal
        goal("rate against passthrough", ours / self._median("passthrough", "rate"), 0.7)
        goal("CPU against passthrough", cpu / self._median("passthrough", "cpu"), 1.7, at_least=False)
        for name, wanted in (("SDK loop", 3.0), ("quixstreams", 1.2)):
            if name in self.found:
                goal(f"rate against {name}", ours / self._median(name, "rate"), wanted)
        if "bytewax" in self.found:
            self.report.figure("rate against bytewax", ours / self._median("bytewax", "rate"))

    def latency(self) -> None:
        """Send the trickle through micro-batches."""
        name, seconds = "micro-batch", 6.0 if self.report.quick else 30.0
        taken = trickle(self.broker, self.spark.session, seconds, JobOptions())
        cuts = statistics.quantiles(taken, n=100)
        shown = f"p50 {cuts[49]:.0f} ms", f"p99 {cuts[98]:.0f}"
        self.report.row(f"{name}, {TRICKLE}/s", *shown, "", "", "", "exactly once")
        self.report.figure(f"{name} p50 ms", cuts[49])
        self.report.figure(f"{name} p99 ms", cuts[98])
        self.report.goal(f"{name}: p50 ms at {TRICKLE}/s", cuts[49], 250.0, at_least=False)

    def start_up(self) -> None:
        seconds = first_output(self.broker, self.spark.source)
        self.report.row("first output", f"{seconds:.1f} s", "", "", "", "", "")
        self.report.goal("first output, s", seconds, 15, at_least=False)
        peak = resident(self.broker, self.spark.source)
        self.report.row("penstock run, alone", "", "", "", "", f"{peak:,.0f}", "")
        self.report.goal("peak RSS of penstock run, MB", peak, 2200, at_least=False)


def main() -> None:
    report = Report.from_arguments(
        "The same job by every tool a user might pick",
        ["side", "records/s", "x pass", "CPU s per M", "x pass", "RSS MB", "guarantee"],
    )
    count = 200_000 if report.quick else 2_000_000
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(heap_mb=512, full_jit=True))
        broker = Broker(kafka.bootstrap)
        source = stack.enter_context(broker.topic())
        fill(broker.bootstrap, source, count)
        spark = Spark(broker, source, count)
        spark.start()
        stack.callback(spark.session.stop)
        bench = Bench(report, broker, spark, 1 if report.quick else 5)
        bench.throughput()
        bench.tell()
        bench.latency()
        bench.start_up()
    report.finish()


if __name__ == "__main__":
    main()
