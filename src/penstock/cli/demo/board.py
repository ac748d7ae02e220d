"""What the topics of the shop hold while its routes run, as their brokers tell it: a live table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_groups import KafkaGroups
from penstock.brokers.pulsar_subscriptions import PulsarSubscriptions
from penstock.cli import output
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from penstock.embedded.stack import Stack

__all__ = ["Board", "Row", "shown"]

COLUMNS: Final = ("route", "topic", "records", "records/s", "lag")
_EVERY: Final = 1.0
_WINDOW: Final = 4
"""The rate is that of the last so many looks."""
_SOON: Final = 5
"""Seconds that a broker may take to answer: a look that failed is followed by another."""


@dataclass(slots=True)
class Row:
    """One topic of the table."""

    route: str
    topic: str
    count: Callable[[], int]
    """Asks the broker how many records the topic has got."""
    looks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def look(self, now: float) -> None:
        """Count what the topic holds; a broker that does not answer now does so later."""
        try:
            self.looks.append((now, self.count()))
        except ClusterError:
            return

    @property
    def records(self) -> int:
        """What it held at the last look."""
        return self.looks[-1][1] if self.looks else 0

    @property
    def rate(self) -> float:
        """Records a second, over the last looks."""
        if len(self.looks) < 2 or self.looks[-1][0] <= self.looks[0][0]:
            return 0.0
        (began, first), (ended, last) = self.looks[0], self.looks[-1]
        return (last - first) / (ended - began)


class Board:
    """The topics of the shop: what is read, and what each route has written.

    `topics` has the topic of each route; the first is the one that is read, and those on Pulsar have full
    names. `marks` is how the name of the group begins whose offsets the routes commit with their output.
    Counts of Kafka are those of offsets, of which each transaction takes one more.
    """

    def __init__(self, stack: Stack, topics: Mapping[str, str], marks: str) -> None:
        options = {"bootstrap.servers": stack.kafka.bootstrap, "log_level": "0"}
        self._kafka = KafkaGroups(options, name="demo", timeout=_SOON)
        self._pulsar = PulsarSubscriptions({"url": stack.pulsar.admin_url}, name="demo")
        self.rows = [Row(route, _short(topic), self._counter(topic)) for route, topic in topics.items()]
        self._read_topic = next(iter(topics.values()))
        self._marks = marks
        self._groups: list[str] = []
        self._read = 0

    def close(self) -> None:
        """Let go of the connections."""
        self._pulsar.close()

    def look(self) -> None:
        """Ask the brokers."""
        now = monotonic()
        self._look_at_marks()
        for row in self.rows:
            row.look(now)

    def cells(self) -> Iterator[tuple[str, str, int, str, str]]:
        """Return the rows of the table; the lag is that of the topic that is read."""
        for number, row in enumerate(self.rows):
            lag = "" if number else f"{max(0, row.records - self._read)}"
            yield row.route, row.topic, row.records, f"{row.rate:.0f}", lag

    def _counter(self, topic: str) -> Callable[[], int]:
        if "://" in topic:
            return partial(self._pulsar.messages_in, topic)
        return lambda: sum(self._kafka.latest(topic).values())

    def _look_at_marks(self) -> None:
        """Count what the routes are done with."""
        try:
            if not self._groups:
                names = (group.name for group in self._kafka.groups())
                self._groups = [name for name in names if name.startswith(self._marks)]
            done = (self._kafka.committed(name, self._read_topic) for name in self._groups)
            self._read = sum(sum(offsets.values()) for offsets in done)
        except ClusterError:
            return


def _short(topic: str) -> str:
    return f"{topic.rpartition('/')[2]} (pulsar)" if "://" in topic else topic


@contextmanager
def shown(board: Board) -> Iterator[None]:
    """Show the table while something runs; what is found at the end is for the account to say."""
    over = Event()
    with output.live_table(COLUMNS, keep=False) as show:

        def turn() -> None:
            while not over.wait(_EVERY):
                board.look()
                show(board.cells())

        thread = Thread(target=turn, name="penstock-demo-board", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(2 * _SOON)
            board.close()
