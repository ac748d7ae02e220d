"""One Pulsar cluster that a source writes to: a sink for each partition that is read.

Names of producers and ids of records are those of one source partition, so batches of two partitions never
share a sink. Sinks are opened when their first batch comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.pipeline.delivery.pulsar.placement import Placement, target_key
from penstock.pipeline.delivery.pulsar.producer_names import (
    ORDINAL_BITS,
    PulsarTarget,
    SinkBatch,
    SinkSource,
)
from penstock.pipeline.delivery.pulsar.sink import PulsarSink

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.producer import BatchRefusal
    from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
    from penstock.pipeline.delivery.worker_spec import WorkerSpec
    from penstock.pipeline.evaluators.kernel.batch_builder import Output

__all__ = ["PulsarOutput"]

_BUFFER_BYTES: Final = 32 << 20
"""What may be under way to a cluster, of all source partitions."""
_SMALLEST_BUFFER: Final = 1 << 20
_ANY: Final = -1
"""Stands for all source partitions, where records have no ids."""
_REFUSED: Final = "refused"
"""The label of the producer for letters of records that a topic has refused.

Which records those are is learnt when others behind them are stored: the ids of letters have their own order.
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """What holds for a source partition at the moment."""

    placement: Placement
    first: int
    """Everything before it is stored."""
    begun: bool
    """Whether something behind it may be stored already."""
    since: int | None
    """Nothing behind it was written before, in milliseconds; None if that is not known."""

    def again(self, made: int) -> _Place:
        """Return the place when something may have been written behind it, at this time or later."""
        return replace(self, begun=True, since=self.since if self.begun else max(made, self.since or 0))

    def moved(self, first: int, since: int | None) -> _Place:
        """Return the place at a mark behind it; None for a time that is as before."""
        return replace(self, first=first, since=self.since if since is None else since)


class PulsarOutput:
    """Writes the batches of all source partitions to the targets of one sink."""

    def __init__(
        self,
        work: WorkerSpec,
        cluster: PulsarCluster,
        sink: int,
        *,
        exactly_once: bool,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`check` raises what ends a wait for the name of a producer."""
        self._check = check
        self._work = work
        self._cluster = cluster
        self._exactly_once = exactly_once
        self._targets = {n: each for n, each in enumerate(work.program.targets) if each.sink == sink}
        self._order = {number: at for at, number in enumerate(self._targets)}
        # Each target is there twice, see `_pulsar_targets`.
        limits = [each.limit for each in self._targets.values() for _ in range(2)]
        self._limits = {at: limit for at, limit in enumerate(limits) if limit is not None}
        self._made = time.time_ns() // 1_000_000
        self._places: dict[int, _Place] = {}
        self._sinks: dict[int, PulsarSink] = {}

    @property
    def was_refused(self) -> bool:
        """Whether a record was refused for its own sake."""
        return any(sink.was_refused for sink in self._sinks.values())

    def place(self, partition: int, placement: Placement, first: int, *, begun: bool) -> None:
        """Say how the records of a source partition are placed; nothing may be under way."""
        self._set(partition, _Place(placement, first, begun, placement.since))

    def adopt(self, partitions: Mapping[str, int]) -> None:
        """Divide records among so many partitions of each target; nothing may be under way."""
        for number, place in self._places.items():
            self._set(number, replace(place, placement=replace(place.placement, partitions=partitions)))

    def _set(self, partition: int, place: _Place) -> None:
        number = partition if self._exactly_once else _ANY
        self._places[number] = place
        if (sink := self._sinks.pop(number, None)) is not None:
            sink.close()

    def put(self, output: Output) -> None:
        """Send records on their way."""
        self._sink(output.source).put(self._batch(output))

    def offer(self, output: Output) -> BatchRefusal | None:
        """Send records and wait for them; return why they were refused for their own sake."""
        return self._sink(output.source).offer(self._batch(output))

    def check(self, output: Output) -> BatchRefusal | None:
        """Return why records would be refused; nothing is sent."""
        return self._sink(output.source).check(self._batch(output))

    def flush(self) -> None:
        """Wait until everything is stored."""
        for sink in self._sinks.values():
            sink.flush()

    def stored_ends(self) -> dict[int, int]:
        """Return, by source partition, the offset behind the last of which something is stored.

        Raises as `put` does where the name of a producer is in use.
        """
        stage = self._work.stage
        dead = {(each.sink, each.topic) for each in (stage.dead, *stage.unknown) if each is not None}
        dead |= {(route.dead.sink, route.dead.topic) for route in stage.routes}
        places = [
            2 * at + late
            for number, at in self._order.items()
            for late in (0, 1)
            # Only dead letters come late.
            if not late or (self._targets[number].sink, self._targets[number].topic) in dead
        ]
        found = {part: self._sink(part).stored(places) for part in self._places}
        return {part: (last >> ORDINAL_BITS) + 1 for part, last in found.items() if last >= 0}

    def committed(self, offsets: Mapping[int, int], since: Mapping[int, int] | None = None) -> None:
        """Note how far the marks are, and their times: what is opened from now on begins there."""
        for partition, offset in offsets.items():
            if (place := self._places.get(partition)) is not None:
                place = place.moved(offset, (since or {}).get(partition))
                self._places[partition] = place
                if (sink := self._sinks.get(partition)) is not None:
                    sink.moved(place.first, place.since)

    def restart(self) -> None:
        """Go on after an error: what is stored is left out when it is put again."""
        for sink in self._sinks.values():
            sink.restart()
        self._places = {part: place.again(self._made) for part, place in self._places.items()}

    def close(self) -> None:
        """Close the producers; what was not flushed may or may not be stored."""
        with ExitStack() as closing:
            for sink in self._sinks.values():
                closing.callback(sink.close)

    def _batch(self, output: Output) -> SinkBatch:
        at = 2 * self._order[output.target] + int(output.is_late)
        return SinkBatch(at, output.partition, output.body, output.ids)

    def _sink(self, partition: int) -> PulsarSink:
        partition = partition if self._exactly_once else _ANY
        if (found := self._sinks.get(partition)) is None:
            place = self._places[partition]
            found = PulsarSink(
                self._cluster,
                self._pulsar_targets(place.placement),
                self._source(partition, place) if self._exactly_once else None,
                limits=self._limits,
                check=self._check,
                buffer_bytes=max(_BUFFER_BYTES // max(1, len(self._places)), _SMALLEST_BUFFER),
            )
            self._sinks[partition] = found
        return found

    def _pulsar_targets(self, placement: Placement) -> Sequence[PulsarTarget]:
        """Return each target twice: for what is written in the order of the input, and for late letters."""
        return [
            PulsarTarget(topic=target.topic, partitions=placement.partitions[target_key(target)], label=label)
            for target in self._targets.values()
            for label in ("", _REFUSED)
        ]

    def _source(self, partition: int, place: _Place) -> SinkSource:
        work, token = self._work, place.placement.token
        return SinkSource(
            run=work.run or f"{work.group}.{token}",
            topic=work.topic,
            incarnation=work.belonging.topic_id or "",
            partition=partition,
            first=place.first,
            begun=place.begun,
            since=place.since,
        )
