"""The consumer group that shows how far a source has come: named by the contract, committed after each batch.

Spark keeps its offsets in the checkpoint and commits nothing; operators look at groups. The commit is for
them: the job never reads it, and never stops because of it.
"""

from __future__ import annotations

import logging
from threading import Condition, Thread
from typing import Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.outage import REMIND_SECONDS, OutageLog
from penstock.contract.kafka import KafkaOperation
from penstock.contract.schema import Schema
from penstock.errors import MissingExtra, PenstockError, PipelineError, UsageError
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.job.survey import Clusters, SourceOffsets

__all__ = ["Committer", "committer_of", "group_of"]

_log = logging.getLogger(__name__)
_FLAG: Final = "--group"
_PAUSE: Final = 5.0
"""Seconds between two attempts to commit while the cluster does not take it."""
_COMMIT_SECONDS: Final = 10.0
"""For the answer to a commit."""
_CLOSING: Final = 10.0
"""Seconds that the end of a job waits for the last commit."""


def group_of(source: Source, pipeline: Pipeline, wanted: str | None) -> str | None:
    """Choose the group of a source: the wanted one if the contract allows it, else the only one it names."""
    if wanted is None:
        return source.receive.group_id
    operation = pipeline.contract.operations[source.receive.id]
    schema = (operation.bindings.kafka or KafkaOperation()).group_id
    problem = _problem(wanted, schema)
    if problem is not None:
        allowed = source.receive.group_ids
        raise UsageError(
            f"the contract does not allow the group {wanted} for {source.receive.id}",
            where=_FLAG,
            why=problem,
            next=f"use one of: {', '.join(allowed)}" if allowed else "use one that its groupId allows",
        )
    return wanted


def _problem(name: str, schema: Schema | None) -> str | None:
    """Say why a name does not fit the schema of it (Kafka bindings, Operation Binding Object)."""
    if schema is None:
        return None
    try:
        import jsonschema_rs
    except ImportError as exc:
        raise MissingExtra("contract", "jsonschema-rs", purpose="checking a group's name") from exc
    definition: Any = schema.definition
    try:
        found = next(jsonschema_rs.validator_for(definition).iter_errors(name), None)
    except ValueError as exc:
        raise PipelineError("the contract's schema of groupId cannot be used", why=str(exc)) from exc
    return None if found is None else str(found.message)


def committer_of(
    source: Source, clusters: Clusters, work: WorkerSpec | None, group: str | None
) -> Committer | None:
    """Return what shows the progress of a source; None if nobody asked for it.

    A source on Pulsar always has a durable subscription, made here: it keeps what was not read.
    """
    if work is not None and work.pulsar is not None:
        client = clusters.pulsar(source.receive.server, source.receive.connection)
        client.subscribe(source.topic, work.pulsar.subscription)
        return Committer(client, work.pulsar.subscription, source.topic)
    if group is None:
        return None
    return Committer(clusters.own(source, timeout=_COMMIT_SECONDS), group, source.topic)


class Committer:
    """Commits for one source, in a thread of its own: nobody waits for it, and it never raises.

    Only the newest offsets count. A commit that fails is tried again, with whatever is the newest by then.
    """

    def __init__(
        self,
        admin: SourceOffsets,
        group: str,
        topic: str,
        *,
        pause: float = _PAUSE,
        remind: float = REMIND_SECONDS,
    ) -> None:
        self.group = group
        self._admin = admin
        self._topic = topic
        self._pause = pause
        self._outage = OutageLog(_log, f"commits of progress to group {group}", remind=remind)
        self._changed = Condition()
        self._newest: Offsets | None = None
        self._is_closing = False
        self._thread: Thread | None = None

    def commit(self, offsets: Offsets) -> None:
        """Take the newest offsets; returns at once."""
        with self._changed:
            self._newest = offsets
            self._changed.notify()
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"penstock-commit-{self.group}", daemon=True)
                self._thread.start()

    def close(self, seconds: float = _CLOSING) -> None:
        """Commit what is left, if that takes no longer; a group that stays behind is told."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._newest is not None:
            _log.warning("the last progress is not committed to group %s", self.group)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._is_closing)
                offsets, was_closing = self._newest, self._is_closing
            if offsets is None:
                return
            if not self._committed(offsets):
                if was_closing:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, self._pause)

    def _committed(self, offsets: Offsets) -> bool:
        try:
            self._admin.commit(self.group, self._topic, offsets)
        except PenstockError as exc:  # also ConfigError: certificates that are just being written
            self._outage.failed(exc)
            return False
        self._outage.worked()
        with self._changed:
            if self._newest is offsets:
                self._newest = None
        return True
