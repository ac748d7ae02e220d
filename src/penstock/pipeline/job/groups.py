"""The consumer group that shows how far a source has come: named by the contract, committed after each batch.

Spark keeps its offsets in the checkpoint and commits nothing; operators look at groups. The commit is for
them: the job never reads it, and never stops because of it.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from penstock.brokers.kafka_offsets import KafkaOffsets, Offsets
from penstock.contract.kafka import KafkaOperation
from penstock.contract.schema import Schema
from penstock.errors import ClusterError, MissingExtra, PipelineError, UsageError
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import Pipeline

__all__ = ["Committer", "group_of"]

_log = logging.getLogger(__name__)
_FLAG: Final = "--group"


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


class Committer:
    """Commits for one source."""

    def __init__(self, admin: KafkaOffsets, group: str, topic: str) -> None:
        self.group = group
        self._admin = admin
        self._topic = topic
        self._warned = False

    def commit(self, offsets: Offsets) -> None:
        """Commit; a failure is told once and never raised."""
        try:
            self._admin.commit(self.group, self._topic, offsets)
        except ClusterError as exc:
            if not self._warned:
                _log.warning("progress is not committed to group %s: %s", self.group, exc)
            self._warned = True
        else:
            self._warned = False
