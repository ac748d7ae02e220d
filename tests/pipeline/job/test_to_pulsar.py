"""Kafka to Pulsar in the delivery: exactly once by deduplication, on Spark and in the loop, no gateway."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from to_pulsar import ToPulsar, ask, event_record, events_with_poison

from penstock.brokers.pulsar import Producer
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import AccessDenied, JobFailed, PipelineError, Refused
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.pipeline.delivery import range_clock
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.delivery.sink import TransactionalSink
from penstock.pipeline.job import JobOptions, job_of
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]
Make = Callable[..., ToPulsar]


@pytest.fixture
def shop(tmp_path: Path, kafka: Kafka, pulsar: Pulsar) -> Iterator[Make]:
    made: list[ToPulsar] = []

    def make(**more: Any) -> ToPulsar:
        made.append(ToPulsar(folder=tmp_path, servers={"kafka": kafka}, **{"pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


@pytest.mark.parametrize("dead", ["dead", "pdead"])
def test_a_loop_writes_each_event_once(shop: Make, dead: str) -> None:
    project = shop().create(partitions=2).write(dead=dead)
    project.produce(events_with_poison(3000))
    totals = project.run(None, engine="loop")
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_dead"]) == (3030, 3000, 30)
    again = project.run(None, engine="loop")
    assert again.counts["n_in"] == 0
    project.assert_every_event_is_there_once(3000, dead=dead)


@contextmanager
def crash_before_the_mark(number: int = 1) -> Iterator[None]:
    """Let a job end when Pulsar has acknowledged everything and the mark is not committed."""
    usual, commits = TransactionalSink.commit, count()

    def commit(self: TransactionalSink, marks: Mapping[int, RangeProgress]) -> None:
        if next(commits) >= number:  # the first one says where it begins
            raise JobFailed("crash")
        usual(self, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionalSink, "commit", commit)
        with pytest.raises(JobFailed, match="crash"):
            yield


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["known", "forgotten"])
def test_what_is_stored_and_not_marked_is_not_written_again(
    shop: Make, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    """Also if the target has more partitions by then, and if the broker has forgotten the producers."""
    project = shop().create(partitions=2).write(dead="pdead")
    project.produce(events_with_poison(1500))
    with crash_before_the_mark():
        project.run(None, engine="loop")
    project.assert_every_event_is_there_once(1500, dead="pdead")
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 5)
    if is_forgotten:
        forgets = property(lambda self: -1, lambda self, value: None)
        monkeypatch.setattr(Producer, "last_sequence_id", forgets, raising=False)
    project.run(None, engine="loop")
    project.assert_every_event_is_there_once(1500, dead="pdead")
    assert not any(project.messages("pout")[part] for part in (2, 3, 4))
    monkeypatch.undo()
    project.produce(events_with_poison(500, first=1500))
    project.run(None, engine="loop")
    project.assert_every_event_is_there_once(2000, dead="pdead", is_divided_anew=True)
    assert all(project.messages("pout")[part] for part in (2, 3, 4)), "partitions were not taken over"


def test_both_profiles_are_read_by_a_plain_client(shop: Make) -> None:
    project = shop().create().write({"send": ["send-pout", "send-pold"]})
    event = CloudEvent(
        {"id": "e-0", "source": "/s", "type": "t", "datacontenttype": "application/json", "subject": "ä"},
        b'{"n": 0}',
    )
    given = KafkaBinding().encode(event, key=b"\xff")
    beside = (("app", b"text"), ("raw", b"\xff"), ("CE-Mine", b"an attribute on Pulsar"))
    project.produce(
        [
            given,
            KafkaRecord(value=given.value, key=b"k", headers=given.headers + beside[:2]),
            KafkaRecord(value=given.value, key=b"k", headers=given.headers + beside[2:]),
            event_record(1),
        ]
    )
    totals = project.run(None, engine="loop")
    assert (totals.counts["n_out"], totals.counts["n_dead"]) == (6, 1)
    for channel, name in (("pout", "ce_id"), ("pold", "CE-EventID")):
        found = project.messages(channel)
        messages = [message for part in found.values() for message in part]
        assert sorted(message.properties()[name] for message in messages) == ["e-0", "e-0", "e-1"]
        by_key = {message.partition_key(): message for message in messages}
        assert by_key.keys() == {"/w==", "k", ""}  # a key that is no text is in base64
        assert by_key["k"].data() == b'{"n": 0}'
        assert by_key["k"].properties()["app"] == "text"
        assert [each for _, _, each in project.events(channel) if each.id == "e-0"][0] == event


@pytest.mark.parametrize("dead", ["dead", "pdead"])
def test_what_pulsar_does_not_take_is_a_dead_letter(shop: Make, dead: str) -> None:
    """One is too large by its bytes, the other because its key grows: that is only seen when it is sent."""
    project = shop().create(targets=1).write(dead=dead)
    path = f"{project.path('pout')}/maxMessageSize"
    ask(project.pulsar, "POST", path, 10_000)
    until(lambda: ask(project.pulsar, "GET", f"{path}?applied=true") == 10_000)
    usual, large = event_record(2, b"k"), event_record(3, b"k")
    grows = event_record(5, b"\xff" * 6000)
    poison = KafkaRecord(value=b"poison")
    given = [usual, KafkaRecord(value=b"x" * 12_000, key=b"k", headers=large.headers), event_record(4), grows]
    given[3] = KafkaRecord(value=b"y" * 3000, key=grows.key, headers=grows.headers)
    project.produce([*given, poison, *(event_record(number, b"k") for number in range(6, 40)), poison])
    totals = project.run(None, engine="loop")
    assert (totals.counts["n_out"], totals.counts["n_dead"]) == (36, 4)
    found = sorted(int(event.id[2:]) for _, _, event in project.events("pout"))
    assert found == [2, 4, *range(6, 40)]
    letters = sorted(
        (letter.code, letter.record.offset) for letter in map(read_dead_letter, project.letters(dead))
    )
    assert letters == [("not-a-cloudevent", 4), ("not-a-cloudevent", 39), ("too-large", 1), ("too-large", 3)]


def test_a_topic_that_does_not_deduplicate_is_refused_before_anything_runs(shop: Make) -> None:
    project = shop().create().write()
    path = f"{project.path('pout')}/deduplicationEnabled"
    ask(project.pulsar, "POST", path, False)
    until(lambda: ask(project.pulsar, "GET", f"{path}?applied=true") is False)
    project.produce([event_record(0)])
    with pytest.raises(Refused, match="does not deduplicate") as refused:
        project.run(None, engine="loop")
    assert "set-deduplication public/default --enable" in str(refused.value.next)
    assert not any(project.messages("pout").values())
    project.run(None, engine="loop", exactly_once=False)
    assert [event.id for _, _, event in project.events("pout")] == ["e-0"]


@pytest.mark.parametrize("call", [None, {"function": "own:same", "deterministic": True}])
def test_a_moment_is_kept_for_what_pulsar_has_got(
    shop: Make, monkeypatch: pytest.MonkeyPatch, call: Mapping[str, Any] | None
) -> None:
    """By the second run no event would pass the condition any more; what was begun is finished as it was."""
    begun = time.time()
    until_then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun + 3600))
    route = {"where": f"now() < '{until_then}'", **({"apply": call} if call else {})}
    project = shop().create(partitions=2).write(route, **{"exactly-once": "required"})
    (project.folder / "own.py").write_text("def same(batch):\n    yield from batch\n", encoding="utf-8")
    project.produce(event_record(number, b"k%d" % number) for number in range(300))
    with job_of(project.pipeline(), JobOptions(once=True, engine="loop")) as job:
        job.prepare()
        assert job.plan[0].guarantee.startswith("exactly once on pulsar")
    with crash_before_the_mark(2):  # the second one fixes the moment
        project.run(None, engine="loop")
    assert any(project.messages("pout").values())

    class Later:
        time_ns = staticmethod(lambda: int((begun + 7200) * 1e9))

    monkeypatch.setattr(range_clock, "time", Later)
    project.run(None, engine="loop")
    found = Counter(event.id for _, _, event in project.events("pout"))
    assert found == Counter(f"e-{number}" for number in range(300))
    project.produce(event_record(number) for number in range(300, 310))
    counts = project.run(None, engine="loop").counts
    assert (counts["n_unmatched"], counts["n_out"]) == (10, 0), "what came later has a moment of its own"


def test_a_route_that_cannot_be_repeated_is_at_least_once_and_says_so(shop: Make) -> None:
    route = {"apply": "own:same"}
    project = shop().create().write(route)
    (project.folder / "own.py").write_text("def same(batch):\n    yield from batch\n", encoding="utf-8")
    with job_of(project.pipeline(), JobOptions(once=True, engine="loop")) as job:
        job.prepare()
        assert job.plan[0].guarantee.startswith("at least once on pulsar")
        assert "does not say deterministic: true" in job.plan[0].guarantee
    project.write(route, **{"exactly-once": "required"})
    with (
        job_of(project.pipeline(), JobOptions(once=True, engine="loop")) as job,
        pytest.raises(PipelineError, match="requires exactly once"),
    ):
        job.prepare()


def test_a_secured_pulsar_is_written_with_a_token(
    shop: Make, secured_pulsar: Pulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", secured_pulsar.token())
    security = {"token": "${env:TOKEN}", "ca_file": str(secured_pulsar.ca_file)}
    project = shop(pulsar=secured_pulsar, context_of_pulsar={"security": security})
    project.create(partitions=2).write(dead="pdead")
    project.produce(events_with_poison(300))
    project.run(None, engine="loop")
    project.assert_every_event_is_there_once(300, dead="pdead")
    monkeypatch.setenv("TOKEN", secured_pulsar.token("nobody"))
    with pytest.raises(AccessDenied) as denied:
        project.run(None, engine="loop")
    assert secured_pulsar.token("nobody") not in str(denied.value)


def test_what_an_operator_sets_back_is_written_again(shop: Make) -> None:
    """Offsets without our text begin under a new name: ids of the old one would leave everything out."""
    project = shop().create().write()
    project.produce(event_record(number) for number in range(10))
    project.run(None, engine="loop")
    project.admin().commit("penstock.t.kafka-" + project.topic("in"), project.topic("in"), {0: 5})
    project.run(None, engine="loop")
    found = Counter(event.id for _, _, event in project.events("pout"))
    assert found == Counter([f"e-{number}" for number in (*range(10), *range(5, 10))])


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.soak
def test_a_broker_that_has_really_forgotten_its_producers(
    shop: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Its shortest time is a minute, and it looks three times in that."""
    settings = {
        "brokerDeduplicationProducerInactivityTimeoutMinutes": "1",
        "brokerDeduplicationEntriesInterval": "1",
    }
    with Pulsar(durable=False, settings=settings) as own:
        project = shop(pulsar=own).create(partitions=2, targets=1).write(dead="pdead")
        project.produce(events_with_poison(1500))
        with crash_before_the_mark():
            project.run(None, engine="loop")
        project.assert_every_event_is_there_once(1500, dead="pdead")

        def known() -> Any:
            stats = ask(own, "GET", f"{project.path('pout')}-partition-0/internalStats")
            return stats["cursors"]["pulsar.dedup"]["properties"]

        until(lambda: bool(known()))
        until(lambda: not known(), seconds=180)
        project.run(None, engine="loop")
        assert "the broker forgot producer" in caplog.text
        project.assert_every_event_is_there_once(1500, dead="pdead")
