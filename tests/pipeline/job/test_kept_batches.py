"""What is kept with a batch of Spark: its time, which now() stands for, whenever it is planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.events import KafkaBinding
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.fingerprint import UnreadableCheckpoint
from penstock.pipeline.job.kept_batches import KeptBatches, OpenBatch
from penstock.pipeline.spark.file_system import LocalFileSystem
from penstock.pipeline.spark.stream import OffsetPlanner
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "t"


@dataclass
class Plans:
    """A planner that gives each partition a task of its own."""

    def shares(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[list[OffsetRange]]:
        return [[OffsetRange(int(part), 0, at)] for part, at in end[TOPIC].items()]


def kept(folder: Path, *, reads_now: bool = True) -> KeptBatches:
    checkpoint = Checkpoint(files=LocalFileSystem(folder), name="c")
    planner = cast(OffsetPlanner, Plans())
    return KeptBatches(planner=planner, checkpoint=checkpoint, topic=TOPIC, reads_now=reads_now)


def note(folder: Path, number: int, time: object, **ends: int) -> dict[str, dict[str, int]]:
    """Write what Spark notes of a batch; return its end."""
    end = {TOPIC: {name[1:]: at for name, at in ends.items()}}
    path = folder / "c" / "offsets" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"batchWatermarkMs": 0, "batchTimestampMs": time, "conf": {}}
    path.write_text(f"v1\n{json.dumps(about)}\n{json.dumps(end)}")
    return end


def test_the_moment_of_a_batch_is_the_time_that_spark_notes(tmp_path: Path) -> None:
    note(tmp_path, 9, 5000, p0=1)
    end = note(tmp_path, 10, 7000, p0=3, p1=2)
    for _ in range(2):  # as after a restart
        shares = kept(tmp_path).shares({TOPIC: {"0": 1}}, end)
        assert [(share.spans, share.now) for share in shares] == [
            ((OffsetRange(0, 0, 3),), 7_000_000),
            ((OffsetRange(1, 0, 2),), 7_000_000),
        ]


def test_a_batch_of_routes_that_read_no_moment_needs_no_look(tmp_path: Path) -> None:
    (share,) = kept(tmp_path, reads_now=False).shares({TOPIC: {}}, {TOPIC: {"0": 3}})
    assert share.now is None


class Old:
    """The work of another plan, whose routes read the moment."""

    stage = SimpleNamespace(routes=[SimpleNamespace(plan=SimpleNamespace(reads_now=True))])

    def packed(self) -> bytes:
        return b"old"


def test_only_the_open_batch_is_done_by_the_work_that_began_it(tmp_path: Path) -> None:
    end = note(tmp_path, 4, 7000, p0=3)
    work: Any = Old()
    batches = replace(kept(tmp_path, reads_now=False), open_batch=OpenBatch(end={0: 3}, work=work))
    (first,) = batches.shares({TOPIC: {"0": 1}}, end)
    assert (first.packed, first.now) == (b"old", 7_000_000)
    (second,) = batches.shares(end, {TOPIC: {"0": 4}})
    assert (second.packed, second.now) == (None, None)


@pytest.mark.parametrize("time", ["soon", None])
def test_a_batch_without_a_time_is_an_error(tmp_path: Path, time: object) -> None:
    end = note(tmp_path, 0, time, p0=3)
    with pytest.raises(UnreadableCheckpoint, match="cannot be read") as caught:
        kept(tmp_path).shares({TOPIC: {}}, end)
    assert "no time of the batch" in (caught.value.why or "")


def test_the_time_of_another_batch_is_not_taken(tmp_path: Path) -> None:
    note(tmp_path, 0, 5, p0=3)
    with pytest.raises(UnreadableCheckpoint) as caught:
        kept(tmp_path).shares({TOPIC: {}}, {TOPIC: {"0": 4}})
    assert "does not end at {0: 4}" in (caught.value.why or "")


@pytest.mark.server
def test_now_is_the_time_of_the_batch_in_all_tasks(project: Callable[..., Any], spark: SparkSession) -> None:
    made = project().create(partitions=2).write({"set": {"subject": "CAST(now() AS STRING)"}})
    headers = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "source", "type"))
    for batch in range(2):
        made.produce(
            KafkaRecord(value=b"", headers=(*headers, ("ce_id", b"%d" % n)), partition=n % 2)
            for n in range(4)
        )
        made.run(spark)
        found = {KafkaBinding().decode(each).subject for each in made.read("out")}
        assert len(found) == batch + 1
    (folder,) = (made.folder / ".penstock" / "checkpoints").glob("kafka-*/offsets")
    times = [json.loads((folder / name).read_text().splitlines()[1])["batchTimestampMs"] for name in "01"]
    from datetime import UTC, datetime

    seen = sorted(datetime.fromisoformat(str(text)) for text in found)
    assert [round(each.replace(tzinfo=each.tzinfo or UTC).timestamp() * 1000) for each in seen] == times
