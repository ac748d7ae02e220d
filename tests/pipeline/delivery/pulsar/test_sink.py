"""Output to a real Pulsar, each record once, whatever happens between."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulsar_rows import batch_of, body_of, read_all, record_at, values_in

from penstock.brokers.pulsar import Options, Producer
from penstock.embedded.pulsar import Pulsar
from penstock.errors import JobFailed, PulsarRefused, Refused
from penstock.mapping import body_to_entry
from penstock.pipeline.delivery.pulsar import sink as pulsar_sink
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.log import PulsarLog
from penstock.pipeline.delivery.pulsar.producer_names import (
    PulsarTarget,
    SinkBatch,
    SinkSource,
    producer_name,
)
from penstock.pipeline.delivery.pulsar.reader import PulsarPartitionReader
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.pipeline.delivery.pulsar.subscription import PulsarSubscription
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server


def source_of(run: str | None = None, **said: Any) -> SinkSource:
    facts: dict[str, Any] = {"topic": "in", "incarnation": "1", "partition": 0, "first": 0}
    return SinkSource(run=run or secrets.token_hex(6), **facts | said)


def sink_to(cluster: PulsarCluster, topic: str, source: SinkSource | None, **said: Any) -> PulsarSink:
    return PulsarSink(cluster, [PulsarTarget(topic=topic, partitions=0)], source, **said)


def values(count: int, first: int = 0) -> list[bytes | None]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("compression", ["none", "lz4", "zlib", "zstd", "snappy"])
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exact", "repeatable"])
def test_a_round_trip(
    cluster: PulsarCluster, make_topic: Callable[..., str], compression: str, exactly_once: bool
) -> None:
    topic = make_topic(deduplication=exactly_once)
    rows = [(None, b"plain"), (b"text", b""), (b"\xff\x00", None), ("ä".encode(), b"x" * 5000)]
    headers = (("h", b"1"), ("h", b"2"), ("n", None), ("b", b"\xff"))
    records = b"".join(record_at(at, *row, headers) for at, row in enumerate(rows))
    batch = replace(batch_of([b""] * 4, 7), body=BatchBody(records, 4, 5, 5))
    sink = sink_to(cluster, topic, source_of() if exactly_once else None, compression=compression)
    sink.put(batch)
    sink.commit({})
    sink.close()
    log = PulsarLog(cluster, topic, 0, 0)
    found, _ = read_all(PulsarPartitionReader(log, 0, log.latest().index))
    assert [row[1:] for row in found] == rows


def test_a_second_attempt_with_other_batches_writes_the_rest(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    source = source_of()
    first = sink_to(cluster, topic, source)
    for at in range(0, 800, 100):
        first.put(batch_of(values(100, at), at))
    first.flush()
    first.close()
    again = sink_to(cluster, topic, source)
    for at in range(0, 1400, 70):
        again.put(batch_of(values(70, at), at))
    again.flush()
    assert again.left_out == 800
    again.close()
    assert values_in(cluster, topic) == values(1400)
    # The next range needs no look into the topic, and another run writes all of it.
    following = sink_to(cluster, topic, replace(source, first=1400))
    following.put(batch_of(values(10, 1400), 1400))
    following.close()
    other = sink_to(cluster, topic, source_of(begun=False))
    other.put(batch_of(values(5), 0))
    other.flush()
    other.close()
    assert values_in(cluster, topic) == values(1410) + values(5)


def test_a_restart_behind_a_mark_up_to_which_all_was_consumed(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    """Producers were opened anew with the mark of the start: what they had written had been removed."""
    topic = make_topic(keep=False)
    sink = sink_to(cluster, topic, source_of(begun=False))
    sink.put(batch_of(values(10), 0))
    sink.flush()
    sink.moved(10, time.time_ns() // 1_000_000)
    log = PulsarLog(cluster, topic, 0, 0)
    with closing(PulsarSubscription(log, "app")) as subscription:
        consume(cluster, log, subscription, 10)
        sink.restart()
        sink.put(batch_of(values(15), 0))
        sink.flush()
        sink.close()
        assert log.latest().index == 15


def test_entries_that_were_consumed_before_their_receipts_came(
    broker: Pulsar, cluster: PulsarCluster, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers keep up, and nothing is retained: what is stored cannot be looked for any more."""
    monkeypatch.setattr(pulsar_sink, "_TAIL_SECONDS", 1.0)
    topic = make_topic(keep=False)
    log = PulsarLog(cluster, topic, 0, 0)
    source = source_of(begun=False, since=time.time_ns() // 1_000_000)
    with closing(PulsarSubscription(log, "app")) as subscription, _Proxy(broker.service_url) as proxy:
        settings = PulsarSettings(service_url=proxy.url, admin_url=broker.admin_url)
        with PulsarCluster(settings) as behind:
            sink = sink_to(behind, topic, source)
            sink.put(batch_of(values(10), 0))
            sink.flush()
            proxy.is_deaf = True
            sink.put(batch_of(values(10, 10), 10))
            until = time.monotonic() + 60
            while log.latest().index < 20:
                assert time.monotonic() < until
                time.sleep(0.05)
            consume(cluster, log, subscription, 20)
            proxy.is_deaf = False
            proxy.cut()
            sink.flush()
            sink.close()
        # Nothing of it is marked: the next run does it again.
        again = sink_to(cluster, topic, replace(source, begun=True))
        again.put(batch_of(values(30), 0))
        again.flush()
        again.close()
        assert again.left_out == 20
        assert log.latest().index == 30


def consume(cluster: PulsarCluster, log: PulsarLog, subscription: PulsarSubscription, end: int) -> None:
    """Acknowledge everything; the ledger is closed, and the broker removes it."""
    position = log.latest()
    assert position.index == end
    subscription.commit(position)
    until = time.monotonic() + 60
    while cluster.call(log.start()) < end:
        assert time.monotonic() < until
        cluster.call(cluster.admin.unload(log.name))
        subscription.latest()
        time.sleep(3.0)


CRASH = """
import os, sys, threading
from pulsar_rows import batch_of
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkSource
from penstock.pipeline.delivery.pulsar.sink import PulsarSink

url, admin, topic, run, size = sys.argv[1:]
cluster = PulsarCluster(PulsarSettings(service_url=url, admin_url=admin))
source = SinkSource(run=run, topic="in", incarnation="1", partition=0, first=0)
sink = PulsarSink(cluster, [PulsarTarget(topic=topic, partitions=0)], source)
for at in range(0, 1_000_000, int(size)):
    sink.put(batch_of([b"%d" % n for n in range(at, at + int(size))], at))
"""


def test_a_writer_that_is_killed_between_send_and_receipt(
    broker: Pulsar, cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    topic, run = make_topic(), secrets.token_hex(4)
    log = PulsarLog(cluster, topic, 0, 0)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", CRASH, broker.service_url, broker.admin_url, topic, run, "100"],
        env=os.environ | {"PYTHONPATH": path},
    )
    try:
        deadline = time.monotonic() + 120
        while log.latest().index < 3000:
            assert time.monotonic() < deadline and child.poll() is None
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    sink = sink_to(cluster, topic, source_of(run))
    stored = len(values_in(cluster, topic))
    end = stored + 1000
    for at in range(0, end, 370):  # other borders than before
        sink.put(batch_of(values(min(370, end - at), at), at))
    sink.flush()
    sink.close()
    assert stored >= 3000
    assert values_in(cluster, topic) == values(end)


def test_a_connection_that_breaks_under_way(
    broker: Pulsar, cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    """Entries are sent again by the same producer; those that were stored come back as duplicates."""
    topic = make_topic()
    with _Proxy(broker.service_url) as proxy:
        settings = PulsarSettings(service_url=proxy.url, admin_url=broker.admin_url)
        options = Options(stall_timeout=2, window_entries=1 << 30, window_bytes=1 << 40)
        with PulsarCluster(settings, options=options) as behind:
            sink = sink_to(behind, topic, source_of())
            for at in range(0, 20_000, 100):
                sink.put(batch_of(values(100, at), at))
                if at in (3000, 9000, 15_000):
                    proxy.cut()
            sink.flush()
            sink.close()
    assert proxy.cuts == 3
    assert values_in(cluster, topic) == values(20_000)


@pytest.mark.parametrize("is_pending", [True, False], ids=["pending", "idle"])
def test_a_job_that_comes_back_after_another_has_taken_its_names_over(
    broker: Pulsar, cluster: PulsarCluster, make_topic: Callable[..., str], is_pending: bool
) -> None:
    """What it sends again would hide what the other one has not written: it must send nothing."""
    topic, source = make_topic(), source_of()
    with _Proxy(broker.service_url) as proxy:
        settings = PulsarSettings(service_url=proxy.url, admin_url=broker.admin_url)
        with PulsarCluster(settings) as behind:
            cut_off = sink_to(behind, topic, source)
            cut_off.put(batch_of(values(100), 0))
            cut_off.flush()
            proxy.is_open = False
            proxy.cut()
            if is_pending:
                cut_off.put(batch_of(values(100, 100), 100))
                cut_off.put(batch_of(values(100, 200), 200))
            successor = sink_to(cluster, topic, source)
            successor.put(batch_of(values(150), 0))
            successor.flush()
            successor.close()
            assert successor.left_out == 100
            lane = cut_off._lane(0, 0)
            reconnects = lane.producer.reconnects
            proxy.is_open = True
            if not is_pending:
                _await_change(
                    lambda: lane.producer.reconnects > reconnects or lane.producer.error is not None
                )
            with pytest.raises(PulsarRefused, match="under the name of this one"):
                cut_off.put(batch_of(values(100, 100), 300))
                cut_off.put(batch_of(values(100, 200), 400))
                cut_off.flush()
            cut_off.close()
    last = sink_to(cluster, topic, source)
    last.put(batch_of(values(300), 0))
    last.flush()
    last.close()
    assert values_in(cluster, topic) == values(300)


def _await_change(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class _Proxy:
    """Stands between a client and the broker, so that connections can be cut."""

    def __init__(self, service_url: str) -> None:
        host, _, port = service_url.removeprefix("pulsar://").partition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.cuts = 0
        self.is_open = True
        """Whether it lets anybody in."""
        self.is_deaf = False
        """Whether nothing comes through to the client."""

    def __enter__(self) -> _Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        self.cuts -= 1

    def cut(self) -> None:
        self.cuts += 1
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):  # the other side may have closed it
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                near.close()
                continue
            far = socket.create_connection(self._to)
            self._pairs.append((near, far))
            for one, other, is_answer in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._carry, args=(one, other, is_answer), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        try:
            while data := one.recv(1 << 16):
                if not (is_answer and self.is_deaf):
                    other.sendall(data)
        except OSError:
            pass
        finally:
            for end in (one, other):
                end.close()


def test_a_name_that_the_broker_has_forgotten(
    cluster: PulsarCluster, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real broker, its answer changed to what it gives for a name after the time of inactivity."""
    topic = make_topic()
    source = source_of()
    first = sink_to(cluster, topic, source)
    first.put(batch_of(values(60), 0))
    first.flush()
    first.close()
    other = sink_to(cluster, topic, source_of(begun=False))  # somebody else writes behind it
    other.put(batch_of([b"other"], 0))
    other.flush()
    other.close()
    accept = Producer._accept

    def forgetful(self: Producer, answer: Any, connection: Any) -> None:
        answer.last_sequence_id = -1
        accept(self, answer, connection)

    monkeypatch.setattr(Producer, "_accept", forgetful)
    again = sink_to(cluster, topic, source)
    again.put(batch_of(values(100), 0))
    again.flush()
    again.close()
    assert again.left_out == 60
    assert values_in(cluster, topic) == [*values(60), b"other", *values(40, 60)]


def test_the_broker_says_when_a_ledger_was_closed(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    """By that a look for what is stored knows where to begin."""
    topic = make_topic()
    sink = sink_to(cluster, topic, source_of())
    sink.put(batch_of(values(5), 0))
    sink.flush()
    before = time.time_ns() // 1_000_000
    cluster.call(cluster.admin.unload(topic))
    sink.put(batch_of(values(5, 5), 5))
    sink.flush()
    sink.close()
    *closed, _ = sorted(cluster.call(cluster.admin.ledger_ends(topic)).items())
    assert closed and all(before - 60_000 < end < before + 60_000 for _, end in closed)


def test_an_id_that_was_pushed_and_is_not_stored(
    cluster: PulsarCluster, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real broker, its answer changed twice to an id ahead of the topic, as after a failed write."""
    topic = make_topic()
    source = source_of()
    first = sink_to(cluster, topic, source)
    first.put(batch_of(values(10), 0))
    first.flush()
    first.close()
    accept, told = Producer._accept, []

    def ahead(self: Producer, answer: Any, connection: Any) -> None:
        told.append(answer.last_sequence_id)
        if len(told) < 3:
            answer.last_sequence_id += 5 << 16
        accept(self, answer, connection)

    monkeypatch.setattr(Producer, "_accept", ahead)
    again = sink_to(cluster, topic, source)
    again.put(batch_of(values(20), 0))
    again.flush()
    again.close()
    assert len(told) == 3
    assert values_in(cluster, topic) == values(20)


def test_deduplication_off_is_refused_with_the_command(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(deduplication=False)
    with pytest.raises(Refused, match="does not deduplicate") as caught:
        sink_to(cluster, topic, source_of())
    assert "pulsar-admin namespaces set-deduplication public/default --enable" in str(caught.value)


def test_a_name_in_use(cluster: PulsarCluster, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    source = source_of()
    holder = sink_to(cluster, topic, source)
    holder.put(batch_of(values(1), 0))
    holder.flush()
    late = sink_to(cluster, topic, source, name_wait=1.0)
    with pytest.raises(JobFailed, match="another job writes this output"):
        late.put(batch_of(values(1), 0))
    threading.Timer(0.5, holder.close).start()
    late = sink_to(cluster, topic, source, name_wait=30.0)
    late.put(batch_of(values(2), 0))
    late.flush()
    late.close()
    assert values_in(cluster, topic) == values(2)


def test_a_receipt_without_a_place_is_an_error(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    sink = sink_to(cluster, topic, source_of())
    sink.put(batch_of(values(10, 100), 100))
    sink.flush()
    lane = sink._lane(0, 0)
    entry = body_to_entry(body_of(values(3)), now=1)
    # Somebody who uses the name out of order, past the checks of the sink.
    sink._entries += 1
    said = (entry.num_messages, entry.publish_time, 5, 7, -1, -1)

    cluster.post(sink._on_thread, lane, entry, said, 0, 7)
    with pytest.raises(JobFailed, match="dropped records"):
        sink.flush()
    with pytest.raises(JobFailed):
        sink.put(batch_of(values(1, 200), 200))
    sink.restart()
    sink.put(batch_of(values(11, 100), 100))
    sink.flush()
    sink.close()
    assert values_in(cluster, topic) == values(11, 100)


def test_a_record_that_is_too_large(cluster: PulsarCluster, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    sink = sink_to(cluster, topic, source_of())
    fitting = [b"x" * 400_000] * 5  # together more than one entry holds
    sink.put(batch_of(fitting, 0))
    refusal = sink.offer(batch_of([b"a", b"y" * 1_100_000, b"b"], 5))
    assert refusal is not None and sink.was_refused
    assert [record for record, _ in refusal.error.records] == [1]
    sink.restart()
    assert not sink.was_refused
    sink.put(batch_of([*fitting, b"a"], 0))
    assert sink.offer(batch_of([b"b"], 7)) is None
    sink.close()
    assert values_in(cluster, topic) == [*fitting, b"a", b"b"]


def test_a_record_that_was_refused_is_refused_again(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    # An attempt that ended before its letter was durable has stored what comes behind it.
    topic, source = make_topic(), source_of()
    first = sink_to(cluster, topic, source)
    first.put(batch_of([b"a"], 0))
    first.put(batch_of([b"b"], 2))
    first.flush()
    first.close()
    second = sink_to(cluster, topic, source)
    refusal = second.offer(batch_of([b"a", b"y" * 1_100_000, b"b"], 0))
    assert refusal is not None and second.was_refused
    assert [record for record, _ in refusal.error.records] == [1]
    second.close()
    assert values_in(cluster, topic) == [b"a", b"b"]


def test_ids_out_of_order_are_refused(cluster: PulsarCluster, make_topic: Callable[..., str]) -> None:
    sink = sink_to(cluster, make_topic(), source_of())
    sink.put(batch_of(values(2, 5), 5))
    with pytest.raises(Exception, match="comes behind"):
        sink.put(batch_of(values(2, 4), 4))
    with pytest.raises(Exception, match="growing order"):
        sink.put(SinkBatch(0, 0, body_of(values(2))))
    sink.flush()
    sink.close()


def test_partitions_have_producers_of_their_own(
    cluster: PulsarCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    source = source_of()
    target = PulsarTarget(topic=topic, partitions=2)
    assert producer_name(source, target, 0) != producer_name(source, target, 1)
    assert producer_name(source, target, 0) != producer_name(replace(source, incarnation="2"), target, 0)
    sink = PulsarSink(cluster, [target], source)
    sink.put(batch_of(values(3), 0, partition=1))
    sink.put(batch_of(values(3), 0, partition=0))
    sink.flush()
    with pytest.raises(Exception, match="no partition 2"):
        sink.put(batch_of(values(1), 9, partition=2))
    sink.close()
    assert [values_in(cluster, topic, part, 2) for part in range(2)] == [values(3)] * 2
