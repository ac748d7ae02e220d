"""Ranges of a real Pulsar's partitions as record batches."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pulsar
import pytest
from pulsar_project import wait_until
from pulsar_rows import body_of, read_all, rows_of
from pulsar_transactions import ABORT, COMMIT, UNKNOWN_MARKER, Transactions

from penstock.brokers.kafka_raw.fetcher import Wanted
from penstock.embedded.pulsar import Pulsar
from penstock.errors import JobFailed, OffsetOutOfRange, PenstockError, PulsarRefused, Unreachable
from penstock.mapping import Reason, body_to_entry
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.pipeline.delivery.pulsar.log import PulsarLog, PulsarPosition
from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
from penstock.pipeline.delivery.pulsar.reader import PulsarFetcher, PulsarPartitionReader
from penstock.pipeline.delivery.pulsar.subscription import PulsarSubscription
from penstock.wire.pulsar import EARLIEST, encode_send
from penstock.wire.pulsar.pulsar_pb2 import CommandSend, MessageMetadata

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def theirs(broker: Pulsar) -> Iterator[Any]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture(scope="module")
def writer(broker: Pulsar) -> Iterator[Transactions]:
    connection = Transactions(broker.service_url)
    yield connection
    connection.close()


def log_of(cluster: PulsarCluster, topic: str) -> PulsarLog:
    return PulsarLog(cluster, topic, 0, 0)


def send(theirs: Any, topic: str, values: list[Any], **said: Any) -> None:
    """Write with pulsar-client, in one batch unless it is told otherwise."""
    said = {
        "batching_enabled": True,
        "batching_max_messages": 1000,
        "batching_max_publish_delay_ms": 50,
    } | said
    producer = theirs.create_producer(topic, **said)
    for number, value in enumerate(values):
        if isinstance(value, tuple):
            producer.send_async(value[1], lambda *_: None, partition_key=value[0])
        else:
            producer.send_async(value, lambda *_: None, properties={"n": str(number)})
    producer.flush()
    producer.close()


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "single"])
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_every_compression(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str], compression: str, batching: bool
) -> None:
    topic = make_topic(deduplication=False, keep=False)
    log = log_of(cluster, topic)
    subscription = PulsarSubscription(log, "keeps")
    values = [b"value %d " % number * 20 for number in range(50)] + [b"", None, ("text", b"k")]
    kind = getattr(pulsar.CompressionType, compression)
    send(theirs, topic, values, compression_type=kind, batching_enabled=batching)
    end = log.latest()
    assert (log.earliest().index, end.index) == (0, 53)
    rows, fetches = read_all(PulsarPartitionReader(log, 0, end.index))
    expected = [(None, value) for value in values[:52]] + [(b"text", b"k")]
    assert rows == [(number, *row) for number, row in enumerate(expected)]
    assert fetches[-1].last_stable_offset == 53
    subscription.close()


def test_from_the_middle_of_a_batch_to_the_middle_of_another(
    cluster: PulsarCluster,
    theirs: Any,
    make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic()
    log = log_of(cluster, topic)
    for batch in range(4):
        send(theirs, topic, [b"%d" % (batch * 10 + number) for number in range(10)])
        cluster.call(cluster.admin.unload(topic))  # each in a ledger of its own
    rows, fetches = read_all(PulsarPartitionReader(log, 5, 27, max_bytes=1))
    assert rows == [(number, None, b"%d" % number) for number in range(5, 27)]
    assert len(fetches) == 3
    position = fetches[-1].position
    assert (position.index, position.taken, position.size) == (27, 7, 10)
    # The position alone, without the admin API, leads to what follows.
    monkeypatch.setattr(PulsarLog, "place_of", None)
    rows, _ = read_all(PulsarPartitionReader(log, position, 40))
    assert rows == [(number, None, b"%d" % number) for number in range(27, 40)]


def test_a_move_of_the_topic_while_it_is_read(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    log = log_of(cluster, topic)
    with closing(PulsarPartitionReader(log, 0)) as reader:
        found = []
        for turn in range(3):
            send(theirs, topic, [b"%d" % turn])
            while (fetched := reader.poll(10)) is None or not fetched.data:
                pass
            found += rows_of(fetched)
            cluster.call(cluster.admin.unload(topic))
    assert found == [(turn, None, b"%d" % turn) for turn in range(3)]


def test_an_entry_waits_while_the_broker_cannot_be_asked_about_it(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has come back asks whether the topic is still the same one; no entry is lost by it."""
    topic = make_topic()
    with closing(PulsarPartitionReader(log_of(cluster, topic), 0)) as reader:
        send(theirs, topic, [b"0"])
        while (fetched := reader.poll(10)) is None or not fetched.data:
            pass

        async def fails(name: str) -> str:
            monkeypatch.undo()
            raise Unreachable(f"no answer about {name}")

        monkeypatch.setattr(cluster.admin, "created", fails)
        cluster.call(cluster.admin.unload(topic))
        send(theirs, topic, [b"1"])
        with pytest.raises(Unreachable):
            while reader.poll(10) is None:
                pass
        while (fetched := reader.poll(10)) is None or not fetched.data:
            pass
        assert rows_of(fetched) == [(1, None, b"1")]


def test_removed_records_are_noticed(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(deduplication=False, keep=False)
    log = log_of(cluster, topic)
    subscription = PulsarSubscription(log, "holder")
    send(theirs, topic, [b"old %d" % number for number in range(10)])
    reader = PulsarPartitionReader(log, 0, 10)
    _, [fetched] = read_all(reader)
    cluster.call(cluster.admin.unload(topic))
    send(theirs, topic, [b"new %d" % number for number in range(5)])
    subscription.commit(fetched.position)
    subscription.commit(PulsarPosition(0))  # it does not go back, nor fail
    _await(lambda: cluster.call(log.start()) == 10, lambda: cluster.call(cluster.admin.unload(topic)))
    for first in (PulsarPosition(3), PulsarPosition(3, fetched.position.ledger, 0)):
        with closing(PulsarPartitionReader(log, first, 15)) as reader:
            with pytest.raises(OffsetOutOfRange) as caught:
                _poll_until_done(reader)
            assert (caught.value.offset, caught.value.log_start) == (3, 10)
            reader.seek(caught.value.log_start)
            rows, _ = read_all(reader)
        assert rows == [(10 + number, None, b"new %d" % number) for number in range(5)]
    subscription.close()


def test_records_are_noticed_that_were_removed_before_a_batch_of_a_transaction(
    broker: Pulsar, cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    """Its ten messages have one index, so the log does not begin nine indexes before it."""
    topic = make_topic(deduplication=False, keep=False)
    log = log_of(cluster, topic)
    with closing(PulsarSubscription(log, "holder")) as subscription:
        send(theirs, topic, [b"old %d" % number for number in range(20)])
        before = log.latest()
        cluster.call(cluster.admin.unload(topic))
        with closing(Transactions(broker.service_url)) as writer:
            writer.run(topic, *[b"t%d" % at for at in range(10)], action=COMMIT)
        end = log.latest().index
        subscription.commit(before)
        _await(lambda: cluster.call(log.start()) > 0, lambda: cluster.call(cluster.admin.unload(topic)))
        reader = PulsarPartitionReader(log, 15, end)
        with closing(reader), pytest.raises(OffsetOutOfRange) as caught:
            _poll_until_done(reader)
        assert (caught.value.offset, caught.value.log_start) == (15, 20)


def test_a_batch_that_claims_very_many_messages_is_acknowledged_with_those_before(
    broker: Pulsar, cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    """The words of its messages were made one by one, on the thread of the whole cluster."""
    topic = make_topic(deduplication=False)

    async def write() -> None:
        producer = await cluster.client.producer(topic)
        for at, count in enumerate((1, 5_000_000)):
            metadata = MessageMetadata(
                producer_name=producer.name, sequence_id=at, publish_time=5, num_messages_in_batch=count
            )
            command = CommandSend(producer_id=producer.producer_id, sequence_id=at, num_messages=2)
            frame = memoryview(bytearray(encode_send(command, metadata, b"x")))
            await producer._queue(frame, at, None)
        await producer.close()

    cluster.call(write())
    with PulsarOffsets(cluster.settings) as offsets:
        offsets.subscribe(topic, "group")
        offsets.commit("group", topic, {0: 3})
        assert offsets.behind_entries(topic, {0: 0}) == {0: 2}
        assert offsets.behind_entries(topic, {0: 3}) == {0: 4}
        assert offsets.behind_entries(topic, {0: 4}) == {}
        assert offsets.has_acknowledged(topic, "group")


def test_a_range_that_was_removed_with_all_the_rest_is_noticed(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    """Nothing is left that could tell a gap from indexes that never held anything."""
    topic = make_topic(deduplication=False, keep=False)
    log = log_of(cluster, topic)
    subscription = PulsarSubscription(log, "holder")
    send(theirs, topic, [b"old %d" % number for number in range(10)])
    end = log.latest()
    assert end.index == 10
    subscription.commit(end)
    _await(lambda: cluster.call(log.start()) == 10, lambda: cluster.call(cluster.admin.unload(topic)))
    with closing(PulsarPartitionReader(log, 3, 10)) as reader:
        with pytest.raises(OffsetOutOfRange) as caught:
            _poll_until_done(reader)
        assert (caught.value.offset, caught.value.log_start) == (3, 10)
    with closing(PulsarPartitionReader(log, 10)) as reader:  # at the end nothing is missing
        assert reader.poll(0.5) is None
        send(theirs, topic, [b"new"])
        while (fetched := reader.poll(10)) is None or not fetched.data:
            pass
        assert rows_of(fetched) == [(10, None, b"new")]
    subscription.close()


def test_an_entry_without_a_readable_head_is_rejected_in_the_range_that_holds_it(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    """A broker takes times that nobody can read; its own index before them tells where the entry is."""
    topic = make_topic(deduplication=False)
    log = log_of(cluster, topic)
    send(theirs, topic, [b"a", b"b"])
    cluster.call(_send_unreadable(cluster, topic))
    send(theirs, topic, [b"d"])
    assert log.latest().index == 4
    seen = []
    for first in range(4):
        rows, fetches = read_all(PulsarPartitionReader(log, first, first + 1))
        seen.append([*(row[2] for row in rows), *(e.reason for f in fetches for e in f.rejected)])
    assert seen == [[b"a"], [b"b"], [Reason.CORRUPT], [b"d"]]


async def _send_unreadable(cluster: PulsarCluster, topic: str) -> None:
    producer = await cluster.client.producer(topic)
    command = CommandSend(producer_id=producer.producer_id, sequence_id=0, num_messages=1)
    metadata = MessageMetadata(producer_name=producer.name, sequence_id=0, publish_time=2**63 + 5)
    frame = memoryview(bytearray(encode_send(command, metadata, b"payload")))
    await producer._queue(frame, 0, None)
    await producer.close()


def test_a_batch_of_which_the_broker_was_told_too_little_is_read_once_and_whole(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    """A broker counts what the command says, and readers what the metadata say."""
    topic = make_topic(deduplication=False)
    log = log_of(cluster, topic)
    send(theirs, topic, [b"a", b"b"])
    cluster.call(_send_miscounted(cluster, topic))
    send(theirs, topic, [b"f"])
    assert log.latest().index == 4
    seen = [
        [row[2] for row in read_all(PulsarPartitionReader(log, first, end))[0]]
        for first, end in ((0, 2), (2, 3), (3, 4), (0, 4), (1, 3))
    ]
    whole = [b"c", b"d", b"e"]
    assert seen == [[b"a", b"b"], whole, [b"f"], [b"a", b"b", *whole, b"f"], [b"b", *whole]]


async def _send_miscounted(cluster: PulsarCluster, topic: str) -> None:
    producer = await cluster.client.producer(topic)
    command = CommandSend(producer_id=producer.producer_id, sequence_id=0, num_messages=1)
    metadata = MessageMetadata(
        producer_name=producer.name, sequence_id=0, publish_time=5, num_messages_in_batch=3
    )
    payload = bytes(body_to_entry(body_of([b"c", b"d", b"e"]), now=5).payload)
    done = await producer._queue(memoryview(bytearray(encode_send(command, metadata, payload))), 0, None)
    assert done.message_id.entry_id >= 0
    await producer.close()


def _await(condition: Callable[[], bool], again: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        again()


def _poll_until_done(reader: PulsarPartitionReader) -> None:
    while not reader.done:
        reader.poll(5)


def test_an_end_behind_the_log_is_noticed(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    log = log_of(cluster, topic)
    assert (log.earliest().index, log.latest().index) == (0, 0)
    send(theirs, topic, [b"a", b"b"])
    for first in (0, 2, 7):
        with closing(PulsarPartitionReader(log, first, 9)) as reader:
            with pytest.raises(OffsetOutOfRange) as caught:
                _poll_until_done(reader)
            assert (caught.value.log_end, caught.value.offset) == (2, 7 if first == 7 else 9)


def test_a_topic_that_was_deleted_stays_deleted(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    """A broker makes a topic anew for a reader or subscription that comes back, unless told not to."""
    topic = make_topic(deduplication=False)
    send(theirs, topic, [b"one"])
    log = log_of(cluster, topic)
    with (
        closing(PulsarSubscription(log, "keeps")) as subscription,
        closing(PulsarPartitionReader(log, 0)) as reader,
    ):
        while reader.position.index < 1:
            reader.poll(5)
        cluster.call(cluster.admin.delete_topic(topic, partitioned=False, force=True))
        with pytest.raises(JobFailed, match="was deleted while it was read"):
            for _ in range(30):
                reader.poll(1)
        with pytest.raises(PulsarRefused, match="topic not found"):
            subscription.latest()
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    assert topic not in cluster.call(cluster.admin.topics(namespace))


def test_a_topic_that_was_made_again(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(deduplication=False, keep=False)
    log = log_of(cluster, topic)
    keeper = PulsarSubscription(log, "keeps")
    before = log.incarnation()
    send(theirs, topic, [b"one", b"two"])
    with closing(PulsarPartitionReader(log, 0)) as reader:
        while reader.position.index < 2:
            reader.poll(5)
        keeper.close()
        is_there = threading.Event()
        # The reader comes back at once, and may find no topic.
        _look_up_when(is_there, topic, cluster, monkeypatch)
        cluster.call(cluster.admin.delete_topic(topic, partitioned=False, force=True))
        cluster.call(cluster.admin.create_topic(topic))
        is_there.set()
        keeper = PulsarSubscription(log, "keeps")
        send(theirs, topic, [b"other"])
        with pytest.raises(PenstockError, match="made again"):
            for _ in range(30):
                reader.poll(1)
    assert log.incarnation() != before or not before
    keeper.close()


def _look_up_when(
    event: threading.Event, topic: str, cluster: PulsarCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hold up who looks for the broker of a topic until an event."""
    lookup = cluster.client._lookup
    broker_of = lookup.broker_of

    async def held(name: str) -> Any:
        if name == topic:
            await asyncio.to_thread(event.wait, 30)
        return await broker_of(name)

    monkeypatch.setattr(lookup, "broker_of", held)


def test_transactions_of_applications(
    cluster: PulsarCluster, writer: Transactions, make_topic: Callable[..., str]
) -> None:
    """A batch in a transaction has one index, and all of its records are read; aborted ones are not."""
    topic = make_topic(deduplication=False)
    writer.send(topic, b"p0", b"p1")
    writer.run(topic, b"c0", b"c1", b"c2", action=COMMIT)
    writer.run(topic, b"a0", b"a1", action=ABORT)
    writer.run(topic, b"d0", b"d1", action=COMMIT)
    writer.send(topic, b"q0", b"q1")
    log = log_of(cluster, topic)
    end = log.latest()
    rows, _ = read_all(PulsarPartitionReader(log, 0, end.index))
    values = [row[2] for row in rows]
    assert values == [b"p0", b"p1", b"c0", b"c1", b"c2", b"d0", b"d1", b"q0", b"q1"]
    offsets = [row[0] for row in rows]
    assert offsets[:2] == [0, 1] and len({*offsets[2:5]}) == 1 and len({*offsets[5:7]}) == 1
    assert offsets == sorted(offsets) and end.index == offsets[-1] + 1
    # Cut anywhere, every record is in one range.
    parts = []
    for cut in range(1, end.index):
        first, second = (
            read_all(PulsarPartitionReader(log, *each))[0] for each in ((0, cut), (cut, end.index))
        )
        parts.append([row[2] for row in first + second])
    assert all(part == values for part in parts)


def test_an_open_transaction_bounds_what_is_read(
    cluster: PulsarCluster, writer: Transactions, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(deduplication=False)
    writer.send(topic, b"before")
    txn = writer.begin(topic)
    writer.send(topic, b"open", txn=txn)
    writer.send(topic, b"behind")
    log = log_of(cluster, topic)
    assert log.latest().index == 1
    ends = cluster.call(log.ends())
    assert (ends.readable, ends.last, ends.is_held_back) == (1, 3, True)
    with closing(PulsarPartitionReader(log, 0, 3)) as reader:
        fetched = reader.poll(5)
        assert fetched is not None and rows_of(fetched) == [(0, None, b"before")]
        assert fetched.last_stable_offset == 1
        for _ in range(3):
            fetched = reader.poll(0.5)
            assert fetched is None or (fetched.last_stable_offset, len(fetched.data)) == (1, 0)
        assert not reader.done
        writer.end(txn, COMMIT)
        rows, _ = read_all(reader)
    assert rows == [(1, None, b"open"), (2, None, b"behind")]


def test_offsets_that_hold_nothing_are_passed_by(
    cluster: PulsarCluster, writer: Transactions, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(deduplication=False)
    writer.run(topic, b"never", action=ABORT)
    writer.send(topic, b"only")
    writer.run(topic, b"neither", action=ABORT)
    writer.send(topic, marker_type=UNKNOWN_MARKER)
    log = log_of(cluster, topic)
    end = cluster.call(log.ends()).last
    rows, _ = read_all(PulsarPartitionReader(log, 0, end))
    assert rows == [(2, None, b"only")]
    rows, _ = read_all(PulsarPartitionReader(log, 3, end))
    assert rows == []


def test_what_cannot_be_decoded_is_rejected_with_its_bytes(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(deduplication=False)
    log = log_of(cluster, topic)
    large = secrets.token_bytes(2_500_000)
    send(theirs, topic, [b"before"])
    send(theirs, topic, [large], batching_enabled=False, chunking_enabled=True)
    send(theirs, topic, [b"behind"])
    end = log.latest()
    rows, fetches = read_all(PulsarPartitionReader(log, 0, end.index))
    assert [row[2] for row in rows] == [b"before", b"behind"]
    rejected = [each for fetched in fetches for each in fetched.rejected]
    assert {each.reason for each in rejected} == {Reason.CHUNK}
    assert b"".join(each.record().value or b"" for each in rejected) == large
    assert [each.base_offset for each in rejected] == list(range(1, end.index - 1))
    facts = dict(rejected[0].record().headers)
    assert facts["pulsar-chunk-id"] == b"0" and int(facts["pulsar-chunks"] or 0) == len(rejected)


def test_a_subscription_shows_the_backlog(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    log = log_of(cluster, topic)
    subscription = PulsarSubscription(log, "pipeline")
    for _ in range(4):
        send(theirs, topic, [b"%d" % number for number in range(10)])
    assert subscription.latest().index == 40

    def backlog() -> int:
        stats = cluster.call(cluster.admin.stats(topic))
        return int(stats["subscriptions"]["pipeline"]["msgBacklog"])

    assert backlog() == 4
    reader = PulsarPartitionReader(log, 0, 25)
    _, fetches = read_all(reader)
    assert subscription.commit(fetches[-1].position)  # inside of the third
    assert backlog() == 2
    assert subscription.commit(subscription.latest())
    assert backlog() == 0
    assert not subscription.commit(PulsarPosition(99))
    # Moved back by somebody, or lost by a broker that unloads the topic: what was committed counts.
    cluster.call(cluster.admin.reset_cursor(topic, "pipeline", EARLIEST))
    wait_until(lambda: subscription._consumer.reconnects == 1 and backlog() == 0)
    subscription.close()


def test_many_partitions_in_one_fetcher(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(4)
    for part in range(4):
        send(theirs, f"{topic}-partition-{part}", [b"%d-%d" % (part, number) for number in range(part + 1)])
    wanted = [Wanted(topic, part, 0, part + 1) for part in range(3)]
    fetcher = PulsarFetcher(cluster, wanted, {topic: 4})
    found: dict[int, list[Any]] = {}
    for _ in range(50):
        if not fetcher.waiting:
            break
        for fetched in fetcher.poll(5):
            found.setdefault(fetched.partition, []).extend(row[2] for row in rows_of(fetched))
    assert not fetcher.waiting
    fetcher.seek(topic, 3, 1)  # one that was added meanwhile
    assert fetcher.waiting
    while 3 not in found:
        for fetched in fetcher.poll(5):
            found.setdefault(fetched.partition, []).extend(row[2] for row in rows_of(fetched))
    fetcher.close()
    assert {part: len(values) for part, values in found.items()} == {0: 1, 1: 2, 2: 3, 3: 3}


def test_a_partition_that_fails_does_not_cost_what_came_of_others(
    cluster: PulsarCluster, theirs: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    for part in range(2):
        send(theirs, f"{topic}-partition-{part}", [b"%d" % part])
    fetcher = PulsarFetcher(cluster, [Wanted(topic, 0, 0, 1), Wanted(topic, 1, 50, 60)], {topic: 2})
    found: list[Any] = []
    with pytest.raises(OffsetOutOfRange) as caught:
        for _ in range(50):
            found += [row for fetched in fetcher.poll(1) for row in rows_of(fetched)]
    assert (caught.value.partition, caught.value.offset, caught.value.log_end) == (1, 50, 1)
    if not found:  # the failure came before the record
        found += [row for fetched in fetcher.poll(10) for row in rows_of(fetched)]
    assert found == [(0, None, b"0")]
    fetcher.seek(topic, 1, 0)
    assert fetcher.waiting
    fetcher.close()
