"""The route job of bench/pipeline.py with the kernel: inside Spark, by the loop alone, and by Go.

Every side does the same with the same records on one real Kafka: the sides take turns, the first round is
thrown away, every figure is the median of the others. Sides inside Spark share one warm JVM and the whole
query is counted; the others are processes of their own, counted from their first output on. CPU is user and
system time of the process tree, the broker's left out. Latency is from the producer to a reader that sees
only what is committed, beside that of the same two without anything between them. The Go side runs if `go` is
there and can get its modules.
"""

from __future__ import annotations

import os
import secrets
import shutil
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

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.embedded.kafka import Kafka
from penstock.pipeline.job import JobOptions, job_of
from pipeline import (
    TRICKLE,
    Broker,
    Round,
    Spark,
    _until_complete,
    body_of,
    fill,
    headers_of,
    watched,
    write_pipeline,
)
from quiet import settled
from table import Report

PEER = Path(__file__).parent / "peers" / "fused"
WHOLE = 1_000_000_000
"""Offsets of a batch that holds everything."""
AT_LEAST_ONCE = "loop, --at-least-once"


# Inside Spark


@dataclass
class InSpark(Spark):
    """The job in batches of one size."""

    def job(self, batch: int) -> Round:
        with (
            self.broker.topic() as target,
            self.broker.topic(1) as dead,
            tempfile.TemporaryDirectory() as folder,
        ):
            pipeline = write_pipeline(Path(folder), self.broker.bootstrap, self.source, target, dead)
            options = JobOptions(once=True, max_offsets=batch)
            with job_of(pipeline, options) as job:
                job.prepare()
                found = self._timed(lambda: job.run(self.session))
                (totals,) = job.totals.values()
            if (totals.counts["n_in"], totals.counts["n_out"]) != (self.count, self.count // 2):
                raise SystemExit(f"the job lost records: {totals}")
        return found


# Processes of their own


@contextmanager
def loop_process(broker: Broker, source: str, target: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `penstock run --engine loop` on its own."""
    with broker.topic(1) as dead, tempfile.TemporaryDirectory() as folder:
        write_pipeline(Path(folder), broker.bootstrap, source, target, dead)
        command = [sys.executable, "-m", "penstock.cli", "run", "--engine", "loop", *words]
        command += ["--group", f"bench-{secrets.token_hex(6)}"]
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield child
        finally:
            child.kill()
            child.wait()


@contextmanager
def go_process(
    broker: Broker, source: str, target: str, binary: Path, form: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the Go program, in one of its two forms."""
    environment = os.environ | {
        "BENCH_BOOTSTRAP": broker.bootstrap,
        "BENCH_SOURCE": source,
        "BENCH_TARGET": target,
        "BENCH_FORM": form,
        "BENCH_GROUP": f"bench-{secrets.token_hex(6)}",
    }
    child = subprocess.Popen([str(binary)], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def go_binary(folder: Path) -> Path | None:
    """Build the Go program; None if there is no Go, or it cannot get its modules."""
    if shutil.which("go") is None:
        return None
    binary = folder / "peer"
    built = subprocess.run(
        ["go", "build", "-o", str(binary), "."], cwd=PEER, capture_output=True, check=False
    )
    if built.returncode:
        sys.stderr.write(built.stderr.decode(errors="replace")[-500:])
        return None
    return binary


# Latency


def seen_by_a_reader(broker: Broker, seconds: float, *words: str) -> list[float]:
    """Send 100 records a second through the loop; give the milliseconds until a reader has each."""
    with broker.topic(1) as source, broker.topic(1) as target, loop_process(broker, source, target, *words):
        return _seen(broker, source, target, seconds)


def seen_directly(broker: Broker, seconds: float) -> list[float]:
    """Do the same with nothing between producer and reader: what the machine itself takes."""
    with broker.topic(1) as topic:
        return _seen(broker, topic, topic, seconds)


def _seen(broker: Broker, source: str, target: str, seconds: float) -> list[float]:
    options = {"bootstrap.servers": broker.bootstrap, "group.id": "seen", "fetch.wait.max.ms": 50}
    consumer = Consumer({**options, "log_level": 0})
    consumer.assign([TopicPartition(target, 0, 0)])
    warm = 5.0
    sender = threading.Thread(target=_send, args=(broker, source, warm + seconds))
    sender.start()
    taken = list(_taken(consumer, int((warm + seconds) * TRICKLE)))
    sender.join()
    consumer.close()
    return taken[int(warm * TRICKLE) :]


def _taken(consumer: Consumer, count: int) -> Iterator[float]:
    deadline, left = time.monotonic() + 120, count
    while left and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            left -= 1
            yield (time.time_ns() - int(message.key())) / 1e6
    if left:
        raise SystemExit("the loop lost records")


def _send(broker: Broker, source: str, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
    began = time.perf_counter()
    for number in range(int(seconds * TRICKLE)):
        time.sleep(max(0.0, began + number / TRICKLE - time.perf_counter()))
        odd = 2 * number + 1
        producer.produce(source, body_of(odd), b"%d" % time.time_ns(), headers=headers_of(odd))
        producer.poll(0)
    producer.flush(30)


# The table


@dataclass
class Bench:
    """The sides of one run, and what they have shown so far."""

    report: Report
    broker: Broker
    spark: InSpark
    go: Path | None
    kafka_pid: int
    found: dict[str, list[Round]] = field(default_factory=dict)

    def sides(self) -> dict[str, tuple[str, Callable[[], Round]]]:
        spark, go = self.spark, self.go
        sides: dict[str, tuple[str, Callable[[], Round]]] = {
            "spark, 500 000 a batch": ("exactly once", lambda: spark.job(500_000)),
            "spark, one batch": ("exactly once", lambda: spark.job(WHOLE)),
            "spark, 50 000 a batch": ("exactly once", lambda: spark.job(50_000)),
            "loop": ("exactly once", self._loop()),
            AT_LEAST_ONCE: ("at least once", self._loop("--at-least-once")),
        }
        if go is not None:
            sides["Go, franz-go"] = ("may lose records", lambda: self._go(go, "idiomatic"))
            sides["Go, bytes spliced"] = ("may lose records", lambda: self._go(go, "splice"))
        return sides

    def _loop(self, *words: str) -> Callable[[], Round]:
        def measure() -> Round:
            with (
                self.broker.topic() as target,
                loop_process(self.broker, self.spark.source, target, *words) as child,
            ):
                return self._complete(child, target)

        return measure

    def _go(self, binary: Path, form: str) -> Round:
        with (
            self.broker.topic() as target,
            go_process(self.broker, self.spark.source, target, binary, form) as child,
        ):
            return self._complete(child, target)

    def _complete(self, child: subprocess.Popen[bytes], target: str) -> Round:
        with watched(psutil.Process(child.pid)) as seen:
            one = _until_complete(child, self.broker, target, self.spark.count)
        return Round(one.rate, one.cpu, max(seen))

    def throughput(self, rounds: int) -> None:
        for number in range(rounds + 1):
            for name, (_, side) in self.sides().items():
                settled([self.kafka_pid])
                one = side()
                told = f"{name}: {one.rate:,.0f} records/s, {one.cpu:.2f} CPU s per M"
                sys.stderr.write(f"round {number} of {rounds}, {told}\n")
                if number:
                    self.found.setdefault(name, []).append(one)

    def median(self, name: str, what: str) -> float:
        return float(statistics.median(getattr(one, what) for one in self.found[name]))

    def tell(self) -> None:
        for name, (promise, _) in self.sides().items():
            rate, cpu, rss = (self.median(name, what) for what in ("rate", "cpu", "rss"))
            ratios = f"{rate / self.median('spark, one batch', 'rate'):.2f}"
            self.report.row(name, f"{rate:,.0f}", ratios, f"{cpu:.2f}", f"{rss:,.0f}", promise)
            self.report.figure(f"{name}: records/s", rate)
            self.report.figure(f"{name}: CPU s per M", cpu)
        if self.go is None:
            self.report.row("Go, franz-go", "no Go here", "", "", "", "")
        self._goals()

    def _goals(self) -> None:
        goal, whole = self.report.goal, "spark, one batch"
        goal("CPU s per M of one batch", self.median(whole, "cpu"), 2.6, at_least=False)
        goal("records/s at 500 000 a batch", self.median("spark, 500 000 a batch", "rate"), 350_000)
        if self.go is None:
            return
        loop, peer = AT_LEAST_ONCE, "Go, franz-go"
        rate, cpu = self.median(peer, "rate"), self.median(peer, "cpu")
        goal("rate of one batch against Go", self.median(whole, "rate") / rate, 1.0)
        goal("rate of the loop against Go", self.median(loop, "rate") / rate, 1.5)
        goal("CPU of the loop against Go", self.median(loop, "cpu") / cpu, 0.4, at_least=False)

    def latency(self, seconds: float, rounds: int) -> None:
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, (_, measure) in self._latencies(seconds / rounds).items():
                settled([self.kafka_pid])
                found.setdefault(name, []).extend(measure())
        for name, (promise, _) in self._latencies(seconds).items():
            cuts = statistics.quantiles(found[name], n=100)
            shown = f"p50 {cuts[49]:.1f} ms", f"p99 {cuts[98]:.1f}"
            self.report.row(f"{name}, {TRICKLE}/s", *shown, "", "", promise)
            self.report.figure(f"{name} p50 ms", cuts[49])
            self.report.figure(f"{name} p99 ms", cuts[98])
        middle, late = (self.report.figures[f"{AT_LEAST_ONCE} {which} ms"] for which in ("p50", "p99"))
        self.report.goal("p50 of the loop at least once, ms", middle, 2.0, at_least=False)
        self.report.goal("p99 of the loop at least once, ms", late, 8.0, at_least=False)
        exact = self.report.figures["loop p99 ms"] / late
        self.report.goal("p99 of the loop with transactions beside without", exact, 4.0, at_least=False)

    def _latencies(self, seconds: float) -> dict[str, tuple[str, Callable[[], list[float]]]]:
        seen = seen_by_a_reader
        return {
            "nothing between": ("", lambda: seen_directly(self.broker, seconds)),
            "loop": ("exactly once", lambda: seen(self.broker, seconds)),
            AT_LEAST_ONCE: ("at least once", lambda: seen(self.broker, seconds, "--at-least-once")),
        }


def main() -> None:
    report = Report.from_arguments(
        "One route, from Kafka's bytes to Kafka's bytes",
        ["side", "records/s", "x one batch", "CPU s per M", "RSS MB", "guarantee"],
    )
    count = 800_000 if report.quick else 2_000_000
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(heap_mb=512, full_jit=True))
        broker = Broker(kafka.bootstrap)
        source = stack.enter_context(broker.topic())
        go = go_binary(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        fill(broker.bootstrap, source, count)
        spark = InSpark(broker, source, count)
        spark.start()
        bench = Bench(report, broker, spark, go, kafka.pid or 0)
        try:
            bench.throughput(1 if report.quick else 5)
        finally:
            spark.session.stop()
        bench.tell()
        bench.latency(*((5.0, 1) if report.quick else (60.0, 3)))
    report.finish()


if __name__ == "__main__":
    main()
