"""Jobs on real Kafka and Spark: what goes in comes out, in order, where it should, or the job says why."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.embedded.kafka import Kafka
from penstock.errors import CheckpointMismatch, ClusterError, JobFailed, PipelineError, Refused
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import DeadLetter, read_dead_letter
from penstock.pipeline.delivery.progress import PARTITION, TOPIC
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher
from penstock.record import Headers, KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
Make = Callable[..., Any]


def record(number: int, *, data: bytes = b"{}", partition: int | None = None, **more: str) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    made = KafkaBinding().encode(CloudEvent({**attributes, **more}, data), key=b"k%d" % number)
    return KafkaRecord(value=made.value, key=made.key, headers=made.headers, partition=partition)


def ids(records: list[KafkaRecord]) -> list[str]:
    return [KafkaBinding().decode(each).id for each in records]


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


def test_order_of_each_partition_keys_and_ids_are_kept(project: Make, spark: SparkSession) -> None:
    # reference/cloudevents.md section 5, rows 68 (no re-keying) and 87 (an unchanged event keeps its id).
    shop = project().create(partitions=4).write()
    sent = [record(number, partition=number % 4) for number in range(4000)]
    shop.produce(sent)
    totals = shop.run(spark, max_offsets=1500)
    assert totals.batches >= 3
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.lag) == (4000, 4000, 0)
    out = shop.read("out")
    assert Counter((each.key, id) for each, id in zip(out, ids(out), strict=True)) == Counter(
        (b"k%d" % number, f"e-{number}") for number in range(4000)
    )
    # Two events of one source partition that meet in a partition of the target are in their old order.
    for source in range(4):
        for target in range(4):
            numbers = [
                int(KafkaBinding().decode(each).id[2:])
                for each in out
                if each.partition == target and int(KafkaBinding().decode(each).id[2:]) % 4 == source
            ]
            assert numbers == sorted(numbers)


def test_a_transformed_event_names_its_cause_and_tracing_is_left_alone(
    project: Make, spark: SparkSession
) -> None:
    # Rows 70 (ce_traceparent is the event's, traceparent the hop's) and 87.
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    hop: Headers = (("traceparent", b"00-11111111111111111111111111111111-2222222222222222-00"),)
    one = record(1, traceparent=trace)
    shop = project().create().write({"set": {"subject": "'s'"}})
    shop.produce([KafkaRecord(value=one.value, key=one.key, headers=one.headers + hop)])
    shop.run(spark)
    (out,) = shop.read("out")
    event = KafkaBinding().decode(out)
    assert (event.get("causationid"), event.source, event.subject) == ("e-1", "/s", "s")
    assert event.id != "e-1"
    assert event.get("traceparent") == trace
    assert ("traceparent", hop[0][1]) in out.headers


def test_large_events_go_through_and_larger_ones_are_dead_letters(project: Make, spark: SparkSession) -> None:
    # Row 71: forwarded above 64 KiB; above the broker's limit a dead letter that says so.
    limits = {name: {"max.message.bytes": "3000000"} for name in ("in", "dead")}
    shop = project().create(settings=limits).write({"set": {"subject": "'s'"}})
    sizes = (70_000, 900_000, 1_500_000, 2_900_000)
    sent = [record(number, data=b'"%s"' % (b"x" * size)) for number, size in enumerate(sizes)]
    from confluent_kafka import Producer

    producer = Producer({**shop.server("in").client_options(), "message.max.bytes": "4000000"})
    for each in sent:
        producer.produce(shop.topic("in"), each.value, each.key, headers=list(each.headers))
    assert producer.flush(30) == 0
    shop.run(spark)
    out = shop.read("out")
    assert [KafkaBinding().decode(each).get("causationid") for each in out] == ["e-0", "e-1"]
    letters = [letter_of(each) for each in shop.read("dead")]
    assert [(letter.code, letter.kept) for letter in letters] == [("too-large", True), ("too-large", False)]
    assert letters[0].record.value == sent[2].value
    assert "bytes" in letters[0].reason
    assert (letters[1].record.topic, letters[1].record.offset) == (shop.topic("in"), 3)


def test_expired_events_are_discarded_by_setting_and_counted(project: Make, spark: SparkSession) -> None:
    # Row 88: MAY discard: count, never silently.
    shop = project().create().write({"expired": "discard"})
    shop.produce([record(1, expirytime="2020-01-01T00:00:00Z"), record(2, expirytime="2999-01-01T00:00:00Z")])
    totals = shop.run(spark)
    assert ids(shop.read("out")) == ["e-2"]
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_expired"]) == (2, 1, 1)


def test_targets_and_dead_letters_on_another_cluster(
    project: Make, spark: SparkSession, kafka: Kafka, west: Kafka
) -> None:
    places = {"out": "west", "away": "west"}
    route = {"where": "data.x IS NULL", "delivery": {"deadLetterSink": "away"}}
    shop = project(servers={"kafka": kafka, "west": west}, places=places).create(partitions=2).write(route)
    shop.produce([*map(record, range(100)), record(100, data=b"{"), KafkaRecord(value=b"poison", key=b"p")])
    totals = shop.run(spark)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (102, 100, 2)
    assert Counter(ids(shop.read("out"))) == Counter(f"e-{number}" for number in range(100))
    # What fails before any route stays on its cluster, what fails in the route goes where the route says.
    assert [letter_of(each).record.value for each in shop.read("dead")] == [b"poison"]
    assert [letter_of(each).code for each in shop.read("away")] == ["data-invalid"]
    # A batch with records for one of the clusters only; what was written is not written again.
    shop.produce([record(101)])
    assert shop.run(spark).counts == Counter(n_in=1, n_out=1)
    assert len(shop.read("out")) == 101
    assert len(shop.read("dead")) == len(shop.read("away")) == 1


@pytest.mark.soak
def test_a_condition_of_spark_with_targets_on_another_cluster(
    project: Make, spark: SparkSession, kafka: Kafka, west: Kafka
) -> None:
    places = {"away": "west", "dead": "west"}
    shop = project(servers={"kafka": kafka, "west": west}, places=places).create(partitions=2)
    shop.write({"sql": "type = 't'", "send": ["send", "send-away"]}, **{"exactly-once": "required"})
    shop.produce(
        [*map(record, range(100)), record(100, type="other"), KafkaRecord(value=b"poison", key=b"p")]
    )
    totals = shop.run(spark, max_offsets=30)
    wanted = Counter(n_in=102, n_out=200, n_unmatched=1, n_dead=1)
    assert totals.counts == wanted
    for channel in ("out", "away"):
        assert Counter(ids(shop.read(channel))) == Counter(f"e-{number}" for number in range(100))
    assert [letter_of(each).record.value for each in shop.read("dead")] == [b"poison"]
    # The marks are on both clusters, and what is marked is not written again by another engine.
    assert shop.admin("away").latest(TOPIC)[PARTITION] > 0
    shop.write({"where": "type = 't'", "send": ["send", "send-away"]})
    shop.produce([record(101)])
    assert shop.run(spark).counts == Counter(n_in=1, n_out=2)
    assert (len(shop.read("out")), len(shop.read("away")), len(shop.read("dead"))) == (101, 101, 1)


def letter_of(written: KafkaRecord) -> DeadLetter:
    return read_dead_letter(KafkaBinding().decode(written))


def test_progress_is_committed_to_the_group_of_the_operation(project: Make, spark: SparkSession) -> None:
    shop = project(group={"type": "string", "enum": ["orders", "audit"]}).create(partitions=2).write()
    shop.produce([record(number, partition=number % 2) for number in range(10)])
    shop.run(spark, group="audit")
    assert shop.admin().committed("audit", shop.topic("in")) == {0: 5, 1: 5}


def test_a_topic_that_was_made_again_is_refused(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    shop.produce([record(1)])
    shop.run(spark)
    shop.admin().delete_topic(shop.topic("in"))
    recreate(shop)
    shop.produce([record(2)])
    with pytest.raises(CheckpointMismatch, match="something else") as caught:
        shop.run(spark)
    assert "deleted and made again" in (caught.value.why or "")
    shop.run(spark, fresh_checkpoint=True)
    assert ids(shop.read("out")) == ["e-1", "e-2"]
    assert len(list(shop.folder.glob(".penstock/checkpoints/*.old-1"))) == 1


def recreate(shop: Any) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            return shop.admin().create_topic(shop.topic("in"), partitions=1, replicas=1, settings={})
        except ClusterError:  # the old one may still be there for a moment
            assert time.monotonic() < end


def trim(shop: Any, before: int) -> None:
    admin = AdminClient(shop.server("in").client_options())
    place = TopicPartition(shop.topic("in"), 0, before)
    for done in admin.delete_records([place]).values():
        done.result(30)


def test_records_that_are_gone_stop_the_job_or_are_counted(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(10)))
    shop.run(spark)
    shop.produce(map(record, range(10, 30)))
    trim(shop, 17)
    with pytest.raises(JobFailed, match="7 records"):
        shop.run(spark)
    totals = shop.run(spark, on_data_loss="continue")
    assert (totals.lost, totals.counts["n_in"]) == (7, 13)
    assert ids(shop.read("out")) == [f"e-{n}" for n in (*range(10), *range(17, 30))]


def test_a_job_ends_when_nothing_comes_any_more(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(10)))
    began = time.monotonic()
    totals = shop.run(spark, once=False, until_idle=2.0)
    assert time.monotonic() - began >= 2.0
    assert (totals.counts["n_out"], totals.lag) == (10, 0)


class OnBatch(Watcher):
    """Calls something after each batch."""

    def __init__(self, call: Callable[[Progress], None]) -> None:
        self.call = call

    def batch(self, progress: Progress) -> None:
        self.call(progress)


@pytest.mark.soak
def test_a_job_that_is_asked_to_end_finishes_its_batch(project: Make, spark: SparkSession) -> None:
    # A record takes 20 ms, so a batch is on its way when the job is asked to end.
    slow = "coalesce(reflect('java.lang.Thread', 'sleep', 20L), '') <> 'never'"
    shop = project().create().write({"sql": slow})
    shop.produce(map(record, range(300)))
    with Job(shop.pipeline(), JobOptions(max_offsets=100)) as job:
        job.prepare()
        job.watch(OnBatch(lambda progress: job.stop()))
        job.run(spark)
        (totals,) = job.totals.values()
    assert 0 < totals.counts["n_in"] < 300
    # Every batch that was begun was written and committed: a second run repeats nothing.
    shop.run(spark)
    assert ids(shop.read("out")) == [f"e-{number}" for number in range(300)]


def test_two_jobs_cannot_share_a_checkpoint(project: Make) -> None:
    shop = project().create().write()
    with Job(shop.pipeline(), JobOptions()), pytest.raises(Refused, match="another job"):
        Job(shop.pipeline(), JobOptions()).__enter__()


def test_the_job_stops_if_dead_letters_cannot_be_written(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    shop.produce([record(1)])

    def spoil(progress: Progress) -> None:
        # With 10 bytes a transaction could not be ended either: presumably its marker does not fit.
        shop.admin().change_settings(shop.topic("dead"), {"max.message.bytes": "100"})
        shop.produce([KafkaRecord(value=b"poison"), record(2)])

    with Job(shop.pipeline(), JobOptions()) as job, pytest.raises(JobFailed, match="too large"):
        job.prepare()
        job.watch(OnBatch(spoil))
        job.run(spark)
    # Nothing is lost: when the topic takes letters again, the next run goes on with the same batch.
    shop.admin().change_settings(shop.topic("dead"), {"max.message.bytes": "1000000"})
    shop.run(spark)
    assert len(shop.read("dead")) == 1
    assert set(ids(shop.read("out"))) == {"e-1", "e-2"}


def test_a_topic_that_is_not_there_is_told_before_anything_runs(project: Make) -> None:
    shop = project().write()
    with Job(shop.pipeline(), JobOptions()) as job, pytest.raises(PipelineError, match="has no topic"):
        job.prepare()


# Exactly once between clusters


def poisoned(numbers: Iterable[int]) -> Iterator[KafkaRecord]:
    """Events, and behind every hundredth a record that is none."""
    for number in numbers:
        yield record(number)
        if number % 100 == 0:
            yield KafkaRecord(value=b"poison-%d" % number)


def assert_once(shop: Any, channels: Iterable[str], events: int) -> None:
    for channel in channels:
        assert Counter(ids(shop.read(channel))) == Counter(f"e-{number}" for number in range(events))
    letters = Counter(letter_of(each).record.value for each in shop.read("dead"))
    assert letters == Counter(b"poison-%d" % number for number in range(0, events, 100))


TOPOLOGIES = {
    "across": ({"out": "west"}, ["send"], ["out"]),
    "fan-out": ({"away": "west"}, ["send", "send-away"], ["out", "away"]),
}
"""Places of channels, what the route sends by, and the channels with all events; letters are on kafka."""


def killed_loops(shop: Any, rounds: int, each: int = 3000) -> int:
    """Kill a loop in the middle of its work, so many times; give how many events there are."""
    moments = random.Random(rounds)
    for number in range(rounds):
        shop.produce(poisoned(range(number * each, (number + 1) * each)))
        running = shop.spawn("run", "--engine", "loop")
        running.until(r"batch \d+ ")
        threading.Event().wait(moments.random() * 0.3)
        running.process.kill()
        running.ended()
    last = shop.spawn("run", "--engine", "loop", "--once", "-o", "json")
    assert last.ended() == 0, last.told()
    return rounds * each


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_loops_between_clusters_that_are_killed_write_nothing_twice(
    project: Make, kafka: Kafka, west: Kafka, topology: str
) -> None:
    places, send, channels = TOPOLOGIES[topology]
    shop = project(servers={"kafka": kafka, "west": west}, places=places).create(partitions=2)
    shop.write({"send": send}, **{"exactly-once": "required"})
    assert_once(shop, channels, killed_loops(shop, 2))
    # The marks are on the other cluster, in a topic that was made at the first start.
    admin = shop.admin(next(iter(places)))
    assert admin.settings([TOPIC])[TOPIC]["cleanup.policy"].value == "compact"
    assert admin.latest(TOPIC)[PARTITION] > 0


@pytest.mark.soak
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_loops_between_clusters_that_are_killed_often_write_nothing_twice(
    project: Make, kafka: Kafka, west: Kafka, topology: str
) -> None:
    places, send, channels = TOPOLOGIES[topology]
    shop = project(servers={"kafka": kafka, "west": west}, places=places).create(partitions=2)
    shop.write({"send": send})
    assert_once(shop, channels, killed_loops(shop, 50, each=1000))


@pytest.mark.soak
@pytest.mark.parametrize("condition", [{}, {"sql": "type = 't'"}], ids=["bytes", "condition"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_jobs_between_clusters_that_are_killed_write_nothing_twice(
    project: Make, kafka: Kafka, west: Kafka, topology: str, condition: dict[str, str]
) -> None:
    places, send, channels = TOPOLOGIES[topology]
    shop = project(servers={"kafka": kafka, "west": west}, places=places).create(partitions=2)
    shop.write({"send": send, **condition}, **{"exactly-once": "required"})
    events, moments = 20_000, random.Random(3)
    shop.produce(poisoned(range(events)))
    for _ in range(3):
        running = shop.spawn("run", "--max-offsets", "500")
        running.until(r"batch \d+ ", times=2)
        threading.Event().wait(moments.random() * 0.5)
        driver = psutil.Process(running.process.pid)
        family = [driver, *driver.children(recursive=True)]
        for each in family[: 1 if moments.random() < 0.5 else None]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        running.ended()
    last = shop.spawn("run", "--once", "-o", "json")
    assert last.ended() == 0, last.told()
    assert_once(shop, channels, events)
