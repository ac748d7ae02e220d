"""Jobs whose checkpoint is in HDFS: moved, kept apart, held up by its NameNode, and cut; and older copies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from penstock.embedded.java import find_java
from penstock.errors import CheckpointMismatch, JobFailed, PipelineError, Refused, Unreachable
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher, restarts
from penstock.pipeline.job import lease as lease_module
from penstock.pipeline.spark.file_system import FileSystem, open_file_system
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from mini_cluster import MiniCluster
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow]

Make = Callable[..., Any]


def record(number: int) -> KafkaRecord:
    event = CloudEvent({"id": f"e-{number}", "source": "/s", "type": "t"}, b"x")
    return KafkaBinding().encode(event)


def numbers(shop: Any) -> list[int]:
    found = (KafkaBinding().decode(each).get("id") for each in shop.read("out"))
    return [int(str(each).removeprefix("e-")) for each in found]


def told(exc: Exception) -> str:
    """Give what an error says, with its reason."""
    return f"{exc!r}: {getattr(exc, 'why', '')}"


class Notes(Watcher):
    """What a job notes, and something to do after each batch."""

    def __init__(self, after_batch: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.batches = threading.Event()
        self.failed: list[Exception] = []
        self._after_batch = after_batch

    def note(self, text: str) -> None:
        self.notes.append(text)

    def batch(self, progress: Progress) -> None:
        self.batches.set()
        self._after_batch()

    def until(self, text: str, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not any(text in note for note in self.notes):
            assert time.monotonic() < end and not self.failed, (
                self.notes,
                [told(each) for each in self.failed],
            )
            time.sleep(0.05)


def run(job: Job, spark: SparkSession, seen: Notes) -> None:
    """Run a job in a thread; what it raises is kept."""
    try:
        job.run(spark)
    except Exception as exc:  # noqa: BLE001  # the test looks at it
        seen.failed.append(exc)


@pytest.fixture
def folder(hdfs: MiniCluster) -> str:
    return f"{hdfs.address}/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def writable(hdfs: MiniCluster) -> Iterator[MiniCluster]:
    """The HDFS, which a test puts into safe mode."""
    yield hdfs
    hdfs.order("safemode off")


def source_of(files: FileSystem) -> str:
    """Name the one source that has a checkpoint."""
    (name,) = (each.removesuffix(".json") for each in files.list("") if each.endswith(".json"))
    return name


def test_a_job_that_is_moved_goes_on(
    project: Make, spark: SparkSession, hdfs: MiniCluster, folder: str
) -> None:
    shop = project().create(partitions=2).write(checkpoint=f"{folder}/ck")
    shop.produce(map(record, range(10)))
    assert shop.run(spark, engine="spark").counts["n_out"] == 10
    assert not list(shop.folder.glob("hdfs*")) and not (shop.folder / ".penstock").exists()
    # Another driver in another folder of its own; and the checkpoint in another folder of the store.
    open_file_system(folder, spark).rename("ck", "moved")
    elsewhere = shop.folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("asyncapi.yaml", "penstock.yaml"):
        shutil.copy(shop.folder / name, elsewhere)
    shop.folder = elsewhere
    shop.write(checkpoint=f"{folder}/moved")
    shop.produce(map(record, range(10, 15)))
    assert shop.run(spark, engine="spark").counts["n_in"] == 5
    assert Counter(numbers(shop)) == Counter(range(15))


def test_a_second_job_is_refused_and_a_superseded_one_ends(
    project: Make,
    spark: SparkSession,
    hdfs: MiniCluster,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.5)
    shop = project().create().write(checkpoint=folder)
    shop.produce(map(record, range(5)))
    first, seen = Job(shop.pipeline(), JobOptions(engine="spark")), Notes()
    with first:
        first.watch(seen)
        first.prepare()
        thread = threading.Thread(target=run, args=(first, spark, seen))
        thread.start()
        try:
            assert seen.batches.wait(120)
            with Job(shop.pipeline(), JobOptions(engine="spark", once=True)) as second:
                second.prepare()
                with pytest.raises(Refused, match="another job runs"):
                    second.run(spark)
            # As a job on another machine that found the lease run out.
            open_file_system(folder, spark).create(".writer/2", "")
            thread.join(60)
            assert not thread.is_alive()
        finally:
            first.stop()
            thread.join(120)
    assert [type(each) for each in seen.failed] == [JobFailed]
    assert "another job took over this checkpoint" in str(seen.failed[0])
    assert Counter(numbers(shop)) == Counter(range(5))


def test_a_namenode_in_safe_mode_is_waited_for(
    project: Make, spark: SparkSession, writable: MiniCluster, folder: str
) -> None:
    shop = project().create().write(checkpoint=folder)
    shop.produce(map(record, range(5)))
    writable.order("safemode on")
    with pytest.raises(Unreachable, match="safe mode"):
        shop.run(spark, engine="spark", broker_timeout=1.0)
    steps = iter(("safemode on", ""))

    def spoil() -> None:
        # After the first batch the store takes nothing any more: the next batch cannot be planned.
        if (order := next(steps, "")) != "":
            writable.order(order)
            shop.produce(map(record, range(5, 9)))

    job, seen = Job(shop.pipeline(), JobOptions(engine="spark")), Notes(spoil)

    with job:
        job.watch(seen)
        job.prepare()
        thread = threading.Thread(target=run, args=(job, spark, seen))
        thread.start()
        try:
            seen.until("safe mode; waiting")
            writable.order("safemode off")
            seen.until("can be used after")
            seen.until("the file system of the checkpoint takes no writes, or does not answer; trying again")
            writable.order("safemode off")
            seen.until("writes again after")
        finally:
            job.stop()
            thread.join(120)
    assert seen.failed == []
    assert Counter(numbers(shop)) == Counter(range(9))


@pytest.mark.soak
def test_a_namenode_that_goes_away_is_waited_for(
    project: Make, spark: SparkSession, hdfs: MiniCluster, folder: str
) -> None:
    shop = project().create().write(checkpoint=folder)
    shop.produce(map(record, range(5)))
    job, seen = Job(shop.pipeline(), JobOptions(engine="spark")), Notes()
    with job:
        job.watch(seen)
        job.prepare()
        thread = threading.Thread(target=run, args=(job, spark, seen))
        thread.start()
        try:
            assert seen.batches.wait(120)
            hdfs.order("stop namenode")
            try:
                shop.produce(map(record, range(5, 9)))
                seen.until("the file system of the checkpoint takes no writes, or does not answer", 180)
            finally:
                hdfs.order("start namenode")
            seen.until("writes again after", 180)
        finally:
            job.stop()
            thread.join(120)
    assert seen.failed == []
    assert Counter(numbers(shop)) == Counter(range(9))


@pytest.mark.soak
@pytest.mark.timeout(580)
def test_a_datanode_that_goes_away_is_waited_for(
    project: Make, spark: SparkSession, hdfs: MiniCluster, folder: str
) -> None:
    """Without its DataNode an HDFS has all names, and no text can be written or read."""
    shop = project().create().write(checkpoint=folder)
    shop.produce(map(record, range(5)))
    for count, awaited in ((5, "takes no writes, or does not answer"), (15, "no DataNode that has a file")):
        job, seen = Job(shop.pipeline(), JobOptions(engine="spark")), Notes()
        if count > 5:
            hdfs.order("stop datanode")
        with job:
            job.watch(seen)
            job.prepare()
            thread = threading.Thread(target=run, args=(job, spark, seen))
            thread.start()
            try:
                if count == 5:
                    assert seen.batches.wait(120)
                    hdfs.order("stop datanode")
                shop.produce(map(record, range(count, count + 10)))
                try:
                    seen.until(awaited, 180)
                    if count == 5:
                        time.sleep(3 * restarts.AWAY_PAUSE)  # it is started again, and reads what is there
                        assert seen.failed == []
                finally:
                    hdfs.order("start datanode")
                seen.until("writes again after" if count == 5 else "can be used after", 180)
                end = time.monotonic() + 120
                while len(numbers(shop)) < count + 10 and time.monotonic() < end:
                    time.sleep(0.2)
            finally:
                job.stop()
                thread.join(120)
        assert seen.failed == []
        assert Counter(numbers(shop)) == Counter(range(count + 10))


@pytest.mark.soak
@pytest.mark.timeout(580)
def test_a_driver_that_was_suspended_ends_and_its_successor_goes_on(
    project: Make, hdfs: MiniCluster, folder: str
) -> None:
    shop = project().create(partitions=2).write(checkpoint=folder)
    shop.produce(map(record, range(3000)))
    first = shop.spawn("run", "--engine", "spark", "--max-offsets", "100")
    first.until("batch 2")
    driver = psutil.Process(first.process.pid)
    family = [driver, *driver.children(recursive=True)]
    for each in family:
        each.suspend()
    second = shop.spawn("run", "--engine", "spark", "--max-offsets", "100", "--until-idle", "--idle", "10")
    second.until(r"batch \d+ ", times=3)
    for each in family:
        each.resume()
    assert first.ended(120) == 1
    assert re.search("another job took over this checkpoint", first.told()), first.told()
    assert second.ended() == 0, second.told()
    assert Counter(numbers(shop)) == Counter(range(3000))


def test_files_that_are_cut_are_told(
    project: Make, spark: SparkSession, hdfs: MiniCluster, folder: str
) -> None:
    shop = project().create().write(checkpoint=folder)
    shop.produce(map(record, range(3)))
    shop.run(spark, engine="spark")
    files = open_file_system(folder, spark)
    name = source_of(files)
    whole = {path: files.read(path) for path in (f"{name}.json", f"{name}/offsets/0")}
    for path, text in whole.items():
        assert text is not None
        files.write(path, text[: len(text) // 2])
        with pytest.raises(PipelineError, match="cannot be read") as caught:
            shop.run(spark, engine="spark")
        assert path in (caught.value.where or "")
        files.write(path, text)
    assert shop.run(spark, engine="spark").counts["n_in"] == 0
    # What cannot be read is put aside where that is wanted.
    files.write(f"{name}/offsets/0", "v1")
    assert shop.run(spark, engine="spark", fresh_checkpoint=True).counts["n_in"] == 3
    assert f"{name}.old-1" in files.list("")


@pytest.mark.soak
def test_the_successor_of_a_killed_driver_goes_on(
    project: Make, spark: SparkSession, hdfs: MiniCluster, folder: str
) -> None:
    shop = project().create(partitions=2).write(checkpoint=folder)
    shop.produce(map(record, range(200)))
    running = shop.spawn("run", "--engine", "spark", "--max-offsets", "20")
    running.until("batch 2")
    os.killpg(running.process.pid, signal.SIGKILL)
    assert running.ended() != 0
    shop.produce(map(record, range(200, 210)))
    seen = Notes()
    with Job(shop.pipeline(), JobOptions(engine="spark", once=True)) as job:
        job.watch(seen)
        job.prepare()
        job.run(spark)
    assert any("did not say that it ended" in note for note in seen.notes), seen.notes
    assert Counter(numbers(shop)) == Counter(range(210))


@pytest.fixture
def loose(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A folder on a file system whose create and rename are not atomic."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    compiler = find_java().home / "bin" / "javac"
    program = Path(__file__).parents[2] / "hadoop" / "LooseFileSystem.java"
    classes = tmp_path / "classes"
    subprocess.run([compiler, "-cp", str(jars), "-d", str(classes), str(program)], check=True)
    context: Any = spark.sparkContext
    urls = context._gateway.new_array(context._jvm.java.net.URL, 1)
    urls[0] = context._jvm.java.net.URL(f"file://{classes}/")
    configuration = context._jsc.hadoopConfiguration()
    before = configuration.getClassLoader()
    configuration.setClassLoader(context._jvm.java.net.URLClassLoader(urls, before))
    configuration.set("fs.loose.impl", "LooseFileSystem")
    yield f"loose://{tmp_path}/ck"
    configuration.unset("fs.loose.impl")
    configuration.setClassLoader(before)


@pytest.mark.soak
def test_a_store_without_atomic_create_and_rename(project: Make, spark: SparkSession, loose: str) -> None:
    shop = project().create().write(checkpoint=loose)
    shop.produce(map(record, range(10)))
    pairs = [(Job(shop.pipeline(), JobOptions(engine="spark", once=True)), Notes()) for _ in range(2)]
    threads = []
    for job, seen in pairs:
        job.watch(seen)
        job.prepare()
        threads.append(threading.Thread(target=run, args=(job, spark, seen)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive()
    # Both may have created the epoch; one of them was refused before it planned anything.
    failed = [exc for _, seen in pairs for exc in seen.failed]
    assert [type(exc) for exc in failed] == [Refused], failed
    assert any("no exclusive create" in note for _, seen in pairs for note in seen.notes)
    assert Counter(numbers(shop)) == Counter(range(10))
    shop.produce(map(record, range(10, 12)))
    assert shop.run(spark, engine="spark").counts["n_in"] == 2
    assert Counter(numbers(shop)) == Counter(range(12))


def test_an_older_checkpoint_is_told_and_asked_about(project: Make, spark: SparkSession) -> None:
    shop = project().create().write()
    ours = shop.folder / ".penstock" / "checkpoints"
    shop.produce(map(record, range(4)))
    shop.run(spark, engine="spark")
    shutil.copytree(ours, shop.folder / "backup")
    shop.produce(map(record, range(4, 10)))
    shop.run(spark, engine="spark")

    def put_back() -> None:
        shutil.rmtree(ours)
        shutil.copytree(shop.folder / "backup", ours)

    put_back()
    with pytest.raises(CheckpointMismatch, match="older than what was written") as caught:
        shop.run(spark, engine="spark")
    assert "partition 0: the checkpoint ends at 4, written is up to 10" in (caught.value.why or "")
    assert re.search("--no-replay .* --replay ", caught.value.next or "")
    assert Counter(numbers(shop)) == Counter(range(10))
    shop.run(spark, engine="spark", replay=False)
    assert Counter(numbers(shop)) == Counter(range(10))
    put_back()
    shop.run(spark, engine="spark", replay=True)
    assert Counter(numbers(shop)) == Counter([*range(10), *range(4, 10)])
    # From then on it goes on as any other.
    shop.produce([record(10)])
    assert shop.run(spark, engine="spark").counts["n_in"] == 1
    assert Counter(numbers(shop))[10] == 1
