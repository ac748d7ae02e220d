"""A job without Spark: a loop for each source, in a thread of its own, told like the batches of a query.

There is no checkpoint: the offsets of the group say where to go on. It is the group that the contract or
`--group` names, else one with the name of pipeline and source.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.fused.loop import Beat, Loop
from penstock.pipeline.fused.work import Work
from penstock.pipeline.job.choice import LOOP, chosen, guarantee
from penstock.pipeline.job.fingerprint import beyond, refuse
from penstock.pipeline.job.fused import work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.preparation import promised, refuse_gap
from penstock.pipeline.job.progress import LOST, Progress, counts_of
from penstock.pipeline.job.runner import Job, Totals
from penstock.pipeline.job.survey import settled, survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoopJob"]

_TURN: Final = 0.0005
"""Seconds that one thread may keep the others waiting: a record should not wait for a status line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A source that may run."""

    work: Work
    anew: bool
    """Whether the group's offsets belong to something else, and it was allowed to forget them."""


class LoopJob(Job):
    """One run of a pipeline by loops.

    with LoopJob(pipeline, JobOptions(once=True)) as job:
        job.prepare()
        job.run()
    """

    needs_spark = False
    _ready: Mapping[str, _Ready] = MappingProxyType({})

    @property
    def progress_in(self) -> str:
        """Name the groups."""
        return ", ".join(f"group {ready.work.group}" for ready in self._ready.values())

    def __enter__(self) -> LoopJob:
        return self

    def prepare(self) -> None:
        """Do everything that can fail before a loop begins."""
        sources = sources_of(self.pipeline)
        self._ready = {source.name: self._prepare_one(source) for source in sources}
        for source, (name, ready) in zip(sources, self._ready.items(), strict=True):
            self.totals[name] = Totals()
            self.promises[name] = guarantee(LOOP, source, exactly_once=ready.work.exactly_once)
            self._begin(name)

    def _prepare_one(self, source: Source) -> _Ready:
        chosen(LOOP, source, self.pipeline)
        stage = stage_of(source, self.pipeline)
        found = survey(source, stage, self._clusters)
        title = self.pipeline.contract.info.title if self.pipeline.contract.info else "pipeline"
        named = group_of(source, self.pipeline, self.options.group)
        group = named or f"penstock.{title}.{source.name}"
        receive, policy = source.receive, self.options.on_data_loss or self.pipeline.on_data_loss
        position = self._clusters.client(receive.server, receive.connection).committed(group, source.topic)
        anew = self._is_other(position, found.latest, group)
        lost = 0 if anew else gap(position, found.earliest)
        if lost and policy == "stop":
            refuse_gap(lost, source.topic, f"group {group}")
        ready = settled(stage, found, len(source.servers))
        work = work_of(source, ready, self.options, group=group, on_data_loss=policy)
        for note in promised(source, work, self.options):
            self._note(note)
        return _Ready(work=work, anew=anew)

    def _is_other(self, position: Offsets, latest: Offsets, group: str) -> bool:
        """Say whether the group stands where the topic never was; refuse that unless it may begin anew."""
        changed = beyond(position, latest)
        if not self.options.fresh_checkpoint:
            refuse(changed, f"group {group}")
        return bool(changed)

    def run(self, spark: SparkSession | None = None) -> None:
        """Run all sources to their end; the first failure ends the others too."""
        failed: list[Exception] = []
        loops = [self._loop(name, ready, failed) for name, ready in self._ready.items()]
        self.running = True
        self._busy = monotonic()
        try:
            with _attentive():
                for loop in loops:
                    loop.start()
                while any(loop.is_alive() for loop in loops):
                    self._hear()
        finally:
            self.running = False
            self._stop.set()
            for loop in loops:
                loop.join()
        self._hear()
        if failed:
            raise failed[0]

    def _loop(self, name: str, ready: _Ready, failed: list[Exception]) -> Thread:
        loop = Loop(
            ready.work,
            self._teller(name),
            stop=self._stop,
            once=self.options.once,
            until_idle=self.options.until_idle,
            anew=ready.anew,
        )

        def run() -> None:
            try:
                loop.run()
            except Exception as exc:  # noqa: BLE001  # whatever it is, `run` raises it in the caller's thread
                failed.append(exc)
                self._stop.set()

        return Thread(target=run, name=f"penstock-{name}", daemon=True)

    def _teller(self, name: str) -> Callable[[Beat], None]:
        numbers = iter(range(1_000_000_000))

        def tell(beat: Beat) -> None:
            self._told.put(
                Progress(
                    source=name,
                    batch=next(numbers),
                    counts=counts_of(beat.counts),
                    seconds=beat.seconds,
                    lag=beat.lag,
                    start=beat.start,
                    end=beat.end,
                    records=beat.counts["n_in"],
                    lost=beat.counts[LOST],
                )
            )

        return tell


@contextmanager
def _attentive() -> Iterator[None]:
    """Let threads wait little for each other, and look for cycles only in what is made from now on."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
