"""Pulsar as a source of the delivery: from a real Pulsar to a real Kafka, exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pulsar as pulsar_client
import pytest
from directed import assert_kafka_has_each_once, assert_letters
from pulsar_project import PulsarSide, ids_of, on_pulsar, wait_until
from pulsar_rows import batch_of
from pulsar_transactions import ABORT, COMMIT, Transactions

from penstock.embedded.pulsar import Pulsar
from penstock.errors import CheckpointMismatch, JobFailed
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.delivery import loop_run
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkSource
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.pipeline.job import JobOptions, job_of
from penstock.wire.pulsar.pulsar_pb2 import EncryptionKeys, KeyValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Pulsar]:
    """A Pulsar with transactions, that removes what was acknowledged as soon as a ledger is closed."""
    settings = {
        "brokerDeduplicationEnabled": "false",  # its cursor keeps ledgers
        "defaultRetentionTimeInMinutes": "0",
        "defaultRetentionSizeInMB": "0",
    }
    with Pulsar(durable=False, transactions=True, settings=settings) as started:
        yield started


@pytest.fixture
def shop(project: Make) -> Any:
    return project()


@pytest.fixture
def side_of(shop: Any, broker: Pulsar) -> Iterator[Callable[..., PulsarSide]]:
    made: list[PulsarSide] = []

    def make(**more: Any) -> PulsarSide:
        made.append(on_pulsar(shop, broker, **more).create())
        return made[-1]

    yield make
    for side in made:
        side.close()


def expected(events: int) -> Counter[str]:
    return Counter(f"e-{number}" for number in range(events))


def letters(shop: Any) -> list[Any]:
    return [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_loop_reads_pulsar_and_writes_kafka(shop: Any, side_of: Make, partitions: int) -> None:
    side = side_of(partitions=partitions, **{"exactly-once": "required"})
    side.send(range(1000), poison=100)
    totals = shop.run(None, engine="loop")
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (1010, 1000, 10)
    assert totals.counts["n_slow"] == 10  # the kernel decides all of profile 1.0
    assert Counter(ids_of(shop.read("out"))) == expected(1000)
    assert {letter.code for letter in letters(shop)} == {"not-a-cloudevent"}
    side.send(range(1000, 1010))
    assert shop.run(None, engine="loop").counts["n_in"] == 10
    assert Counter(ids_of(shop.read("out"))) == expected(1010)
    assert shop.run(None, engine="loop").counts["n_in"] == 0
    wait_until(lambda: side.backlog("penstock.t.pulsar-public~default~" + shop.topic("in")) == 0)


def test_at_least_once_a_loop_goes_on_at_its_marks(shop: Any, side_of: Make) -> None:
    side = side_of(partitions=2)
    for numbers in (range(100), range(100, 150), range(0)):
        side.send(numbers)
        totals = shop.run(None, engine="loop", exactly_once=False)
        assert totals.counts["n_in"] == len(numbers)
    assert Counter(ids_of(shop.read("out"))) == expected(150)


def test_spark_reads_pulsar_and_writes_kafka(shop: Any, side_of: Make, spark: SparkSession) -> None:
    side = side_of(partitions=2, **{"exactly-once": "required"})
    side.send(range(5000), poison=1000)
    totals = shop.run(spark, max_offsets=2000)
    counts = totals.counts
    assert (counts["n_in"], counts["n_out"], counts["n_dead"], counts["n_slow"]) == (5005, 5000, 5, 5)
    assert totals.batches == 3
    assert Counter(ids_of(shop.read("out"))) == expected(5000)
    (subscription,) = side.rest("/partitioned-stats")["subscriptions"]
    wait_until(lambda: side.backlog(subscription) == 0)
    side.send(range(5000, 5100))
    assert side.backlog(subscription) > 0
    assert shop.run(spark).counts["n_in"] == 100
    assert shop.run(spark).counts["n_in"] == 0
    assert Counter(ids_of(shop.read("out"))) == expected(5100)
    wait_until(lambda: side.backlog(subscription) == 0)


# A broker that is away; who is killed is in test_exactly_once


def assert_once_and_in_order(shop: Any, events: int) -> None:
    assert_kafka_has_each_once(shop, events)
    assert_letters(shop, events)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["loop", "spark"])
def test_a_broker_that_is_killed_is_waited_for_and_told_of_once(project: Make, engine: str) -> None:
    shop = project()
    with Pulsar(durable=True) as mortal:
        side = on_pulsar(shop, mortal, partitions=2).create()
        side.send(range(3000), poison=100)
        running = shop.spawn("run", "--engine", engine)
        running.until(r"batch \d+ ")
        side.close()
        mortal.kill()
        running.until(r"pulsar: lost, tried again until it is back")
        mortal.start()
        running.until(r"pulsar: back after")
        side.send(range(3000, 4000), poison=100)
        wait_until(lambda: len(shop.read("out")) >= 4000)
        lost = [line for line in running.told().splitlines() if "lost, tried again" in line]
        assert len([line for line in lost if "commits of progress" not in line]) == 1, lost
        running.process.terminate()
        assert running.ended() == 0, running.told()
        side.close()
    assert_once_and_in_order(shop, 4000)


# What a log does while it is read


@contextmanager
def running_loop(shop: Any, **options: Any) -> Iterator[Any]:
    """Run a loop beside the test; what it fails of is raised at the end."""
    failed: list[Exception] = []
    with job_of(shop.pipeline(), JobOptions(engine="loop", **options)) as job:
        job.prepare()

        def run() -> None:
            try:
                job.run()
            except Exception as exc:  # noqa: BLE001  # raised below
                failed.append(exc)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield job
        finally:
            job.stop()
            thread.join()
    if failed:
        raise failed[0]


def subscription_of(shop: Any) -> str:
    return f"penstock.t.pulsar-public~default~{shop.topic('in')}"


def counted(job: Any, name: str) -> int:
    return sum(totals.counts[name] for totals in job.totals.values())


def test_ledgers_that_end_and_are_removed_behind_a_stream_lose_nothing(shop: Any, side_of: Make) -> None:
    side = side_of()
    side.send(range(0))  # a producer loads the topic
    begun = first_ledger(side)
    with running_loop(shop) as job:
        for turn in range(4):
            side.send(range(turn * 100, turn * 100 + 100))
            wait_until(lambda: counted(job, "n_in") == turn * 100 + 100)  # noqa: B023
            wait_until(lambda: side.backlog(subscription_of(shop)) == 0)
            side.rest("/unload", "PUT")
        wait_until(lambda: side.rest("/unload", "PUT") or first_ledger(side) > begun)
    assert sum(totals.lost for totals in job.totals.values()) == 0
    assert Counter(ids_of(shop.read("out"))) == expected(400)


def first_ledger(side: PulsarSide) -> int:
    return int(side.rest("/internalStats")["ledgers"][0]["ledgerId"])


def test_what_was_removed_before_it_was_read_stops_the_job_or_is_counted(shop: Any, side_of: Make) -> None:
    side = side_of()
    side.send(range(10))
    assert shop.run(None, engine="loop").counts["n_in"] == 10
    side.send(range(10, 20))
    side.rest("/unload", "PUT")
    side.send(range(20, 25))

    # An operator skips a part of the backlog: nothing keeps the ledger that holds it.
    # Pulsar may lose it in an unload, though it has confirmed it: then it is skipped again.
    def skip() -> None:
        with client_of(side) as client:
            client.commit(subscription_of(shop), side.topic, {0: 20})
        side.rest("/unload", "PUT")

    wait_until(lambda: skip() or earliest_of(side) == 20)
    with pytest.raises(JobFailed, match="10 records .* were deleted before they were read"):
        shop.run(None, engine="loop")
    totals = shop.run(None, engine="loop", on_data_loss="continue")
    assert (totals.counts["n_in"], totals.lost) == (5, 10)
    assert Counter(ids_of(shop.read("out"))) == Counter(
        f"e-{number}" for number in (*range(10), *range(20, 25))
    )


def client_of(side: PulsarSide) -> PulsarOffsets:
    return PulsarOffsets(PulsarSettings(service_url=side.broker.service_url, admin_url=side.broker.admin_url))


def earliest_of(side: PulsarSide) -> int:
    with client_of(side) as client:
        return client.earliest(side.topic)[0]


def test_aborted_transactions_are_left_out_and_open_ones_are_waited_for(shop: Any, side_of: Make) -> None:
    side = side_of(route={"dialects": ["sniffed"]})
    writer = Transactions(side.broker.service_url)
    try:
        aborted, opened = writer.begin(side.topic), writer.begin(side.topic)
        side.send(range(2))
        writer.send(side.topic, *in_transaction(range(100, 103)), txn=aborted)
        writer.end(aborted, ABORT)
        with running_loop(shop) as job:
            wait_until(lambda: counted(job, "n_in") == 2)
            writer.send(side.topic, *in_transaction(range(2, 5)), txn=opened)
            side.send(range(5, 7))
            writer.end(opened, COMMIT)
            wait_until(lambda: counted(job, "n_in") == 7)
    finally:
        writer.close()
    assert Counter(ids_of(shop.read("out"))) == expected(7)


def in_transaction(numbers: Iterable[int]) -> list[bytes]:
    """Events without any property, which a route with the dialect `sniffed` reads."""
    return [b'{"specversion":"1.0","id":"e-%d","source":"/s","type":"t"}' % number for number in numbers]


def test_partitions_that_are_added_are_read_from_their_beginning(
    shop: Any, side_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_run, "_GROWTH", 0.2)
    side = side_of(partitions=1)
    side.send(range(10))
    with running_loop(shop) as job:
        wait_until(lambda: counted(job, "n_in") == 10)
        side.rest("/partitions", "POST", 3)
        side.close()  # its producers learn of partitions now and then
        side.send(range(10, 110), keys=50)
        wait_until(lambda: counted(job, "n_in") == 110)
    assert Counter(ids_of(shop.read("out"))) == expected(110)
    wait_until(lambda: side.backlog(subscription_of(shop)) == 0)


def test_a_topic_that_is_made_again_is_refused(
    shop: Any, side_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_run, "_GROWTH", 0.2)
    side = side_of()
    side.send(range(10))
    with (
        # The first, if the reader comes back before the topic does.
        pytest.raises(JobFailed, match="the topic was deleted (while|and made again while) it was read"),
        running_loop(shop) as job,
    ):
        wait_until(lambda: counted(job, "n_in") == 10)
        remake(side)
        side.send(range(100, 120))
        wait_until(lambda: not job.running)
    with pytest.raises(CheckpointMismatch) as caught:
        shop.run(None, engine="loop")
    assert "the topic was deleted and made again" in str(caught.value.why)
    assert shop.run(None, engine="loop", fresh_checkpoint=True).counts["n_in"] == 20
    assert shop.run(None, engine="loop").counts["n_in"] == 0
    numbers = (*range(10), *range(100, 120))
    assert Counter(ids_of(shop.read("out"))) == Counter(f"e-{number}" for number in numbers)


def remake(side: PulsarSide) -> None:
    side.close()
    side.delete()
    with suppress(HTTPError):  # those who read it have come back, and the broker has made it again
        side.create()


def test_chunked_and_encrypted_messages_are_dead_letters_with_their_bytes(shop: Any, side_of: Make) -> None:
    side = side_of(settings={"dead": {"max.message.bytes": "20000000"}})
    side.send(range(3))
    large = bytes(range(256)) * 21_000
    chunked = side.client.create_producer(side.topic, batching_enabled=False, chunking_enabled=True)
    chunked.send(large, properties={"ce_id": "large", "ce_specversion": "1.0"})
    writer = Transactions(side.broker.service_url)
    keys = [EncryptionKeys(key="own", value=b"v")]
    own = [KeyValue(key="ce_id", value="secret"), KeyValue(key="ce_specversion", value="1.0")]
    writer.send(side.topic, b"x7", encryption_keys=keys, encryption_algo="AES", properties=own)
    writer.close()
    side.send(range(3, 5))
    counts = shop.run(None, engine="loop").counts
    assert Counter(ids_of(shop.read("out"))) == expected(5)
    found = letters(shop)
    codes = Counter(letter.code for letter in found)
    assert codes == {"chunked-entry": codes["chunked-entry"], "encrypted-entry": 1}
    assert codes["chunked-entry"] >= 2
    assert counts["n_dead"] == len(found)
    pieces = [letter.record for letter in found if letter.code == "chunked-entry"]
    assert b"".join(piece.value or b"" for piece in sorted(pieces, key=chunk_number)) == large
    (hidden,) = (letter.record for letter in found if letter.code == "encrypted-entry")
    assert (hidden.value or b"").endswith(b"x7")
    headers = dict(hidden.headers)
    assert (headers["ce_id"], headers["pulsar-encryption-keys"]) == (b"secret", b"own")


def chunk_number(record: Any) -> int:
    return int(dict(record.headers)["pulsar-chunk-id"])


def test_both_profiles_in_every_dialect_that_needs_no_asking(shop: Any, side_of: Make) -> None:
    side = side_of(route={"dialects": ["sniffed"]})
    side.send(range(10), compression_type=pulsar_client.CompressionType.LZ4)
    side.send(range(10, 20), profile=Profile.V0_1)
    producer = side.client.create_producer(side.topic)
    producer.send(b'{"specversion":"1.0","id":"e-20","source":"/s","type":"t"}')
    producer.close()
    counts = shop.run(None, engine="loop").counts
    assert (counts["n_in"], counts["n_out"], counts["n_slow"]) == (21, 21, 1)  # the one that is sniffed
    assert Counter(ids_of(shop.read("out"))) == expected(21)


# Other Pulsars


@pytest.mark.soak
def test_a_broker_without_an_index_is_told_of_and_read_once(project: Make) -> None:
    shop = project()
    with Pulsar(durable=False, settings={"brokerEntryMetadataInterceptors": ""}) as plain:
        side = on_pulsar(shop, plain, partitions=2).create()
        side.send(range(3000), poison=100)
        assert shop.run(None, engine="loop").counts["n_in"] == 3030
        side.rest("/unload", "PUT")
        side.send(range(3000, 4000), poison=100)
        assert shop.run(None, engine="loop").counts["n_in"] == 1010
        assert shop.run(None, engine="loop").counts["n_in"] == 0
        running = shop.spawn("run", "--once")  # begins anew, under marks of its own
        assert running.ended() == 0, running.told()
        assert "keeps no index" in running.told()
        side.close()
    found = Counter(ids_of(shop.read("out")))
    assert found == Counter({f"e-{number}": 2 for number in range(4000)})


@pytest.mark.soak
@pytest.mark.parametrize("mutual", [False, True], ids=["token", "certificate"])
def test_a_secured_pulsar(project: Make, tmp_path: Path, mutual: bool) -> None:
    shop, token = project(), tmp_path / "token"
    with Pulsar(secured=True, mutual_tls=mutual, durable=False) as secured:
        token.write_text(secured.token(), encoding="utf-8")
        security = {"ca_file": str(secured.ca_file), "token": f"${{file:{token}}}"}
        if mutual:
            certificate, key = secured.client_certificate()
            security = {**security, "cert_file": str(certificate), "key_file": str(key)}
            del security["token"]
        side = on_pulsar(shop, secured, route={"dialects": ["sniffed"]}, context={"security": security})
        with PulsarCluster(PulsarSettings.of(shop.pipeline().routes[0].receive.connection)) as cluster:
            cluster.call(cluster.admin.create_topic(side.topic))
            origin = SinkSource(run="r", topic="in", incarnation="", partition=0, first=0)
            sink = PulsarSink(cluster, [PulsarTarget(topic=side.topic, partitions=0)], origin)
            sink.put(batch_of(in_transaction(range(3)), 0))
            sink.commit({})
            sink.close()
        assert shop.run(None, engine="loop").counts["n_in"] == 3
