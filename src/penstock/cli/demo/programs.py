"""The servers and the Spark of the demo: started side by side, each ended when nothing needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import output
from penstock.cli.demo.stages import Stages
from penstock.cli.sparkstart import silence_java_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.embedded.class_archive import ClassArchive
    from penstock.embedded.stack import Stack

__all__ = ["SPARK", "STARTING", "Programs", "started"]

SPARK: Final = "Spark"
STARTING: Final = "servers and Spark"
_FIRST: Final = ("kafka", "pulsar", "registry")
"""What the contract is applied to; Spark and the gateway are needed later."""


class Programs:
    """What runs while the demo does; made by `started`.

    A program that has no class archive yet writes one when it ends, which takes seconds of CPU: those that
    are not needed any more do so while the demo goes on.
    """

    def __init__(self, stack: Stack, archive: ClassArchive, pool: ThreadPoolExecutor) -> None:
        self._stack = stack
        self._archive = archive
        self._pool = pool
        self._starts: dict[str, Future[Any]] = {name: Future() for name in (*stack.servers, SPARK)}
        self._ends: dict[str, Future[None]] = {}

    def start(self, spark: Callable[[], SparkSession], on_ready: Callable[[str], None]) -> None:
        """Begin to start all; `on_ready` is called with the name of each that has started."""

        def up(name: str, value: Any = None) -> None:
            on_ready(name)
            self._starts[name].set_result(value)

        def start_spark() -> None:
            try:
                up(SPARK, spark())
            except BaseException as exc:  # noqa: BLE001 - raised in the thread that waits for it
                self._starts[SPARK].set_exception(exc)

        def start_servers() -> None:
            try:
                self._stack.start(on_ready=up)
            except BaseException as exc:  # noqa: BLE001 - the same
                for name in self._stack.servers:
                    if not self._starts[name].done():
                        self._starts[name].set_exception(exc)

        self._pool.submit(start_spark)
        self._pool.submit(start_servers)

    def wait_for(self, *names: str) -> None:
        """Wait until these have started; raises what kept one from it."""
        for name in names:
            self._starts[name].result()

    def spark(self) -> SparkSession:
        """Return the session, when it has started."""
        found: SparkSession = self._starts[SPARK].result()
        return found

    def abandon(self) -> None:
        """Let nothing go on to start, and kill what has started."""
        from penstock.pipeline.spark.startup import abandon_start

        abandon_start()
        for server in self._stack.servers.values():
            server.abandon()
        wait(self._starts.values())
        self._stack.kill()
        self._archive.keep(has_ended_well=False)

    def end(self, *names: str) -> None:
        """Begin to end these; returns at once."""
        for name in names:
            end = self._end_spark if name == SPARK else self._stack.servers[name].close
            self._ends[name] = self._pool.submit(end)

    def close(self) -> None:
        """End what still runs, and wait until all have ended; the gateway before the Pulsar that it uses."""
        self.wait_for(*self._starts)
        names = (SPARK, *self._stack.servers)
        self.end(*(name for name in names if name not in self._ends and name != "pulsar"))
        self._ends["gateway"].result()
        self.end("pulsar")
        for end in self._ends.values():
            end.result()

    def _end_spark(self) -> None:
        from penstock.pipeline.spark import class_archive

        recording = not self._archive.is_settled
        self.spark().stop()
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

    (folder / "spark").mkdir()
    archive = class_archive.archive()

    def start_spark() -> SparkSession:
        session = spark_session(
            "penstock demo",
            master=DEFAULT_MASTER,
            settings={"spark.local.dir": str(folder / "spark")},
            light=True,
            fused=False,
            java_options=(f"-Djava.io.tmpdir={folder / 'spark'}", *(archive.record() or archive.use())),
        )
        silence_java_clients(session)
        _warm_up(session)
        return session

    names = (*stack.servers, SPARK)
    with ThreadPoolExecutor(max_workers=len(names) + 2, thread_name_prefix="penstock-demo") as pool:
        programs = Programs(stack, archive, pool)
        try:
            with stages.measured(STARTING), _starting(names) as is_ready:
                programs.start(start_spark, is_ready)
                programs.wait_for(*_FIRST)
            yield programs
            recording = not archive.is_settled or any(each.is_recording for each in stack.servers.values())
            text = "stopping, and storing what makes the next start quick" if recording else "stopping"
            with stages.measured("stopping"), output.progress(text):
                programs.close()
        except BaseException:
            with output.progress("stopping"):
                programs.abandon()
            raise


def _warm_up(spark: SparkSession) -> None:
    """Let Spark start its Python workers and load what queries need, while Pulsar still starts."""
    import penstock.pipeline.job  # noqa: F401 - for the thread that will run one

    # A lambda travels by value: workers need not import this module.
    same = spark.range(0, 2, numPartitions=2).mapInArrow(lambda batches: batches, "id bigint")
    same.write.format("noop").mode("overwrite").save()


@contextmanager
def _starting(names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Show what is still starting; gives the function that is called with the name of what has started."""
    left, is_shown = list(names), True
    with output.progress(f"starting {', '.join(left)}") as bar:

        def is_ready(name: str) -> None:
            left.remove(name)
            if is_shown:
                waiting = f"waiting for {', '.join(left)}" if left else "all are up"
                bar.describe(f"starting {len(names)} programs: {waiting}")

        yield is_ready
        is_shown = False
        later = f", {' and '.join(left)} will follow" if left else ""
        bar.describe(f"started {', '.join(name for name in names if name not in left)}{later}")
