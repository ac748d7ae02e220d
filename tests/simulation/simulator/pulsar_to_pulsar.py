"""Histories of tasks from Pulsar to Pulsar: their marks are in topics of Pulsar, and no Kafka is asked.

What is read is a log in memory whose records are given to the tasks; where they have offsets together, they
stand for the messages of a batch in a transaction. Topics with marks move, fail to store and are trimmed as
far as their subscription allows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

from penstock.brokers.kafka_raw.settings import Settings
from penstock.pipeline.delivery.progress import PLAN, TOPIC, ProgressKey, PulsarProgress
from penstock.pipeline.delivery.pulsar.log import Numbering
from penstock.pipeline.delivery.pulsar.progress import SUBSCRIPTION
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.pipeline.delivery.pulsar.source import PulsarSource
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.wire.pulsar import EARLIEST, Entry, read_entry
from simulator.kafka_world import GROUP, IN
from simulator.pulsar_clusters import PULSAR, WITHIN_PULSAR, PulsarTasksHistory
from simulator.pulsar_cursor import Cursor, first_place
from simulator.pulsar_topic import Stored, Topic

__all__ = ["PulsarToPulsarHistory"]

_SOURCE: Final = "sim"
_PROGRESS: Final = PulsarProgress(PULSAR, "public/default")


class PulsarToPulsarHistory(PulsarTasksHistory):
    """One seed."""

    programs: ClassVar = WITHIN_PULSAR
    source_topic: ClassVar = IN
    keeps_plans = False
    """Whether loops keep what their programs are made of."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._marks: dict[int, int] = {}
        """By partition, the offset of the last mark."""
        chance = random.Random(f"shared offsets of {seed}")
        self._shares = chance.random() < 0.4
        if self._shares:
            # A letter names its record by the offset, which has to be its own.
            self.refused_share = 0.0
        self._progress_topics: dict[str, int] = {}
        # The job makes them before it starts.
        key = ProgressKey(GROUP, _SOURCE, self.source_topic, "")
        for part in (*range(self.partitions), *((PLAN,) if self.keeps_plans else ())):
            name = _PROGRESS.topic(key, part)
            self.pulsar.create(name)
            topic = self.pulsar.topics[name]
            topic.cursors[SUBSCRIPTION] = Cursor(first_place(topic, EARLIEST))
            self._progress_topics[name] = part

    def work(self, name: str) -> WorkerSpec:
        """Give what a program is told."""
        source = PulsarSource(
            settings=PulsarSettings(service_url=self.pulsar.url),
            topic=self.source_topic,
            partitions=self.partitions,
            incarnation="",
            numbering=Numbering.INDEX,
            subscription=GROUP,
        )
        return replace(
            super().work(name),
            topic=self.source_topic,
            settings=Settings(bootstrap=()),
            outputs={},
            source_id=_SOURCE,
            pulsar=source,
            progress=_PROGRESS,
        )

    def offset_of(self, at: int, first: int) -> int:
        """Give the offset of the record at a place in the log, of a range that begins at `first`."""
        return max(first, at & ~1) if self._shares else at

    def _note_stored(self, topic: Topic, entry: Stored) -> None:
        if TOPIC not in topic.name:
            super()._note_stored(topic, entry)
            return
        read = read_entry(memoryview(entry.data))
        assert isinstance(read, Entry)
        part, text = self._progress_topics[topic.name], bytes(read.payload).decode()
        self.note("pulsar", f"the topic with the marks of {part} stores {text} at {entry.place[:2]}")
        if "offset" in (mark := json.loads(text)):
            before, self._marks[part] = self._marks.get(part, 0), mark["offset"]
            # At least once as well: who was shut out writes no mark any more.
            self.check(mark["offset"] >= before, f"the mark of {part} goes back from {before}")
            self._check_pulsar({part: mark["offset"]})

    # What goes wrong

    @property
    def troubles(self) -> tuple[Callable[[], None], ...]:
        """What may go wrong with Pulsar, topics with marks included."""
        return (*super().troubles, self._trim_marks, self._trim_marks)

    def _served_topic(self) -> Topic:
        if self._faults.random() < 0.3:
            return self.pulsar.topics[self._faults.choice(sorted(self._progress_topics))]
        return super()._served_topic()

    def _trim_marks(self) -> None:
        gone = 0
        for name in self._progress_topics:
            topic = self.pulsar.topics[name]
            cursor = topic.cursors[SUBSCRIPTION].next
            for ledger, entries in list(topic.ledgers.items())[:-1]:
                if entries and entries[-1].place[:2] >= cursor[:2]:
                    break
                gone += len(topic.ledgers.pop(ledger))
        self.note("pulsar", f"{gone} marks are removed")

    # Laws

    def check_marks_at_the_end(self) -> None:
        """Look whether all that was read is marked."""
        for part, records in sorted(self.expected.items()):
            last = self.offset_of(max(records), 0) if records else -2
            offset = self._marks.get(part, -1)
            self.check(offset > last, f"the mark of {part} is {offset} at the end, and not behind {last}")
