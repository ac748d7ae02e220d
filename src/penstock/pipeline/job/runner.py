"""The running job: the queries of all sources, told batch by batch, until they end or are asked to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.outage import OutageLog
from penstock.errors import (
    AccessDenied,
    ClusterError,
    JobFailed,
    PenstockError,
    PipelineError,
    TlsFailed,
    UnknownSchemas,
    Unreachable,
)
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.end_watch import EndWatches
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.document import FORMER_ENGINES
from penstock.pipeline.job.choice import SPARK, evaluator_of
from penstock.pipeline.job.executors import ExecutorWatch
from penstock.pipeline.job.failure import (
    as_away,
    failure,
    is_away,
    is_taken_over,
    is_worker_failure,
    java_ended,
    may_be_away,
)
from penstock.pipeline.job.groups import Committer, committer_of
from penstock.pipeline.job.lag import LagMonitor
from penstock.pipeline.job.lease import Lease, leased, until_reachable
from penstock.pipeline.job.offsets import advanced, gap
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.preparation import Checked, Prepared, check_sources, learn, prepare, refreshed
from penstock.pipeline.job.progress import Planned, Progress, Totals, listener
from penstock.pipeline.job.query import RunningQuery, ended, finish, start_query, stop_queries
from penstock.pipeline.job.restarts import (
    AwayFailure,
    Restarts,
    TakenOver,
    WorkerFailure,
    as_problem,
    combined,
)
from penstock.pipeline.job.spark_metrics import SparkMetrics
from penstock.pipeline.job.survey import Clusters, has_topics
from penstock.pipeline.job.watcher import Watcher
from penstock.pipeline.spark.file_system import FileSystem, is_remote, open_file_system
from penstock.pipeline.spark.session import query_session
from penstock.pipeline.spark.startup import (
    is_local,
    java_exit_code,
    java_has_ended,
    java_is_ours,
    unless_java_ended,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Job", "Planned", "Totals"]

_log = logging.getLogger(__name__)
_TURN: Final = 0.2
_MOMENT: Final = 0.005
_RECENTLY: Final = 2.0
_JAVA_SECONDS: Final = 15.0
"""How long Java may take to end by a signal."""
_LAG_SECONDS: Final = 10.0
"""For the answer to a measurement of the lag."""
_STALLED_SECONDS: Final = 60.0
"""A source with records that wait is stalled when nothing was written for so long."""
_LOOK_SECONDS: Final = 5.0
"""How often Spark is asked for queries that have ended; it tells by itself, unless an event got lost."""
_ANSWERED_SECONDS: Final = 10.0
"""So long the end of a topic that a planner was told is taken for the lag, too."""
_LAST_WORDS: Final = 10.0
"""How long to wait for what Spark still has to tell of a query that has ended."""


class Job:
    """One run of a pipeline; while it is entered, no other job can use its checkpoints.

    with Job(pipeline, JobOptions(once=True)) as job:
        job.prepare()
        job.run(spark)
    """

    engine = SPARK
    """Where the routes run."""

    def __init__(self, pipeline: Pipeline, options: JobOptions) -> None:
        self.pipeline = pipeline
        self.options = options if options.trigger is not None else replace(options, trigger=pipeline.trigger)
        self.totals: dict[str, Totals] = {}
        self.plan: list[Planned] = []
        """How each route runs; known after `prepare`."""
        self.outages: dict[str, OutageLog] = {}
        """Whether the cluster of a source answers, by source."""
        self._watchers: list[Watcher] = []
        self._stop = Event()
        self._clusters = Clusters(self._stop)
        self._checked: tuple[Checked, ...] = ()
        self._prepared: dict[str, Prepared] = {}
        self._files: FileSystem | None = None
        """Where the checkpoint is; a remote one is opened when Spark is there."""
        self._lease: Lease | None = None
        self._committers: dict[str, Committer] = {}
        self._monitors: dict[str, LagMonitor] = {}
        self._progressed: dict[str, float] = {}
        """When a batch of a source was last written."""
        self._told: SimpleQueue[Progress | str] = SimpleQueue()
        self._ended: set[str] = set()
        self._earliest: dict[str, Offsets] = {}
        self._held = ExitStack()
        self._busy = 0.0
        self._waited: dict[str, float] = {}
        self._queries: dict[str, RunningQuery] = {}
        """Those that run."""
        self._to_start: dict[str, float] = {}
        """When sources whose queries have failed are started again."""
        self._failures: dict[str, PipelineError] = {}
        """Sources that are not started again."""
        self._looked = self._asked_java = 0.0
        self._watches = EndWatches()
        self._executors: ExecutorWatch | None = None
        """Whether the cluster has any; None with a local master."""
        self._restarts = Restarts(self._note, max_failures=options.max_failures, has_end=not self._is_daemon)
        self.running = False
        self._has_run = False

    def __enter__(self) -> Job:
        if not is_remote(self.pipeline.checkpoint):
            self._hold(open_file_system(self.pipeline.checkpoint))
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()
        self._clusters.close()

    @property
    def progress_in(self) -> str:
        """Where it is kept how far the job has come."""
        return self.pipeline.checkpoint

    @property
    def only_plans(self) -> bool:
        """Whether Spark plans and no record goes through its Java; known after `prepare`."""
        return not any(each.source.asks_spark for each in self._checked)

    @property
    def uses_kernels(self) -> bool:
        """Whether tasks of Spark call the routing kernel; known after `prepare`.

        Where the reference decides about every record, as with functions, they do not.
        """
        return any(each.work.program.has_kernel for each in self._checked)

    @property
    def _is_daemon(self) -> bool:
        """Whether the job has no end of its own."""
        return not self.options.once and self.options.until_idle is None

    def watch(self, watcher: Watcher) -> None:
        """Let somebody be told what happens."""
        self._watchers.append(watcher)

    def stop(self) -> None:
        """Ask for the end: batches that run are written first. May be called by a signal handler."""
        self._stop.set()

    def prepare(self) -> None:
        """Do everything that can fail before Spark is started; a remote checkpoint is looked at by `run`."""
        if (said := self.pipeline.engine_text) in FORMER_ENGINES:
            self._note(f"engine: {said} in {self.pipeline.path} means spark now; penstock validate says more")
        self._checked = check_sources(self.pipeline, self.options, self._clusters)
        for each in self._checked:
            name = each.source.name
            self.totals[name] = Totals()
            self.outages[name] = OutageLog(_log, f"{name}: {each.source.receive.server}")
            self._plan(each.source, each.promise)
            self._begin(name)
        if self._files is not None:
            self._resume(self._files)

    def _hold(self, files: FileSystem, stop: Event | None = None) -> FileSystem:
        """Be the one writer of the checkpoint; `stop` ends a wait for the writer before, by StopAsked."""
        self._lease = self._held.enter_context(leased(files, self._note, stop))
        self._files = files
        return files

    def _open_remote(self, spark: SparkSession) -> None:
        """Open a checkpoint that only Spark reaches, and find where to go on; its store is waited for."""
        folder = self.pipeline.checkpoint

        def resumed() -> FileSystem:
            files = self._files or self._hold(open_file_system(folder, spark), self._stop)
            self._resume(files)
            return files

        files = until_reachable(
            resumed,
            where=folder.rstrip("/"),
            stop=self._stop,
            seconds=None if self._is_daemon else self.options.broker_timeout,
            note=self._note,
        )
        if files is not None and not files.is_atomic:
            self._note(
                f"{files.where()}: this store has no exclusive create; two jobs that start at the same time "
                "are kept apart by a lease, and exactly once by the broker"
            )

    def _resume(self, files: FileSystem) -> None:
        """Find where to go on; if the store fails under it, it can be called again."""
        prepared = prepare(self._checked, self.pipeline, self.options, self._clusters, files)
        self._prepared = {each.source.name: each for each in prepared}
        for name, each in self._prepared.items():
            self._watch_lag(name, each.source, each.position, outage=self.outages[name])
            self._show_progress(name, each.source, each.work, each.group)
            for note in each.notes:
                self._note(note)
            self._count_lost(name, each.lost)

    def _show_progress(self, name: str, source: Source, work: WorkerSpec | None, group: str | None) -> None:
        committer = committer_of(source, self._clusters, work, group)
        if committer is not None:
            self._committers[name] = committer

    def _watch_lag(self, name: str, source: Source, position: Offsets, *, outage: OutageLog | None) -> None:
        client = self._clusters.own(source, timeout=_LAG_SECONDS)

        def measured(records: int) -> None:
            self.totals[name].lag = records
            self._each(lambda watcher: watcher.lag(name, records))

        def known() -> Offsets | None:
            query = self._queries.get(name)
            planner = None if query is None else query.planner
            if planner is None or monotonic() - planner.asked_at > _ANSWERED_SECONDS:
                return None
            return planner.known_end

        self._monitors[name] = LagMonitor(
            client, source.topic, position, measured, outage=outage, known=known
        )

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Let the lag of all sources be measured."""
        now = monotonic()
        for name, monitor in self._monitors.items():
            self._progressed[name] = now
            monitor.start()
        try:
            yield
        finally:
            for monitor in self._monitors.values():
                monitor.close()

    def stalled(self) -> list[str]:
        """Say which sources do not get on, and why; nothing if all do."""
        now, found = monotonic(), []
        for name, totals in self.totals.items():
            outage = self.outages[name]
            # While its cluster was away nothing could be written.
            idle = min(now - self._progressed.get(name, now), outage.seconds_since_end)
            if outage.reason is not None:
                found.append(f"{name}: no answer for {outage.seconds:.0f} s: {outage.reason}")
            elif (failing := self._restarts.failing(name)) is not None:
                found.append(f"{name}: {failing.what}, tried for {now - failing.since:.0f} s")
            elif totals.lag and idle > _STALLED_SECONDS:
                found.append(f"{name}: {totals.lag} records wait, and nothing was written for {idle:.0f} s")
        if self._executors is not None and (seconds := self._executors.seconds):
            found.append(f"Spark has had no executor for {seconds:.0f} s")
        return found

    def _plan(self, source: Source, guarantee: str) -> None:
        evaluator = evaluator_of(source, self.pipeline)
        self.plan += (
            Planned(route.name, source.name, self.engine, guarantee, evaluator, route.sql is not None)
            for route in source.routes
        )

    def _run_once(self) -> None:
        """Refuse a second run: the checkpoint was given back, and what measures has ended."""
        if self._has_run:
            raise PipelineError("this job has run before", next="make a new job for each run")
        self._has_run = True

    def run(self, spark: SparkSession | None = None) -> None:
        """Run all sources to their end; the first failure ends the others too. It runs once."""
        self._run_once()
        assert spark is not None, "this job needs Spark"
        spark = query_session(spark, self.progress_in)
        if not is_local(spark.sparkContext.master or ""):
            self._executors = ExecutorWatch(spark.sparkContext, self._note)
        if self._files is None:
            self._open_remote(spark)
        topics = {name: (each.source.topic, each.survey.latest) for name, each in self._prepared.items()}
        heard = listener(topics, self._told.put, self._told.put)
        spark.streams.addListener(heard)
        counted = SparkMetrics(spark, list(self._prepared))
        self.watch(counted)
        try:
            with self._outliving_java(), self._measured():
                self._run(spark)
        finally:
            self.running = False
            self._watchers.remove(counted)
            for committer in self._committers.values():
                committer.close()
            with unless_java_ended():
                spark.streams.removeListener(heard)
            self._held.close()
        for name, each in () if self._stop.is_set() else self._prepared.items():
            where = f"checkpoint {each.checkpoint.folder}"
            self._note_nothing_new(name, each.source.topic, where, is_empty=each.survey.is_empty)

    def _run(self, spark: SparkSession) -> None:
        self._busy = monotonic()
        try:
            for name in self._prepared:
                if not self._stop.is_set() and not self._is_over():
                    self._start(spark, name)
            self.running = True
            self._watch(spark)
        finally:
            try:
                stop_queries(self._queries, self._note)
            finally:
                self._watches.close()

    @contextmanager
    def _outliving_java(self) -> Iterator[None]:
        """Tell apart that a query failed and that Java is gone, by the signal that asked us to end or not."""
        try:
            yield
        except Exception as exc:
            if not java_has_ended(self._java_seconds(exc)):
                raise
            if not self._stop.wait(_RECENTLY):
                raise java_ended(java_exit_code()) from exc
            self._note("Spark's Java got the signal too: the batch that ran is repeated by the next run")

    def _java_seconds(self, exc: Exception) -> float:
        """Return how long Java may take to end, if that is why something was raised."""
        from py4j.protocol import Py4JNetworkError

        # It gets the signal at the same time as we do; and one without memory closes its sockets long before.
        is_gone = isinstance(exc, (OSError, Py4JNetworkError)) or "SparkContext" in str(exc)
        return _JAVA_SECONDS if is_gone or self._stop.is_set() else _MOMENT

    def _start(self, spark: SparkSession, name: str) -> None:
        """Start the query of a source; a start that fails counts as a failure of the query."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            self._queries[name] = start_query(spark, self._prepared[name], self.options, self._watches)
        except PenstockError as exc:  # a file of a secret that is just being replaced
            self._has_ended(name, as_problem(exc, has_end=not self._is_daemon))
        except (PySparkException, Py4JError) as exc:
            if java_has_ended(0.0):
                raise
            self._has_ended(name, self._problem_of(name, exc))

    # While it runs

    def _watch(self, spark: SparkSession) -> None:
        runs: set[str] = set()
        asked: set[str] = set()
        """Runs that were asked to end."""
        ending = False
        while self._queries or self._to_start:
            self._hear()
            if self._lease is not None:
                self._lease.require()
            if self._executors is not None:
                self._executors.look(lambda: any(query.has_data for query in self._queries.values()))
            runs |= {query.run_id for query in self._queries.values()}
            for name in self._to_look_at(everybody=ending):
                self._look_at(name)
            if not ending and (self._stop.is_set() or self._is_over() or self._idle(self._queries)):
                ending = True
                if self._stop.is_set():
                    self._note("ending when the batch that runs is written; a second signal ends at once")
            if ending:
                self._to_start.clear()
                self._finish(asked)
                continue
            for name in [name for name, at in self._to_start.items() if at <= monotonic()]:
                del self._to_start[name]
                self._start(spark, name)
        self._hear_last(runs)
        if self._failures:
            raise combined(self._failures)

    def _finish(self, asked: set[str]) -> None:
        """Ask queries to end, each once; a batch that waits for what is away is given up."""
        has_none = self._executors is not None and self._executors.has_none
        for name, query in self._queries.items():
            is_away = self.outages[name].reason is not None or self._restarts.failing(name) is not None
            if (is_away or has_none) and query.is_active:
                query.stop()
                asked.add(query.run_id)
            elif query.run_id not in asked and finish(query):
                asked.add(query.run_id)

    def _is_over(self) -> bool:
        """Say whether the job ends because of a failure; one with an end goes on to it with the others."""
        return bool(self._failures) and self._is_daemon

    def _to_look_at(self, *, everybody: bool) -> list[str]:
        """Name the sources whose queries may have ended."""
        now = monotonic()
        if java_is_ours() or now - self._asked_java >= _LOOK_SECONDS:
            # One that spark-submit started is asked by a connection to its port.
            self._asked_java = now
            if java_has_ended(0.0):
                raise java_ended(java_exit_code())
        if everybody or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            return list(self._queries)
        return [name for name, query in self._queries.items() if query.run_id in self._ended]

    def _look_at(self, name: str) -> None:
        """Take a query away that has ended, and decide whether its source is started again."""
        from pyspark.errors import PySparkException

        problem = None
        try:
            if not ended(self._queries[name], _MOMENT):
                return
        except PySparkException as exc:
            problem = self._problem_of(name, exc)
        del self._queries[name]
        self._has_ended(name, problem)

    def _has_ended(self, name: str, problem: PipelineError | None) -> None:
        if problem is None or (isinstance(problem, UnknownSchemas) and self._stop.is_set()):
            return
        going_on = [each for each in self._queries if self._restarts.failing(each) is None]
        was_failing = self._restarts.failing(name) is not None
        pause = (
            None if self._is_over() else self._restarts.next_start(name, problem, others_go_on=bool(going_on))
        )
        if pause is not None:
            self._to_start[name] = monotonic() + pause
        elif not self._stop.is_set() or not (
            was_failing or isinstance(problem, (WorkerFailure, AwayFailure))
        ):
            # What could go on, or was waiting for its next start, has not failed if the end was asked for.
            self._failures[name] = problem
            if self._is_daemon:
                self._failures |= dict(self._restarts.others(name))
            elif going_on:
                self._note(f"{name}: {problem.what}; the other sources go on")

    def _problem_of(self, name: str, exc: Exception) -> PipelineError | None:
        """Say why a query has ended; what fails meanwhile (a file of a secret) concerns its source alone."""
        try:
            return self._unknown_schemas(name, exc) or self._failure_of(name, exc)
        except PenstockError as error:
            return as_problem(error, has_end=not self._is_daemon)

    def _unknown_schemas(self, name: str, exc: Exception) -> PipelineError | None:
        """Look up schemas that a query has ended for; after UnknownSchemas it can start again."""
        each = self._prepared[name]
        try:
            if not learn(each, str(exc)):
                return None
            if not self._stop.is_set():
                self._prepared[name] = refreshed(each, self.pipeline)
            return UnknownSchemas(name, ())
        except ClusterError as away:
            # A registry answers with an error of the server while its own store is away.
            if not self._is_daemon or isinstance(away, (AccessDenied, TlsFailed)):
                raise
            silent = isinstance(away, Unreachable)
            what = f"the schema registry {'did not answer' if silent else 'gave no schema'}"
            return AwayFailure(what, where=away.where, why=away.what, next=away.next)

    def _failure_of(self, name: str, exc: Exception) -> JobFailed:
        connections = self._prepared[name].source.connections
        problem = failure(exc, name, connections)
        if is_worker_failure(problem):
            return WorkerFailure.of(problem)
        if is_taken_over(problem):
            return TakenOver.of(problem)
        each = self._prepared[name]
        if self._is_daemon and may_be_away(problem) and has_topics(each.source, each.stage, self._clusters):
            problem = as_away(problem)
        return AwayFailure.of(problem) if self._is_daemon and is_away(problem, connections) else problem

    def _idle(self, queries: Mapping[str, RunningQuery]) -> bool:
        """Say whether nothing has come for long enough."""
        if self.options.until_idle is None:
            return False
        now = monotonic()
        for name, query in queries.items():
            if query.has_data:
                self._busy = now
            elif query.is_waiting:
                self._waited[name] = now
        # A query that has not even asked the broker for new records, or gets no answer, is not idle.
        asked = min((self._waited.get(name, 0.0) for name in queries), default=now)
        return now - self._busy > self.options.until_idle and now - asked < _RECENTLY

    def _hear(self) -> None:
        """Handle what Spark tells in a short while."""
        end = monotonic() + _TURN
        while (left := end - monotonic()) > 0:
            try:
                told = self._told.get(timeout=left)
            except Empty:
                return
            if isinstance(told, Progress):
                self._heard(told)
            else:
                self._ended.add(told)

    def _hear_last(self, runs: set[str]) -> None:
        """Spark tells of the last batch after the query has ended, and then of the end."""
        end = monotonic() + _LAST_WORDS
        while not runs <= self._ended and monotonic() < end:
            self._hear()

    def _heard(self, progress: Progress) -> None:
        totals = self.totals[progress.source]
        totals.counts.update(progress.counts)
        totals.batches += 1
        totals.lag = progress.lag
        self._busy = monotonic()
        self._restarts.worked(progress.source)
        self._progressed[progress.source] = self._busy
        if progress.source in self._monitors:
            self._monitors[progress.source].position = progress.end
        if progress.source in self._committers:
            self._committers[progress.source].commit(progress.end)
        self._each(lambda watcher: watcher.batch(progress))
        self._count_lost(progress.source, self._gap(progress) if progress.lost is None else progress.lost)

    # What is gone

    def _gap(self, progress: Progress) -> int:
        """Count what was deleted while the job was on its way there.

        Offsets without records are no loss by themselves: transactions and compaction leave some.
        """
        each = self._prepared[progress.source]
        if each.counts_places:
            return 0
        known = self._earliest.setdefault(progress.source, each.survey.earliest)
        start = {part: max(offset, known.get(part, 0)) for part, offset in progress.start.items()}
        missing = advanced(start, progress.end) - progress.records
        if each.on_data_loss == "stop" or missing <= 0 or not start:
            return 0
        try:
            earliest = self._clusters.source(each.source).earliest(each.source.topic)
        except PenstockError as exc:
            _log.warning("whether records of %s are gone is not known: %s", each.source.topic, exc)
            return 0
        self._earliest[progress.source] = earliest
        return min(missing, gap(start, earliest, until=progress.end))

    def _count_lost(self, source: str, records: int) -> None:
        if records:
            self.totals[source].lost += records
            self._each(lambda watcher: watcher.lost(source, records))

    def _begin(self, source: str) -> None:
        self._each(lambda watcher: watcher.begin(source))

    def _note_nothing_new(self, source: str, topic: str, where: str, *, is_empty: bool) -> None:
        """Say why a run that was to read what is there has read nothing."""
        if self.options.once and not self.totals[source].counts["n_in"]:
            why = "the topic is empty" if is_empty else f"all of it was read before, as {where} says"
            self._note(f"{source}: nothing to read from {topic}: {why}")

    def _note(self, text: str) -> None:
        self._each(lambda watcher: watcher.note(text))

    def _each(self, tell: Callable[[Watcher], object]) -> None:
        for watcher in self._watchers:
            tell(watcher)
