"""What the workers know of a source: how its records are read and checked, and its routes; frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import decode_batch
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.ports import Checker, Invoker, Reader, Target

__all__ = ["INPUT", "IS_EVENT", "Stage", "StageRoute", "condition_column", "read_cloud_events"]

IS_EVENT: Final = "_is_event"
"""A column beside the answers to conditions: whether a record is an event that fits its contract."""
INPUT: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""The columns of a record, as Spark hands them to its tasks."""


def read_cloud_events(batch: pa.RecordBatch) -> EventColumns:
    """Read a batch of CloudEvents, in either mode."""
    return decode_batch(batch.column("value"), batch.column("headers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRoute:
    """One route as the workers need it."""

    plan: RoutePlan
    targets: tuple[Target, ...]
    dead: Target
    invoker: Invoker | None = None
    sql: str | None = None
    """A condition in Spark's own SQL; its answer comes with the batch, see `condition_column`."""


def condition_column(number: int) -> str:
    """Name the column with the answer to the condition of a route, by the route's number."""
    return f"_sql{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All routes of one source."""

    pipeline: str
    routes: tuple[StageRoute, ...]
    dead: Target
    """Where records go that fail before any route."""
    reader: Reader = read_cloud_events
    checks: tuple[Checker, ...] = ()
    unknown: tuple[Target, ...] = ()
    """Where structured events of an unregistered format go unchanged; none: to the dead letters."""
    servers: tuple[str, ...] = ()
    """The names of the clusters, by the number of their sink; the first is that of the source."""
