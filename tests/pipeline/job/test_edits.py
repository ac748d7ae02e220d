"""Edits of a pipeline: each row of the table in the docs, by what decides it; open batches by a real job."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.embedded.kafka import Kafka
from penstock.errors import CheckpointMismatch
from penstock.events import KafkaBinding
from penstock.pipeline.assembly import Source, sources_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.delivery.range_progress import Belonging, RangeProgress
from penstock.pipeline.job.fingerprint import Fingerprint, changes, moved
from penstock.pipeline.job.kept_plan import Begun, KeptPlan, begun_batch, kept_plan
from penstock.pipeline.job.loop import _group, owner_of, remade
from penstock.pipeline.plan.identity import derived_id
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "pipeline" / "edits.md"
ON, REFUSED, ANEW = "goes on", "refused", "from the beginning"
TOPIC_IDS = ("z1F125UNQMKaAbNdytGHag", "8371YpmuQFC03h5OcyJwKA")

CONTRACT: dict[str, Any] = {
    "asyncapi": "3.0.0",
    "info": {"title": "t", "version": "1"},
    "servers": {
        "k": {"host": "k:9092", "protocol": "kafka"},
        "renamed": {"host": "k:9092", "protocol": "kafka"},
    },
    "channels": {
        name: {"address": name.partition("-")[0], "servers": [{"$ref": f"#/servers/{server}"}]}
        for name, server in (
            *(("in", "k"), ("other", "k"), ("out", "k"), ("out2", "k"), ("dead", "k")),
            *(("in-renamed", "renamed"), ("dead-renamed", "renamed")),
        )
    },
    "operations": {
        "onIn": {"action": "receive", "channel": {"$ref": "#/channels/in"}},
        "send": {"action": "send", "channel": {"$ref": "#/channels/out"}},
        "send2": {"action": "send", "channel": {"$ref": "#/channels/out2"}},
    },
}
for _name, _dead in (("in", "dead"), ("other", "dead"), ("in-renamed", "dead-renamed")):
    CONTRACT["channels"][_name]["x-penstock-dead-letter"] = {"$ref": f"#/channels/{_dead}"}


class World:
    """A pipeline with its contract, and what the cluster says of the topic that is read."""

    def __init__(self) -> None:
        self.contract = json.loads(json.dumps(CONTRACT))
        self.pipeline: dict[str, Any] = {
            "routes": {
                name: {"receive": "onIn", "send": "send", "where": "type = 'a'"} for name in ("r", "s")
            }
        }
        self.cluster: dict[str, Any] = {"cluster_id": "c1", "topic_id": TOPIC_IDS[0], "partitions": 2}

    @property
    def routes(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pipeline["routes"]
        return found

    def compiled(self, folder: Path) -> tuple[Pipeline, Source]:
        (folder / "asyncapi.yaml").write_text(json.dumps(self.contract))
        found = check_pipeline(folder / "pipeline.yaml", raw=json.dumps(self.pipeline).encode())
        assert found.pipeline is not None, found.findings
        (source,) = sources_of(found.pipeline)
        return found.pipeline, source


def retarget(world: World) -> None:
    for route in world.routes.values():
        route["send"] = "send2"


def rename_routes(world: World) -> None:
    world.pipeline["routes"] = {f"{name}2": route for name, route in world.routes.items()}


def read_from(channel: str) -> Callable[[World], None]:
    def edit(world: World) -> None:
        world.contract["operations"]["onIn"]["channel"]["$ref"] = f"#/channels/{channel}"

    return edit


EDITS: dict[str, Callable[[World], object]] = {
    "a route is added": lambda world: world.routes.update(t={"receive": "onIn", "send": "send2"}),
    "a route is removed, another one of its topic is left": lambda world: world.routes.pop("s"),
    "condition, `set` or `key` of a route": lambda world: world.routes["r"].update(
        where="type = 'b'", set={"subject": "'x'"}, key="none"
    ),
    "target of a route": retarget,
    "a route gets another name": rename_routes,
    "the pipeline gets another name": lambda world: world.pipeline.update(name="second"),
    "the contract gets another title": lambda world: world.contract["info"].update(title="u"),
    "the topic gets more partitions": lambda world: world.cluster.update(partitions=3),
    "an operation reads another topic": read_from("other"),
    "the server that is read gets another name": read_from("in-renamed"),
    "the server's name stands for another cluster": lambda world: world.cluster.update(
        cluster_id="c2", topic_id=TOPIC_IDS[1]
    ),
    "the topic was deleted and made again": lambda world: world.cluster.update(topic_id=TOPIC_IDS[1]),
}


def rows() -> dict[str, tuple[str, str]]:
    """Read the table: | edit | on Spark | in the loop |."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    table = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text, re.M)
    return {edit: (spark, loop) for edit, spark, loop in table if edit != "edit"}


def fingerprint(world: World, source: Source) -> Fingerprint:
    return Fingerprint.of(source, **world.cluster)


def on_spark(before: World, after: World, folder: Path) -> str:
    """What a checkpoint in a folder says to the edited pipeline."""
    (_, old), (_, new) = before.compiled(folder), after.compiled(folder)
    was = fingerprint(before, old)
    if old.name == new.name:
        found = changes(was, fingerprint(after, new))
    else:
        found = moved(was, {route.receive.id for route in new.routes}, new.topic)
        if not found:
            return ANEW
    return REFUSED if any(change.fatal for change in found) else ON


def in_the_loop(before: World, after: World, folder: Path) -> str:
    """What the marks of the group that is named by default say to the edited pipeline."""
    (old_pipeline, old), (pipeline, new) = before.compiled(folder), after.compiled(folder)
    if _group(old, old_pipeline) != _group(new, pipeline) or old.topic != new.topic:
        return ANEW
    was = Belonging(owner_of(old, old_pipeline), before.cluster["topic_id"])
    marks = {0: GroupOffset(5, RangeProgress(5, 5, more=was.text).text)}
    own = Belonging(owner_of(new, pipeline), after.cluster["topic_id"])
    assert was.owner is not None
    assert own.owner is not None
    other = [*remade(own, marks)]
    return ON if own.owner.is_same(was.owner) and not other else REFUSED


def test_every_row_of_the_table_has_its_test() -> None:
    assert rows().keys() == EDITS.keys()


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", [None, "first"])
def test_an_edit_does_what_the_table_says(edit: str, name: str | None, tmp_path: Path) -> None:
    before, after = World(), World()
    for world in (before, after):
        world.pipeline |= {} if name is None else {"name": name}
    EDITS[edit](after)
    spark, loop = rows()[edit]
    if loop == "goes on with `name:`, else refused":
        loop = ON if name else REFUSED
    assert (on_spark(before, after, tmp_path), in_the_loop(before, after, tmp_path)) == (spark, loop)


def test_a_route_that_keeps_name_and_target_keeps_a_loop_without_a_name(tmp_path: Path) -> None:
    before, after = World(), World()
    after.routes["s2"] = after.routes.pop("s")
    assert in_the_loop(before, after, tmp_path) == ON


def test_derived_ids_depend_on_the_name_of_the_route() -> None:
    assert derived_id("r", "/s", "1") == derived_id("r", "/s", "1") != derived_id("r2", "/s", "1")


# The plan that began a batch


class Batches:
    """A checkpoint of which only the open batch matters."""

    exists = True
    fingerprint = "f.json"

    def __init__(self, batch: int | None, **kept: Any) -> None:
        self.open_batch = batch
        self.files = self
        self._text = json.dumps(
            {
                "topic": "t",
                "cluster_id": None,
                "topic_id": None,
                "partitions": 1,
                "operations": [],
                "routes": {},
            }
            | kept
        )

    def read(self, path: str) -> str:
        return self._text


A, B, C = (KeptPlan(digest=digest, pipeline="p", contract="c") for digest in "abc")


@pytest.mark.parametrize(
    ("batch", "kept", "now", "expected"),
    [
        (None, {"plan": A.as_data()}, B, None),
        (7, {"plan": A.as_data()}, A, None),
        (7, {"plan": A.as_data()}, B, Begun(batch=7, plan=A)),
        (7, {"plan": A.as_data()}, None, Begun(batch=7, plan=A)),
        (7, {"plan": B.as_data(), "begun": Begun(batch=7, plan=A).as_data()}, C, Begun(batch=7, plan=A)),
        (7, {"plan": B.as_data(), "begun": Begun(batch=7, plan=A).as_data()}, B, Begun(batch=7, plan=A)),
        (8, {"plan": B.as_data(), "begun": Begun(batch=7, plan=A).as_data()}, C, Begun(batch=8, plan=B)),
        (8, {"plan": B.as_data(), "begun": Begun(batch=7, plan=A).as_data()}, B, None),
        (7, {}, B, None),
        (7, {"plan": {"digest": 5}, "begun": {"batch": "7", "plan": []}}, B, None),
    ],
)
def test_which_plan_has_begun_the_open_batch(
    batch: int | None, kept: dict[str, Any], now: KeptPlan | None, expected: Begun | None
) -> None:
    checkpoint: Any = Batches(batch, **kept)
    assert begun_batch(checkpoint, now) == expected


def kept(folder: Path) -> tuple[Pipeline, KeptPlan]:
    """Keep a pipeline, then edit its file and its contract."""
    world = World()
    (folder / "pipeline.yaml").write_text(json.dumps(world.pipeline))
    pipeline, _ = world.compiled(folder)
    found = KeptPlan.of(pipeline, "d")
    assert found is not None
    rename_routes(world)
    world.contract["channels"]["out"]["address"] = "elsewhere"
    (folder / "pipeline.yaml").write_text(json.dumps(world.pipeline))
    return world.compiled(folder)[0], found


def test_a_kept_plan_is_compiled_as_it_was(tmp_path: Path) -> None:
    edited, found = kept(tmp_path)
    assert KeptPlan.read(json.loads(json.dumps(found.as_data()))) == found
    old = found.compiled(edited)
    assert [route.name for route in old.routes] == ["r", "s"]
    assert {each.topic for route in old.routes for each in route.send} == {"out"}


def test_what_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, _ = kept(tmp_path)
    monkeypatch.setattr("penstock.pipeline.job.kept_plan.MAX_BYTES", 100)
    assert KeptPlan.of(pipeline, "d") is None


@pytest.mark.parametrize("digest", ["d", "other", None])
@pytest.mark.parametrize("required", [False, True])
def test_a_batch_is_finished_only_by_the_same_program(
    tmp_path: Path, digest: str | None, required: bool
) -> None:
    edited, found = kept(tmp_path)
    edited = replace(edited, requires_exactly_once=required)

    class Compiled:
        plan = digest

    work: Any = None if digest is None else Compiled()
    begun = Begun(batch=7, plan=found)
    if required and digest != "d":
        with pytest.raises(CheckpointMismatch, match="batch 7 of k-in was begun by other routes"):
            begun.work("k-in", edited, lambda source, old: work)
        return
    finished, said = begun.work("k-in", edited, lambda source, old: work)
    assert finished is (work if digest == "d" else None)
    assert ("is finished by the routes" if digest == "d" else "is written again") in said


def test_a_source_that_the_old_routes_did_not_read_is_not_finished(tmp_path: Path) -> None:
    edited, found = kept(tmp_path)
    work, said = Begun(batch=7, plan=found).work("k-other", edited, lambda source, old: None)
    assert (work, "cannot be finished" in said) == (None, True)


# On real servers


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


def events(numbers: range) -> list[KafkaRecord]:
    headers = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "source", "type"))
    return [KafkaRecord(value=b"", headers=(*headers, ("ce_id", b"%d" % number))) for number in numbers]


def subjects(records: list[KafkaRecord]) -> list[str | None]:
    return [KafkaBinding().decode(each).subject for each in records]


@pytest.mark.server
@pytest.mark.slow
def test_an_open_batch_is_finished_by_the_plan_that_began_it(
    project: Callable[..., Any], spark: SparkSession, kafka: Kafka, west: Kafka
) -> None:
    shop = project(servers={"kafka": kafka, "west": west}, places={"away": "west"}).create()

    def edit(subject: str) -> None:
        route = {"send": ["send", "send-away"], "set": {"subject": f"'{subject}'"}}
        shop.write(route, **{"exactly-once": "required"})

    edit("old")
    shop.produce(events(range(10)))
    shop.run(spark)
    assert [subjects(shop.read(channel)) for channel in ("out", "away")] == [["old"] * 10] * 2
    # As after a crash between the commits of the two clusters: the one that is read is behind.
    checkpoints = shop.folder / ".penstock" / "checkpoints"
    (mark,) = checkpoints.glob("kafka-*.json")
    group = json.loads(mark.read_text())["query"]
    (checkpoints / mark.stem / "commits" / "0").unlink()
    for crumb in (checkpoints / mark.stem / "commits").glob(".0.crc"):
        crumb.unlink()
    admin = shop.admin()
    admin.commit(group, shop.topic("in"), {0: 4})
    edit("new")
    shop.produce(events(range(10, 15)))
    shop.run(spark)
    assert subjects(shop.read("away")) == ["old"] * 10 + ["new"] * 5
    assert subjects(shop.read("out")) == ["old"] * 10 + ["old"] * 6 + ["new"] * 5
    kept = json.loads(mark.read_text())
    assert "'new'" in kept["plan"]["pipeline"]
    assert (kept["begun"]["batch"], "'old'" in kept["begun"]["plan"]["pipeline"]) == (0, True)
    shop.run(spark)
    assert json.loads(mark.read_text())["begun"] == {}


@pytest.mark.server
@pytest.mark.slow
def test_a_loop_finishes_what_the_earlier_routes_have_begun(
    project: Callable[..., Any], kafka: Kafka, west: Kafka
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    shop = project(servers={"kafka": kafka, "west": west}, places={"away": "west"}).create()

    def run(subject: str) -> str:
        route = {"send": ["send", "send-away"], "set": {"subject": f"'{subject}'"}}
        shop.write(route, **{"exactly-once": "required", "name": "edited"})
        running = shop.spawn("run", "--engine", "loop", "--once", "--group", group, "-C", "test")
        assert running.ended() == 0, running.told()
        return str(running.told())

    shop.produce(events(range(10)))
    run("old")
    # As after a crash between the commits of the two clusters: the one that is read is behind.
    shop.admin().commit(group, shop.topic("in"), {0: 4})
    shop.produce(events(range(10, 15)))
    told = run("new")
    assert subjects(shop.read("away")) == ["old"] * 10 + ["new"] * 5
    assert subjects(shop.read("out")) == ["old"] * 10 + ["old"] * 6 + ["new"] * 5
    assert "is finished by the routes that began it" in " ".join(told.split())


@pytest.mark.parametrize("packed", [b"", b"?", b"[]", b'{"digest": 5}', b"\xff"])
def test_a_kept_plan_that_somebody_else_wrote_is_none(packed: bytes) -> None:
    assert KeptPlan.unpacked(packed) is None


def test_a_kept_plan_is_a_record_that_a_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = A.packed()
    assert packed is not None
    assert KeptPlan.unpacked(packed) == A
    monkeypatch.setattr("penstock.pipeline.job.kept_plan.MAX_RECORD_BYTES", 10)
    assert A.packed() is None


@pytest.mark.parametrize(
    ("written", "protocol", "kept"),
    [(("a", "b"), "kafka", True), (("a",), "pulsar", True), (("a",), "kafka", False)],
)
def test_the_plan_is_kept_where_a_batch_may_be_written_in_part(
    monkeypatch: pytest.MonkeyPatch, written: tuple[str, ...], protocol: str, kept: bool
) -> None:
    monkeypatch.setattr(KeptPlan, "of", lambda pipeline, digest: digest)
    routes = [SimpleNamespace(send=[SimpleNamespace(protocol=protocol)])]
    source: Any = SimpleNamespace(written=written, routes=routes, dead={})
    work: Any = SimpleNamespace(exactly_once=True, plan="p")
    pipeline: Any = None
    assert kept_plan(source, pipeline, work) == ("p" if kept else None)
