"""Nothing is lost when a driver is killed, a broker restarts, or records are no events at all."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded.kafka import Kafka
from penstock.events import CloudEvent, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher, job_of
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., Any]
BATCH = r"batch (\d+) "
KILLS = int(os.environ.get("SOAK_ROUNDS", "20"))
RESTARTS = int(os.environ.get("SOAK_ROUNDS", "10"))


def record(number: int) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    return KafkaBinding().encode(CloudEvent(attributes, b'{"n": %d}' % number), key=b"k%d" % number)


def ids(records: list[KafkaRecord]) -> list[str]:
    return [KafkaBinding().decode(each).id for each in records]


# The driver is killed


def kill_and_restart(shop: Any, kills: int, batch: int, seed: int) -> None:
    """Kill a driver while it works on a batch, several times; the last run comes to the end."""
    moments = random.Random(seed)
    for _ in range(kills):
        running = shop.spawn("run", "--max-offsets", str(batch))
        running.until(BATCH)
        # Some way into the next batch: where exactly, the seed says.
        threading.Event().wait(moments.random() * 0.5)
        running.process.send_signal(signal.SIGKILL)
        assert running.ended() == -signal.SIGKILL
    last = shop.spawn("run", "--once", "-o", "json")
    assert last.ended() == 0, last.told()


def events_with_poison(count: int) -> Iterator[KafkaRecord]:
    for number in range(count):
        yield record(number)
        if number % 100 == 0:
            yield KafkaRecord(value=b"poison-%d" % number)


def assert_every_event_is_there(shop: Any, count: int) -> None:
    out, dead = shop.read("out"), shop.read("dead")
    assert set(ids(out)) == {f"e-{number}" for number in range(count)}
    letters = {read_dead_letter(KafkaBinding().decode(each)).record.value for each in dead}
    assert letters == {b"poison-%d" % number for number in range(0, count, 100)}


@pytest.mark.soak
def test_a_driver_that_is_killed_over_and_over_loses_nothing(project: Make) -> None:
    shop = project().create(partitions=4).write()
    count = 5000 * KILLS
    shop.produce(events_with_poison(count))
    kill_and_restart(shop, kills=KILLS, batch=1000, seed=KILLS)
    assert_every_event_is_there(shop, count)


# Signals, metrics and secrets, on a cluster that asks for credentials


def test_a_secured_job_serves_metrics_ends_by_a_signal_and_tells_no_secret(
    project: Make, secured_kafka: Kafka
) -> None:
    secret = secured_kafka.password()
    shop = project(servers={"kafka": secured_kafka}, group={"type": "string", "const": "g"})
    shop.create(partitions=2).write()
    shop.produce(map(record, range(2000)))
    running = shop.spawn(
        "run", "--metrics", "127.0.0.1:0", "--max-offsets", "100", "-o", "json", SECRET=secret
    )
    (address,) = running.until(r"metrics on http://(\S+)/metrics")
    running.until(r'"batch": \d+', times=2)
    assert fetch(f"http://{address}/healthz") == "running\n"
    assert 'penstock_pipeline_events_total{outcome="in"' in fetch(f"http://{address}/metrics")
    running.process.send_signal(signal.SIGTERM)
    assert running.ended() == 0, running.told()
    total = json.loads(running.stdout.read_text())["total"]
    assert total["in"] == total["out"] == len(shop.read("out"))
    # What the group says is what was written.
    assert sum(shop.admin().committed("g", shop.topic("in")).values()) == total["in"]
    # The batch was finished: the next run repeats nothing.
    assert shop.spawn("run", "--once", SECRET=secret).ended() == 0
    assert sorted(ids(shop.read("out"))) == sorted(f"e-{number}" for number in range(2000))
    assert_not_in_files(shop.folder, secret)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def assert_not_in_files(folder: Path, secret: str) -> None:
    """The checkpoint, what was printed and what was logged."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any("offsets" in path.parts for path in files)
    for path in files:
        assert secret.encode() not in path.read_bytes(), path


class Explain(Watcher):
    """Asks Spark for the plan of the running query."""

    def __init__(self, job: Job) -> None:
        self.job, self.plans = job, list[str]()

    def batch(self, progress: Progress) -> None:
        # They run in a session of their own.
        active = [running.query for running in self.job._queries.values()]
        self.plans += [query._jsq.explainInternal(True) for query in active]
        self.plans.append(str(active[0].lastProgress.json))
        self.job.stop()


@pytest.mark.parametrize(
    ("sql", "away"),
    [
        (None, False),
        pytest.param("type = 't'", False, marks=pytest.mark.soak),
        ("type = 't'", True),
    ],
    ids=["bytes", "condition", "condition, two clusters"],
)
def test_no_plan_shows_a_secret(
    project: Make,
    spark: SparkSession,
    kafka: Kafka,
    secured_kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
    sql: str | None,
    away: bool,
) -> None:
    monkeypatch.setenv("SECRET", secured_kafka.password())
    places = {"out": "plain"} if away else {}
    shop = project(servers={"kafka": secured_kafka, "plain": kafka}, places=places).create()
    shop.write({"check": "none", **({"sql": sql} if sql else {})}).produce([record(1)])
    with Job(shop.pipeline(), JobOptions()) as job:
        job.prepare()
        explain = Explain(job)
        job.watch(explain)
        job.run(spark)
    assert ids(shop.read("out")) == ["e-1"]
    assert any("Relation" in plan for plan in explain.plans)
    for plan in (*explain.plans, str(spark.sparkContext.getConf().getAll())):
        assert secured_kafka.password() not in plan
    assert_not_in_files(shop.folder, secured_kafka.password())


# The broker restarts


@pytest.fixture(scope="module")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that may be restarted: nobody else uses it."""
    with Kafka(data=tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


class Restart(Watcher):
    """Begins to restart the broker after the first batch, and ends the job when everything was read."""

    def __init__(self, job: Job, restarts: threading.Thread, records: int) -> None:
        self.job, self.restarts, self.records = job, restarts, records

    def batch(self, progress: Progress) -> None:
        if not self.restarts.ident:
            self.restarts.start()
        if sum(totals.counts["n_in"] for totals in self.job.totals.values()) >= self.records:
            self.job.stop()


def found_after_restarts(
    shop: Any,
    broker: Kafka,
    spark: SparkSession,
    engine: str,
    times: int,
    while_away: Callable[[Job], None] = lambda job: None,
    **options: Any,
) -> list[str]:
    """Run a job while its broker restarts and records come; give the ids of what it wrote."""
    moments, records = random.Random(times), 3000 * (times + 1)
    numbers = iter(range(records))
    shop.produce(map(record, islice(numbers, 3000)))

    def restarts() -> None:
        for number in range(times):
            threading.Event().wait(moments.random() * 0.5)
            # After a crash a broker has forgotten more than after an end in order.
            broker.stop() if number % 2 else broker.kill()
            try:
                while_away(job)
            finally:
                broker.start()
            shop.produce(map(record, islice(numbers, 3000)))

    thread = threading.Thread(target=restarts)
    with job_of(shop.pipeline(), JobOptions(engine=engine, max_offsets=500, **options)) as job:
        job.prepare()
        job.watch(Restart(job, thread, records))
        job.run(spark)
    thread.join(120)
    found = ids(shop.read("out"))
    assert set(found) == {f"e-{number}" for number in range(records)}
    return found


@pytest.mark.parametrize("engine", ["spark", pytest.param("loop", marks=pytest.mark.soak)])
def test_a_broker_that_restarts_loses_nothing_and_nothing_is_repeated(
    project: Make, spark: SparkSession, mortal_kafka: Kafka, engine: str
) -> None:
    shop = project(servers={"kafka": mortal_kafka}).create(partitions=2).write()
    found = found_after_restarts(shop, mortal_kafka, spark, engine, times=1)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.soak), "loop"])
def test_a_job_goes_on_when_its_broker_was_away_for_longer_than_it_waits(
    project: Make, spark: SparkSession, mortal_kafka: Kafka, engine: str
) -> None:
    told: list[str] = []

    def until_told(job: Job) -> None:
        end = time.monotonic() + 60
        while not told:
            assert time.monotonic() < end, "nobody says that the broker is away"
            told.extend(job.stalled())
            threading.Event().wait(0.1)

    shop = project(servers={"kafka": mortal_kafka}).create(partitions=2).write()
    found = found_after_restarts(
        shop, mortal_kafka, spark, engine, times=1, while_away=until_told, broker_timeout=1.0
    )
    assert len(found) == len(set(found))
    assert "no answer for" in told[0] or "did not answer in time" in told[0]


@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.soak)])
def test_a_job_that_is_asked_to_end_while_its_broker_is_away_ends_soon(
    project: Make, spark: SparkSession, mortal_kafka: Kafka, engine: str
) -> None:
    """Sooner than the 30 s after which Kubernetes kills."""
    asked: list[float] = []

    class Outage(Watcher):
        def batch(self, progress: Progress) -> None:
            if not asked:
                asked.append(0.0)
                threading.Thread(target=lose).start()

    def lose() -> None:
        mortal_kafka.kill()
        end = time.monotonic() + 60
        while not job.stalled() and time.monotonic() < end:
            threading.Event().wait(0.1)
        asked.append(time.monotonic())
        job.stop()

    shop = project(servers={"kafka": mortal_kafka}).create(partitions=2).write()
    shop.produce(record(number) for number in range(3000))
    with job_of(shop.pipeline(), JobOptions(engine=engine, max_offsets=500)) as job:
        job.prepare()
        job.watch(Outage())
        job.run(spark)
        ended = time.monotonic()
    mortal_kafka.start()
    assert ended - asked[-1] < 25
    with job_of(shop.pipeline(), JobOptions(engine=engine, once=True)) as job:
        job.prepare()
        job.run(spark)
    found = ids(shop.read("out"))
    assert set(found) == {f"e-{number}" for number in range(3000)}
    assert len(found) == 3000


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["spark", "loop"])
def test_a_broker_that_restarts_over_and_over_makes_nobody_repeat_anything(
    project: Make, spark: SparkSession, mortal_kafka: Kafka, engine: str
) -> None:
    shop = project(servers={"kafka": mortal_kafka}).create(partitions=2).write()
    found = found_after_restarts(shop, mortal_kafka, spark, engine, times=RESTARTS)
    assert len(found) == len(set(found))


# Records that are no events

GOOD = CloudEvent({"id": "1", "source": "/s", "type": "t"}, b"x")
JSON = (("content-type", b"application/cloudevents+json"),)
BINARY = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t"))
POISON = {
    "text": KafkaRecord(value=b"hello"),
    "nothing": KafkaRecord(value=b""),
    "bytes": KafkaRecord(value=bytes(range(256)), headers=(("", b""), ("\u20ac", None))),
    "no id": KafkaRecord(value=b"{}", headers=(BINARY[0], *BINARY[2:])),
    "empty id": KafkaRecord(value=b"{}", headers=(BINARY[0], ("ce_id", b""), *BINARY[2:])),
    "other version": KafkaRecord(value=b"{}", headers=(("ce_specversion", b"9.9"), *BINARY[1:])),
    "null attribute": KafkaRecord(value=b"{}", headers=(("ce_id", None), *BINARY[2:], BINARY[0])),
    "not UTF-8": KafkaRecord(value=b"{}", headers=(*BINARY[:3], ("ce_type", b"\xff\xfe"))),
    "control": KafkaRecord(value=b"{}", headers=(*BINARY[:3], ("ce_type", b"a\x00b"))),
    "twice": KafkaRecord(value=b"{}", headers=(*BINARY, ("ce_id", b"2"))),
    "bad time": KafkaRecord(value=b"{}", headers=(*BINARY, ("ce_time", b"yesterday"))),
    "not JSON": KafkaRecord(value=b"{", headers=JSON),
    "JSON list": KafkaRecord(value=b"[]", headers=JSON),
    "JSON null": KafkaRecord(value=b"null", headers=JSON),
    "JSON deep": KafkaRecord(value=b'{"data":' + b"[" * 100_000, headers=JSON),
    "JSON without id": KafkaRecord(value=b'{"specversion":"1.0","source":"/","type":"t"}', headers=JSON),
    "two data": KafkaRecord(
        value=b'{"specversion":"1.0","id":"1","source":"/","type":"t","data":1,"data_base64":"AA=="}',
        headers=JSON,
    ),
    "bad base64": KafkaRecord(
        value=b'{"specversion":"1.0","id":"1","source":"/","type":"t","data_base64":"!"}', headers=JSON
    ),
    "XML": KafkaRecord(value=b"<event/>", headers=(("content-type", b"application/cloudevents+xml"),)),
    "broken Avro": KafkaRecord(value=b"\x00", headers=(("content-type", b"application/cloudevents+avro"),)),
    "broken Protobuf": KafkaRecord(
        value=b"\xff", headers=(("content-type", b"application/cloudevents+protobuf"),)
    ),
    "bad data": KafkaRecord(value=b"{", headers=(*BINARY, ("content-type", b"application/json"))),
}


def test_poison_of_every_kind_never_stops_the_job(project: Make, spark: SparkSession) -> None:
    shop = project().create().write({"where": "data.x IS NULL", "mode": "structured"})
    good = KafkaBinding(mode=Mode.STRUCTURED).encode(GOOD)
    keyed = {name.encode(): each for name, each in POISON.items()}
    for key, each in keyed.items():
        shop.produce([KafkaRecord(value=each.value, key=key, headers=each.headers), good])
    totals = shop.run(spark)
    letters = [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]
    assert {letter.record.key for letter in letters} == set(keyed)
    for letter in letters:
        sent = keyed[letter.record.key or b""]
        assert (letter.record.value, letter.record.headers) == (sent.value, sent.headers)
        assert letter.reason
    assert len(shop.read("out")) == len(POISON)
    assert totals.counts["n_in"] == 2 * len(POISON)
