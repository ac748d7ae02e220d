"""Plans the batches of a topic on Pulsar for Spark, as `delivery.range_planner` does for one on Kafka.

It runs in the driver and holds one connection to each broker that has partitions of the topic, with a
consumer of the durable subscription on each partition; it asks them for their last message and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.retry import retrying
from penstock.pipeline.delivery.end_watch import is_behind
from penstock.pipeline.delivery.offset_ranges import limited
from penstock.pipeline.delivery.range_planner import LONGEST_WAIT_SECONDS, Planner
from penstock.pipeline.delivery.same_topic import refuse_other_incarnation

if TYPE_CHECKING:
    from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets
    from penstock.pipeline.delivery.pulsar.source import PulsarSource

__all__ = ["PulsarPlanner"]

_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25
_PAUSE_OF_PARTITION: Final = 0.01
"""Seconds between two questions for the end of an idle topic: at least so many for each partition."""
_VERY_MANY: Final = 100
"""Batches that a backlog takes; where it is more, it is asked how large the next entry is."""
_SIZE_SECONDS: Final = 60.0
"""How long the size of a message is taken to stay the same."""


@dataclass(slots=True)
class PulsarPlanner(Planner):
    """A planner whose topic is on Pulsar; `settings` says how long a broker that is away is waited for."""

    source: PulsarSource | None = None
    _client: PulsarOffsets | None = None
    _sizes: Mapping[int, float] | None = None
    _sized_at: float = 0.0

    def close(self) -> None:
        """Close the connections; the subscription stays."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _wait(self, begin: Offsets) -> None:
        now = self.idle_at = monotonic()
        end, pause = now + LONGEST_WAIT_SECONDS, _SHORTEST_PAUSE
        while self.waits and now < end and not self._released.wait(min(pause, end - now)):
            latest = self._ask_latest()
            if is_behind(begin, latest):
                self._just_came = True
                return
            now = self.idle_at = monotonic()
            pause = min(2 * pause, max(_LONGEST_PAUSE, _PAUSE_OF_PARTITION * len(latest)))

    def _ask_latest(self) -> Offsets:
        client = self._open_pulsar()
        found = retrying(
            lambda: client.latest(self.topic),
            seconds=self.settings.deadline,
            between=lambda exc: None,
            gives_up=self._released.is_set,
        )
        self._known, self.asked_at = found, monotonic()
        return found

    def _refuse_other(self) -> None:
        assert self.source is not None
        known = self.source.incarnation
        refuse_other_incarnation(self.topic, known, self._open_pulsar().incarnation(self.topic))

    def _admitted(self, begin: Offsets, latest: Offsets) -> Offsets:
        if self._is_indexed:
            return self._past_holes(begin, limited(begin, latest, self.limits.offsets()), latest)
        # Place numbers count no messages: between two ledgers lie half a thousand million of them.
        return limited(begin, latest, None)

    def _past_holes(self, begin: Offsets, ends: Offsets, latest: Offsets) -> Offsets:
        """Return ends that are behind the next entry of partitions where very much is left.

        A broker counts as many messages as a producer claims: two thousand million for one entry. Batches of
        a million would then hold nothing.
        """
        far = {
            part: begin[part]
            for part, end in ends.items()
            if part in begin and latest.get(part, 0) - end > _VERY_MANY * max(end - begin[part], 1)
        }
        if not far:
            return ends
        behind = self._open_pulsar().behind_entries(self.topic, far)
        return {part: max(end, min(behind.get(part, 0), latest.get(part, 0))) for part, end in ends.items()}

    def _bytes_per_offset(self, positions: Offsets) -> Mapping[int, float]:
        if not self._is_indexed or self._known is None:
            return {}
        now = monotonic()
        if self._sizes is None or now - self._sized_at > _SIZE_SECONDS:
            client, ends = self._open_pulsar(), self._known
            first = client.earliest(self.topic)
            held = {part: ends[part] - first.get(part, 0) for part in positions if part in ends}
            self._sizes, self._sized_at = client.sizes(self.topic, held), now
        return {part: size for part, size in self._sizes.items() if part in positions and size}

    @property
    def _is_indexed(self) -> bool:
        from penstock.pipeline.delivery.pulsar.log import Numbering

        assert self.source is not None
        return self.source.numbering is Numbering.INDEX

    def _open_pulsar(self) -> PulsarOffsets:
        if self._client is None:
            # The client loads kernels, which only a driver with such a source needs.
            from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets

            assert self.source is not None
            client = PulsarOffsets(self.source.settings, timeout=self.settings.deadline, stop=self._released)
            client.watch(self.topic, self.source.subscription)
            self._client = client
        return self._client
