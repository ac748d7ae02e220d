"""Histories of loops and tasks that read Pulsar and write Pulsar, and the laws of `pulsar_to_pulsar`.

What is read is a topic of the same simulated Pulsar, filled entry by entry by somebody else: it moves, rolls
over and is away like any other.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from penstock.pipeline.delivery.pulsar.cluster import partition_name
from penstock.wire.pulsar.pulsar_pb2 import SingleMessageMetadata
from simulator.kafka_world import record_of
from simulator.pulsar_to_pulsar import PulsarToPulsarHistory
from simulator.pulsar_topic import Stored, Topic

__all__ = ["WithinPulsarHistory", "WithinPulsarTasksHistory"]

_SOURCE: Final = "persistent://public/default/in"


class WithinPulsarHistory(PulsarToPulsarHistory):
    """One seed, for loops."""

    run = ""
    source_topic: ClassVar = _SOURCE

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._shares = False
        self.pulsar.create(_SOURCE, self.partitions)

    @property
    def owners(self) -> list[str]:
        """Who took the topic with the marks of the first partition, which is opened by all."""
        first = next(name for name, part in self._progress_topics.items() if part == 0)
        return [node.partition("/")[0] for node in self.pulsar.topics[first].owners]

    @property
    def source_ends(self) -> list[int]:
        """Where the partitions end that are read."""
        return [self._source(part).next_index for part in range(self.partitions)]

    def _source(self, part: int) -> Topic:
        return self.pulsar.topics[partition_name(_SOURCE, part, self.partitions)]

    def _write(self, part: int, count: int, *, transactional: bool) -> None:
        """Write an entry; transactions of others are no matter of these histories."""
        topic, messages = self._source(part), list[tuple[Any, bytes]]()
        for n in range(count):
            name = (part, self._numbers[part] + n)
            if self._chance.random() < self.refused_share:
                self.refused.add(name)
            self.expected[part][topic.next_index + n] = name
            record = record_of(part, 0, name, self.padding(name))
            head = SingleMessageMetadata(partition_key=(record.key or b"").decode())
            for key, value in record.headers:
                head.properties.add(key=key, value=(value or b"").decode())
            messages.append((head, record.value or b""))
        self._numbers[part] += count
        topic.write_batch(messages, self.world.time_ns() // 1_000_000)

    def _note_stored(self, topic: Topic, entry: Stored) -> None:
        if topic.name.startswith(_SOURCE):
            self.note("pulsar", f"{topic.name} has {entry.messages} messages up to {entry.index}")
            return
        super()._note_stored(topic, entry)

    def _served_topic(self) -> Topic:
        if self._faults.random() < 0.2:
            return self._source(self._faults.randrange(self.partitions))
        return super()._served_topic()


class WithinPulsarTasksHistory(WithinPulsarHistory):
    """The same for tasks, whose names are those of a checkpoint."""

    run = "checkpoint"
