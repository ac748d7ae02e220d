"""Conditions in Spark's own SQL with Pulsar on either side, on real servers: exactly once, no gateway."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from directed import ROUNDS, assert_kafka_has_each_once, assert_letters, everybody, the_driver
from job_project import Project
from pulsar_project import PulsarSide, event, ids_of, on_pulsar, wait_until
from pulsar_to_pulsar import PulsarToPulsar
from pulsar_transactions import ABORT, COMMIT, Transactions
from to_pulsar import ToPulsar, ask, events_with_poison

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import JobFailed
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.delivery.pulsar.cluster import PulsarSettings
from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
from penstock.pipeline.job import JobOptions, job_of
from penstock.wire.pulsar.pulsar_pb2 import EncryptionKeys, KeyValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., Any]
ALL = "data:n::int >= 0"
_PATIENCE = 900.0
"""Seconds for two starts of Spark on a machine that has much else to do."""


@pytest.fixture
def to_pulsar(tmp_path: Path, kafka: Kafka, pulsar: Pulsar) -> Iterator[Make]:
    made: list[ToPulsar] = []

    def make(**more: Any) -> ToPulsar:
        made.append(ToPulsar(folder=tmp_path, servers={"kafka": kafka}, **{"pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


def finished(project: Any, *words: str) -> Any:
    last = project.spawn("run", "--once", "-o", "json", *words)
    assert last.ended(_PATIENCE) == 0, last.told()
    return last


def ids(records: Iterable[Any]) -> Counter[str]:
    return Counter(KafkaBinding().decode(each).id for each in records)


def expected(events: int) -> Counter[str]:
    return Counter(f"e-{number}" for number in range(events))


def forget_the_last_batch(folder: Path) -> None:
    """Do as if the driver had ended before Spark noted the end of its last batch: it is run again."""
    (commits,) = (folder / ".penstock" / "checkpoints").glob("*/commits")
    newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    commits.joinpath(f".{newest.name}.crc").unlink()


# Kafka to Pulsar


def test_events_are_written_to_pulsar_and_kafka_once(to_pulsar: Make, spark: SparkSession) -> None:
    """Also if a batch is run again that was written, and if the target has more partitions by then."""
    project = to_pulsar().create(partitions=2)
    project.write({"sql": ALL, "send": ["send-pout", "send"]}, dead="pdead", **{"exactly-once": "required"})
    project.produce(events_with_poison(1000))
    totals = project.run(spark, max_offsets=600)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (1010, 2000, 10)
    forget_the_last_batch(project.folder)
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 4)
    again = project.run(spark)
    assert 0 < again.counts["n_in"] < 1010  # it counts what it has counted, and writes nothing
    project.assert_every_event_is_there_once(1000, dead="pdead")
    assert not any(project.messages("pout")[part] for part in (2, 3))
    project.produce(events_with_poison(500, first=1000))
    project.run(spark)
    project.assert_every_event_is_there_once(1500, dead="pdead", is_divided_anew=True)
    assert all(project.messages("pout")[part] for part in (2, 3)), "partitions were not taken over"
    assert ids(project.read("out")) == expected(1500)


def test_drivers_that_are_killed_write_nothing_twice_to_pulsar(to_pulsar: Make) -> None:
    kill_jobs_to_pulsar(to_pulsar(), events=3000, rounds=1)


@pytest.mark.soak
def test_drivers_that_are_killed_over_and_over_write_nothing_twice_to_pulsar(to_pulsar: Make) -> None:
    rounds = max(2, ROUNDS // 6)
    kill_jobs_to_pulsar(to_pulsar(), events=5000 * rounds, rounds=rounds)


def kill_jobs_to_pulsar(project: ToPulsar, *, events: int, rounds: int) -> None:
    project.create(partitions=2)
    project.write({"sql": ALL, "send": ["send-pout", "send"]}, dead="pdead", **{"exactly-once": "required"})
    project.produce(events_with_poison(events))
    moments = random.Random(rounds)
    for number in range(rounds):
        running = project.spawn("run", "--max-offsets", str(500 + 70 * (number % 4)))
        running.until(r"batch \d+ ", times=2, seconds=_PATIENCE)
        threading.Event().wait(moments.random() * 0.5)
        (the_driver if number % 2 else everybody)(running)
    finished(project)
    project.assert_every_event_is_there_once(events, dead="pdead")
    assert_kafka_has_each_once(project, events)


@pytest.mark.soak
def test_what_may_be_answered_otherwise_is_at_least_once_on_pulsar_and_says_so(
    to_pulsar: Make, spark: SparkSession
) -> None:
    project = to_pulsar().create().write({"sql": f"{ALL} OR rand() < 0.5"})
    project.produce(events_with_poison(100))
    with job_of(project.pipeline(), JobOptions(once=True)) as job:
        job.prepare()
        (planned,) = job.plan
        assert (planned.engine, planned.evaluator) == ("spark", "reference")
        assert planned.guarantee.startswith("at least once on pulsar")
        assert "rand may give another answer" in planned.guarantee
        job.run(spark)
    project.assert_every_event_is_there_once(100)


DOUBLE = """
from penstock.events import Emit

def double(batch):
    return [Emit(event, event) for event in batch]
"""


def test_a_function_beside_a_condition_of_spark_writes_to_both_clusters_once(
    to_pulsar: Make, spark: SparkSession
) -> None:
    project = to_pulsar().create(partitions=2)
    call = {"function": "mine:double", "deterministic": True}
    project.write(
        {"sql": "data:n::int % 2 = 0", "apply": call, "send": ["send-pout", "send"]},
        dead="pdead",
        **{"exactly-once": "required"},
    )
    (project.folder / "mine.py").write_text(DOUBLE, encoding="utf-8")
    project.produce(events_with_poison(300))
    totals = project.run(spark)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (303, 600, 3)
    forget_the_last_batch(project.folder)
    project.run(spark)
    on_kafka = ids(project.read("out"))
    assert Counter(each.id for _, _, each in project.events("pout")) == on_kafka
    causes = Counter(each.get("causationid") or each.id for _, _, each in project.events("pout"))
    assert causes == Counter({f"e-{number}": 2 for number in range(0, 300, 2)})


@pytest.mark.soak
@pytest.mark.parametrize("dead", ["dead", "pdead"])
def test_what_pulsar_does_not_take_is_a_dead_letter(to_pulsar: Make, spark: SparkSession, dead: str) -> None:
    project = to_pulsar().create(targets=1).write({"sql": "id is not null"}, dead=dead)
    path = f"{project.path('pout')}/maxMessageSize"
    ask(project.pulsar, "POST", path, 10_000)
    wait_until(lambda: ask(project.pulsar, "GET", f"{path}?applied=true") == 10_000)
    given = [KafkaBinding().encode(event(number), key=b"k") for number in range(4)]
    grows = KafkaBinding().encode(event(4), key=b"\xff" * 6000)
    given[2] = KafkaBinding().encode(event(2, pad="x" * 12_000), key=b"k")
    project.produce([*given, replace(grows, value=b"y" * 3000), *given[:1]])
    totals = project.run(spark)
    assert (totals.counts["n_out"], totals.counts["n_dead"]) == (4, 2)
    assert [each.id for _, _, each in project.events("pout")] == ["e-0", "e-1", "e-3", "e-0"]
    codes = Counter(letter.code for letter in map(read_dead_letter, project.letters(dead)))
    assert codes == {"too-large": 2}


# Pulsar to Kafka


@pytest.fixture
def shop(project: Make) -> Project:
    made: Project = project()
    return made


@pytest.fixture
def side_of(shop: Project, pulsar: Pulsar) -> Iterator[Callable[..., PulsarSide]]:
    made: list[PulsarSide] = []

    def make(broker: Pulsar = pulsar, **more: Any) -> PulsarSide:
        made.append(on_pulsar(shop, broker, **more).create())
        return made[-1]

    yield make
    for side in made:
        side.close()


def letters(shop: Project) -> list[Any]:
    return [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]


def test_events_on_pulsar_are_chosen_and_everything_is_accounted_for(
    shop: Project, side_of: Make, spark: SparkSession
) -> None:
    side = side_of(partitions=2, route={"sql": "data:n::int % 2 = 0"}, **{"exactly-once": "required"})
    side.send(range(1000), poison=100)
    side.send(range(1000, 1100), profile=Profile.V0_1)
    encrypted(side)
    totals = shop.run(spark, max_offsets=500)
    counts = totals.counts
    assert (counts["n_in"], counts["n_out"], counts["n_unmatched"], counts["n_dead"]) == (1111, 550, 550, 11)
    assert (totals.batches, totals.lost) == (3, 0)
    found = [KafkaBinding().decode(each) for each in shop.read("out")]
    assert Counter(each.id for each in found) == Counter(f"e-{n}" for n in range(0, 1100, 2))
    assert Counter(letter.code for letter in letters(shop)) == {"not-a-cloudevent": 10, "encrypted-entry": 1}
    (subscription,) = side.rest("/partitioned-stats")["subscriptions"]
    wait_until(lambda: side.backlog(subscription) == 0)
    # A batch that is run again counts what it has counted and writes nothing; so does the next job.
    forget_the_last_batch(shop.folder)
    side.send(range(1100, 1110))
    again = shop.run(spark)
    assert again.batches == 2
    assert shop.run(spark).counts["n_in"] == 0
    assert Counter(ids_of(shop.read("out"))) == Counter(f"e-{n}" for n in range(0, 1110, 2))
    assert len(shop.read("dead")) == 11


def encrypted(side: PulsarSide) -> None:
    """Write a message that has the properties of an event, and bytes that nobody here can read."""
    writer = Transactions(side.broker.service_url, has_coordinator=False)
    own = [KeyValue(key=f"ce_{name}", value="1.0") for name in ("id", "specversion", "source", "type")]
    keys = [EncryptionKeys(key="own", value=b"v")]
    where = f"{side.topic}-partition-0" if side.partitions else side.topic
    writer.send(where, b"x7", encryption_keys=keys, encryption_algo="AES", properties=own)
    writer.close()


@pytest.mark.soak  # in CI: from Pulsar to Pulsar, and from Kafka to Pulsar
def test_jobs_on_pulsar_that_are_killed_write_nothing_twice(shop: Project, side_of: Make) -> None:
    side = side_of(partitions=2, route={"sql": ALL}, **{"exactly-once": "required"})
    kill_jobs_on_pulsar(shop, side, events=3000, rounds=1)


@pytest.mark.soak
def test_jobs_on_pulsar_that_are_killed_over_and_over_write_nothing_twice(
    shop: Project, side_of: Make
) -> None:
    side, rounds = side_of(partitions=3, route={"sql": ALL}), max(2, ROUNDS // 6)
    kill_jobs_on_pulsar(shop, side, events=4000 * rounds, rounds=rounds)


def kill_jobs_on_pulsar(shop: Project, side: PulsarSide, *, events: int, rounds: int) -> None:
    side.send(range(events), poison=100)
    moments = random.Random(rounds)
    for number in range(rounds):
        running = shop.spawn("run", "--max-offsets", str(400 + 70 * (number % 4)))
        running.until(r"batch \d+ ", times=2, seconds=_PATIENCE)
        threading.Event().wait(moments.random() * 0.5)
        (the_driver if number % 2 else everybody)(running)
    finished(shop)
    assert_kafka_has_each_once(shop, events)
    assert_letters(shop, events)


@pytest.mark.soak
def test_at_least_once_a_job_on_pulsar_goes_on_at_its_checkpoint(
    shop: Project, side_of: Make, spark: SparkSession
) -> None:
    side = side_of(route={"sql": ALL})
    for numbers in (range(100), range(100, 150)):
        side.send(numbers)
        assert shop.run(spark, exactly_once=False).counts["n_in"] == len(numbers)
    assert Counter(ids_of(shop.read("out"))) == expected(150)


@pytest.mark.soak
def test_messages_of_transactions_share_an_offset_and_all_are_written_once(
    shop: Project, side_of: Make, spark: SparkSession
) -> None:
    route = {"sql": "type = 't'", "dialects": ["sniffed"], "apply": "mine:double"}
    (shop.folder / "mine.py").write_text(DOUBLE, encoding="utf-8")
    with Pulsar(durable=False, transactions=True) as broker:
        side = side_of(broker, route=route)
        writer = Transactions(broker.service_url)
        try:
            aborted, taken = writer.begin(side.topic), writer.begin(side.topic)
            side.send(range(2))
            writer.send(side.topic, *in_transaction(range(100, 103)), txn=aborted)
            writer.end(aborted, ABORT)
            writer.send(side.topic, *in_transaction(range(2, 60)), txn=taken)
            writer.end(taken, COMMIT)
            side.send(range(60, 62))
            counts = shop.run(spark).counts
        finally:
            writer.close()
            side.close()
    assert (counts["n_in"], counts["n_out"]) == (62, 124)
    found = [KafkaBinding().decode(each) for each in shop.read("out")]
    causes = Counter(each.get("causationid") or each.id for each in found)
    assert causes == Counter({f"e-{number}": 2 for number in range(62)})


def in_transaction(numbers: Iterable[int]) -> list[bytes]:
    """Events without any property, which a route with the dialect `sniffed` reads."""
    return [b'{"specversion":"1.0","id":"e-%d","source":"/s","type":"t"}' % number for number in numbers]


@pytest.mark.soak
def test_what_was_removed_before_it_was_read_stops_the_job_or_is_counted(
    shop: Project, side_of: Make, spark: SparkSession
) -> None:
    settings = {
        "brokerDeduplicationEnabled": "false",  # its cursor keeps ledgers
        "defaultRetentionTimeInMinutes": "0",
        "defaultRetentionSizeInMB": "0",
    }
    with Pulsar(durable=False, settings=settings) as broker:
        side = side_of(broker, route={"sql": ALL})
        side.send(range(10))
        assert shop.run(spark).counts["n_in"] == 10
        side.send(range(10, 20))
        side.rest("/unload", "PUT")
        side.send(range(20, 25))
        (subscription,) = side.rest("/stats")["subscriptions"]
        with offsets_of(side) as client:  # an operator skips a part of the backlog
            client.commit(subscription, side.topic, {0: 20})
            wait_until(lambda: side.rest("/unload", "PUT") or client.earliest(side.topic)[0] == 20)
        with pytest.raises(JobFailed, match="10 records .* were deleted before they were read"):
            shop.run(spark)
        totals = shop.run(spark, on_data_loss="continue")
        side.close()
    assert (totals.counts["n_in"], totals.lost) == (5, 10)
    numbers = (*range(10), *range(20, 25))
    assert Counter(ids_of(shop.read("out"))) == Counter(f"e-{number}" for number in numbers)


def offsets_of(side: PulsarSide) -> PulsarOffsets:
    return PulsarOffsets(PulsarSettings(service_url=side.broker.service_url, admin_url=side.broker.admin_url))


# Pulsar to Pulsar


@pytest.fixture
def within(tmp_path: Path, pulsar: Pulsar) -> Iterator[Make]:
    made: list[PulsarToPulsar] = []

    def make(**more: Any) -> PulsarToPulsar:
        made.append(PulsarToPulsar(**{"folder": tmp_path, "servers": {}, "pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


def test_jobs_within_pulsar_that_are_killed_write_nothing_twice(within: Make) -> None:
    kill_jobs_within_pulsar(within().create(2), events=3000, rounds=1)


@pytest.mark.soak
def test_jobs_within_pulsar_that_are_killed_over_and_over_write_nothing_twice(within: Make) -> None:
    rounds = max(2, ROUNDS // 6)
    kill_jobs_within_pulsar(within().create(3, targets=3), events=4000 * rounds, rounds=rounds)


def kill_jobs_within_pulsar(project: PulsarToPulsar, *, events: int, rounds: int) -> None:
    project.write({"sql": ALL}, **{"exactly-once": "required"})
    project.send(range(events))
    moments = random.Random(rounds)
    for number in range(rounds):
        running = project.spawn("run", "--max-offsets", str(400 + 70 * (number % 4)))
        running.until(r"batch \d+ ", times=2, seconds=_PATIENCE)
        threading.Event().wait(moments.random() * 0.5)
        (the_driver if number % 2 else everybody)(running)
    finished(project)
    project.assert_every_event_is_there_once(events, dead="pdead")
    assert len(project.progress_topics()) >= project.source_partitions


@pytest.mark.soak
def test_a_batch_within_pulsar_that_is_run_again_writes_nothing(within: Make, spark: SparkSession) -> None:
    """Also if the target has more partitions by then; those are taken over behind it."""
    project = within().create(2).write({"sql": ALL}, **{"exactly-once": "required"})
    project.send(range(1000))
    totals = project.run(spark, max_offsets=600)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (1010, 1000, 10)
    forget_the_last_batch(project.folder)
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 4)
    again = project.run(spark)
    assert 0 < again.counts["n_in"] < 1010  # it counts what it has counted, and writes nothing
    project.assert_every_event_is_there_once(1000, dead="pdead")
    assert not any(project.messages("pout")[part] for part in (2, 3))
    project.send(range(1000, 1500))
    project.run(spark)
    project.assert_every_event_is_there_once(1500, dead="pdead", is_divided_anew=True)
    assert all(project.messages("pout")[part] for part in (2, 3)), "partitions were not taken over"


@pytest.mark.soak
def test_a_condition_within_pulsar_writes_kafka_and_pulsar_once(
    within: Make, kafka: Kafka, spark: SparkSession
) -> None:
    project = within(servers={"kafka": kafka}).create(2)
    project.write({"sql": ALL, "send": ["send-pout", "send"]}, **{"exactly-once": "required"})
    project.send(range(1000))
    assert project.run(spark, max_offsets=600).counts["n_out"] == 2000
    forget_the_last_batch(project.folder)
    project.run(spark)
    project.assert_every_event_is_there_once(1000, dead="pdead")
    assert ids(project.read("out")) == expected(1000)


@pytest.mark.soak
@pytest.mark.parametrize("sql", [ALL, f"{ALL} OR rand() < 0.5"])
def test_at_least_once_a_job_within_pulsar_goes_on_at_its_checkpoint(
    within: Make, spark: SparkSession, sql: str
) -> None:
    project = within().create(2).write({"sql": sql})
    for numbers in (range(100), range(100, 150)):
        project.send(numbers, poison=0)
        assert project.run(spark, exactly_once="rand" in sql).counts["n_in"] == len(numbers)
    found = Counter(event.id for _, _, event in project.events("pout"))
    assert found == expected(150)


@pytest.mark.soak
def test_messages_of_transactions_within_pulsar_share_an_offset_and_all_are_written_once(
    within: Make, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "mine.py").write_text(DOUBLE, encoding="utf-8")
    with Pulsar(durable=False, transactions=True) as broker:
        project = within(pulsar=broker).create(0, targets=1)
        call = {"function": "mine:double", "deterministic": True}
        project.write({"sql": "type = 't'", "dialects": ["sniffed"], "apply": call})
        writer = Transactions(broker.service_url)
        try:
            taken = writer.begin(project.topic("in"))
            writer.send(project.topic("in"), *in_transaction(range(58)), txn=taken)
            writer.end(taken, COMMIT)
            counts = project.run(spark).counts
        finally:
            writer.close()
        forget_the_last_batch(project.folder)
        project.run(spark)
        found = [event for _, _, event in project.events("pout")]
    assert (counts["n_in"], counts["n_out"]) == (58, 116)
    causes = Counter(each.get("causationid") or each.id for each in found)
    assert causes == Counter({f"e-{number}": 2 for number in range(58)})
