"""The plan that began a batch, kept with the checkpoint: after an edit the open batch is finished by it.

Where output goes to several clusters, a batch that was interrupted may be on some of them already. What is
left of it has to be sent where the plan of that time sent it, so the fingerprint of the checkpoint keeps the
text of the pipeline and of its contract. A restart with other routes compiles them once more, and takes the
result only if it is the same program, by its digest; the next batch is the first of the new plan. Functions,
and files that the contract refers to, are those of now. Credentials are in the context, not in these texts.

A loop keeps the same in progress topics, before its first record (`delivery.kept_plans`). Others may write
there, so less of it is taken (`foreign_plan`).

For one Kafka cluster nothing is kept: what an interrupted transaction wrote is aborted, so a record is
evaluated by one plan only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import CheckpointMismatch, PenstockError, PipelineError
from penstock.pipeline.assembly import Source, sources_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.fingerprint import read_fingerprint
from penstock.pipeline.job.foreign_plan import compiled_by

__all__ = ["Begun", "KeptPlan", "begun_batch", "kept_plan"]

MAX_BYTES: Final = 1024 * 1024
"""Bytes of a pipeline and its contract; larger ones are not kept."""
MAX_RECORD_BYTES: Final = 256 * 1024
"""Bytes of both as a record: topics take 1 MiB by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlan:
    """A pipeline as text, and the digest of what a source became by it (`program.plan_digest`)."""

    digest: str
    pipeline: str
    contract: str

    @classmethod
    def of(cls, pipeline: Pipeline, digest: str) -> KeptPlan | None:
        """Take the texts that a pipeline was compiled from; None if they are too large, or not known.

        What is on disk may have been edited since, and would be kept under a digest that is not its own.
        """
        raw = (pipeline.raw, pipeline.contract_raw)
        if not all(raw) or sum(map(len, raw)) > MAX_BYTES:
            return None
        texts = [each.decode() for each in raw]
        return cls(digest=digest, pipeline=texts[0], contract=texts[1])

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> KeptPlan | None:
        """Read what `as_data` has written; None if there is nothing, or something else."""
        names = ("digest", "pipeline", "contract")
        if not all(isinstance(found.get(name), str) for name in names):
            return None
        return cls(**{name: found[name] for name in names})

    def as_data(self) -> dict[str, str]:
        """Return it as what JSON can hold."""
        return {"digest": self.digest, "pipeline": self.pipeline, "contract": self.contract}

    def packed(self) -> bytes | None:
        """Return it as the record of a progress topic; None if that would be larger than a topic may take."""
        data = json.dumps(self.as_data()).encode()
        return data if len(data) <= MAX_RECORD_BYTES else None

    @classmethod
    def unpacked(cls, packed: bytes) -> KeptPlan | None:
        """Read what `packed` has written; None if it is something else: anybody may have written it."""
        if len(packed) > 2 * MAX_RECORD_BYTES:
            return None
        try:
            found = json.loads(packed)
        except (ValueError, RecursionError):
            return None
        return cls.read(found) if isinstance(found, dict) else None

    def compiled(self, now: Pipeline) -> Pipeline:
        """Compile it again, with the context and beside the files of the pipeline of `now`.

        It is trusted: only who keeps the checkpoint has written it. Raises PipelineError if it breaks a rule:
        a file that it needs has changed, or the version has.
        """
        found = check_pipeline(
            now.path, context=now.context, raw=self.pipeline.encode(), contract=self.contract.encode()
        )
        if found.pipeline is None:
            raise PipelineError(
                "the routes that began the batch cannot be compiled", why=found.errors[0].message
            )
        return found.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What was begun by a plan which is not the current one any more."""

    batch: int | None = None
    """The batch of Spark; None: it is a transaction of a loop."""
    plan: KeptPlan | None
    """None: it is not kept."""

    @property
    def name(self) -> str:
        """What it is called."""
        return "what was begun" if self.batch is None else f"batch {self.batch}"

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Begun | None:
        """Read what `as_data` has written; None if there is nothing, or something else."""
        batch, plan = found.get("batch"), found.get("plan")
        kept = KeptPlan.read(plan) if isinstance(plan, Mapping) else None
        return None if kept is None or type(batch) is not int else cls(batch=batch, plan=kept)

    def as_data(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {"batch": self.batch, "plan": None if self.plan is None else self.plan.as_data()}

    def work(
        self, name: str, now: Pipeline, check: Callable[[Source, Pipeline], WorkerSpec | None]
    ) -> tuple[WorkerSpec | None, str]:
        """Return the work of the source `name` that finishes the batch, and what to say of it.

        None if the routes that began it are not to be had any more; raises CheckpointMismatch then if the
        pipeline requires exactly once. `check` looks at the clusters of a source.
        """
        try:
            if self.plan is None:
                raise PipelineError("they were not kept")
            plan = self.plan
            is_ours = self.batch is not None  # a checkpoint is; progress topics are written by others, too
            old = plan.compiled(now) if is_ours else compiled_by(now, plan.pipeline, plan.contract)
            found = [source for source in sources_of(old) if source.name == name]
            work = check(found[0], old) if found else None
            if work is None or work.plan != self.plan.digest:
                raise PipelineError("they are another program now, or topics that they write to have changed")
        except PenstockError as exc:
            if is_retriable(exc):
                raise  # a cluster or a registry is away: that says nothing of the routes
            if now.requires_exactly_once:
                raise CheckpointMismatch(
                    f"{self.name} of {name} was begun by other routes, and cannot be finished by them",
                    where="exactly-once: required",
                    why=f"{exc.what}\n{exc.why}" if exc.why else exc.what,
                    next="put the pipeline back as it was and run it --once before it is edited; or take "
                    "exactly-once out: what is stored of it is then written again",
                ) from exc
            text = f"{name}: {self.name} cannot be finished by the routes that began it ({exc.what}): "
            return None, f"{text}it is delivered at least once, what is stored of it is written again"
        return (
            work,
            f"{name}: {self.name} is finished by the routes that began it; the edited ones follow",
        )


def kept_plan(source: Source, pipeline: Pipeline, work: WorkerSpec) -> KeptPlan | None:
    """Return what is kept of the plan of a source; None where a second run needs it not, or would not help.

    It is needed where an interrupted batch may be written in part: on several clusters, or on Pulsar.
    """
    if not work.exactly_once or work.plan is None:
        return None
    protocols = {each.protocol for route in source.routes for each in route.send}
    protocols |= {place.protocol for place in source.dead.values()}
    in_parts = len(source.written) > 1 or protocols != {"kafka"}
    return KeptPlan.of(pipeline, work.plan) if in_parts else None


def begun_batch(checkpoint: Checkpoint, now: KeptPlan | None) -> Begun | None:
    """Return the open batch of a checkpoint and the plan that began it, if that is not the plan of `now`."""
    batch = checkpoint.open_batch if checkpoint.exists else None
    old = None if batch is None else read_fingerprint(checkpoint.files, checkpoint.fingerprint)
    if batch is None or old is None:
        return None
    begun = Begun.read(old.begun)
    plan = begun.plan if begun is not None and begun.batch == batch else KeptPlan.read(old.plan)
    if plan is None or (now is not None and now.digest == plan.digest):
        return None
    return Begun(batch=batch, plan=plan)
