"""Waiting for records of many topics of one cluster, with one question for all of them.

A planner that has nothing to plan waits here. One thread asks the cluster for the ends of all topics that are
waited for, several times a second, with one request to each broker. It knows of no failure: who waits for a
topic whose end is not told is woken, asks for itself and fails by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Condition, Event, Thread
from time import monotonic
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.topic_offsets import latest_of_topics
from penstock.errors import PenstockError

__all__ = ["EndWatch", "EndWatches", "is_behind"]

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two questions for one topic; longer and longer while nothing comes."""
_TOGETHER: Final = 0.1
"""Seconds that a question comes early so that it is asked together with another one."""
_GROWTH_SECONDS: Final = 10.0
"""How often the cluster is asked whether topics have more partitions."""


def is_behind(begin: Offsets, latest: Offsets) -> bool:
    """Return whether a topic has offsets behind a position.

    >>> is_behind({0: 5}, {0: 5, 1: 0}), is_behind({0: 5}, {0: 5, 1: 2})
    (False, True)
    """
    return any(last > begin.get(part, 0) for part, last in latest.items())


@dataclass(slots=True, eq=False)
class _Waiter:
    topic: str
    begin: Offsets
    asked: Callable[[], None]
    due: float
    pause: float = _SHORTEST_PAUSE
    is_done: bool = False
    found: Offsets | None = None


class EndWatch:
    """The ends of topics of one cluster, for any number of threads that wait."""

    def __init__(
        self, settings: Settings, *, ask: Callable[..., dict[str, dict[int, int]]] | None = None
    ) -> None:
        # Nothing here waits for a broker that is away: who needs an answer asks for itself.
        self._settings = replace(settings, deadline=1.0, connect_timeout=5.0, request_timeout=5.0)
        self._ask = ask or self._ask_cluster
        self._changed = Condition()
        self._waiters: list[_Waiter] = []
        self._closed = Event()
        self._thread: Thread | None = None
        self._cluster: Cluster | None = None
        self._refreshed = 0.0

    def wait(
        self, topic: str, begin: Offsets, seconds: float, *, released: Event, asked: Callable[[], None]
    ) -> Offsets | None:
        """Wait until a topic ends behind `begin`, and return its end; None: ask for it yourself.

        None comes after so many seconds, when `released` is set (and `wake` called), and when the end of the
        topic cannot be told. `asked` is called whenever the cluster has told that nothing has come.
        """
        waiter = _Waiter(topic, begin, asked, due=monotonic() + _SHORTEST_PAUSE)
        with self._changed:
            self._waiters.append(waiter)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="penstock-ends", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            try:
                self._changed.wait_for(
                    lambda: waiter.is_done or released.is_set() or self._closed.is_set(), seconds
                )
            finally:
                self._waiters.remove(waiter)
        return waiter.found

    def wake(self) -> None:
        """Let those look up who were released."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Ask no more; who waits is woken."""
        self._closed.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(2 * self._settings.request_timeout)

    def _run(self) -> None:
        while (due := self._next()) is not None:
            try:
                ends = self._ask(sorted({waiter.topic for waiter in due}))
            except PenstockError as exc:
                _log.debug("the ends of %d topics are not known: %s", len(due), exc)
                ends = {}
            except Exception:  # noqa: BLE001  # whatever it is, who waits asks for itself
                # This thread is shared: without it everybody would wait in vain.
                _log.exception("the ends of %d topics are not known", len(due))
                ends = {}
            self._tell(due, ends)
        if self._cluster is not None:
            self._cluster.close()

    def _next(self) -> list[_Waiter] | None:
        """Wait until somebody's question is due; return all whose question is due soon, None at the end."""
        with self._changed:
            while not self._closed.is_set():
                waiting = [waiter for waiter in self._waiters if not waiter.is_done]
                now = monotonic()
                first = min((waiter.due for waiter in waiting), default=None)
                if first is not None and first <= now:
                    return [waiter for waiter in waiting if waiter.due <= now + _TOGETHER]
                self._changed.wait(None if first is None else first - now)
        return None

    def _tell(self, due: list[_Waiter], ends: dict[str, dict[int, int]]) -> None:
        now, told = monotonic(), False
        with self._changed:
            for waiter in due:
                found = ends.get(waiter.topic)
                if found is not None and not is_behind(waiter.begin, found):
                    waiter.asked()
                    waiter.pause = min(2 * waiter.pause, _LONGEST_PAUSE)
                    waiter.due = now + waiter.pause
                else:
                    waiter.found, waiter.is_done, told = found, True, True
            if told:
                self._changed.notify_all()

    def _ask_cluster(self, topics: list[str]) -> dict[str, dict[int, int]]:
        if self._cluster is None:
            self._cluster = Cluster(self._settings, stop=self._closed)
        cluster, now = self._cluster, monotonic()
        unknown = [topic for topic in topics if not cluster.known_partitions(topic)]
        if unknown or now - self._refreshed > _GROWTH_SECONDS:
            self._refreshed = now
            cluster.refresh(topics)
        found = latest_of_topics(cluster, topics)
        if len(found) < len(topics):
            self._refreshed = 0.0  # leaders may have moved
        return found


class EndWatches:
    """One `EndWatch` for each cluster of a job, made when it is first asked for."""

    def __init__(self) -> None:
        self._watches: dict[Settings, EndWatch] = {}

    def of(self, settings: Settings) -> EndWatch:
        """Return the watch of a cluster as it is reached by these settings."""
        if settings not in self._watches:
            self._watches[settings] = EndWatch(settings)
        return self._watches[settings]

    def close(self) -> None:
        """Close them all."""
        for watch in self._watches.values():
            watch.close()
