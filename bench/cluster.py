"""What a pipeline costs as a Spark application: one function per case, each with its goals.

| case | measures |
|---|---|
| start | CPU seconds of `penstock run --once` with one record, by process: driver, Java, Python workers |
| idle | CPU of all processes of a job over 60 s with 20 empty topics, and with one; then a record's time |
| batch | CPU of 200 micro-batches in driver and Java, beside Spark's `rate-micro-batch` to `noop` |
| workers | the fused route of bench/fused.py on two standalone workers of one core, beside `local[2]` |

`--case NAME` runs one of them. CPU is user and system time of the processes, the broker's left out.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from penstock.embedded.artifacts import ensure
from penstock.embedded.java import find_java
from penstock.embedded.kafka import Kafka
from penstock.embedded.ports import choose_port
from penstock.embedded.process import ServerProcess
from penstock.pipeline.job import Job, JobOptions
from penstock.pipeline.kernel_cache import compile_kernels
from penstock.pipeline.spark import class_archive
from pipeline import Broker, fill, headers_of, write_pipeline
from quiet import cpu_seconds, settled
from table import Report

PENSTOCK = [sys.executable, "-c", "import sys; from penstock.cli.app import main; sys.exit(main())"]
SAMPLE_SECONDS = 0.02
"""A process that ends is counted up to the last look at it."""
LIMIT_SECONDS = 600.0
PARTS = ("driver", "java", "workers", "other")
START_BEFORE = 14.6
"""CPU seconds of a start at c9b69ab: driver 2.0, Java 7.1, workers 3.9, planner 1.6."""
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 20.0
"""Until class loading and compiling of the first batches are over."""
BATCHES = 200
WARM_UP_BATCHES = 60


def note(report: Report, name: str, values: list[float], unit: str, goal: float | None = None) -> None:
    middle = statistics.median(values)
    shown = [f"{value:.3f} {unit}" for value in (middle, min(values), max(values))]
    report.row(name, *shown)
    report.figure(name, middle)
    if goal is not None:
        report.goal(name, middle, goal, at_least=False)


# A start


class ProcessTree:
    """The CPU seconds of a process and all that it starts, by part."""

    def __init__(self, root: subprocess.Popen[bytes]) -> None:
        self._root = root
        self._parts: dict[int, str] = {root.pid: "driver"}
        self._seconds: dict[int, float] = {}

    def wait(self) -> int:
        """Look at the processes until the first of them has ended; return its exit code.

        It is looked at before it is waited for: Java outlives it by a moment.
        """
        end = time.monotonic() + LIMIT_SECONDS
        root = psutil.Process(self._root.pid)
        while self._root.poll() is None:
            if time.monotonic() > end:
                raise SystemExit(f"no end after {LIMIT_SECONDS} s")
            try:
                self._look([root, *root.children(recursive=True)])
            except psutil.NoSuchProcess:
                break
            time.sleep(SAMPLE_SECONDS)
        code = self._root.wait()
        while any(map(psutil.pid_exists, self._parts)) and time.monotonic() < end:
            self._look([psutil.Process(pid) for pid in self._parts if psutil.pid_exists(pid)])
            time.sleep(SAMPLE_SECONDS)
        return code

    def _look(self, processes: list[psutil.Process]) -> None:
        for each in processes:
            try:
                if self._parts.get(each.pid, "other") == "other":
                    self._parts[each.pid] = _part(each)
                self._seconds[each.pid] = cpu_seconds(each.pid)
            except psutil.NoSuchProcess:
                continue

    def seconds(self) -> Mapping[str, float]:
        """Return the CPU seconds of each part."""
        found = dict.fromkeys(PARTS, 0.0)
        for pid, seconds in self._seconds.items():
            found[self._parts[pid]] += seconds
        return found


def _part(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if "daemon" in words and "python" in process.name().lower():
        return "workers"
    if "org.apache.spark" in words or process.name() == "java":
        return "java"
    return "other"


def start(report: Report, broker: Broker, kafka_pid: int) -> None:
    """Run a job of one record to its end, with warm caches."""
    rounds = []
    for _ in range(2 if report.quick else 6):
        with (
            broker.topic(1) as source,
            broker.topic(1) as target,
            broker.topic(1) as dead,
            tempfile.TemporaryDirectory() as folder,
        ):
            fill(broker.bootstrap, source, 1)
            write_pipeline(Path(folder), broker.bootstrap, source, target, dead)
            settled([kafka_pid])
            rounds.append(_one_start(folder))
    rounds = rounds[1:]  # the first one reads files from the disk
    total = statistics.median(sum(each.values()) for each in rounds)
    for part in PARTS:
        values = [each[part] for each in rounds]
        _row(report, f"start, {part}", values)
        report.figure(f"start_{part}_cpu_seconds", statistics.median(values))
    _row(report, "start, all", [sum(each.values()) for each in rounds])
    report.figure("start_cpu_seconds", total)
    report.goal("start_cpu_seconds", total, round(0.8 * START_BEFORE, 1), at_least=False)


def _one_start(folder: str) -> Mapping[str, float]:
    child = subprocess.Popen(
        [*PENSTOCK, "run", "--once"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    tree = ProcessTree(child)
    if tree.wait():
        assert child.stderr is not None
        raise SystemExit(child.stderr.read().decode())
    return tree.seconds()


def _environment() -> dict[str, str]:
    """Return the environment of a user: Python keeps what it has compiled."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _row(report: Report, what: str, values: list[float]) -> None:
    report.row(what, *(f"{value:.2f} s" for value in (statistics.median(values), min(values), max(values))))


# Nothing comes


def write_many(folder: Path, bootstrap: str, prefix: str, count: int) -> None:
    """Write a project with `count` topics, each with a route to one output."""
    message = {"event": {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}}
    servers = [{"$ref": "#/servers/kafka"}]
    names = [*(f"in{number}" for number in range(count)), "out", "dead"]
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "idle", "version": "1.0.0"},
        "servers": {"kafka": {"host": "unused:9092", "protocol": "kafka"}},
        "channels": {
            name: {"address": f"{prefix}-{name}", "servers": servers, "messages": message} for name in names
        },
        "operations": {
            **{
                f"receive{number}": {"action": "receive", "channel": {"$ref": f"#/channels/in{number}"}}
                for number in range(count)
            },
            "send": {"action": "send", "channel": {"$ref": "#/channels/out"}},
        },
    }
    routes = {
        f"r{number}": {
            "receive": f"receive{number}",
            "send": "send",
            "delivery": {"deadLetterSink": "dead"},
        }
        for number in range(count)
    }
    context = {"contexts": {"bench": {"servers": {"kafka": {"kind": "kafka", "address": bootstrap}}}}}
    for name, value in (("asyncapi", contract), ("pipeline", {"routes": routes}), ("penstock", context)):
        (folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")


@contextmanager
def topics_of(broker: Broker, prefix: str, count: int) -> Iterator[None]:
    names = [f"{prefix}-{name}" for name in (*(f"in{number}" for number in range(count)), "out", "dead")]
    for made in broker.admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
        made.result(30)
    try:
        yield
    finally:
        for gone in broker.admin.delete_topics(names).values():
            gone.result(30)


def idle(report: Report, broker: Broker, *, topics: int, most_share: float) -> None:
    """Let a job with empty topics wait for a minute, then send a record."""
    prefix = f"idle-{secrets.token_hex(4)}"
    seconds = 10.0 if report.quick else IDLE_SECONDS
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        held.enter_context(topics_of(broker, prefix, topics))
        write_many(folder, broker.bootstrap, prefix, topics)
        errors = held.enter_context((folder / "told").open("wb"))
        job = subprocess.Popen(
            [*PENSTOCK, "run", "--engine", "spark"],
            cwd=folder,
            stdout=errors,
            stderr=errors,
            env=_environment(),
        )
        held.callback(job.wait, 60)
        held.callback(job.terminate)
        with arrivals(broker, f"{prefix}-out") as next_time:
            for number in range(topics):  # warm: each source has written a batch
                send(broker, f"{prefix}-in{number}")
            for _ in range(topics):
                next_time(240.0)
            time.sleep(SETTLE_SECONDS)
            spent = spent_in(job.pid, seconds)
            planners = planner_megabytes(job.pid)
            waited = []
            for number in range(3):
                sent = time.time()
                send(broker, f"{prefix}-in{number % topics}")
                waited.append(next_time(30.0) - sent)
                time.sleep(5.0)
    name = f"idle_{topics}_topics"
    for part, used in sorted(spent.items()):
        report.row(f"{name}, {part}", f"{100 * used / seconds:.2f} % of a core", "", "")
    share = sum(spent.values()) / seconds
    note(report, f"{name}_share_of_a_core", [share], "", goal=most_share)
    note(report, f"{name}_record_out", waited, "s", goal=1.0)
    note(report, f"{name}_planners", [planners], "MB", goal=100.0)


def cpu_of_tree(pid: int) -> dict[tuple[str, int], float]:
    """Return the CPU seconds of each process of a job, by its part and its id."""
    found = {("driver", pid): cpu_seconds(pid)}
    for each in psutil.Process(pid).children(recursive=True):
        try:
            part = "java" if "java" in each.name() else "workers"
            found[part, each.pid] = cpu_seconds(each.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def spent_in(pid: int, seconds: float) -> dict[str, float]:
    """Watch a job for so long; return the CPU seconds of each part.

    Spark ends workers that have nothing to do: they count up to the last look at them.
    """
    before = cpu_of_tree(pid)
    last, end = dict(before), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1.0)
        last |= cpu_of_tree(pid)
    spent: dict[str, float] = {}
    for key, value in last.items():
        spent[key[0]] = spent.get(key[0], 0.0) + value - before.get(key, 0.0)
    return spent


def planner_megabytes(pid: int) -> float:
    """Return the resident memory of the processes that Spark starts for streaming sources in Python."""
    found = 0
    for each in psutil.Process(pid).children(recursive=True):
        try:
            if "streaming_source_runner" in " ".join(each.cmdline()):
                found += each.memory_info().rss
        except psutil.NoSuchProcess:  # a worker that has ended
            continue
    return found / 1e6


def send(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"{}", b"k", headers=headers_of(1))
    if producer.flush(30):
        raise SystemExit("the record was not stored")


@contextmanager
def arrivals(broker: Broker, topic: str) -> Iterator[Any]:
    """Give a function that waits for the next record of a topic and returns when it came, in Unix time."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "idle",
            "log_level": 0,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])

    def next_time(seconds: float) -> float:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = consumer.poll(0.1)
            if found is not None and found.error() is None:
                return time.time()
        raise SystemExit(f"no record came within {seconds} s")

    try:
        yield next_time
    finally:
        consumer.close()


# The smallest batch


def batch(report: Report, broker: Broker, kafka_pid: int) -> None:
    """Run batches of one record, and batches of Spark's own source with one row."""
    from penstock.pipeline.spark.session import spark_session

    batches = 30 if report.quick else BATCHES
    spark = spark_session("batch", master="local[1]", light=True)
    from pyspark import SparkContext

    java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    spent: dict[str, list[float]] = {"fused": [], "rate": []}
    try:
        for warm in (True, False, False, False):
            count = WARM_UP_BATCHES if warm else batches
            for name, run in (("rate", rate), ("fused", fused)):
                before = cpu_seconds(java) + cpu_seconds(os.getpid())
                run(spark, broker, count)
                each = (cpu_seconds(java) + cpu_seconds(os.getpid()) - before) / count
                if not warm:
                    spent[name].append(1000 * each)
    finally:
        spark.stop()
    for name, found in spent.items():
        note(report, f"batch_{name}", found, "ms CPU")
    ratios = [ours / theirs for ours, theirs in zip(spent["fused"], spent["rate"], strict=True)]
    note(report, "batch_ratio", ratios, "", goal=2.0)


def rate(spark: Any, broker: Broker, count: int) -> None:
    """Run Spark's own query for so many batches."""
    with tempfile.TemporaryDirectory() as folder:
        rows = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        )
        query = rows.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        while (query.lastProgress or {"batchId": -1})["batchId"] < count - 1:
            query.awaitTermination(1)
        query.stop()


def fused(spark: Any, broker: Broker, count: int) -> None:
    """Run a job over a topic of so many records, one a batch."""
    with ExitStack() as held:
        source, target, dead = (held.enter_context(broker.topic(1)) for _ in range(3))
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(count):
            producer.produce(source, b"{}", b"k", headers=headers_of(number))
        producer.flush(30)
        pipeline = write_pipeline(folder, broker.bootstrap, source, target, dead)
        with Job(pipeline, JobOptions(once=True, max_offsets=1)) as job:
            job.prepare()
            job.run(spark)
            (totals,) = job.totals.values()
            if totals.batches != count:
                raise SystemExit(f"{totals.batches} batches instead of {count}")


# Two workers of one core


def workers(report: Report, broker: Broker, kafka_pid: int) -> None:
    """Run the fused route in turns in `local[2]` and on a standalone cluster, each in a warm session."""
    count, rounds = (400_000, 1) if report.quick else (2_000_000, 5)
    rates: dict[str, list[float]] = {"local": [], "standalone": []}
    with ExitStack() as held:
        source = held.enter_context(broker.topic())
        fill(broker.bootstrap, source, count)
        masters = {"local": "local[2]", "standalone": held.enter_context(standalone())}
        sides = {name: held.enter_context(_side(master)) for name, master in masters.items()}
        for number in range(rounds + 1):
            for name, side in sides.items():
                settled([kafka_pid])
                rate = side(broker.bootstrap, source, count)
                sys.stderr.write(f"round {number} of {rounds}, {name}: {rate:,.0f} records/s\n")
                if number:
                    rates[name].append(rate)
    for name, found in rates.items():
        report.row(
            f"fused, {name}",
            *(f"{each:,.0f}/s" for each in (statistics.median(found), min(found), max(found))),
        )
        report.figure(f"{name}_records_per_second", statistics.median(found))
    ratio = statistics.median(rates["standalone"]) / statistics.median(rates["local"])
    report.row("fused, standalone beside local[2]", f"{ratio:.2f}", "", "")
    report.goal("standalone_beside_local", ratio, 0.9)


@contextmanager
def standalone() -> Iterator[str]:
    """Run a master and two workers of one core on loopback; give the master's address."""
    address = f"spark://127.0.0.1:{choose_port(0, setting='master')}"
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        words = ("--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--webui-port", "0")
        _daemon(held, folder / "master", "master.Master", "I have been elected leader", *words)
        own = ("--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--webui-port", "0")
        for name in ("worker-0", "worker-1"):
            work = ("--work-dir", str(folder / name), address)
            _daemon(held, folder / f"{name}.log", "worker.Worker", "Successfully registered", *own, *work)
        yield address


def _daemon(held: ExitStack, log: Path, name: str, ready: str, *words: str) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    given = [f"{key}={value}" for key, value in environment.items()]
    command = [
        "env",
        *given,
        "bash",
        str(home / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{name}",
        *words,
    ]
    process = ServerProcess(name, command, out=log)
    held.callback(process.close)
    process.wait_until(lambda: ready in log.read_text(encoding="utf-8", errors="replace"), timeout=90)


@contextmanager
def _side(master: str) -> Iterator[Callable[[str, str, int], float]]:
    """Start a driver of its own; give what measures one round in it, in records a second."""
    command = [sys.executable, __file__, "--driver", master]
    environment = {**_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    driver = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    questions, answers = driver.stdin, driver.stdout

    def measure(bootstrap: str, source: str, count: int) -> float:
        questions.write(json.dumps([bootstrap, source, count]) + "\n")
        questions.flush()
        for line in answers:
            if line.startswith("rate "):
                return float(line.split()[1])
        raise SystemExit(f"the driver of {master} has ended")

    try:
        yield measure
    finally:
        questions.close()
        driver.wait(60)


def drive(master: str) -> None:
    """Do rounds in one session for as long as they are asked for on standard input."""
    from penstock.pipeline.spark.session import spark_session

    spark = spark_session("bench", master=master)
    for line in sys.stdin:
        bootstrap, source, count = json.loads(line)
        broker = Broker(bootstrap)
        with broker.topic() as target, broker.topic(1) as dead, tempfile.TemporaryDirectory() as folder:
            pipeline = write_pipeline(Path(folder), bootstrap, source, target, dead)
            with Job(pipeline, JobOptions(once=True, max_offsets=count)) as job:
                job.prepare()
                began = time.perf_counter()
                job.run(spark)
                took = time.perf_counter() - began
                (totals,) = job.totals.values()
            if (totals.counts["n_in"], totals.counts["n_out"]) != (count, count // 2):
                raise SystemExit(f"records were lost: {totals}")
        print(f"rate {count / took}", flush=True)
    spark.stop()


def both_idle(report: Report, broker: Broker, kafka_pid: int) -> None:
    idle(report, broker, topics=20, most_share=0.05)
    idle(report, broker, topics=1, most_share=0.02)


CASES: Mapping[str, Callable[[Report, Broker, int], None]] = {
    "start": start,
    "idle": both_idle,
    "batch": batch,
    "workers": workers,
}
"""Each gets the report, the broker, and the process of the broker."""


def main() -> None:
    if sys.argv[1:2] == ["--driver"]:
        drive(sys.argv[2])
        return
    chosen = _chosen()
    title = "A pipeline as a Spark application, CPU seconds"
    report = Report.from_arguments(title, ["what", "median", "lowest", "highest"])
    ensure(["kafka", "spark"])
    compile_kernels()
    class_archive.prepare()
    try:
        with Kafka() as kafka:
            broker = Broker(kafka.bootstrap)
            for name in chosen:
                CASES[name](report, broker, kafka.pid or 0)
    finally:
        # What was measured is worth printing, also if a later case fails.
        report.finish()


def _chosen() -> list[str]:
    """Take `--case NAME` from the command line, and leave the rest to the report."""
    if "--case" not in sys.argv:
        return list(CASES)
    at = sys.argv.index("--case")
    name = sys.argv[at + 1] if at + 1 < len(sys.argv) else ""
    if name not in CASES:
        raise SystemExit(f"--case is one of: {', '.join(CASES)}")
    del sys.argv[at : at + 2]
    return [name]


if __name__ == "__main__":
    main()
