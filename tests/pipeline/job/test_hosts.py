"""One suite for both hosts of the delivery, Spark's tasks and the loop alone, on real Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import CheckpointMismatch, JobFailed, PipelineError, UnsupportedPlan
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.job import JobOptions, Progress, Watcher, job_of
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
Make = Callable[..., Any]
HOSTS = ("spark", "loop")


def record(number: int, *, data: bytes = b"{}", partition: int | None = None, **more: str) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    made = KafkaBinding().encode(CloudEvent({**attributes, **more}, data), key=b"k%d" % number)
    return KafkaRecord(value=made.value, key=made.key, headers=made.headers, partition=partition)


def ids(records: list[KafkaRecord]) -> list[str]:
    return [KafkaBinding().decode(each).id for each in records]


def numbers(records: list[KafkaRecord]) -> list[int]:
    return [int(id[2:]) for id in ids(records)]


@pytest.mark.parametrize("host", HOSTS)
def test_order_keys_and_ids_are_kept_and_counted(project: Make, spark: SparkSession, host: str) -> None:
    shop = project().create(partitions=4).write()
    shop.produce(record(number, partition=number % 4) for number in range(4000))
    totals = shop.run(spark, engine=host, max_offsets=1500)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.lag, totals.lost) == (4000, 4000, 0, 0)
    out = shop.read("out")
    assert Counter((each.key, id) for each, id in zip(out, ids(out), strict=True)) == Counter(
        (b"k%d" % number, f"e-{number}") for number in range(4000)
    )
    for target in range(4):
        for source in range(4):
            came = [n for n in numbers([each for each in out if each.partition == target]) if n % 4 == source]
            assert came == sorted(came)
    # A second run has nothing to do, and what comes then is done once.
    shop.produce([record(4000)])
    assert shop.run(spark, engine=host).counts["n_in"] == 1
    assert len(shop.read("out")) == 4001


@pytest.mark.parametrize("host", HOSTS)
def test_fan_out_dead_letters_and_tombstones(project: Make, spark: SparkSession, host: str) -> None:
    routes = {
        "a": {
            "receive": "receive",
            "send": ["send", "send-too"],
            "where": "data.n IS NULL OR data.n < 5",
        },
        "b": {"receive": "receive", "send": "send-too", "where": "data.n >= 5", "tombstones": "drop"},
    }
    shop = project(places={"too": "kafka"}).create(partitions=2).write(routes=routes)
    sent = [record(number, data=b'{"n": %d}' % number) for number in range(10)]
    shop.produce([*sent, KafkaRecord(value=b"poison", key=b"p"), KafkaRecord(value=None, key=b"gone")])
    totals = shop.run(spark, engine=host)
    assert totals.counts["n_in"] == 12
    out, too = shop.read("out"), shop.read("too")
    assert [each.key for each in out if each.value is None] == [b"gone"]
    assert sorted(numbers([each for each in out if each.value])) == list(range(5))
    assert sorted(numbers([each for each in too if each.value])) == list(range(10))
    (letter,) = (read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead"))
    assert (letter.record.key, letter.record.value) == (b"p", b"poison")
    assert (totals.counts["n_out"], totals.counts["n_dead"], totals.counts["n_dropped"]) == (17, 1, 1)


@pytest.mark.parametrize("host", HOSTS)
def test_what_a_transaction_took_back_is_not_forwarded(project: Make, spark: SparkSession, host: str) -> None:
    shop = project().create().write()
    for number, keep in enumerate((True, False, True)):
        options = {**shop.server("in").client_options(), "transactional.id": f"{shop.prefix}-{number}"}
        producer = Producer({**options, "log_level": "0"})
        producer.init_transactions(60)
        producer.begin_transaction()
        made = record(number)
        producer.produce(shop.topic("in"), made.value, made.key, headers=list(made.headers))
        producer.flush(30)
        if keep:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    totals = shop.run(spark, engine=host)
    assert ids(shop.read("out")) == ["e-0", "e-2"]
    assert (totals.counts["n_in"], totals.lost, totals.lag) == (2, 0, 0)


def trim(shop: Any, before: int) -> None:
    admin = AdminClient(shop.server("in").client_options())
    place = TopicPartition(shop.topic("in"), 0, before)
    for done in admin.delete_records([place]).values():
        done.result(30)


@pytest.mark.parametrize("host", HOSTS)
def test_records_that_are_gone_stop_the_job_or_are_counted(
    project: Make, spark: SparkSession, host: str
) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(10)))
    shop.run(spark, engine=host)
    shop.produce(map(record, range(10, 30)))
    trim(shop, 17)
    with pytest.raises(JobFailed, match="7 records"):
        shop.run(spark, engine=host)
    totals = shop.run(spark, engine=host, on_data_loss="continue")
    assert (totals.lost, totals.counts["n_in"]) == (7, 13)
    assert ids(shop.read("out")) == [f"e-{n}" for n in (*range(10), *range(17, 30))]


class OnBatch(Watcher):
    """Calls something after each batch."""

    def __init__(self, call: Callable[[Progress], None]) -> None:
        self.call = call

    def batch(self, progress: Progress) -> None:
        self.call(progress)


@pytest.mark.parametrize("host", HOSTS)
def test_a_job_that_is_asked_to_end_repeats_nothing(project: Make, spark: SparkSession, host: str) -> None:
    shop = project(group={"type": "string", "const": "g"}).create(partitions=2).write()
    shop.produce(record(number, partition=number % 2) for number in range(500))
    ended = threading.Event()

    def on_batch(progress: Progress) -> None:
        job.stop()
        ended.set()

    with job_of(shop.pipeline(), JobOptions(engine=host, max_offsets=100)) as job:
        job.prepare()
        job.watch(OnBatch(on_batch))
        job.run(spark)
        (totals,) = job.totals.values()
    assert ended.is_set()
    # The group says what is done, for operators; for the loop it is the progress itself.
    assert sum(shop.admin().committed("g", shop.topic("in")).values()) == totals.counts["n_in"] > 0
    shop.run(spark, engine=host)
    assert Counter(numbers(shop.read("out"))) == Counter(range(500))


@pytest.mark.parametrize("host", HOSTS)
def test_a_job_that_never_ends_takes_what_comes_until_it_is_idle(
    project: Make, spark: SparkSession, host: str
) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(5)))
    more = iter([range(5, 8)])
    again = OnBatch(lambda progress: shop.produce(map(record, next(more, ()))))
    with job_of(shop.pipeline(), JobOptions(engine=host, until_idle=2.0)) as job:
        job.prepare()
        job.watch(again)
        job.run(spark)
        (totals,) = job.totals.values()
    assert (totals.counts["n_out"], totals.lag) == (8, 0)
    assert ids(shop.read("out")) == [f"e-{number}" for number in range(8)]


@pytest.mark.parametrize("host", HOSTS)
def test_at_least_once_needs_no_transaction(project: Make, spark: SparkSession, host: str) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(20)))
    totals = shop.run(spark, engine=host, exactly_once=False)
    assert totals.counts["n_out"] == 20
    # No marker of a transaction takes an offset.
    assert shop.admin("out").latest(shop.topic("out")) == {0: 20}


def test_a_topic_that_was_made_again_is_refused(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(5)))
    shop.run(spark, engine="spark")
    shop.admin().delete_topic(shop.topic("in"))
    end = time.monotonic() + 60
    while shop.topic("in") in shop.admin().cluster([shop.topic("in")]).topics:
        assert time.monotonic() < end
    shop.admin().create_topic(shop.topic("in"), partitions=1, replicas=1, settings={})
    shop.produce([record(5)])
    with pytest.raises(CheckpointMismatch, match="something else"):
        shop.run(spark, engine="spark")
    # New marks: those of the old checkpoint say nothing about the new topic.
    assert shop.run(spark, engine="spark", fresh_checkpoint=True).counts["n_out"] == 1
    assert ids(shop.read("out"))[-1] == "e-5"


def test_a_topic_that_cannot_take_the_end_of_a_transaction_is_refused(project: Make) -> None:
    small = {"dead": {"max.message.bytes": "77"}}
    shop = project().create(settings=small).write()
    shop.produce([record(1)])
    with pytest.raises(PipelineError, match=shop.topic("dead")) as caught:
        shop.run(None, engine="loop")
    assert "max.message.bytes" in (caught.value.next or "")
    assert shop.run(None, engine="loop", exactly_once=False).counts["n_out"] == 1


def test_a_group_that_stands_behind_the_end_is_refused(project: Make) -> None:
    shop = project(group={"type": "string", "const": "g"}).create().write()
    shop.produce(map(record, range(5)))
    shop.admin().commit("g", shop.topic("in"), {0: 9})
    with pytest.raises(CheckpointMismatch, match="something else"):
        shop.run(None, engine="loop")
    assert shop.run(None, engine="loop", fresh_checkpoint=True).counts["n_out"] == 5


def test_the_loop_needs_no_folder(project: Make) -> None:
    """Its state is in the broker: nothing is written, and what `checkpoint:` names is not looked at."""
    shop = project().create().write(checkpoint="hdfs://nowhere.invalid/ck")
    shop.produce(map(record, range(3)))
    before = sorted(shop.folder.rglob("*"))
    shop.folder.chmod(0o555)
    try:
        for expected in (3, 0):
            assert shop.run(None, engine="loop").counts["n_out"] == expected
    finally:
        shop.folder.chmod(0o755)
    assert sorted(shop.folder.rglob("*")) == before


def test_conditions_of_spark_and_others_go_on_from_one_checkpoint(project: Make, spark: SparkSession) -> None:
    shop = project().create(partitions=2)
    for turn, condition in enumerate(({"sql": "type = 't'"}, {}, {"sql": "true"}, {})):
        shop.write(condition).produce(record(number) for number in range(10 * turn, 10 * turn + 10))
        assert shop.run(spark).counts["n_in"] == 10
    assert Counter(numbers(shop.read("out"))) == Counter(range(40))


def test_a_condition_of_spark_is_refused_by_a_loop(project: Make) -> None:
    shop = project().create().write({"sql": "size(headers) > 1"})
    with pytest.raises(UnsupportedPlan, match="loop") as caught:
        shop.run(None, engine="loop")
    assert "route r" in (caught.value.why or "")


def test_a_shadow_finds_no_difference(project: Make) -> None:
    shop = project().create().write({"where": "data.n > 2", "set": {"subject": "data.s"}})
    shop.produce(record(number, data=b'{"n": %d, "s": "x"}' % number) for number in range(50))
    counts = shop.run(None, engine="loop", shadow=1).counts
    assert (counts["n_in"], counts["n_out"], counts["n_different"]) == (50, 47, 0)
    assert counts["n_shadow"] == 50 - counts["n_slow"] > 0


WITHOUT_JAVA = """
import psutil, sys
from penstock.cli.app import main
try:
    main(["run", "--engine", "loop", "--once"])
finally:
    print([name for name in ("pyspark", "py4j") if name in sys.modules])
    print([child.name() for child in psutil.Process().children(recursive=True)])
"""


def test_a_loop_needs_neither_java_nor_spark(project: Make, tmp_path: Path) -> None:
    shop = project().create().write()
    shop.produce(record(number) for number in range(10))
    for name in ("pyspark", "py4j"):  # what a Python without Spark has
        (tmp_path / "none" / name).mkdir(parents=True)
        (tmp_path / "none" / name / "__init__.py").write_text("raise ImportError(__name__)", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA],
        cwd=shop.folder,
        env={**kept, "PATH": "", "PYTHONPATH": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]
    assert ids(shop.read("out")) == [f"e-{number}" for number in range(10)]
