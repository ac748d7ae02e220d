"""The same route between Kafka and Pulsar in all four directions, and in all forms that a route can have.

    git clone . ../before && git -C ../before checkout REVISION && make -C ../before setup kernels
    .venv/bin/python bench/routes.py --before ../before

The route is that of bench/pipeline.py: filter by type and a number in the data, set the subject, write in
structured mode; 4 partitions on each side. The other forms say the same in other words, or something that
only the reference evaluator decides. Sides take turns on one Kafka and one Pulsar; the first round is thrown
away, figures are medians. Each version has a process of its own with a warm Spark session, and the whole
query is counted; the Go programs are counted from their first output on. CPU is that of the process tree,
brokers left out. Without `--before` there are no ratios to the version before.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import httpx
import psutil

from by_reference import AVRO, avro_of
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkBatch
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.wire.kafka.batch_body import BatchBody
from pipeline import LIMIT, PARTITIONS, TYPE, Broker, body_of, cpu_of, fill, headers_of, require
from quiet import settled
from table import Report

PEER: Final = Path(__file__).parent / "peers" / "routes"
NAMESPACE: Final = "public/bench"
BATCH: Final = 500
"""Records of one entry of the input on Pulsar."""
WHOLE: Final = 1_000_000_000
"""Offsets of a batch that holds everything."""
SMALL: Final = 50_000

WHERE: Final = "where: type = 'com.shop.order.placed' AND data.amount > 100"
FORMS: Final = {
    "where": WHERE,
    "cesql": "cesql: type = 'com.shop.order.placed'",
    "where, type only": "where: type = 'com.shop.order.placed'",
    "filter, type only": "filter: [{exact: {type: com.shop.order.placed}}]",
    "rlike": "where: type rlike '^com[.]shop[.]order[.]placed$' AND data.amount > 100",
    "function": f"{WHERE}\n    apply: {{function: 'passing:on', batch: 1000}}",
    "plain": "events: plain",
    "avro, check": "check: schema",
}
"""What a route says besides where it reads and writes."""
AVRO_MESSAGE: Final = json.dumps(
    {
        "contentType": "application/avro",
        "x-penstock-type": TYPE,
        "payload": {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": AVRO},
    }
)
FUNCTION: Final = '''\
"""Passes every event on."""


def on(batch):
    return [record for record in batch.records]
'''

CONTRACT: Final = """\
asyncapi: 3.0.0
info: {{title: bench, version: 1.0.0}}
defaultContentType: application/json
servers:
  kafka: {{host: '{kafka}', protocol: kafka}}
  pulsar: {{host: '{pulsar}', protocol: pulsar}}
channels:
  in:
    address: {source}
    servers: [{{$ref: '#/servers/{reads}'}}]
    messages:
      order: {{$ref: '#/components/messages/order'}}
    {source_binding}
  out:
    address: {target}
    servers: [{{$ref: '#/servers/{writes}'}}]
    messages:
      order: {{$ref: '#/components/messages/routed'}}
    {target_binding}
  dead:
    address: {dead}
    servers: [{{$ref: '#/servers/kafka'}}]
    messages:
      letter: {{$ref: '#/components/messages/letter'}}
operations:
  onOrder: {{action: receive, channel: {{$ref: '#/channels/in'}}}}
  sendLarge: {{action: send, channel: {{$ref: '#/channels/out'}}}}
components:
  messages:
    order: {order}
    routed:
      {routed}
    letter:
      headers: {{type: object, required: [ce_type],
        properties: {{ce_type: {{type: string, const: io.penstock.deadletter}}}}}}
"""
PLAIN: Final = "{contentType: application/json}"
EVENT: Final = """
      headers: {type: object, required: [ce_specversion, ce_id, ce_source, ce_type],
        properties: {ce_type: {type: string, const: com.shop.order.placed}}}"""
BINDING: Final = "bindings: {pulsar: {namespace: bench, persistence: persistent}}"
PIPELINE: Final = """\
contract: asyncapi.yaml
checkpoint: {folder}/checkpoint
routes:
  large:
    receive: onOrder
    {form}
    {change}
    send: sendLarge
    delivery: {{deadLetterSink: dead}}
"""
CHANGE: Final = "set: {subject: data.customer}\n    mode: structured"
CONTEXT: Final = """\
context: bench
contexts:
  bench:
    servers:
      kafka: {{kind: kafka, address: '{kafka}'}}
      pulsar: {{kind: pulsar, address: 'pulsar://{pulsar}', admin: '{admin}'}}
"""


@dataclass(frozen=True)
class Case:
    """One row: a direction, a form, the offsets of a batch, and the goals of its ratios."""

    reads: str
    writes: str
    form: str = "where"
    batch: int = WHOLE
    engine: str | None = None
    """None: in Spark, by whatever the version calls it."""
    source: str = ""
    """What its topic holds, if not the orders of its server."""
    before: float | None = None
    """Of the rate of the version before, at least."""

    @property
    def orders(self) -> str:
        """The source that it reads."""
        return self.source or self.reads

    @property
    def name(self) -> str:
        small = f", {self.batch:,} a batch" if self.batch != WHOLE else ""
        form = "" if self.form == "where" else f", {self.form}"
        return f"{self.reads} to {self.writes}{form}{small}"


KAFKA_TO_KAFKA: Final = Case("kafka", "kafka", before=0.95)
CASES: Final = (
    KAFKA_TO_KAFKA,
    Case("kafka", "pulsar", before=4.0),
    Case("pulsar", "kafka", before=4.0),
    Case("pulsar", "pulsar", before=4.0),
    Case("kafka", "kafka", "where, type only"),
    Case("kafka", "kafka", "filter, type only"),
    Case("kafka", "kafka", "cesql"),
    Case("kafka", "kafka", "function", before=2.0),
    Case("kafka", "kafka", "rlike", before=0.6),
    Case("kafka", "kafka", "plain", before=0.6),
    Case("kafka", "kafka", "avro, check", source="avro", before=0.6),
    Case("kafka", "kafka", batch=SMALL, before=1.5),
)
PAIRS: Final = (
    ("pulsar to kafka", "kafka to kafka", 0.6),
    ("kafka to pulsar", "kafka to kafka", 0.45),
    ("kafka to kafka, filter, type only", "kafka to kafka, where, type only", 0.9),
    ("kafka to kafka, cesql", "kafka to kafka, where, type only", 0.9),
)
"""Rates beside each other: the first is at least so much of the second."""


@dataclass(frozen=True)
class Round:
    """Input records a second, and CPU seconds per million."""

    rate: float
    cpu: float


# The brokers


@dataclass
class Brokers:
    """Kafka and Pulsar, and topics on either that are deleted behind their use."""

    kafka: Kafka
    pulsar: Pulsar
    broker: Broker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = Broker(self.kafka.bootstrap)
        self._admin = httpx.Client(base_url=f"{self.pulsar.admin_url}/admin/v2", timeout=60)
        self._put(f"namespaces/{NAMESPACE}")
        self._post(f"namespaces/{NAMESPACE}/deduplication", True)
        self._post(
            f"namespaces/{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 4096}
        )

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in (self.kafka, self.pulsar) if each.pid]

    @contextmanager
    def topic(self, server: str) -> Iterator[str]:
        """Make a topic with 4 partitions; the name is the address in the contract."""
        if server == "kafka":
            with self.broker.topic() as name:
                yield name
            return
        name = f"bench-{secrets.token_hex(6)}"
        path = f"persistent/{NAMESPACE}/{name}/partitions"
        self._put(path, PARTITIONS)
        try:
            yield name
        finally:
            self._admin.delete(path, params={"force": "true"}).raise_for_status()

    def end(self, server: str, topic: str) -> int:
        """Count the messages of a topic."""
        if server == "kafka":
            return self.broker.end(topic)
        found = self._admin.get(f"persistent/{NAMESPACE}/{topic}/partitioned-stats")
        found.raise_for_status()
        return int(found.json()["msgInCounter"])

    def fill(self, source: str, topic: str, count: int) -> None:
        if source == "avro":
            fill(self.kafka.bootstrap, topic, count, body=avro_of, content_type=b"application/avro")
        elif source == "kafka":
            fill(self.kafka.bootstrap, topic, count)
        else:
            fill_pulsar(self.pulsar, topic, count)

    def _put(self, path: str, value: Any = None) -> None:
        self._admin.put(path, json=value).raise_for_status()

    def _post(self, path: str, value: Any) -> None:
        self._admin.post(path, json=value).raise_for_status()


def fill_pulsar(server: Pulsar, topic: str, count: int) -> None:
    """Write the records of `fill` as entries of `BATCH` messages."""
    settings = PulsarSettings(service_url=server.service_url, admin_url=server.admin_url)
    target = PulsarTarget(topic=f"persistent://{NAMESPACE}/{topic}", partitions=PARTITIONS)
    with PulsarCluster(settings) as cluster:
        sink = PulsarSink(cluster, [target], None)
        for first in range(0, count, BATCH * PARTITIONS):
            for part in range(PARTITIONS):
                numbers = range(first + part, min(first + BATCH * PARTITIONS, count), PARTITIONS)
                rows = [
                    numbered(
                        record_bytes(b"customer-%05d" % (n % 1000), body_of(n), tuple(headers_of(n))), at
                    )
                    for at, n in enumerate(numbers)
                ]
                now = time.time_ns() // 1_000_000
                if rows:
                    sink.put(SinkBatch(0, part, BatchBody(b"".join(rows), len(rows), now, now)))
        sink.commit({})
        sink.close()


# The sides


class Version:
    """A checkout at work: one process with a warm session."""

    def __init__(self, name: str, folder: Path, log: IO[bytes]) -> None:
        self.name = name
        self._log = log
        self._process = subprocess.Popen(
            [str(folder / ".venv" / "bin" / "python"), str(PEER / "job.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, case: Case, folder: Path, count: int) -> Round:
        engine = case.engine
        asked = {"folder": str(folder), "engine": engine, "max_offsets": case.batch}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            self._log.seek(0)
            sys.stderr.write(self._log.read().decode(errors="replace")[-3000:])
            raise SystemExit(f"{self.name}, {case.name}: {answer['error']}")
        require(answer["in"] == count, f"{self.name}, {case.name} lost records: {answer}")
        return Round(count / answer["wall"], answer["cpu"] * 1e6 / count)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        self._process.kill()


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


def go_round(brokers: Brokers, case: Case, binary: Path, source: str, target: str, count: int) -> Round:
    """Run the Go program until its output is complete; count from its first output on."""
    full = {"kafka": "", "pulsar": f"persistent://{NAMESPACE}/"}
    environment = os.environ | {
        "BENCH_KAFKA": brokers.kafka.bootstrap,
        "BENCH_PULSAR": brokers.pulsar.service_url,
        "BENCH_FROM": case.reads,
        "BENCH_TO": case.writes,
        "BENCH_SOURCE": full[case.reads] + source,
        "BENCH_TARGET": full[case.writes] + target,
        "BENCH_GROUP": f"bench-{secrets.token_hex(6)}",
    }
    child = subprocess.Popen([str(binary)], env=environment, stderr=subprocess.DEVNULL)
    try:
        process, deadline, first = psutil.Process(child.pid), time.monotonic() + LIMIT, 0
        while not first:
            first = _looked(brokers, case, child, target, deadline)
        before, began = cpu_of(process), time.perf_counter()
        while (end := _looked(brokers, case, child, target, deadline)) < count // 2:
            pass
        wall, spent, done = time.perf_counter() - began, cpu_of(process) - before, 2 * (end - first)
    finally:
        child.kill()
        child.wait()
    require(done > 0, "Go had too few records to measure")
    return Round(done / wall, spent * 1e6 / done)


def _looked(
    brokers: Brokers, case: Case, child: subprocess.Popen[bytes], target: str, deadline: float
) -> int:
    time.sleep(0.05)
    require(child.poll() is None, "the Go program ended by itself")
    require(time.monotonic() < deadline, "the Go program did not end in time")
    return brokers.end(case.writes, target)


# The table


@dataclass
class Bench:
    """The rounds of all sides."""

    brokers: Brokers
    versions: list[Version]
    go: Path | None
    sources: dict[str, str]
    count: int
    found: dict[tuple[str, str], list[Round]] = field(default_factory=dict)

    def round(self, case: Case, *, counts: bool) -> None:
        for version in self.versions:
            with (
                self.brokers.topic(case.writes) as target,
                self.brokers.topic("kafka") as dead,
                tempfile.TemporaryDirectory() as folder,
            ):
                self._write(Path(folder), case, target, dead)
                settled(self.brokers.pids)
                self._note(version.name, case, version.run(case, Path(folder), self.count), counts)
        if self.go is not None and case.form == "where" and case.batch == WHOLE:
            with self.brokers.topic(case.writes) as target:
                settled(self.brokers.pids)
                source = self.sources[case.orders]
                one = go_round(self.brokers, case, self.go, source, target, self.count)
                self._note("Go", case, one, counts)

    def _note(self, side: str, case: Case, one: Round, counts: bool) -> None:
        told = f"{one.rate:,.0f} records/s, {one.cpu:.2f} CPU s per M"
        sys.stderr.write(f"{case.name}, {side}: {told}{'' if counts else ' (not counted)'}\n")
        if counts:
            self.found.setdefault((case.name, side), []).append(one)

    def _write(self, folder: Path, case: Case, target: str, dead: str) -> None:
        pulsar = self.brokers.pulsar
        is_plain = case.form == "plain"
        names = {
            "kafka": self.brokers.kafka.bootstrap,
            "pulsar": pulsar.service_url.removeprefix("pulsar://"),
            "admin": pulsar.admin_url,
            "reads": case.reads,
            "writes": case.writes,
            "source": self.sources[case.orders],
            "target": target,
            "dead": dead,
            "source_binding": BINDING if case.reads == "pulsar" else "",
            "target_binding": BINDING if case.writes == "pulsar" else "",
            "order": AVRO_MESSAGE if case.source == "avro" else PLAIN if is_plain else EVENT,
            "routed": "contentType: application/json"
            if is_plain
            else "contentType: application/cloudevents+json\n      x-penstock-type: com.shop.order.placed",
        }
        change = CHANGE if case.form not in ("plain", "avro, check") else ""
        (folder / "asyncapi.yaml").write_text(CONTRACT.format(**names))
        pipeline = PIPELINE.format(folder=folder, form=FORMS[case.form], change=change)
        (folder / "pipeline.yaml").write_text(pipeline)
        (folder / "penstock.yaml").write_text(CONTEXT.format(**names))
        (folder / "passing.py").write_text(FUNCTION)

    def tell(self, report: Report) -> None:
        for (case, side), rounds in self.found.items():
            rate, cpu = (statistics.median(getattr(one, what) for one in rounds) for what in ("rate", "cpu"))
            ratios = [self._ratio(case, side, other) for other in ("before", "Go")]
            report.row(case, side, f"{rate:,.0f}", f"{cpu:.2f}", *ratios)
            report.figure(f"{case}, {side}: records/s", rate)
            report.figure(f"{case}, {side}: CPU s per M", cpu)
        for case in CASES:
            if case.before is not None and (case.name, "before") in self.found:
                ratio = self._rate(case.name, "now") / self._rate(case.name, "before")
                report.goal(f"{case.name}: rate beside before", ratio, case.before)
        for one, other, goal in PAIRS:
            if (one, "now") in self.found and (other, "now") in self.found:
                ratio = self._rate(one, "now") / self._rate(other, "now")
                report.goal(f"{one} beside {other}", ratio, goal)

    def _rate(self, case: str, side: str) -> float:
        return statistics.median(one.rate for one in self.found[case, side])

    def _ratio(self, case: str, side: str, other: str) -> str:
        if side == other or (case, other) not in self.found:
            return ""
        return f"{self._rate(case, side) / self._rate(case, other):.2f}"


def taken(flag: str) -> str | None:
    """Take a flag with its value from the command line, and leave the rest to the report."""
    if flag not in sys.argv:
        return None
    at = sys.argv.index(flag)
    if at + 1 >= len(sys.argv):
        raise SystemExit(f"{flag} wants a value")
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


def checkouts() -> dict[str, Path]:
    found = {"now": Path(__file__).parent.parent.resolve()}
    if (before := taken("--before")) is not None:
        found["before"] = Path(before).resolve()
    for folder in found.values():
        if not (folder / ".venv" / "bin" / "python").exists():
            raise SystemExit(f"{folder} has no .venv: run make setup there")
    return found


def main() -> None:
    folders, only = checkouts(), taken("--case")
    columns = ["route", "side", "records/s", "CPU s per M", "x before", "x Go"]
    report = Report.from_arguments("Routes between Kafka and Pulsar", columns)
    cases = [case for case in CASES if only is None or only in case.name]
    if report.quick:
        cases = cases[:4]
    count = 100_000 if report.quick else 1_000_000
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(heap_mb=512, full_jit=True))
        pulsar = stack.enter_context(Pulsar(durable=False, heap_mb=512, full_jit=True))
        brokers = Brokers(kafka, pulsar)
        servers = {case.orders: case.reads for case in cases}
        sources = {each: stack.enter_context(brokers.topic(server)) for each, server in servers.items()}
        for server, topic in sources.items():
            brokers.fill(server, topic, count)
        binary = go_binary(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        versions = []
        for name, folder in folders.items():
            version = Version(name, folder, stack.enter_context(tempfile.TemporaryFile()))
            stack.callback(version.close)
            versions.append(version)
        bench = Bench(brokers, versions, binary, sources, count)
        for number in range(2 if report.quick else 6):
            for case in cases:
                bench.round(case, counts=number > 0)
        bench.tell(report)
    report.finish()


if __name__ == "__main__":
    main()
