"""A kept plan that somebody else may have written: what a loop takes of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from test_edits import World, events

from penstock.brokers.kafka_records import scan
from penstock.embedded.kafka import Kafka
from penstock.errors import CheckpointMismatch, PipelineError
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.progress import TOPIC, mark_value
from penstock.pipeline.job import JobOptions, job_of
from penstock.pipeline.job.foreign_plan import compiled_by
from penstock.pipeline.job.kept_plan import Begun, KeptPlan


def edited(folder: Path, edit: Callable[[World], object]) -> tuple[Pipeline, KeptPlan]:
    """Compile routes that call a function, keep them, and compile what an edit makes of them."""
    (folder / "shop.py").write_text("def ours(event): return event\ndef theirs(event): return event\n")
    world = World()
    world.routes["s"]["apply"] = "shop:ours"
    kept = KeptPlan.of(world.compiled(folder)[0], "d")
    assert kept is not None
    edit(world)
    return world.compiled(folder)[0], kept


@pytest.mark.parametrize(
    "edit",
    [
        lambda world: world.routes.pop("r"),
        lambda world: world.routes["r"].update(send="send2", set={"subject": "'x'"}),
        lambda world: world.contract["info"].update(title="t"),
    ],
)
def test_routes_between_channels_that_the_contract_of_now_names_are_taken(
    tmp_path: Path, edit: Callable[[World], object]
) -> None:
    now, kept = edited(tmp_path, edit)
    old = compiled_by(now, kept.pipeline, kept.contract)
    assert [(route.name, route.send[0].topic) for route in old.routes] == [("r", "out"), ("s", "out")]
    assert old.contract is now.contract


def test_the_contract_may_have_got_more_that_is_not_used(tmp_path: Path) -> None:
    world = World()
    kept = KeptPlan.of(world.compiled(tmp_path)[0], "d")
    assert kept is not None
    world.contract["channels"]["more"] = {**world.contract["channels"]["out"], "address": "more"}
    world.contract["operations"]["sendMore"] = {"action": "send", "channel": {"$ref": "#/channels/more"}}
    now, _ = world.compiled(tmp_path)
    assert len(compiled_by(now, kept.pipeline, kept.contract).routes) == 2


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda world: world.contract["channels"]["out"].update(address="elsewhere"), "something else"),
        (lambda world: world.contract["servers"]["k"].update(host="elsewhere:9092"), "something else"),
        (lambda world: world.contract["operations"].pop("send2"), "something else"),
        (lambda world: world.routes["s"].pop("apply"), "they call shop:ours"),
        (lambda world: world.routes["s"].update(apply="shop:theirs"), "they call shop:ours"),
    ],
)
def test_what_the_files_of_now_do_not_name_is_refused(
    tmp_path: Path, edit: Callable[[World], object], told: str
) -> None:
    now, kept = edited(tmp_path, edit)
    with pytest.raises(PipelineError, match=told):
        compiled_by(now, kept.pipeline, kept.contract)


@pytest.mark.parametrize(("pipeline", "contract"), [("?", "{}"), ("{}", "{}"), ("[", "[")])
def test_what_is_no_plan_is_refused(tmp_path: Path, pipeline: str, contract: str) -> None:
    now, kept = edited(tmp_path, lambda world: None)
    with pytest.raises(PipelineError):
        compiled_by(now, pipeline, contract)
    with pytest.raises(PipelineError, match="something else"):
        compiled_by(now, kept.pipeline, contract)


@pytest.mark.parametrize("required", [False, True])
def test_a_refused_plan_is_one_that_cannot_be_had(tmp_path: Path, required: bool) -> None:
    now, kept = edited(tmp_path, lambda world: world.contract["channels"]["out"].update(address="elsewhere"))
    now = replace(now, requires_exactly_once=required)
    looked: list[str] = []

    def check(source: Any, old: Pipeline) -> None:
        looked.append(source.name)

    begun = Begun(plan=kept)
    if required:
        with pytest.raises(CheckpointMismatch, match="something else"):
            begun.work("k-in", now, check)
    else:
        work, said = begun.work("k-in", now, check)
        assert (work, "is delivered at least once" in said) == (None, True)
    assert not looked, "no cluster is asked for what is refused"


# On real servers


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


@pytest.mark.server
@pytest.mark.slow
def test_a_plan_that_somebody_else_has_left_is_not_run(
    project: Callable[..., Any], kafka: Kafka, west: Kafka
) -> None:
    shop = project(servers={"kafka": kafka, "west": west}, places={"away": "west"}).create()
    elsewhere = f"{shop.prefix}.elsewhere"
    shop.admin().create_topic(elsewhere, partitions=1, replicas=1, settings={})
    group = f"g-{uuid.uuid4().hex[:8]}"

    def job(runs: bool = True) -> Any:
        with job_of(shop.pipeline(), JobOptions(once=True, group=group)) as made:
            made.prepare()
            if runs:
                made.run()
            return made

    def write(**route: Any) -> None:
        shop.write({"send": ["send", "send-away"], **route}, name="edited", engine="loop")

    write()
    shop.produce(events(range(10)))
    (ready,) = job()._ready.values()
    key = ready.work.progress_key
    shop.produce(events(range(10, 15)))
    write(set={"subject": "'theirs'"})
    contract = json.loads((shop.folder / "asyncapi.yaml").read_text())
    contract["channels"]["out"]["address"] = elsewhere
    (shop.folder / "asyncapi.yaml").write_text(json.dumps(contract))
    (theirs,) = job(runs=False)._ready.values()
    mark = mark_value(15, json.dumps({"start": 0, "counts": {}, "plan": theirs.work.plan}))
    producer = Producer({**west.client_options(), "transactional.id": "somebody-else"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, theirs.work.kept_plan, key.plan, partition=0)
    producer.produce(TOPIC, mark, key.of(0), partition=0)
    producer.commit_transaction(30)
    write()
    job()
    assert not list(scan(kafka.client_options(), elsewhere))
    assert len(shop.read("out")) == 15
