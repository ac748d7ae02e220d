"""Reads partitions as bytes: one request under way at each leader, the next sent before an answer is used.

Leaders that move, brokers that go and topics that are just being made are waited for, within the deadline
of the settings for each partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.brokers.kafka_raw.calls import FETCH
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetch_call import (
    FetchLimits,
    FetchRow,
    PartitionAnswer,
    fetch_request,
    read_fetch,
)
from penstock.brokers.kafka_raw.fetched import Fetched, wanted_size, whole_batches
from penstock.brokers.kafka_raw.lanes import Lanes
from penstock.brokers.kafka_raw.refusal import check, refusal
from penstock.brokers.kafka_raw.retry import is_retriable, pauses
from penstock.brokers.kafka_raw.topic_offsets import EARLIEST, LATEST, list_offsets
from penstock.errors import KafkaRefused, MessageTooLarge, OffsetOutOfRange, PenstockError
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Fetched", "Fetcher", "Wanted"]

_MIB: Final = 1024 * 1024
_NEVER: Final = 2**63 - 1
_LOOK_AGAIN: Final = 0.1


class Wanted(NamedTuple):
    """A partition from an offset on, up to but without an `end` if there is one."""

    topic: str
    partition: int
    offset: int
    end: int | None = None


@dataclass(slots=True)
class _Place:
    """How far a partition has been read, and what is under way for it."""

    topic: str
    partition: int
    position: int
    end: int
    max_bytes: int
    asked: int | None = None
    """The broker that has a request for it."""
    asked_offset: int = -1
    halted: bool = False
    """Whether it was refused; it waits for a `seek`."""
    failing_since: float | None = None
    retry_at: float = 0.0
    pauses: Iterator[float] = field(default_factory=pauses)

    @property
    def wants(self) -> bool:
        return self.asked is None and not self.halted and self.position < self.end

    def works(self) -> None:
        if self.failing_since is not None:
            self.failing_since, self.retry_at, self.pauses = None, 0.0, pauses()


class Fetcher:
    """Partitions, each with its position.

    When `poll` gives something, the request for what follows is under way: so there is one answer in hand and
    at most one on the way for each broker, of `max_bytes` each.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: Iterable[Wanted],
        *,
        read_committed: bool = True,
        min_bytes: int = 1,
        max_bytes: int = 8 * _MIB,
        partition_max_bytes: int = 2 * _MIB,
        max_wait: float = 0.5,
    ) -> None:
        self._cluster = cluster
        self._lanes = Lanes(cluster)
        self._limits = FetchLimits(int(max_wait * 1000), min_bytes, max_bytes, read_committed)
        self._partition_max_bytes = partition_max_bytes
        self._places = {(each.topic, each.partition): self._place(each) for each in wanted}
        self._refused: list[PenstockError] = []
        self._stale = False

    def close(self) -> None:
        """Close the connections."""
        self._lanes.close()

    @property
    def waiting(self) -> bool:
        """Whether a partition has not reached its end; always, if one has none."""
        return any(place.position < place.end for place in self._places.values())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an offset; a partition that was not read yet is added, without an end."""
        place = self._places.get((topic, partition))
        if place is None:
            self._places[topic, partition] = self._place(Wanted(topic, partition, offset))
        else:
            place.position, place.halted = offset, False
            place.works()

    def poll(self, timeout: float) -> list[Fetched]:
        """Give what has come, after `timeout` nothing; without data it still tells where the log ends.

        Raises OffsetOutOfRange for a partition that then waits for a `seek`, and what else a broker refuses.
        """
        until = time.monotonic() + timeout
        while True:
            if self._refused:
                raise self._refused.pop(0)
            self._ask()
            nodes = self._lanes.ready(self._patience(until))
            found = [fetched for node in nodes for fetched in self._taken(node)]
            if found:
                self._ask()
                return found
            if not self._refused and (time.monotonic() >= until or not self.waiting):
                return []
            if not nodes and not any(lane.under_way for _, lane in self._lanes):
                time.sleep(min(_LOOK_AGAIN, max(until - time.monotonic(), 0)))

    def _place(self, wanted: Wanted) -> _Place:
        end = _NEVER if wanted.end is None else wanted.end
        return _Place(wanted.topic, wanted.partition, wanted.offset, end, self._partition_max_bytes)

    def _patience(self, until: float) -> float:
        idle = any(place.wants for place in self._places.values())
        left = max(until - time.monotonic(), 0.0)
        return min(left, _LOOK_AGAIN) if idle else left

    # Asking

    def _ask(self) -> None:
        """Send a request to every leader that has none under way."""
        if self._stale:
            self._stale = False
            self._refresh()
        now = time.monotonic()
        ready = [place for place in self._places.values() if place.wants and place.retry_at <= now]
        for node, places in self._by_leader(ready).items():
            lane = self._lanes.get(node)
            if lane is None or not lane.under_way and not lane.throttled:
                self._send(node, places)

    def _refresh(self) -> None:
        try:
            self._cluster.try_refresh({place.topic for place in self._places.values()})
        except PenstockError as exc:
            self._refused.append(exc)  # what has been fetched is handed out first

    def _by_leader(self, places: list[_Place]) -> dict[int, list[tuple[_Place, int]]]:
        nodes: dict[int, list[tuple[_Place, int]]] = {}
        for place in places:
            try:
                leader = self._cluster.leader(place.topic, place.partition)
            except PenstockError as exc:
                self._failed(place, exc)
                continue
            nodes.setdefault(leader.node, []).append((place, leader.epoch))
        return nodes

    def _send(self, node: int, places: list[tuple[_Place, int]]) -> None:
        topics: dict[str, list[FetchRow]] = {}
        for place, epoch in places:
            row = FetchRow(place.partition, epoch, place.position, place.max_bytes)
            topics.setdefault(place.topic, []).append(row)
        try:
            wait = self._limits.max_wait_ms / 1000
            self._lanes.to(node).send(FETCH, fetch_request(self._limits, topics), wait=wait)
        except PenstockError as exc:
            for place, _ in places:
                self._failed(place, exc)
            return
        for place, _ in places:
            place.asked, place.asked_offset = node, place.position

    # Taking

    def _taken(self, node: int) -> list[Fetched]:
        asked = [place for place in self._places.values() if place.asked == node]
        for place in asked:
            place.asked = None
        lane = self._lanes[node]
        try:
            answer = lane.receive()
            lane.throttle(answer.int32())
            answers = read_fetch(answer)
        except PenstockError as exc:
            self._lanes.drop(node)
            for place in asked:
                self._failed(place, exc)
            return []
        return [fetched for each in answers if (fetched := self._take(each)) is not None]

    def _take(self, answer: PartitionAnswer) -> Fetched | None:
        place = self._places.get((answer.topic, answer.partition))
        if place is None or place.position != place.asked_offset:
            return None  # it was sent elsewhere meanwhile
        try:
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._out_of_range(place)
            check(answer.error_code, "a partition cannot be read", where=f"{place.topic}-{place.partition}")
            fetched = self._fetched(place, answer)
        except PenstockError as exc:
            self._failed(place, exc)
            return None
        place.works()
        return fetched

    def _fetched(self, place: _Place, answer: PartitionAnswer) -> Fetched | None:
        data, behind = whole_batches(answer.records, place.position)
        if not data and answer.records:
            self._grow(place, wanted_size(answer.records))
            return None
        first, place.position = place.position, behind
        if data:
            # Who got something goes to the end of the next request: brokers fill answers from the front.
            self._places[place.topic, place.partition] = self._places.pop((place.topic, place.partition))
        return Fetched(
            place.topic,
            place.partition,
            first,
            behind,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start,
            data,
            answer.aborted,
        )

    def _grow(self, place: _Place, size: int) -> None:
        """Ask for more next time: not even one batch was whole."""
        most = self._cluster.settings.max_answer_bytes // 2
        if place.max_bytes >= most:
            raise MessageTooLarge(
                f"a batch of {size} bytes is larger than what is read at once",
                error_code=ErrorCode.MESSAGE_TOO_LARGE,
                where=f"{place.topic}-{place.partition}, offset {place.position}",
                next="raise max_answer_bytes",
            )
        place.max_bytes = min(max(size, 2 * place.max_bytes), most)

    # Failing

    def _failed(self, place: _Place, exc: PenstockError) -> None:
        """Try again later, or halt: it cannot get better, or has not for too long."""
        now = time.monotonic()
        place.failing_since = place.failing_since or now
        late = now - place.failing_since > self._cluster.settings.deadline
        if late or not is_retriable(exc):
            place.halted = True
            self._refused.append(exc)
            return
        place.retry_at = now + next(place.pauses)
        self._stale = True

    def _out_of_range(self, place: _Place) -> KafkaRefused:
        """Say where the log ends; a new leader that was still learning it (KIP-207) is waited for."""
        topic, partition, offset = place.topic, place.partition, place.position
        start, end = (
            list_offsets(self._cluster, topic, which, partitions=(partition,))[partition]
            for which in (EARLIEST, LATEST)
        )
        if start <= offset <= end:
            return refusal(ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {offset} was not there for a moment")
        return OffsetOutOfRange(topic, partition, offset=offset, log_start=start, log_end=end)
