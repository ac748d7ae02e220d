"""The servers and the Spark of the demo: started side by side, each ended when nothing needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli import output
from penstock.cli.demo.stages import Stages
from penstock.cli.sparkstart import silence_java_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.embedded.class_archive import ClassArchive
    from penstock.embedded.stack import Stack

__all__ = ["SPARK", "Programs"]

SPARK: Final = "Spark"


class Programs:
    """What runs while the demo does; made by `started`.

    A program that has no class archive yet writes one when it ends, which takes seconds of CPU: those that
    are not needed any more do so while the demo goes on.
    """

    def __init__(self, stack: Stack, spark: SparkSession, archive: ClassArchive, pool: ThreadPoolExecutor):
        self.spark = spark
        self._stack = stack
        self._archive = archive
        self._pool = pool
        self._ends: dict[str, Future[None]] = {}

    def end(self, *names: str) -> None:
        """Begin to end these; returns at once."""
        for name in names:
            end = self._end_spark if name == SPARK else self._stack.servers[name].close
            self._ends[name] = self._pool.submit(end)

    def close(self) -> None:
        """End what still runs, and wait until all have ended; the gateway before the Pulsar that it uses."""
        names = (SPARK, *self._stack.servers)
        self.end(*(name for name in names if name not in self._ends and name != "pulsar"))
        self._ends["gateway"].result()
        self.end("pulsar")
        for end in self._ends.values():
            end.result()

    def _end_spark(self) -> None:
        from penstock.pipeline.spark import class_archive

        recording = not self._archive.is_settled
        self.spark.stop()
        ended = class_archive.end_java(kill=not recording)
        if recording:
            self._archive.keep(has_ended_well=ended)


@contextmanager
def started(stack: Stack, folder: Path, stages: Stages) -> Iterator[Programs]:
    """Start the servers and Spark side by side; at their end they write class archives that are missing.

    Nobody waits for these behind a failure or Ctrl-C: all is killed then. What Java leaves behind when it is
    killed is in `folder`.
    """
    from penstock.pipeline.spark import class_archive
    from penstock.pipeline.spark.session import DEFAULT_MASTER, spark_session
    from penstock.pipeline.spark.startup import abandon_start

    (folder / "spark").mkdir()
    archive = class_archive.archive()
    start_spark = partial(
        spark_session,
        "penstock demo",
        master=DEFAULT_MASTER,
        settings={"spark.local.dir": str(folder / "spark")},
        fused=False,
        java_options=(f"-Djava.io.tmpdir={folder / 'spark'}", *(archive.record() or archive.use())),
    )
    names = (*stack.servers, SPARK)
    with ThreadPoolExecutor(max_workers=len(names) + 1, thread_name_prefix="penstock-demo") as pool:
        spark = pool.submit(start_spark)
        try:
            with stages.measured("servers and Spark"), _starting(names) as is_ready:
                spark.add_done_callback(lambda _: is_ready(SPARK))
                stack.start(on_ready=is_ready)
                wait([spark])
            silence_java_clients(spark.result())
            programs = Programs(stack, spark.result(), archive, pool)
            yield programs
            recording = not archive.is_settled or any(each.is_recording for each in stack.servers.values())
            text = "stopping, and storing what makes the next start quick" if recording else "stopping"
            with stages.measured("stopping"), output.progress(text):
                programs.close()
        except BaseException:
            with output.progress("stopping"):
                abandon_start()
                stack.kill()
                wait([spark])
                archive.keep(has_ended_well=False)
            raise


@contextmanager
def _starting(names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Show what is still starting; gives the function that is called with the name of what has started."""
    left = list(names)
    with output.progress(f"starting {', '.join(left)}") as bar:

        def is_ready(name: str) -> None:
            left.remove(name)
            waiting = f"waiting for {', '.join(left)}" if left else "all are up"
            bar.describe(f"starting {len(names)} programs: {waiting}")

        yield is_ready
        bar.describe(f"started {', '.join(names)}")
