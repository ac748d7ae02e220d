"""Outlets: what is said of one that is closed in the middle, and when receipts are written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.brokers.kafka_raw.produce_call import BatchError
from penstock.brokers.kafka_raw.producer import BatchRefusal
from penstock.errors import KafkaRefused, PenstockError, ProducerFenced, Unreachable
from penstock.pipeline.delivery import kafka_sink
from penstock.pipeline.delivery import sink as module
from penstock.pipeline.delivery.sink import opened
from penstock.pipeline.evaluators.kernel.batch_builder import Output
from penstock.wire.kafka.batch_body import BatchBody


class Producer:
    """Refuses the commit, and tells at the abort what has happened."""

    expired = False

    def __init__(self, at_abort: PenstockError | None) -> None:
        self.at_abort = at_abort
        self.closed = False

    def begin(self) -> None:
        return

    def commit(self, **_: object) -> None:
        raise KafkaRefused("cannot be committed", error_code=-1)

    def abort(self) -> None:
        if self.at_abort is not None:
            raise self.at_abort

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("at_abort", "told"),
    [
        (None, KafkaRefused),
        (Unreachable("nobody answers"), KafkaRefused),
        # The broker may answer an unknown error to one who is being shut out.
        (ProducerFenced("somebody else has the id", error_code=47), ProducerFenced),
    ],
)
def test_who_was_shut_out_says_so(
    monkeypatch: pytest.MonkeyPatch, at_abort: PenstockError | None, told: type[PenstockError]
) -> None:
    producer = Producer(at_abort)
    monkeypatch.setattr(module, "TransactionalProducer", lambda *_, **__: producer)
    program = SimpleNamespace(targets=(), receipts=frozenset())
    work: Any = SimpleNamespace(
        exactly_once=True, group="g", topic="t", program=program, pulsar_outputs={}, source_id="s"
    )
    cluster: Any = None
    with pytest.raises(told) as caught, opened(work, cluster, "loop") as outlet:
        outlet.commit({})
    assert type(caught.value) is told
    assert producer.closed


def test_no_two_sources_have_one_transactional_id() -> None:
    sources = [
        *(("shop.eu", "c", "in"), ("shop", "c", "eu.in"), ("shop", "eu", "in"), ("shop.eu.c", "", "in")),
        *(("shop/eu", "c", "in"), ("shop", "eu", "c/in"), ("shop", "eu/c", "in"), ("shop/eu/c", "", "in")),
        *(
            ("g", "", "persistent://t/n/in"),
            ("g//persistent:", "t", "n/in"),
            ("g", "", "persistent%3A//t/n/in"),
        ),
    ]
    found = set()
    for group, source_id, topic in sources:
        work: Any = SimpleNamespace(group=group, source_id=source_id, topic=topic)
        for name in ("loop", "0", "1"):
            made = module.transactional_id(work, name)
            assert made.startswith(f"{group}/"), "who may write with ids that begin with the group may use it"
            found.add(made)
    assert len(found) == 3 * len(sources)


class Recorded:
    """A producer that notes what it is asked for."""

    def __init__(self, calls: list[str], *_: object, **__: object) -> None:
        self.calls = calls
        self.calls.append("open")

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


@pytest.mark.parametrize(
    ("exactly_once", "told"),
    [
        # A transaction is begun before the first batch, and anew after one that was given up.
        (True, ["open", "begin", "offer", "offer", "abort", "begin", "send", "abort", "begin", "offer"]),
        # Nothing of the old producer is under way any more when the new one writes.
        (False, ["open", "offer", "offer", "settle", "open", "send", "settle", "open", "offer"]),
    ],
)
def test_what_is_put_after_a_restart_begins_anew(
    monkeypatch: pytest.MonkeyPatch, exactly_once: bool, told: list[str]
) -> None:
    calls: list[str] = []
    for name in ("TransactionalProducer", "Producer"):
        monkeypatch.setattr(module, name, lambda *_, **__: Recorded(calls))
    program = SimpleNamespace(targets=(SimpleNamespace(topic="out", sink=0),), receipts=frozenset())
    work: Any = SimpleNamespace(
        exactly_once=exactly_once, group="g", topic="t", program=program, pulsar_outputs={}, source_id="s"
    )
    cluster, output = None, SimpleNamespace(target=0, partition=0, body=b"")
    with opened(work, cluster, "loop") as outlet:  # type: ignore[arg-type]
        outlet.offer(output)  # type: ignore[arg-type]
        outlet.offer(output)  # type: ignore[arg-type]
        outlet.restart()
        outlet.put(output)  # type: ignore[arg-type]
        outlet.restart()
        outlet.offer(output)  # type: ignore[arg-type]
        assert calls == told


class Written:
    """A producer, or the offsets of a group, that notes what is written with it, and refuses some topics."""

    expired = was_refused = False

    def __init__(self, calls: list[str], name: str) -> None:
        self.calls, self.name = calls, name

    def send(self, topic: str, partition: int, body: BatchBody) -> None:
        self.calls.append(f"{self.name} send {topic} {bytes(body.records)!r}")

    def offer(self, topic: str, partition: int, body: BatchBody) -> BatchRefusal | None:
        self.calls.append(f"{self.name} offer {topic} {bytes(body.records)!r}")
        return BatchRefusal(87, BatchError()) if topic == "compacted" else None

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(f"{self.name} {name}")


def output(target: int, memory: bytearray) -> Output:
    return Output(target, 0, BatchBody(memoryview(memory), 1, 0, 0))


def work_with_receipts(**more: Any) -> Any:
    """Target 0 is output, 1 and 2 are receipts, of which the second refuses everything."""
    sinks = more.pop("sinks", (0, 0, 0))
    targets = [
        SimpleNamespace(topic=topic, sink=sink)
        for topic, sink in zip(("out", "receipts", "compacted"), sinks, strict=True)
    ]
    program = SimpleNamespace(targets=targets, receipts=frozenset({1, 2}))
    more = {"pulsar": None, "progress": None, "pulsar_outputs": {}, "kept_plan": None, **more}
    stage = SimpleNamespace(routes=())
    return SimpleNamespace(group="g", topic="t", program=program, stage=stage, source_id="s", **more)


def test_receipts_are_written_when_everything_else_is_acknowledged_and_before_the_marks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(module, "Producer", lambda *_: Written(calls, "producer"))
    monkeypatch.setattr(module, "GroupOffsets", lambda *_: Written(calls, "group"))
    memory, cluster = bytearray(b"1"), cast(Any, None)
    with opened(work_with_receipts(exactly_once=False), cluster, "loop") as outlet:
        outlet.put(output(1, bytearray(b"given up")))
        outlet.restart()
        outlet.put(output(1, memory))
        memory[:] = b"2"  # it is used again
        outlet.put(output(0, memory))
        assert outlet.offer(output(2, bytearray(b"3"))) is None
        calls.clear()
        outlet.commit({})
        outlet.commit({})
    first = [
        "producer flush",
        "producer offer receipts b'1'",
        "producer offer compacted b'3'",
        "group commit",
    ]
    assert calls == [*first, "producer flush", "group commit", "producer close"]
    assert "compacted refuses 1 receipts" in caplog.text


def test_receipts_on_a_cluster_without_marks_come_behind_all_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    made = Written(calls, "transaction")
    monkeypatch.setattr(module, "TransactionalProducer", lambda *_, **__: made)
    monkeypatch.setattr(kafka_sink, "Producer", lambda *_: Written(calls, "producer"))
    monkeypatch.setattr(kafka_sink, "GroupOffsets", lambda *_: Written(calls, "group"))
    monkeypatch.setattr(kafka_sink, "output_cluster", lambda cluster, sink: None)
    work = work_with_receipts(sinks=(1, 0, 1), progress_key=None)
    found = kafka_sink.FanOut(work, cast(Any, None), "loop")
    assert found.sinks == (1,)
    found.put(output(1, bytearray(b"given up")))
    found.restart()
    for target in range(3):
        found.put(output(target, bytearray(b"%d" % target)))
    calls.clear()
    found.commit({})
    found.commit({})
    assert [call for call in calls if not call.endswith("begin")] == [
        "transaction flush",
        "transaction commit",
        "producer offer receipts b'1'",
        "producer close",
        "group commit",
        "transaction commit",
        "group commit",
    ]
