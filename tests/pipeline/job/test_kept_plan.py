"""What is kept of a pipeline is what was compiled, whatever became of its files since."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_edits import World, events, subjects

from penstock.embedded.kafka import Kafka
from penstock.errors import Unreachable
from penstock.events import KafkaBinding
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.delivery.loop_run import LoopRun
from penstock.pipeline.job import JobOptions, job_of
from penstock.pipeline.job.kept_plan import Begun, KeptPlan


def test_files_that_are_edited_after_they_were_compiled_are_not_kept(tmp_path: Path) -> None:
    world = World()
    for name, document in (("asyncapi", world.contract), ("pipeline", world.pipeline)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(document))
    pipeline = load_pipeline(tmp_path / "pipeline.yaml")
    for name in ("asyncapi", "pipeline"):
        (tmp_path / f"{name}.yaml").write_text("edited")
    kept = KeptPlan.of(pipeline, "d")
    assert kept is not None
    assert json.loads(kept.pipeline) == world.pipeline
    assert json.loads(kept.contract) == world.contract
    # One that is compiled anew is kept as it was.
    assert KeptPlan.of(kept.compiled(pipeline), "d") == kept


@pytest.mark.parametrize("batch", [None, 7])
def test_a_cluster_that_is_away_does_not_give_up_what_was_begun(tmp_path: Path, batch: int | None) -> None:
    pipeline, _ = World().compiled(tmp_path)
    plan = KeptPlan.of(pipeline, "d")

    def check(source: Any, old: Any) -> None:
        raise Unreachable("the cluster is away")

    with pytest.raises(Unreachable):
        Begun(batch=batch, plan=plan).work("k-in", pipeline, check)


# On real servers


@pytest.fixture(scope="module")
def west() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"exactly-once": "required"}])
def test_a_loop_that_dies_while_it_finishes_what_was_begun_is_followed_by_one_that_does(
    project: Callable[..., Any],
    kafka: Kafka,
    west: Kafka,
    more: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    shop = project(servers={"kafka": kafka, "west": west}, places={"away": "west"}).create()

    def run(subject: str) -> None:
        route = {"send": ["send", "send-away"], "set": {"subject": f"'{subject}'"}}
        shop.write(route, name="edited", engine="loop", **more)
        with job_of(shop.pipeline(), JobOptions(once=True, group=group)) as job:
            job.prepare()
            job.run()

    def dies(self: LoopRun, *_: object) -> None:
        raise Unreachable("as if it were killed, when it has committed where it begins")

    shop.produce(events(range(10)))
    run("old")
    # As after a crash between the commits of the two clusters: the one that is read is behind.
    shop.admin().commit(group, shop.topic("in"), {0: 4})
    with monkeypatch.context() as patch:
        patch.setattr(LoopRun, "catch_up", dies)
        with pytest.raises(Unreachable):
            run("new")
    run("new")
    ids = [KafkaBinding().decode(each).id for each in shop.read("away")]
    assert len(ids) == len({*ids}) == 10
    assert subjects(shop.read("away")) == ["old"] * 10
    assert subjects(shop.read("out")) == ["old"] * 16
