"""Fetcher and producers against a broker that says what real ones seldom say."""

from __future__ import annotations

import itertools
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.errors import (
    InternalError,
    KafkaRefused,
    MessageTooLarge,
    OffsetOutOfRange,
    PenstockError,
    ProducerFenced,
    Unreachable,
    WireError,
)
from penstock.wire.kafka.batch_body import BatchBody, framed

PRODUCE, FETCH, LIST_OFFSETS, METADATA, ADD_PARTITIONS, END_TXN, INIT = 0, 1, 2, 3, 24, 26, 22
DESCRIBE_PRODUCERS = 61
NO_WAIT = struct.pack(">i", 0)
NO_TEXT = struct.pack(">h", -1)
T = struct.pack(">h", 1) + b"t"
QUICK = {"deadline": 0.5, "topic_timeout": 0.5, "request_timeout": 1.0}

Open = Callable[..., Cluster]
Body = Callable[..., BatchBody]
Keep = Callable[[Any], Any]


# Fetching


def fetch_answer(*rows: bytes) -> bytes:
    return NO_WAIT + struct.pack(">hii", 0, 0, 1) + T + struct.pack(">i", len(rows)) + b"".join(rows)


def fetch_row(records: bytes = b"", *, code: int = 0, partition: int = 0) -> bytes:
    return struct.pack(">ihqqqii", partition, code, 9, 9, 0, -1, len(records)) + records


def script(broker: Any, key: int, *answers: bytes | None) -> None:
    """Let an API answer so, one after the other, the last for ever."""
    left = deque(answers)
    broker.answers[key] = lambda _: left.popleft() if len(left) > 1 else left[0]


def polled(fetcher: Fetcher) -> Fetched:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for fetched in fetcher.poll(1.0):
            if fetched.data:
                return fetched
    raise AssertionError("nothing came within 30 s")


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78])
def test_a_partition_that_moves_is_found_again(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, code: int
) -> None:
    data = bytes(framed(body_of(b"a")))
    script(broker, FETCH, fetch_answer(fetch_row(code=code)), fetch_answer(fetch_row(data)))
    cluster = open_cluster(broker)
    cluster.partitions("t")
    asked = broker.count(METADATA)
    fetched = polled(keep(Fetcher(cluster, [Wanted("t", 0, 0, 1)])))
    assert (bytes(fetched.data), fetched.next_offset) == (data, 1)
    assert broker.count(METADATA) > asked


def test_the_next_request_is_sent_before_an_answer_is_used(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, FETCH, fetch_answer(fetch_row(bytes(framed(body_of(b"a", b"b"))))), None)
    fetcher = keep(Fetcher(open_cluster(broker), [Wanted("t", 0, 0)]))
    assert [fetched.next_offset for fetched in fetcher.poll(5.0)] == [2]
    until = time.monotonic() + 10
    while broker.count(FETCH) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    second = [body for key, _, body in broker.requests if key == FETCH][1]
    # Topic, one partition: number, leader epoch, offset.
    assert struct.pack(">iiq", 0, 0, 2) in second


def test_what_came_with_a_refusal_is_not_lost(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    data = bytes(framed(body_of(b"a")))
    rows = fetch_row(code=29, partition=1), fetch_row(data)
    script(broker, FETCH, fetch_answer(*rows), fetch_answer(fetch_row()))
    fetcher = keep(Fetcher(open_cluster(broker), [Wanted("t", 0, 0), Wanted("t", 1, 0)]))
    assert [fetched.partition for fetched in fetcher.poll(5.0)] == [0]
    with pytest.raises(KafkaRefused, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        for _ in range(100):
            fetcher.poll(0.1)
    assert caught.value.where == "t-1"


def test_an_offset_that_is_gone_is_told_with_both_ends(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    data = bytearray(framed(body_of(b"a")))
    data[:8] = struct.pack(">q", 20)
    script(broker, FETCH, fetch_answer(fetch_row(code=1)), fetch_answer(fetch_row(bytes(data))))
    ends = {-2: 20, -1: 30}
    broker.answers[LIST_OFFSETS] = lambda body: NO_WAIT + _ends(ends[struct.unpack(">q", body[-8:])[0]])
    fetcher = keep(Fetcher(open_cluster(broker), [Wanted("t", 0, 7)]))
    with pytest.raises(OffsetOutOfRange) as caught:
        polled(fetcher)
    gone = caught.value
    assert (gone.topic, gone.partition, gone.offset, gone.log_start, gone.log_end) == ("t", 0, 7, 20, 30)
    fetcher.seek("t", 0, gone.log_start)
    assert polled(fetcher).next_offset == 21


def _ends(offset: int) -> bytes:
    return struct.pack(">i", 1) + T + struct.pack(">iihqqi", 1, 0, 0, -1, offset, 0)


def test_a_batch_that_does_not_fit_is_asked_for_with_more_room(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    data = bytes(framed(body_of(bytes(5000))))

    def answer(body: bytes) -> bytes:
        (most,) = struct.unpack_from(">i", body, len(body) - 8)
        return fetch_answer(fetch_row(data[:most]))

    broker.answers[FETCH] = answer
    fetched = polled(keep(Fetcher(open_cluster(broker), [Wanted("t", 0, 0, 1)], partition_max_bytes=1000)))
    assert bytes(fetched.data) == data


def test_a_batch_beyond_all_bounds_is_refused(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    data = bytes(framed(body_of(bytes(5000))))
    script(broker, FETCH, fetch_answer(fetch_row(data[:100])))
    fetcher = keep(Fetcher(open_cluster(broker, max_answer_bytes=4000), [Wanted("t", 0, 0)]))
    with pytest.raises(MessageTooLarge, match=f"{len(data)} bytes"):
        polled(fetcher)


def test_a_leader_that_stays_away_is_told_after_the_deadline(
    broker: Any, open_cluster: Open, keep: Keep
) -> None:
    broker.answers[METADATA] = lambda _: broker.metadata(leader=-1)
    fetcher = keep(Fetcher(open_cluster(broker, **QUICK), [Wanted("t", 0, 0)]))
    with pytest.raises(KafkaRefused, match="LEADER_NOT_AVAILABLE"):
        polled(fetcher)


def test_batches_that_cannot_be_are_refused(broker: Any, open_cluster: Open, keep: Keep) -> None:
    script(broker, FETCH, fetch_answer(fetch_row(bytes(100))))
    fetcher = keep(Fetcher(open_cluster(broker), [Wanted("t", 0, 0)]))
    with pytest.raises(WireError):
        polled(fetcher)


def test_a_broker_that_does_not_answer_has_longer_than_a_topic_that_is_not_there(
    broker: Any, open_cluster: Open
) -> None:
    away, answer = time.monotonic() + 1.0, broker.answers[METADATA]
    broker.answers[METADATA] = lambda body: answer(body) if time.monotonic() > away else None
    cluster = open_cluster(broker, topic_timeout=0.2, deadline=10.0)
    assert cluster.partitions("t", refresh=True) == 2
    began = time.monotonic()
    with pytest.raises(KafkaRefused, match="topic u is not there"):
        cluster.partitions("u")
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize(("silent", "told"), [((1,), KafkaRefused), ((1, 2, 3, 4, 5, 6), Unreachable)])
def test_the_reason_is_the_last_one(
    broker: Any, open_cluster: Open, silent: tuple[int, ...], told: type[PenstockError]
) -> None:
    """Nobody tells of leaders: that is the reason. Somebody has told since: then it is what was refused."""
    cluster = open_cluster(broker, deadline=0.8, connect_timeout=0.5, request_timeout=0.5)
    cluster.refresh()
    asked = itertools.count(1)
    broker.answers[METADATA] = lambda _: None if next(asked) in silent else broker.metadata()

    def attempt() -> None:
        raise KafkaRefused("not the leader", error_code=6, retriable=True)

    with pytest.raises(told) as caught:
        cluster.retrying(attempt)
    assert type(caught.value) is told


# Producing


def produce_answer(code: int, partition: int = 0, records: tuple[int, ...] = ()) -> bytes:
    """Produce v8: one partition, the records for whose sake it is refused, each with a text."""
    errors = b"".join(struct.pack(">ih", at, 2) + b"no" for at in records)
    row = struct.pack(">iihqqqi", 1, partition, code, 0, -1, 0, len(records)) + errors + NO_TEXT
    return struct.pack(">i", 1) + T + row + NO_WAIT


def sequences(broker: Any) -> list[int]:
    """The base sequence of each batch that came, in order."""
    found = []
    for key, _, body in broker.requests:
        if key == PRODUCE:
            # Transactional id, acks, time-out, one topic named t, one partition, its size.
            (size,) = struct.unpack_from(">h", body)
            start = 2 + max(size, 0) + 6 + 4 + 3 + 4 + 8
            found.append(struct.unpack_from(">i", body, start + 53)[0])
    return found


@pytest.mark.parametrize("code", [3, 5, 6, 7, 13, 19, 20, 56])
def test_a_batch_is_sent_again_until_it_is_taken(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, code: int
) -> None:
    script(broker, PRODUCE, produce_answer(code), None, produce_answer(0))
    producer = keep(Producer(open_cluster(broker)))
    producer.send("t", 0, body_of(b"a", b"b"))
    producer.flush()
    assert sequences(broker) == [0, 0, 0]


def test_a_repeat_that_is_in_the_log_already_is_a_success(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, None, produce_answer(46), produce_answer(0))
    producer = keep(Producer(open_cluster(broker)))
    producer.send("t", 0, body_of(b"a", b"b"))
    producer.flush()
    producer.send("t", 0, body_of(b"c"))
    producer.flush()
    assert sequences(broker) == [0, 0, 2]


def test_what_was_sent_behind_a_failure_is_sent_again_in_order(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    taken: list[int] = []
    failures = iter([6])

    def answer(_: bytes) -> bytes:
        sequence = sequences(broker)[-1]
        if sequence == 1 and (code := next(failures, 0)):
            time.sleep(0.3)  # those behind it are sent meanwhile
            return produce_answer(code)
        if sequence != len(taken):
            return produce_answer(45)
        taken.append(sequence)
        return produce_answer(0)

    broker.answers[PRODUCE] = answer
    producer = keep(Producer(open_cluster(broker)))
    producer.send("t", 0, body_of(b"0"))
    producer.flush()
    for number in range(1, 4):
        producer.send("t", 0, body_of(b"%d" % number))
    producer.flush()
    assert taken == [0, 1, 2, 3]


def producers_answer(*rows: bytes, code: int = 0) -> bytes:
    """DescribeProducers v0, a flexible version: compact lengths, tags behind each structure."""
    partition = struct.pack(">ihbb", 0, code, 0, 1 + len(rows)) + b"".join(rows) + b"\0"
    return b"\0" + NO_WAIT + b"\x02\x02t\x02" + partition + b"\0\0"


def producer_row(last_sequence: int, *, epoch: int = 0) -> bytes:
    return struct.pack(">qiiqiqb", 7, epoch, last_sequence, 0, -1, -1, 0)


def test_batches_that_the_broker_has_and_does_not_remember_are_not_sent_again(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    # 0 is taken; 1 to 4 and their answers are lost; 3 was the last in the log, and is all that is remembered.
    script(broker, DESCRIBE_PRODUCERS, None, producers_answer(producer_row(9, epoch=1), producer_row(3)))
    remembered = 0
    answered: list[int] = []

    def answer(_: bytes) -> bytes | None:
        nonlocal remembered
        sequence = sequences(broker)[-1]
        if remembered == 0 and sequence:
            remembered = 3
            return None
        code = 0 if sequence in (remembered, remembered + 1) else 45
        remembered = sequence if code == 0 else remembered
        answered.append(sequence)
        return produce_answer(code)

    broker.answers[PRODUCE] = answer
    producer = keep(Producer(open_cluster(broker)))
    producer.send("t", 0, body_of(b"0"))
    producer.flush()
    for number in range(1, 7):
        producer.send("t", 0, body_of(b"%d" % number))
    producer.flush()
    assert remembered == 6
    assert answered.count(1) == 1, "refused once, then known to be there"
    assert answered[-4:] == [3, 4, 5, 6], "the last one that is there is sent again, for its answer"


def test_a_batch_that_is_offered_may_be_refused_for_the_sake_of_a_record(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    answers = (
        produce_answer(0),
        None,
        produce_answer(87, records=(1, 0)),
        produce_answer(10),
        produce_answer(0),
    )
    script(broker, PRODUCE, *answers)
    producer = keep(Producer(open_cluster(broker)))
    assert producer.offer("t", 0, body_of(b"a")) is None
    refused = producer.offer("t", 0, body_of(b"b", b"c"))
    assert (refused.code, refused.error.records) == (87, ((1, "no"), (0, "no")))
    assert producer.offer("t", 0, body_of(b"d")) == (10, ((), None))
    assert producer.offer("t", 0, body_of(b"e")) is None
    # The second was sent twice; what is refused gives its sequences to the next.
    assert sequences(broker) == [0, 1, 1, 1, 1]
    assert not producer.was_refused


def test_only_the_batch_that_is_offered_may_be_refused(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    """Who sends and does not wait must hear of it, or would take the records for written."""
    script(broker, PRODUCE, produce_answer(0), produce_answer(87, records=(0,)))
    producer = keep(Producer(open_cluster(broker)))
    assert producer.offer("t", 0, body_of(b"a")) is None
    producer.enqueue("t", 0, body_of(b"b"))
    with pytest.raises(KafkaRefused):
        producer.flush()
    assert producer.was_refused


def test_what_was_sent_before_an_offer_is_waited_for_by_itself(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, produce_answer(87, records=(0,)))
    producer = keep(Producer(open_cluster(broker)))
    producer.enqueue("t", 0, body_of(b"a"))
    with pytest.raises(KafkaRefused):
        producer.offer("t", 0, body_of(b"b", b"c"))
    assert producer.was_refused
    assert broker.count(PRODUCE) == 1


@pytest.mark.parametrize(
    ("code", "is_of_records"), [(87, True), (32, True), (10, True), (18, True), (29, False)]
)
def test_a_batch_that_is_sent_and_refused_ends_the_producer(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, code: int, is_of_records: bool
) -> None:
    script(broker, PRODUCE, produce_answer(code, records=(0,)))
    producer = keep(Producer(open_cluster(broker)))
    producer.enqueue("t", 0, body_of(b"a"))
    with pytest.raises(KafkaRefused) as caught:
        producer.flush()
    assert "no" in (caught.value.why or "")
    assert producer.was_refused is is_of_records
    with pytest.raises(KafkaRefused):
        producer.offer("t", 0, body_of(b"b"))


@pytest.mark.parametrize(
    "told", [producers_answer(producer_row(-1)), producers_answer(), producers_answer(code=29)]
)
def test_a_gap_before_the_oldest_batch_cannot_be_mended(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, told: bytes
) -> None:
    script(broker, PRODUCE, produce_answer(45))
    script(broker, DESCRIBE_PRODUCERS, told)
    producer = keep(Producer(open_cluster(broker)))
    with pytest.raises(KafkaRefused, match="OUT_OF_ORDER") as caught:
        producer.send("t", 0, body_of(b"a"))
        producer.flush()
    assert "are lost" in (caught.value.why or "")
    with pytest.raises(KafkaRefused, match="OUT_OF_ORDER"):
        producer.send("t", 0, body_of(b"b"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10, MessageTooLarge), (18, MessageTooLarge), (47, ProducerFenced), (90, ProducerFenced)],
)
def test_refusals_that_last_are_typed(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, code: int, kind: type[PenstockError]
) -> None:
    script(broker, PRODUCE, produce_answer(code))
    producer = keep(Producer(open_cluster(broker)))
    with pytest.raises(kind) as caught:
        producer.send("t", 0, body_of(b"a"))
        producer.flush()
    assert caught.value.where == "t-0"
    assert broker.count(PRODUCE) == 1


def test_a_batch_that_is_never_taken_is_told_in_time(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, None)
    producer = keep(Producer(open_cluster(broker), delivery_timeout=0.5))
    with pytest.raises(Unreachable):
        producer.send("t", 0, body_of(b"a"))
        producer.flush()


def test_an_answer_without_the_partition_is_refused(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, produce_answer(0, partition=1))
    producer = keep(Producer(open_cluster(broker)))
    with pytest.raises(WireError, match="left out"):
        producer.send("t", 0, body_of(b"a"))
        producer.flush()


def test_senders_wait_while_too_much_is_not_acknowledged(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, produce_answer(0))
    producer = keep(Producer(open_cluster(broker), buffer_bytes=100))
    for _ in range(20):
        producer.send("t", 0, body_of(bytes(200)))
    assert broker.count(PRODUCE) == 20


# Transactions


def added(code: int) -> bytes:
    return NO_WAIT + struct.pack(">i", 1) + T + struct.pack(">iih", 1, 0, code)


def ended(code: int) -> bytes:
    return NO_WAIT + struct.pack(">h", code)


def test_a_transaction_waits_for_the_one_before(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, produce_answer(0))
    script(broker, INIT, ended(51) + bytes(10), ended(14) + bytes(10), ended(0) + struct.pack(">qh", 7, 3))
    script(broker, ADD_PARTITIONS, added(51), added(16), added(0))
    script(broker, END_TXN, ended(15), None, ended(0))
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    producer.begin()
    producer.send("t", 0, body_of(b"a"))
    producer.commit()
    assert (broker.count(INIT), broker.count(ADD_PARTITIONS), broker.count(END_TXN)) == (3, 3, 3)


def test_partitions_are_added_in_one_request_before_anything_is_written(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    rows = struct.pack(">i", 2)
    rows += b"".join(struct.pack(">ihqqqi", part, 0, 0, 0, 0, 0) + NO_TEXT for part in (0, 1))
    script(broker, PRODUCE, struct.pack(">i", 1) + T + rows + NO_WAIT)
    script(broker, ADD_PARTITIONS, NO_WAIT + struct.pack(">i", 1) + T + struct.pack(">iihih", 2, 0, 0, 1, 0))
    script(broker, INIT, ended(0) + struct.pack(">qh", 7, 3))
    script(broker, END_TXN, ended(0))
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    producer.begin()
    for partition in (1, 0):
        producer.send("t", partition, body_of(b"a"))
    assert broker.count(PRODUCE) == 0
    producer.commit()
    keys = [key for key, _, _ in broker.requests if key in (ADD_PARTITIONS, PRODUCE, END_TXN)]
    assert keys == [ADD_PARTITIONS, PRODUCE, END_TXN]


def test_a_batch_that_is_offered_is_part_of_the_transaction(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    script(broker, PRODUCE, produce_answer(0))
    script(broker, ADD_PARTITIONS, added(0))
    script(broker, INIT, ended(0) + struct.pack(">qh", 7, 3))
    script(broker, END_TXN, ended(0))
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    producer.begin()
    assert producer.offer("t", 0, body_of(b"a")) is None
    assert producer.offer("t", 0, body_of(b"b")) is None
    producer.commit()
    keys = [key for key, _, _ in broker.requests if key in (ADD_PARTITIONS, PRODUCE, END_TXN)]
    assert keys == [ADD_PARTITIONS, PRODUCE, PRODUCE, END_TXN]


def test_who_is_fenced_does_not_come_back(broker: Any, open_cluster: Open, keep: Keep, body_of: Body) -> None:
    script(broker, ADD_PARTITIONS, added(90))
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    producer.begin()
    producer.send("t", 0, body_of(b"a"))
    with pytest.raises(ProducerFenced):
        producer.flush()
    producer.abort()
    with pytest.raises(ProducerFenced):
        producer.begin()
    assert (broker.count(INIT), broker.count(END_TXN)) == (1, 0)


def test_who_was_shut_out_between_two_transactions_does_not_take_the_id_back(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    """After an abort the next epoch is asked for with the one that is known (InitProducerId v3, KIP-360)."""
    script(broker, ADD_PARTITIONS, added(0))
    script(broker, PRODUCE, produce_answer(87))
    script(broker, END_TXN, ended(0))
    fenced = b"\0" + ended(47) + struct.pack(">qh", -1, -1) + b"\0"
    script(broker, INIT, ended(0) + struct.pack(">qh", 7, 3), fenced)
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    producer.begin()
    refused = producer.offer("t", 0, body_of(b"a"))
    assert refused is not None
    producer.abort()
    with pytest.raises(ProducerFenced):
        producer.begin()
    *_, asked = (body for key, _, body in broker.requests if key == INIT)
    assert struct.pack(">qh", 7, 3) in asked


def test_nothing_is_written_outside_of_a_transaction(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    producer = keep(TransactionalProducer(open_cluster(broker), "id"))
    with pytest.raises(InternalError):
        producer.send("t", 0, body_of(b"a"))
    producer.begin()
    with pytest.raises(InternalError):
        producer.begin()
    producer.commit()
    assert broker.count(END_TXN) == 0


def test_a_coordinator_that_stays_away_is_told_after_the_deadline(broker: Any, open_cluster: Open) -> None:
    broker.answers[10] = lambda _: NO_WAIT + struct.pack(">hhihi", 15, -1, -1, 0, -1)
    with pytest.raises(KafkaRefused, match="the coordinator of transaction id"):
        TransactionalProducer(open_cluster(broker, **QUICK), "id")
