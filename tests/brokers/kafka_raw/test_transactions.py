"""When a transaction ends: after the last acknowledgement, also without output; nothing comes behind it."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.brokers.kafka_raw.partition_queue import MOST_UNDER_WAY
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.errors import KafkaRefused, PenstockError, ProducerFenced, Unreachable
from penstock.wire.kafka.batch_body import BatchBody

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 24, 25, 26, 28
KEYS = (PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT)
NO_WAIT = struct.pack(">i", 0)
T = struct.pack(">h", 1) + b"t"
OFFSETS = {("t", 0): GroupOffset(17)}
SOON = 5.0
NOT_NOW = 0.3
"""How long it is watched that something does not come."""

Open = Callable[..., Cluster]
Body = Callable[..., BatchBody]
Keep = Callable[[Any], Any]


def produced(code: int) -> bytes:
    return struct.pack(">i", 1) + T + struct.pack(">iihqqqih", 1, 0, code, 0, -1, 0, 0, -1) + NO_WAIT


def rows(code: int) -> bytes:
    return NO_WAIT + struct.pack(">i", 1) + T + struct.pack(">iih", 1, 0, code)


def keys(broker: Any) -> list[int]:
    return [key for key, _, _ in broker.requests if key in KEYS]


def ends(broker: Any) -> list[bool]:
    """Whether each transaction that was ended was committed."""
    return [body[-1] == 1 for key, _, body in broker.requests if key == END_TXN]


class Withheld:
    """Answers to Produce that come when they are released, one after the other."""

    def __init__(self, broker: Any, *answers: bytes | None) -> None:
        self.asked = threading.Semaphore(0)
        self.ended = threading.Event()
        self._answers = iter(answers)
        self._released = threading.Semaphore(0)
        broker.answers[PRODUCE] = self._answer
        broker.answers[ADD_PARTITIONS] = lambda _: rows(0)
        broker.answers[ADD_OFFSETS] = lambda _: NO_WAIT + struct.pack(">h", 0)
        broker.answers[TXN_OFFSET_COMMIT] = lambda _: rows(0)
        broker.answers[END_TXN] = self._end

    def release(self) -> None:
        """Give the next answer."""
        assert self.asked.acquire(timeout=SOON), "no batch came"
        self._released.release()

    def _answer(self, _: bytes) -> bytes | None:
        self.asked.release()
        assert self._released.acquire(timeout=SOON), "the test has gone"
        return next(self._answers)

    def _end(self, _: bytes) -> bytes:
        self.ended.set()
        return NO_WAIT + struct.pack(">h", 0)


@pytest.fixture
def beside() -> Any:
    """Runs a call in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@pytest.mark.parametrize("offsets", [None, OFFSETS])
@pytest.mark.parametrize(
    "answers",
    [(produced(0),), (produced(6), produced(0)), (None, produced(46))],
    ids=["taken", "refused first", "lost first"],
)
def test_a_transaction_is_ended_after_the_last_acknowledgement(
    broker: Any,
    open_cluster: Open,
    keep: Keep,
    body_of: Body,
    beside: Callable[..., Future[None]],
    answers: tuple[bytes | None, ...],
    offsets: dict[tuple[str, int], GroupOffset] | None,
) -> None:
    withheld = Withheld(broker, *answers)
    producer = keep(TransactionalProducer(open_cluster(broker), "id", delivery_timeout=SOON))
    producer.begin()
    producer.send("t", 0, body_of(b"a"))
    committed = beside(lambda: producer.commit(group="g", offsets=offsets))
    for _ in answers:
        assert not withheld.ended.wait(NOT_NOW) and not committed.done()
        withheld.release()
    committed.result(SOON)
    assert ends(broker) == [True]
    assert keys(broker).count(PRODUCE) == len(answers)
    # Offsets travel while the last batch does.
    assert (TXN_OFFSET_COMMIT in keys(broker)) == (offsets is not None)


def test_an_aborted_transaction_is_ended_after_what_is_under_way(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, beside: Callable[..., Future[None]]
) -> None:
    """What came behind the end would belong to the next transaction; nothing is sent a second time."""
    withheld = Withheld(broker, produced(6))
    producer = keep(TransactionalProducer(open_cluster(broker), "id", delivery_timeout=SOON, request_bytes=1))
    producer.begin()
    for number in range(3):
        # One is under way, for a broker that does not know the producer yet: the others wait.
        producer.send("t", 0, body_of(b"%d" % number))
    aborted = beside(producer.abort)
    assert not withheld.ended.wait(NOT_NOW) and not aborted.done()
    withheld.release()
    aborted.result(SOON)
    assert (ends(broker), keys(broker)) == ([False], [ADD_PARTITIONS, PRODUCE, END_TXN])


def test_what_waits_behind_others_is_not_sent_by_a_producer_that_is_stopped(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body, beside: Callable[..., Future[None]]
) -> None:
    """The first answers make room for more while the last are awaited: it stays empty."""
    withheld = Withheld(broker, *[produced(0)] * (1 + MOST_UNDER_WAY))
    producer = keep(Producer(open_cluster(broker), delivery_timeout=SOON))
    producer.send("t", 0, body_of(b"first"))
    withheld.release()
    producer.flush()
    for number in range(MOST_UNDER_WAY + 2):
        producer.send("t", 0, body_of(b"%d" % number))
    settled = beside(producer.settle)
    for _ in range(MOST_UNDER_WAY):
        withheld.release()
    settled.result(SOON)
    assert keys(broker) == [PRODUCE] * (1 + MOST_UNDER_WAY)


@pytest.mark.parametrize("answer", [produced(6), None], ids=["refused", "lost"])
def test_a_producer_that_was_stopped_sends_nothing_more(
    broker: Any,
    open_cluster: Open,
    keep: Keep,
    body_of: Body,
    beside: Callable[..., Future[None]],
    answer: bytes | None,
) -> None:
    withheld = Withheld(broker, answer)
    producer = keep(Producer(open_cluster(broker), delivery_timeout=SOON))
    producer.send("t", 0, body_of(b"a"))
    settled = beside(producer.settle)
    withheld.release()
    settled.result(SOON)
    calls: list[Callable[[], None]] = [
        producer.flush,
        producer.drain,
        producer.poll,
        lambda: producer.send("t", 0, body_of(b"b")),
        lambda: producer.enqueue("t", 0, body_of(b"b")),
    ]
    for call in calls:
        with pytest.raises(Unreachable, match="the producer was stopped"):
            call()
    assert keys(broker) == [PRODUCE]


def test_a_producer_that_failed_sends_nothing_more(
    broker: Any, open_cluster: Open, keep: Keep, body_of: Body
) -> None:
    broker.answers[PRODUCE] = lambda _: produced(29)
    producer = keep(Producer(open_cluster(broker), delivery_timeout=SOON))
    with pytest.raises(PenstockError) as first:
        producer.send("t", 0, body_of(b"a"))
        producer.flush()
    with pytest.raises(PenstockError) as second:
        producer.send("t", 0, body_of(b"b"))
    assert second.value is first.value
    assert keys(broker) == [PRODUCE]


def test_a_transaction_with_offsets_and_no_output_is_ended(
    broker: Any, open_cluster: Open, keep: Keep
) -> None:
    Withheld(broker)
    producer = keep(TransactionalProducer(open_cluster(broker), "id", delivery_timeout=SOON))
    for _ in range(2):
        producer.begin()
        producer.commit(group="g", offsets=OFFSETS)
    assert keys(broker) == [ADD_OFFSETS, TXN_OFFSET_COMMIT, END_TXN] * 2
    assert ends(broker) == [True, True]


@pytest.mark.parametrize("failing", [ADD_OFFSETS, TXN_OFFSET_COMMIT])
def test_a_transaction_whose_offsets_are_refused_is_aborted(
    broker: Any, open_cluster: Open, keep: Keep, failing: int
) -> None:
    """Also without output: it would stay open until its time-out and hold up who asks for the offsets."""
    Withheld(broker)
    broker.answers[ADD_OFFSETS] = lambda _: NO_WAIT + struct.pack(">h", 30 * (failing == ADD_OFFSETS))
    broker.answers[TXN_OFFSET_COMMIT] = lambda _: rows(30)
    producer = keep(TransactionalProducer(open_cluster(broker), "id", delivery_timeout=SOON))
    producer.begin()
    with pytest.raises(KafkaRefused):
        producer.commit(group="g", offsets=OFFSETS)
    producer.abort()
    # A coordinator that has refused the group has heard of no transaction.
    assert ends(broker) == [False] * (failing == TXN_OFFSET_COMMIT)
    broker.answers[ADD_OFFSETS] = lambda _: NO_WAIT + struct.pack(">h", 0)
    broker.answers[TXN_OFFSET_COMMIT] = lambda _: rows(0)
    producer.begin()
    producer.commit(group="g", offsets=OFFSETS)
    assert ends(broker)[-1:] == [True]


def test_who_learns_at_the_abort_that_it_was_shut_out_says_so(
    broker: Any, open_cluster: Open, keep: Keep
) -> None:
    """A coordinator of groups that is busy says UNKNOWN_SERVER_ERROR; only the abort tells what it was."""
    Withheld(broker)
    broker.answers[ADD_OFFSETS] = lambda _: NO_WAIT + struct.pack(">h", 0)
    broker.answers[TXN_OFFSET_COMMIT] = lambda _: rows(-1)
    broker.answers[END_TXN] = lambda _: NO_WAIT + struct.pack(">h", 90)
    producer = keep(TransactionalProducer(open_cluster(broker), "id", delivery_timeout=SOON))
    producer.begin()
    with pytest.raises(KafkaRefused) as refused:
        producer.commit(group="g", offsets=OFFSETS)
    assert not isinstance(refused.value, ProducerFenced)
    with pytest.raises(ProducerFenced):
        producer.abort()
    producer.abort()
    with pytest.raises(ProducerFenced):
        producer.begin()


@pytest.mark.parametrize(("seconds", "expired"), [(61.0, True), (59.0, False)])
def test_time_in_which_the_machine_was_suspended_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expired: bool
) -> None:
    """The broker has aborted the transaction meanwhile: that is no other owner."""
    made = TransactionalProducer.__new__(TransactionalProducer)
    made._open, made._id, made._timeout, made._told_at, made.expired = True, "t", 60.0, None, False
    clock = iter((100.0, 100.0 + seconds))
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda which: next(clock), raising=False)
    made._tell()
    with pytest.raises(ProducerFenced), made._inside():
        raise ProducerFenced("fenced", error_code=47)
    assert made.expired is expired
