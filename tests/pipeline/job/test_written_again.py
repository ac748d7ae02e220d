"""What is new to Pulsar though its positions are not: an input that was made again, and `--replay`.

The names of producers are others then: under the old ones the broker would drop everything as stored before.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from directed import Directed
from pulsar_project import wait_until
from pulsar_to_pulsar import PulsarToPulsar
from to_pulsar import ToPulsar

from penstock.errors import CheckpointMismatch, ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(900)]
Make = Callable[..., Directed]


def remake_input(made: Directed) -> None:
    project = made.project
    if isinstance(project, PulsarToPulsar):
        with project.source() as side:
            side.delete()
            side.create()
        return
    admin, topic = project.admin(), project.topic("in")
    admin.delete_topic(topic)

    def is_made() -> bool:
        try:
            admin.create_topic(topic, partitions=2, replicas=1, settings={})
        except ClusterError:  # the old one may still be there for a moment
            return False
        return True

    wait_until(is_made)


@pytest.mark.parametrize("engine", ["loop", "spark"])
@pytest.mark.parametrize("direction", ["K->P", "P->P"])
def test_an_input_that_is_made_again(
    directed: Make, spark: SparkSession, direction: str, engine: str
) -> None:
    made = directed(direction).create().write()
    made.send(1000)
    assert made.project.run(spark, engine=engine).counts["n_out"] == 1000
    remake_input(made)
    made.send(600)
    if (direction, engine) != ("K->P", "loop"):  # Kafka forgets what a group has of a deleted topic
        with pytest.raises(CheckpointMismatch) as caught:
            made.project.run(spark, engine=engine)
        assert "deleted and made again" in str(caught.value.why)
    totals = made.project.run(spark, engine=engine, fresh_checkpoint=True)
    assert totals.counts["n_out"] == 600
    made.assert_law()


@pytest.mark.parametrize("direction", ["K->P", "P->P"])
def test_what_is_replayed_is_written_again(directed: Make, spark: SparkSession, direction: str) -> None:
    made = directed(direction).create(1).write()
    project = made.project
    assert isinstance(project, ToPulsar)
    ours, backup = project.folder / ".penstock" / "checkpoints", project.folder / "backup"
    made.send(40)
    project.run(spark)
    shutil.copytree(ours, backup)
    made.send(60)
    project.run(spark)

    def put_back() -> None:
        shutil.rmtree(ours)
        shutil.copytree(backup, ours)

    put_back()
    with pytest.raises(CheckpointMismatch, match="older than what was written"):
        project.run(spark)
    project.run(spark, replay=False)
    made.assert_law()
    put_back()
    assert project.run(spark, replay=True).counts["n_out"] == 60
    found = Counter(event.id for _, _, event in project.events("pout"))
    assert found == Counter(f"e-{number}" for number in (*range(100), *range(40, 100)))
    made.send(10)
    assert project.run(spark).counts["n_out"] == 10
    found = Counter(event.id for _, _, event in project.events("pout"))
    assert found == Counter(f"e-{number}" for number in (*range(110), *range(40, 100)))
