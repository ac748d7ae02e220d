"""Routes that the reference decides alone, by loops on a real Kafka: functions, receipts, plain records.

The same in Spark's tasks, and typed data: test_functions, test_exactly_once, typed/test_typed_job.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import psutil
import pytest

from penstock.embedded.kafka import Kafka
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.delivery import partition_reader, sink
from penstock.pipeline.evaluators.reference.batch_router import Bounds, ReferenceBatchRouter
from penstock.pipeline.job import JobOptions, job_of
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
Make = Callable[..., Any]

MODULE = """
import os, time
from pathlib import Path
from penstock.events import Drop

def work(batch):
    for event in batch:
        want = event.attribute_str("want")
        if want == "raise":
            raise ValueError("no way")
        if want == "sleep":
            time.sleep(3)
        yield Drop() if want == "drop" else event

def noted(batch):
    with Path(__file__).with_name("calls").open("a") as calls:
        for event in batch:
            calls.write(event.id + "\\n")
            yield event

def pid(batch):
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    yield from batch
"""


def event(number: int, want: str = "keep", **more: str) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    made = CloudEvent(attributes | more, json.dumps({"want": want, "n": number}).encode())
    return KafkaBinding().encode(made, key=b"k%d" % (number % 7))


def shop_with(project: Make, route: dict[str, Any], *, partitions: int = 1, **more: Any) -> Any:
    shop = project(**more).create(partitions=partitions)
    (shop.folder / "work.py").write_text(MODULE, encoding="utf-8")
    return shop.write(route)


def ids(records: Iterable[KafkaRecord]) -> list[str]:
    return [KafkaBinding().decode(record).id for record in records]


def test_a_function_that_raises_drops_and_answers_is_counted_exactly(project: Make) -> None:
    shop = shop_with(project, {"apply": {"function": "work:work", "batch": 20}}, places={"receipts": "kafka"})
    wants = ["raise" if n % 25 == 3 else "drop" if n % 10 == 5 else "keep" for n in range(300)]
    asked = {"receiptqueue": "receipts"}
    shop.produce(event(n, want, **(asked if n % 50 < 6 else {})) for n, want in enumerate(wants))
    counts = shop.run(None, engine="loop").counts
    kept = [f"e-{n}" for n, want in enumerate(wants) if want == "keep"]
    assert ids(shop.read("out")) == kept
    letters = [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]
    assert Counter(letter.code for letter in letters) == {"function-error": wants.count("raise")}
    told = [KafkaBinding().decode(each).json() for each in shop.read("receipts")]
    ends = {"keep": "emitted", "drop": "dropped", "raise": "dead"}
    expected = {f"e-{n}": ends[wants[n]] for n in range(300) if n % 50 < 6}
    assert {each["id"]: each["outcome"] for each in told} == expected  # type: ignore[index, call-overload]
    assert len(told) == len(expected)
    shown = {name: counts[name] for name in ("n_in", "n_out", "n_dropped", "n_dead")}
    assert shown == {
        "n_in": 300,
        "n_out": len(kept),
        "n_dropped": wants.count("drop"),
        "n_dead": wants.count("raise"),
    }
    assert shop.run(None, engine="loop").counts["n_in"] == 0


def test_a_function_that_takes_longer_than_a_transaction_goes_on_and_writes_once(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker aborts a transaction of two seconds; a call takes three.

    A broker looks for such transactions every ten seconds, unless it is told to look more often.
    """
    monkeypatch.setattr(sink, "TRANSACTION_SECONDS", 2.0)
    bounds = Bounds(flush_records=10, step_records=5)
    monkeypatch.setattr(
        partition_reader,
        "ReferenceBatchRouter",
        lambda *given, **more: ReferenceBatchRouter(*given, bounds=bounds, **more),
    )
    with Kafka(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as kafka:
        route = {"apply": {"function": "work:work", "batch": 5}}
        shop = shop_with(project, route, servers={"kafka": kafka})
        shop.produce(event(n, "sleep" if n in (3, 12) else "keep") for n in range(30))
        counts = shop.run(None, engine="loop").counts
        assert ids(shop.read("out")) == [f"e-{n}" for n in range(30)]
    assert (counts["n_in"], counts["n_out"], counts["n_dead"]) == (30, 30, 0)


def until(what: str, check: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_the_child_of_a_function_lives_on_between_batches_is_started_anew_and_ends_with_the_job(
    project: Make,
) -> None:
    shop = shop_with(project, {"apply": "work:pid"})
    job, file = job_of(shop.pipeline(), JobOptions(engine="loop")), shop.folder / "pid"

    def child_of(number: int) -> int:
        """Send an event and wait for it; give the process that has seen it."""
        file.unlink(missing_ok=True)
        shop.produce([event(number)])
        until("it does not arrive", lambda: len(shop.read("out")) == number + 1)
        return int(file.read_text())

    with job:
        job.prepare()
        running = threading.Thread(target=job.run)
        running.start()
        try:
            first = child_of(0)
            assert child_of(1) == first
            psutil.Process(first).send_signal(signal.SIGKILL)
            second = child_of(2)
            assert second != first
        finally:
            job.stop()
            running.join(60)
    assert not running.is_alive()
    assert not psutil.pid_exists(second)
    assert ids(shop.read("out")) == ["e-0", "e-1", "e-2"]
    assert shop.read("dead") == []


def test_what_a_topic_refuses_is_a_letter_and_the_function_is_asked_once_more(project: Make) -> None:
    """The output is compacted behind the back of the job, so the broker refuses records without a key.

    What was refused is not kept, so the function is called again, once however many attempts it takes.
    """
    shop = shop_with(project, {"apply": "work:noted", "key": "none"})
    shop.produce(event(n) for n in range(20))
    with job_of(shop.pipeline(), JobOptions(engine="loop", once=True)) as job:
        job.prepare()
        shop.admin("out").change_settings(shop.topic("out"), {"cleanup.policy": "compact"})
        job.run()
        (totals,) = job.totals.values()
    letters = [read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead")]
    assert Counter(letter.code for letter in letters) == {"no-key": 20}
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (20, 0, 20)
    calls = (shop.folder / "calls").read_text(encoding="utf-8").split()
    assert Counter(calls) == {f"e-{number}": 2 for number in range(20)}


def test_plain_records_go_through_a_loop_as_they_came(project: Make) -> None:
    shop = shop_with(project, {"events": "plain", "where": "data.want = 'keep'"}, partitions=2)
    bodies = [b'{"want":"%s"}' % (b"keep" if n % 3 else b"drop") for n in range(60)]
    headers = (("content-type", b"application/json"), ("event-type", b"kind=x"))
    shop.produce(
        KafkaRecord(key=b"%d" % n, value=body, headers=headers, partition=n % 2)
        for n, body in enumerate(bodies)
    )
    counts = shop.run(None, engine="loop").counts
    found = Counter(KafkaBinding().decode(each).get("source") for each in shop.read("out"))
    assert found == {f"/kafka/{shop.topic('in')}": 40}
    assert (counts["n_in"], counts["n_out"], counts["n_unmatched"]) == (60, 40, 20)


def test_a_condition_without_a_kernel_form_goes_through_a_loop(project: Make) -> None:
    shop = shop_with(project, {"where": "data.n = data.want OR data.want = 'yes'"})
    shop.produce(event(n, "yes" if n % 2 else "no") for n in range(10))
    counts = shop.run(None, engine="loop").counts
    assert ids(shop.read("out")) == [f"e-{n}" for n in range(1, 10, 2)]
    assert (counts["n_in"], counts["n_unmatched"]) == (10, 5)
