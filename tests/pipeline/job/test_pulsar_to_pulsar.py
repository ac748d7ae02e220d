"""Pulsar to Pulsar in the delivery: exactly once, on Spark and in the loop, without Kafka and gateway."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pulsar_project import wait_until
from pulsar_to_pulsar import PulsarToPulsar
from pulsar_transactions import COMMIT, Transactions
from to_pulsar import ask

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import CheckpointMismatch, JobFailed, PipelineError, Refused
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.delivery import range_clock
from penstock.pipeline.delivery.progress_sinks import ProgressSink
from penstock.pipeline.delivery.pulsar import progress as pulsar_progress
from penstock.pipeline.delivery.pulsar.progress import PulsarProgressSink
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.job import JobOptions, job_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
Make = Callable[..., PulsarToPulsar]


@pytest.fixture
def shop(tmp_path: Path, pulsar: Pulsar) -> Iterator[Make]:
    made: list[PulsarToPulsar] = []

    def make(**more: Any) -> PulsarToPulsar:
        made.append(PulsarToPulsar(**{"folder": tmp_path, "servers": {}, "pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_loop_writes_each_event_once(shop: Make, partitions: int) -> None:
    project = shop().create(partitions).write(**{"exactly-once": "required"})
    project.send(range(3000))
    totals = project.run(None, engine="loop")
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (3030, 3000, 30)
    assert totals.counts["n_slow"] == 30, "the kernel decides about all events"
    assert project.run(None, engine="loop").counts["n_in"] == 0
    project.send(range(3000, 3500))
    assert project.run(None, engine="loop").counts["n_in"] == 505
    project.assert_every_event_is_there_once(3500, dead="pdead")


@pytest.mark.slow
def test_spark_writes_each_event_once(shop: Make, spark: SparkSession) -> None:
    project = shop().create(2).write(**{"exactly-once": "required"})
    project.send(range(5000))
    totals = project.run(spark, max_offsets=2000)
    assert totals.counts["n_out"] == 5000
    assert totals.batches == 3
    project.send(range(5000, 5100))
    assert project.run(spark).counts["n_in"] == 101
    assert project.run(spark).counts["n_in"] == 0
    project.assert_every_event_is_there_once(5100, dead="pdead")


@contextmanager
def crash_before_a_mark(number: int = 1) -> Iterator[None]:
    """Let a job end when Pulsar has acknowledged everything and its mark is not written."""
    usual, commits = PulsarProgressSink.commit, count()

    def commit(self: PulsarProgressSink, marks: Mapping[int, RangeProgress]) -> None:
        if next(commits) >= number:  # the first one says where it begins
            raise JobFailed("crash")
        usual(self, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PulsarProgressSink, "commit", commit)
        with pytest.raises(JobFailed, match="crash"):
            yield


def test_what_is_stored_and_not_marked_is_not_written_again(shop: Make) -> None:
    """Also if the target has more partitions by then."""
    project = shop().create(2).write()
    project.send(range(1500))
    with crash_before_a_mark():
        project.run(None, engine="loop")
    project.assert_every_event_is_there_once(1500, dead="pdead")
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 5)
    project.run(None, engine="loop")
    project.assert_every_event_is_there_once(1500, dead="pdead")
    assert not any(project.messages("pout")[part] for part in (2, 3, 4))
    project.send(range(1500, 2000))
    project.run(None, engine="loop")
    project.assert_every_event_is_there_once(2000, dead="pdead", is_divided_anew=True)
    assert any(project.messages("pout")[part] for part in (2, 3, 4)), "partitions were not taken over"


def test_at_least_once_goes_on_at_its_marks(shop: Make) -> None:
    project = shop().create(2).write()
    for numbers in (range(100), range(100, 150), range(0)):
        project.send(numbers, poison=0)
        totals = project.run(None, engine="loop", exactly_once=False)
        assert totals.counts["n_in"] == len(numbers)
    assert Counter(event.id for _, _, event in project.events("pout")) == expected(150)


def expected(events: int) -> Counter[str]:
    return Counter(f"e-{number}" for number in range(events))


def test_a_topic_that_does_not_deduplicate_is_refused_before_anything_runs(shop: Make) -> None:
    project = shop().create(2).write()
    path = f"{project.path('pout')}/deduplicationEnabled"
    ask(project.pulsar, "POST", path, False)
    wait_until(lambda: ask(project.pulsar, "GET", f"{path}?applied=true") is False)
    project.send(range(1))
    with pytest.raises(Refused, match="does not deduplicate"):
        project.run(None, engine="loop")
    assert not any(project.messages("pout").values())


def test_marks_that_were_deleted_are_noticed(shop: Make) -> None:
    """Without them everything would be written again."""
    project = shop().create(2).write()
    before = {*project.progress_topics()}
    project.send(range(100), poison=0)
    assert project.run(None, engine="loop").counts["n_in"] == 100
    own = [each for each in project.progress_topics() if each not in before]
    assert len(own) == 3, "one for each partition, one for what the routes are made of"
    with project.source() as side:
        wait_until(lambda: side.backlog(f"penstock.t.pulsar-public~default~{project.prefix}.in") == 0)
    for topic in own:
        ask(project.pulsar, "DELETE", f"{topic.replace('://', '/')}?force=true")
    with pytest.raises(CheckpointMismatch) as caught:
        project.run(None, engine="loop")
    assert "its marks are gone" in str(caught.value.why)
    assert project.run(None, engine="loop", fresh_checkpoint=True).counts["n_in"] == 100


@pytest.mark.soak  # from Kafka it is part of every run
def test_a_moment_is_kept_for_what_pulsar_has_got(shop: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the second run no event would pass the condition any more; some have, and no mark says so."""
    begun = time.time_ns() // 1000
    where = f"now() < '{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(begun / 1e6 + 3600))}'"
    project = shop().create(2).write({"where": where, "send": "send-pout"}, **{"exactly-once": "required"})
    project.send(range(500), poison=0)
    with crash_before_a_mark(2):  # the second one fixes the moment
        project.run(None, engine="loop")
    stored = Counter(event.id for _, _, event in project.events("pout"))
    assert stored
    later = begun + 7200 * 1_000_000

    class Later:
        time_ns = staticmethod(lambda: later * 1000)

    monkeypatch.setattr(range_clock, "time", Later)
    project.run(None, engine="loop")
    assert Counter(event.id for _, _, event in project.events("pout")) == expected(500)
    project.send(range(500, 600), poison=0)
    assert project.run(None, engine="loop").counts["n_unmatched"] == 100, "what came later has its own moment"


# Beside Kafka


def test_a_loop_writes_kafka_and_pulsar_once_each(shop: Make, kafka: Kafka) -> None:
    """The marks are in the transactions of Kafka; what Pulsar has got before a crash is not repeated."""
    route = {"send": ["send-pout", "send"]}
    project = shop(servers={"kafka": kafka}).create(2).write(route, **{"exactly-once": "required"})
    known = project.progress_topics()
    project.send(range(1500))
    usual, commits = ProgressSink.commit, count()

    def commit(self: ProgressSink, marks: Mapping[int, RangeProgress]) -> None:
        if next(commits):
            raise JobFailed("crash")
        usual(self, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressSink, "commit", commit)
        with pytest.raises(JobFailed, match="crash"):
            project.run(None, engine="loop")
    assert any(project.messages("pout").values())
    assert not project.read("out"), "the transaction was not committed"
    project.run(None, engine="loop")
    project.send(range(1500, 2000))
    project.run(None, engine="loop")
    assert project.run(None, engine="loop").counts["n_in"] == 0
    project.assert_every_event_is_there_once(2000, dead="pdead")
    assert Counter(KafkaBinding().decode(each).id for each in project.read("out")) == expected(2000)
    assert project.progress_topics() == known, "marks are on Kafka"


# Other Pulsars


@pytest.mark.soak
def test_batches_of_transactions_have_an_id_for_each_record(shop: Make) -> None:
    """All records of such a batch have one index; a crash repeats none of them."""
    with Pulsar(durable=False, transactions=True) as broker:
        project = shop(pulsar=broker).create(0).write({"dialects": ["sniffed"]})
        writer = Transactions(broker.service_url)
        try:
            for first in range(0, 60, 20):
                transaction = writer.begin(project.topic("in"))
                numbers = range(first, first + 20)
                payloads = [
                    b'{"specversion":"1.0","id":"e-%d","source":"/s","type":"t"}' % number
                    for number in numbers
                ]
                writer.send(project.topic("in"), *payloads, txn=transaction)
                writer.end(transaction, COMMIT)
        finally:
            writer.close()
        with crash_before_a_mark():
            project.run(None, engine="loop")
        assert project.run(None, engine="loop").counts["n_in"] == 60
        assert Counter(event.id for _, _, event in project.events("pout")) == expected(60)


@pytest.mark.soak
def test_without_an_index_it_is_at_least_once_and_says_so(shop: Make) -> None:
    with Pulsar(durable=False, settings={"brokerEntryMetadataInterceptors": ""}) as plain:
        project = shop(pulsar=plain).create(2).write()
        project.send(range(1000), poison=0)
        with job_of(project.pipeline(), JobOptions(once=True, engine="loop")) as job:
            job.prepare()
            assert job.plan[0].guarantee.startswith("at least once on pulsar")
            assert "keeps no index" in job.plan[0].guarantee
            job.run(None)
        assert project.run(None, engine="loop").counts["n_in"] == 0
        assert Counter(event.id for _, _, event in project.events("pout")) == expected(1000)
        project.write(**{"exactly-once": "required"})
        with pytest.raises(PipelineError, match="requires exactly once"):
            project.run(None, engine="loop")


@pytest.mark.soak
def test_a_broker_that_makes_no_topics_gets_them_from_the_job(shop: Make) -> None:
    settings = {"allowAutoTopicCreation": "false"}
    with Pulsar(durable=False, settings=settings) as strict:
        project = shop(pulsar=strict).create(2).write()
        project.send(range(300))
        project.run(None, engine="loop")
        project.assert_every_event_is_there_once(300, dead="pdead")
        assert len(project.progress_topics()) == 3, (
            "one for each partition, one for what the routes are made of"
        )
        assert pulsar_progress.SUBSCRIPTION == "penstock"
