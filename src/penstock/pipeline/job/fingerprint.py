"""What a checkpoint belongs to, kept beside it: a change that it cannot survive is told before anything runs.

Offsets mean something only on the topic they were counted on: the same cluster, the same topic, not one that
was made again under the same name. Conditions, functions and targets may change: they have no state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.brokers.kafka_offsets import Offsets
from penstock.errors import CheckpointMismatch, PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import CompiledRoute
from penstock.pipeline.delivery.same_topic import are_certainly_two
from penstock.pipeline.spark.file_system import FileSystem

__all__ = [
    "ENGINE",
    "Change",
    "Fingerprint",
    "Query",
    "UnreadableCheckpoint",
    "beyond",
    "changes",
    "moved",
    "read_fingerprint",
    "refuse",
    "write_fingerprint",
]

ENGINE: Final = "spark"
"""Who counts the offsets; all engines inside Spark share its checkpoints."""
_VERSION: Final = 1
_NO_ID: Final = "penstock"
"""What gateways of older versions told as the id of their cluster."""


class UnreadableCheckpoint(PipelineError):
    """A file of a checkpoint is cut, or is something else."""


class Query(NamedTuple):
    """What a job knows of a checkpoint: the name of its marks, and where it began."""

    name: str
    begin: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """One source as it was when its checkpoint was last used."""

    topic: str
    cluster_id: str | None
    topic_id: str | None
    partitions: int
    operations: tuple[str, ...]
    routes: Mapping[str, str]
    """A hash of each route by its name."""
    engine: str = ENGINE
    version: int = _VERSION
    query: str = ""
    """The name under which marks are kept; it is new with each new checkpoint."""
    begin: Mapping[str, int] = field(default_factory=dict)
    """Where each partition began: a first batch that is repeated begins there again."""
    created: Mapping[str, str] = field(default_factory=dict)
    """When each partition of a topic on Pulsar was created; empty on Kafka and in files of older versions."""
    exactly_once: bool | None = None
    """Whether it was last used by a job that delivers exactly once; None in files of older versions."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What its batches are begun by, see `kept_plan.KeptPlan`; empty where it need not be kept."""
    begun: Mapping[str, Any] = field(default_factory=dict)
    """The open batch that another plan has begun, see `kept_plan.Begun`; empty if there is none."""

    @classmethod
    def of(
        cls,
        source: Source,
        *,
        cluster_id: str | None,
        topic_id: str | None,
        partitions: int,
        created: Mapping[int, str] = MappingProxyType({}),
        query: Query | None = None,
        exactly_once: bool | None = None,
    ) -> Fingerprint:
        """Take the fingerprint of a source."""
        return cls(
            topic=source.topic,
            cluster_id=cluster_id,
            topic_id=topic_id,
            partitions=partitions,
            created={str(part): time for part, time in created.items()},
            operations=tuple(sorted({route.receive.id for route in source.routes})),
            routes={route.name: _hash(route) for route in source.routes},
            query=query.name if query else "",
            begin={str(part): offset for part, offset in query.begin.items()} if query else {},
            exactly_once=exactly_once,
        )

    @property
    def marks(self) -> Query | None:
        """What a job has to go on with; None if it has no marks."""
        return Query(self.query, {int(part): at for part, at in self.begin.items()}) if self.query else None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; `fatal` if the checkpoint does not survive it."""

    text: str
    fatal: bool = False


def _hash(route: CompiledRoute) -> str:
    sent = [(operation.server, operation.topic) for operation in route.send]
    applied = route.document.apply.function if route.document.apply else None
    return hashlib.sha256(repr((route.plan, route.sql, sent, applied)).encode()).hexdigest()[:16]


_Rule = Callable[[Fingerprint, Fingerprint], Iterator[Change]]


def _differs(attribute: str, text: str) -> _Rule:
    def rule(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
        was, now = getattr(old, attribute), getattr(new, attribute)
        if was is not None and now is not None and was != now:
            yield Change(text.format(was=was, now=now), fatal=True)

    return rule


def _other_cluster(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
    # Gateways of older versions had no id of their own.
    if _NO_ID not in (old.cluster_id, new.cluster_id):
        yield from _differs("cluster_id", "it belongs to cluster {was}, this is cluster {now}")(old, new)


def _remade(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
    was, now = old.topic_id, new.topic_id
    if are_certainly_two(was, now):
        yield Change(f"the topic was deleted and made again: its id was {was}, now it is {now}", fatal=True)
    elif was is not None and now is not None and was != now:
        yield Change(
            f"the topic had the id {was} and has {now}; one of them is computed from its name, so whether it "
            "was deleted and made again is not known"
        )


def _recreated(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
    # The id of a topic that Pulsar's own tools have created is computed from its name, and stays the same.
    for part in sorted(old.created.keys() & new.created.keys(), key=int):
        was, now = old.created[part], new.created[part]
        if was != now:
            yield Change(
                f"the topic was deleted and made again: its partition {part} was created {was}, now {now}",
                fatal=True,
            )


def _shrunk(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
    # Kafka cannot take partitions away: it is another topic, on a cluster that has no ids for them.
    if new.partitions < old.partitions:
        yield Change(f"the topic had {old.partitions} partitions and has {new.partitions}", fatal=True)
    elif new.partitions > old.partitions:
        yield Change(f"the topic has grown from {old.partitions} to {new.partitions} partitions")


def _routes(old: Fingerprint, new: Fingerprint) -> Iterator[Change]:
    for name in sorted(old.routes.keys() | new.routes.keys()):
        if name not in new.routes:
            yield Change(f"route {name} is gone")
        elif name not in old.routes:
            yield Change(f"route {name} is new: it sees the records from here on")
        elif old.routes[name] != new.routes[name]:
            yield Change(f"route {name} has changed: it is applied from here on")


_RULES: Final[Sequence[_Rule]] = (
    _differs("engine", "it was written by the {was} engine, now it is {now}"),
    _other_cluster,
    _remade,
    _recreated,
    _shrunk,
    _routes,
)


def moved(old: Fingerprint, operations: Collection[str], topic: str) -> tuple[Change, ...]:
    """Say which operations a checkpoint was made for that are now read from another topic."""
    return tuple(
        Change(f"operation {each} was read from {old.topic}, now it is {topic}", fatal=True)
        for each in sorted(set(old.operations) & set(operations))
    )


def beyond(position: Offsets, latest: Offsets) -> tuple[Change, ...]:
    """Say where a topic ends before the checkpoint: it lost its end, or is another one of the same name."""
    return tuple(
        Change(f"it stands at {offset} of partition {part}, which ends at {latest.get(part, 0)}", fatal=True)
        for part, offset in sorted(position.items())
        if offset > latest.get(part, 0)
    )


def changes(old: Fingerprint, new: Fingerprint) -> tuple[Change, ...]:
    """Say what has changed, the fatal first."""
    found = [change for rule in _RULES for change in rule(old, new)]
    return tuple(sorted(found, key=lambda change: not change.fatal))


def refuse(found: Sequence[Change], where: object) -> None:
    """Raise if the checkpoint does not survive a change."""
    fatal = [change.text for change in found if change.fatal]
    if fatal:
        raise CheckpointMismatch(
            "the checkpoint belongs to something else",
            where=str(where),
            why="\n".join(fatal),
            next="--fresh-checkpoint reads the topic from its beginning (the old one is kept beside); "
            "or name another folder under checkpoint",
        )


def read_fingerprint(files: FileSystem, path: str) -> Fingerprint | None:
    """Read the file; None if there is none. Raises UnreadableCheckpoint."""
    try:
        text = files.read(path)
        if text is None:
            return None
        found: Any = json.loads(text)
        # A file from before there were queries has none.
        values = {each.name: found[each.name] for each in fields(Fingerprint) if each.name in found}
        return Fingerprint(**{**values, "operations": tuple(values["operations"])})
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise UnreadableCheckpoint(
            "the fingerprint of the checkpoint cannot be read",
            where=files.where(path),
            why=str(exc),
            next="put a whole copy of this file back, or begin anew with --fresh-checkpoint; without the "
            "file a batch that is open can only be written again, which --replay allows",
        ) from exc


def write_fingerprint(files: FileSystem, path: str, fingerprint: Fingerprint) -> None:
    """Write the file in one step, so that a crash leaves the old one or the new one.

    Where the store has no such step, a crash may leave none: see `FileSystem.write`.
    """
    files.write(path, json.dumps(asdict(fingerprint), indent=2) + "\n")
