"""Progress belongs to a pipeline and a topic: that of others is refused, that of older versions is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import CheckpointMismatch, UsageError
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.assembly import sources_of
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.delivery.range_progress import Belonging, Owner, RangeProgress, read_belonging
from penstock.pipeline.job import JobOptions, Watcher, job_of, preparation
from penstock.pipeline.job import loop as job_loop
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.fingerprint import read_fingerprint
from penstock.pipeline.job.loop import owner_of
from penstock.pipeline.job.survey import Survey, survey
from penstock.pipeline.spark.file_system import LocalFileSystem
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE = Path(__file__).parent / "checkpoint_before"
"""What the version before wrote for a topic `in` of two partitions, with seven records of each read."""

Make = Callable[..., Any]


def record(number: int) -> KafkaRecord:
    event = CloudEvent({"id": f"e-{number}", "source": "/s", "type": "t"}, b"x")
    return KafkaBinding().encode(event)


def looped(project: Any, name: str = "pipeline.yaml", **options: Any) -> tuple[int, list[str]]:
    """Run the one source by a loop, once; give how many records came in, and what was noted."""
    notes: list[str] = []

    class Notes(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    with job_of(project.pipeline(name), JobOptions(once=True, engine="loop", **options)) as job:
        job.watch(Notes())
        job.prepare()
        job.run()
        (totals,) = job.totals.values()
        return totals.counts["n_in"], notes


def test_the_files_of_the_version_before_are_read() -> None:
    checkpoint = Checkpoint(files=LocalFileSystem(BEFORE), name="kafka-in")
    assert checkpoint.position("in") == {0: 7, 1: 7}
    found = read_fingerprint(checkpoint.files, checkpoint.fingerprint)
    assert found is not None
    assert (found.topic_id, found.exactly_once) == ("z1F125UNQMKaAbNdytGHag", None)
    assert found.marks == ("penstock.kafka-in.9a605428b879", {0: 0, 1: 0})


def test_a_pipeline_without_targets_knows_its_own_marks(tmp_path: Path) -> None:
    (tmp_path / "asyncapi.yaml").write_text(
        "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\nservers: {k: {host: 'k:1', protocol: kafka}}\n"
        "channels:\n  in: {address: in, x-penstock-dead-letter: {$ref: '#/channels/dead'}}\n"
        "  dead: {address: dead}\n"
        "operations: {on: {action: receive, channel: {$ref: '#/channels/in'}}}\n"
    )

    def owner(route: str) -> Owner:
        path = tmp_path / "pipeline.yaml"
        path.write_text(f"routes: {{{route}: {{receive: on, send: []}}}}\n")
        pipeline = load_pipeline(path)
        (source,) = sources_of(pipeline)
        return owner_of(source, pipeline)

    before = read_belonging(RangeProgress(0, 0, more=Belonging(owner("drop")).text).text).owner
    assert before is not None
    assert owner("drop").is_same(before)
    assert not owner("other").is_same(before)
    assert owner("drop").label == "the pipeline with the routes drop"


@pytest.mark.server
def test_a_spark_job_goes_on_from_a_checkpoint_of_the_version_before(
    project: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = project().create(partitions=2).write()
    shop.produce(KafkaRecord(**{**_fields(record(n)), "partition": n % 2}) for n in range(20))
    topic, folder = shop.topic("in"), shop.folder / ".penstock" / "checkpoints"
    shutil.copytree(BEFORE / "kafka-in", folder / f"kafka-{topic}")
    for path in (folder / f"kafka-{topic}").rglob("offsets/*"):
        path.write_text(path.read_text().replace('{"in":', f'{{"{topic}":'))
    known = json.loads((BEFORE / "kafka-in.json").read_text())
    admin = shop.admin()
    known |= {"topic": topic, "cluster_id": admin.cluster_id(), "topic_id": admin.topic_id(topic)}
    (folder / f"kafka-{topic}.json").write_text(json.dumps(known))
    assert shop.run(spark, engine="spark").counts["n_in"] == 6
    found = read_fingerprint(LocalFileSystem(folder), f"kafka-{topic}.json")
    assert found is not None
    assert (found.exactly_once, found.query) == (True, "penstock.kafka-in.9a605428b879")
    # From now on a downgrade is noticed: an edited route must not cost the guarantee in silence.
    shop.write({"sql": "type = 't'"})
    with monkeypatch.context() as patched:
        # As if the cluster had become one without transactions.
        made = preparation.work_of
        patched.setattr(
            preparation, "work_of", lambda *args, **more: replace(made(*args, **more), exactly_once=False)
        )
        with pytest.raises(CheckpointMismatch, match="was delivered exactly once") as caught:
            shop.run(spark)
    assert "has no transactions" in str(caught.value.why)
    with pytest.raises(UsageError, match="--shadow"):
        shop.run(spark, exactly_once=False, shadow=1)
    assert shop.run(spark, exactly_once=False).counts["n_in"] == 0


@pytest.mark.server
def test_a_second_pipeline_of_the_same_contract_does_not_take_the_place_of_the_first(project: Make) -> None:
    shop = project().create().write()
    text = json.loads((shop.folder / "pipeline.yaml").read_text())
    other = {"routes": {"other": text["routes"]["r"]}}
    (shop.folder / "other.yaml").write_text(json.dumps(other))
    (shop.folder / "named.yaml").write_text(json.dumps({**other, "name": "audit"}))
    shop.produce(map(record, range(3)))
    read, notes = looped(shop)
    assert read == 3
    assert any("read from its beginning" in note for note in notes)
    with pytest.raises(CheckpointMismatch, match="another pipeline") as caught:
        looped(shop, "other.yaml")
    assert "routes r;" in str(caught.value.why)
    assert looped(shop, "named.yaml")[0] == 3
    read, notes = looped(shop)
    assert read == 0
    assert any("all of it was read before" in note for note in notes)
    assert looped(shop, "other.yaml", take_over=True)[0] == 0


@pytest.mark.server
def test_a_loop_goes_on_from_the_group_of_the_version_before(project: Make) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(5)))
    group = f"penstock.t.kafka-{shop.topic('in')}"
    with Cluster(Settings.of(shop.server("in").client_options())) as cluster:
        offsets = GroupOffsets(cluster, group)
        offsets.commit({(shop.topic("in"), 0): GroupOffset(3, '{"start":3,"counts":{}}')})
        read, notes = looped(shop)
        assert read == 2
        assert any("do not say which pipeline" in note for note in notes)
        # The mark has the id of the topic now: under another topic of the same name it is refused.
        mark = offsets.committed(shop.topic("in"))[0]
        now = cluster.topic_id(shop.topic("in"))
        assert now is not None
        offsets.commit({(shop.topic("in"), 0): GroupOffset(2, mark.metadata.replace(now, "A" * 22))})
        with pytest.raises(CheckpointMismatch) as caught:
            looped(shop)
        assert "deleted and made again" in str(caught.value.why)
        assert looped(shop, fresh_checkpoint=True)[0] == 5


@pytest.mark.server
def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_beginning(project: Make) -> None:
    shop = project().create().write()
    shop.produce(map(record, range(3)))
    assert looped(shop)[0] == 3
    admin, topic = shop.admin(), shop.topic("in")
    admin.delete_topic(topic)
    admin.create_topic(topic, partitions=1, replicas=1, settings={})
    shop.produce(map(record, range(5)))
    # Kafka forgets the offsets of a deleted topic, so the loop finds none.
    read, notes = looped(shop)
    assert read == 5
    assert any("read from its beginning" in note for note in notes)


def _fields(found: KafkaRecord) -> dict[str, Any]:
    return {"key": found.key, "value": found.value, "headers": found.headers}


@pytest.mark.server
@pytest.mark.parametrize("engine", ["loop", "spark"])
def test_progress_that_moves_while_a_job_is_prepared_is_its_own(
    project: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    shop = project().create().write()
    shop.produce([record(0)])
    if engine == "loop":
        assert looped(shop)[0] == 1
    else:
        assert shop.run(spark, once=True, engine=engine).counts["n_in"] == 1

    def before(*given: Any) -> Survey:
        """Look as if it had been done before the other job went on."""
        return replace(survey(*given), latest={0: 0})

    for module in (job_loop, preparation):
        monkeypatch.setattr(module, "survey", before)
    with job_of(shop.pipeline(), JobOptions(once=True, engine=engine)) as job:
        job.prepare()
        assert job.totals
