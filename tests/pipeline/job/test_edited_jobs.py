"""Edits of a pipeline whose loop writes to Pulsar, from both brokers, on real servers.

Each event has to come once, whatever was open when the job ended, and by one edition of the routes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pulsar_to_pulsar import PulsarToPulsar
from to_pulsar import ToPulsar, ask, event_record

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.errors import CheckpointMismatch, JobFailed
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.delivery.kafka_sink import FanOut
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.job.kept_plan import KeptPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

REQUIRED: Mapping[str, Any] = {"exactly-once": "required"}
KEPT: Mapping[str, Any] = {"exactly-once": "required", "name": "edited"}


class Shop:
    """A project that reads one of the brokers, with what is done to it and seen of it."""

    def __init__(self, project: ToPulsar) -> None:
        self.project = project.create(1, targets=3)

    def send(self, numbers: range) -> None:
        if isinstance(self.project, PulsarToPulsar):
            self.project.send(numbers, poison=0)
        else:
            self.project.produce(event_record(n, b"k%d" % (n % 50)) for n in numbers)

    def write(self, route: Mapping[str, Any], **pipeline: Any) -> None:
        self.project.write({"set": {"subject": "'old'"}, **route}, **pipeline)

    def run(self) -> Counter[str]:
        spark: Any = None
        return Counter(self.project.run(spark, engine="loop").counts)

    def rename_route(self, name: str) -> None:
        path = self.project.folder / "pipeline.yaml"
        pipeline = json.loads(path.read_text(encoding="utf-8"))
        pipeline["routes"] = {name: pipeline["routes"]["r"]}
        path.write_text(json.dumps(pipeline), encoding="utf-8")

    def make_source_again(self) -> None:
        project, topic = self.project, self.project.topic("in")
        if isinstance(project, PulsarToPulsar):
            ask(project.pulsar, "DELETE", f"{project.path('in')}/partitions?force=true")
            ask(project.pulsar, "PUT", f"{project.path('in')}/partitions", 1)
            return
        project.admin().delete_topic(topic)
        project.admin().create_topic(topic, partitions=1, replicas=1, settings={})

    def assert_each_once(
        self, events: int, *channels: str, subjects: Mapping[str, int] | None = None
    ) -> None:
        """Each event came once, on one of the channels; of the events, so many have each subject."""
        found = [event for channel in channels for event in self._events(channel)]
        causes = Counter(event.get("causationid") or event.id for event in found)
        twice = sorted(cause for cause, number in causes.items() if number > 1)
        assert (len(causes), len(twice)) == (events, 0), f"{len(causes)} events, {len(twice)} of them twice"
        if subjects is not None:
            assert Counter(event.subject for event in found) == Counter(subjects)

    def _events(self, channel: str) -> list[Any]:
        if self.project.is_on_pulsar(channel):
            return [event for _, _, event in self.project.events(channel)]
        return [KafkaBinding().decode(each) for each in self.project.read(channel)]


Make = Callable[..., Shop]


@pytest.fixture
def shop(tmp_path: Path, kafka: Kafka, pulsar: Pulsar) -> Make:
    def make(source: str, **more: Any) -> Shop:
        if source == "kafka":
            return Shop(ToPulsar(folder=tmp_path, servers={"kafka": kafka}, pulsar=pulsar, **more))
        return Shop(PulsarToPulsar(folder=tmp_path, servers={}, pulsar=pulsar, **more))

    return make


@contextmanager
def crash_before_the_mark(number: int = 1) -> Iterator[None]:
    """Let a loop end when Pulsar has stored everything of a range, and none of its marks is written."""
    usual, commits = FanOut.commit, count()

    def commit(self: FanOut, marks: Mapping[int, RangeProgress]) -> None:
        if next(commits) >= number:  # the first one says where it begins
            for each in self._pulsar.values():
                each.flush()
            raise JobFailed("crash")
        usual(self, marks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FanOut, "commit", commit)
        with pytest.raises(JobFailed, match="crash"):
            yield


BOTH = pytest.mark.parametrize("source", ["kafka", "pulsar"])


# What was open when the job ended


@BOTH
@pytest.mark.parametrize(
    "after",
    [
        {"key": "id"},
        {"set": {"subject": "'new'"}},
        {"set": {"subject": "'new'"}, "send": "send-pdead"},
        {"where": "type = 'nothing'"},
    ],
    ids=["key", "set", "send", "where"],
)
def test_an_open_range_is_finished_by_the_routes_that_began_it(
    shop: Make, source: str, after: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = shop(source)
    made.write({}, **KEPT)
    made.send(range(600))
    with crash_before_the_mark():
        made.run()
    made.write(after, **KEPT)
    made.send(range(600, 700))
    made.run()
    assert "is finished by the routes that began it" in caplog.text
    is_left_out = "where" in after
    new = {} if is_left_out else {"old" if "key" in after else "new": 100}
    subjects = Counter({"old": 600}) + Counter(new)
    made.assert_each_once(600 if is_left_out else 700, "pout", "pdead", subjects=subjects)
    made.run()
    made.assert_each_once(600 if is_left_out else 700, "pout", "pdead", subjects=subjects)


def test_an_open_range_is_finished_where_the_edited_routes_write_no_pulsar(shop: Make) -> None:
    made = shop("kafka")
    made.write({}, **KEPT)
    made.send(range(600))
    with crash_before_the_mark():
        made.run()
    made.write({"send": "send", "set": {"subject": "'new'"}}, **KEPT)
    made.send(range(600, 700))
    made.run()
    made.assert_each_once(700, "pout", "out", subjects={"old": 600, "new": 100})


@BOTH
def test_a_crash_while_an_earlier_plan_finishes_loses_and_repeats_nothing(shop: Make, source: str) -> None:
    made = shop(source)
    made.write({}, **KEPT)
    made.send(range(600))
    with crash_before_the_mark():
        made.run()
    made.send(range(600, 650))
    for subject, commits in (("second", 1), ("third", 2), ("fourth", 3)):
        made.write({"set": {"subject": f"'{subject}'"}, "key": "id"}, **KEPT)
        with crash_before_the_mark(commits):
            made.run()
    made.write({"set": {"subject": "'last'"}, "key": "none"}, **KEPT)
    made.run()
    made.assert_each_once(650, "pout")


@BOTH
def test_what_cannot_be_finished_is_refused_or_said(
    shop: Make, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = shop(source)
    with monkeypatch.context() as patch:
        patch.setattr(KeptPlan, "packed", lambda self: None)  # as files that are too large
        made.write({}, **KEPT)
        made.send(range(600))
        with crash_before_the_mark():
            made.run()
    made.write({"key": "id"}, **KEPT)
    with pytest.raises(CheckpointMismatch, match="was begun by other routes"):
        made.run()
    made.assert_each_once(600, "pout")
    made.write({"key": "id"}, name="edited")
    assert made.run()["n_in"] == 600
    assert "is delivered at least once" in caplog.text
    # Put back as it was, it goes on, and leaves nothing open: the next edit needs no kept plan.
    made.write({}, **KEPT)
    made.send(range(600, 610))
    assert made.run()["n_in"] == 10


@BOTH
def test_a_loop_that_came_to_its_end_leaves_nothing_open(
    shop: Make, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shop(source)
    monkeypatch.setattr(KeptPlan, "packed", lambda self: None)
    made.write({}, **KEPT)
    for first, subject in ((0, "old"), (100, "new")):
        made.write({"set": {"subject": f"'{subject}'"}, "key": "id"}, **KEPT)
        made.send(range(first, first + 100))
        made.run()
    made.assert_each_once(200, "pout", subjects={"old": 100, "new": 100})


@pytest.mark.slow
def test_an_open_batch_of_spark_is_finished_by_the_plan_that_began_it(
    shop: Make, spark: SparkSession
) -> None:
    made = shop("kafka")
    project = made.project
    made.write({}, **KEPT)
    made.send(range(600))
    project.run(spark)
    # As after a crash before the marks: the batch is not noted as done, and the group is behind.
    checkpoints = project.folder / ".penstock" / "checkpoints"
    (mark,) = checkpoints.glob("kafka-*.json")
    for left in (checkpoints / mark.stem / "commits").glob("*0*"):
        left.unlink()
    project.admin().commit(json.loads(mark.read_text())["query"], project.topic("in"), {0: 4})
    made.write({"key": "id", "set": {"subject": "'new'"}}, **KEPT)
    made.send(range(600, 700))
    project.run(spark)
    made.assert_each_once(700, "pout", subjects={"old": 600, "new": 100})


# Rows of the table of edits


@BOTH
def test_an_edited_condition_goes_on(shop: Make, source: str) -> None:
    made = shop(source)
    made.write({"where": "id <> 'e-150'"}, **REQUIRED)
    made.send(range(100))
    made.run()
    made.write({"where": "id <> 'e-120'", "set": {"subject": "'new'"}}, **REQUIRED)
    made.send(range(100, 200))
    assert made.run()["n_in"] == 100
    made.assert_each_once(199, "pout", subjects={"old": 100, "new": 99})


@BOTH
@pytest.mark.parametrize("edit", ["target", "route"])
@pytest.mark.parametrize("name", [None, "edited"])
def test_another_target_or_route_goes_on_with_a_name(
    shop: Make, source: str, edit: str, name: str | None
) -> None:
    made = shop(source)
    more = {**REQUIRED, **({} if name is None else {"name": name})}
    made.write({}, **more)
    made.send(range(100))
    made.run()
    made.write({"send": "send-pdead"} if edit == "target" else {}, **more)
    if edit == "route":
        made.rename_route("renamed")
    made.send(range(100, 200))
    if name is None:
        with pytest.raises(CheckpointMismatch, match="the group belongs to another pipeline"):
            made.run()
        made.assert_each_once(100, "pout", "pdead")
        return
    assert made.run()["n_in"] == 100
    made.assert_each_once(200, "pout", "pdead")


@BOTH
def test_another_topic_of_the_same_name_is_refused(shop: Make, source: str) -> None:
    """Kafka forgets the offsets of a group with the topic: there nothing is left that could be refused."""
    made = shop(source)
    made.write({}, **KEPT)
    made.send(range(100))
    made.run()
    made.make_source_again()
    made.send(range(100, 110))
    if source == "kafka":
        assert made.run()["n_in"] == 10
        made.assert_each_once(110, "pout")
        return
    with pytest.raises(CheckpointMismatch) as caught:
        made.run()
    assert "deleted and made again" in (caught.value.why or "")
    made.assert_each_once(100, "pout")
