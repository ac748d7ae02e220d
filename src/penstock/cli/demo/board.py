"""What the topics of the shop hold while its routes run, as their brokers tell it: a live table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.cli import output
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from penstock.pipeline.job import Watcher

__all__ = ["Board", "Row", "shown"]

COLUMNS: Final = ("route", "topic", "records", "records/s", "lag")
_EVERY: Final = 0.5
_WINDOW: Final = 6
"""The rate is that of the last so many looks."""
_SOON: Final = 5
"""Seconds that a broker may take to answer: a look that failed is followed by another."""


@dataclass(slots=True)
class Row:
    """One topic of the table."""

    route: str
    topic: str
    admin: KafkaOffsets
    looks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def look(self, now: float) -> None:
        """Count what the topic holds; a broker that does not answer now does so later."""
        try:
            self.looks.append((now, sum(self.admin.latest(self.topic).values())))
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

    `places` has a topic and the address of its broker for each route; the first is the topic that is read.
    """

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        admins: dict[str, KafkaOffsets] = {}
        for _, bootstrap in places.values():
            if bootstrap not in admins:
                options = {"bootstrap.servers": bootstrap, "log_level": "0"}
                admins[bootstrap] = KafkaOffsets(options, name="demo", timeout=_SOON)
        self.rows = [Row(route, topic, admins[where]) for route, (topic, where) in places.items()]
        self.read = 0
        """Records that the routes have read."""

    def look(self) -> None:
        """Ask the brokers."""
        now = monotonic()
        for row in self.rows:
            row.look(now)

    def cells(self) -> Iterator[tuple[str, str, int, str, str]]:
        """Give the rows of the table; the lag is that of the topic that is read."""
        for number, row in enumerate(self.rows):
            lag = "" if number else f"{max(0, row.records - self.read)}"
            yield row.route, row.topic, row.records, f"{row.rate:.0f}", lag

    def watcher(self) -> Watcher:
        """Give what has to hear of the batches of the job."""
        from penstock.pipeline.job import Progress, Watcher

        board = self

        class Count(Watcher):
            def batch(self, progress: Progress) -> None:
                board.read += progress.counts["n_in"]

        return Count()


@contextmanager
def shown(board: Board) -> Iterator[None]:
    """Show the table while something runs; the last one stays."""
    over = Event()
    with output.live_table(COLUMNS) as show:

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
            board.look()
            show(board.cells())
