"""What is asked of the side that is read, whichever it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_raw.retry import is_retriable
from penstock.errors import JobFailed, OffsetOutOfRange, PenstockError, PulsarRefused, Unreachable
from penstock.mapping import Reason
from penstock.pipeline.delivery import source_cluster
from penstock.pipeline.delivery.pulsar.entries import RejectedEntry
from penstock.pipeline.delivery.pulsar.partition_tail import FetchedEntries
from penstock.pipeline.delivery.pulsar.reader import PulsarFetcher
from penstock.pipeline.delivery.source_cluster import (
    PatientFetcher,
    PulsarSourceCluster,
    source_latest,
    source_partitions,
)
from penstock.wire.kafka.record_batch import read_batches
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError


def refused(server_error: int) -> PulsarRefused:
    return PulsarRefused("refused", server_error=server_error, retriable=False)


def counted(answer: str | PenstockError) -> int:
    """Count the partitions of a topic whose incarnation is `one`; the broker tells `answer` of it."""

    def incarnation(topic: str) -> str:
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    cluster = object.__new__(PulsarSourceCluster)
    cluster.source = SimpleNamespace(incarnation="one")  # type: ignore[assignment]
    cluster.offsets = SimpleNamespace(incarnation=incarnation, partitions=lambda topic: 3)  # type: ignore[assignment]
    work: Any = SimpleNamespace(topic="in")
    return source_partitions(work, cluster)


@pytest.mark.parametrize("error", [refused(ServerError.TOPIC_NOT_FOUND), Unreachable("no answer")])
def test_a_topic_that_is_being_made_again_has_no_new_partitions_yet(error: PenstockError) -> None:
    """Who reads it notices that it is gone, or another one."""
    assert counted(error) == 0


def test_the_same_topic_has_its_partitions() -> None:
    assert counted("one") == 3


def test_another_topic_of_the_same_name_is_refused() -> None:
    with pytest.raises(JobFailed, match="made again"):
        counted("two")


def test_a_missing_right_is_no_missing_topic() -> None:
    with pytest.raises(PulsarRefused):
        counted(refused(ServerError.AUTHORIZATION_ERROR))


def rejected(offset: int) -> RejectedEntry:
    return RejectedEntry("in", 0, offset, offset + 1, MessageId(7, offset), Reason.CORRUPT, "broken", b"raw")


def test_rejected_entries_stand_where_they_were_read() -> None:
    """A router that collects stands before the first record that it holds: one out of order would be lost."""
    read = b"".join(rejected(offset).batch() for offset in (0, 2, 3, 5))  # any batches
    fetched = FetchedEntries(
        topic="in",
        partition=0,
        first=0,
        next_offset=7,
        high_watermark=7,
        last_stable_offset=7,
        log_start=0,
        data=memoryview(read),
        aborted=(),
        rejected=(rejected(1), rejected(4), rejected(6)),
    )
    fetcher: Any = SimpleNamespace(poll=lambda timeout: [fetched], is_attached=True)
    [found] = PatientFetcher(fetcher, seconds=1.0).poll(0.0)
    assert [batch.base_offset for batch in read_batches(found.data)] == [*range(7)]
    # One without an offset of its own stands before what follows it.
    fetched = replace(fetched, rejected=(replace(rejected(2), next_offset=2, detail="nowhere"),))
    [found] = PatientFetcher(fetcher, seconds=1.0).poll(0.0)
    assert [b"nowhere" in bytes(batch.data) for batch in read_batches(found.data)] == [0, 1, 0, 0, 0]


def test_a_broker_that_stays_away_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(source_cluster, "time", SimpleNamespace(monotonic=lambda: now[0]))
    answers: list[Any] = [Unreachable("away")] * 2 + [[]] + [Unreachable("away")] * 3

    def poll(timeout: float) -> Any:
        now[0] += 30
        answer = answers.pop(0)
        if isinstance(answer, PenstockError):
            raise answer
        return answer

    fetcher: Any = SimpleNamespace(poll=poll, is_attached=True, service_url="pulsar://x")
    patient = PatientFetcher(fetcher, seconds=45.0)
    # The third answer ends the first outage; the second one is over after more than 45 seconds.
    assert [list(patient.poll(0.0)) for _ in range(5)] == [[]] * 5
    with pytest.raises(Unreachable):
        patient.poll(0.0)


class _Tail:
    """A partition whose broker is away, or whose position is gone."""

    done = False
    is_attached = False

    def __init__(self, error: PenstockError) -> None:
        self.error: PenstockError | None = error

    async def poll(self, timeout: float) -> None:
        if self.error is not None:
            raise self.error

    async def arrival(self, seconds: float) -> bool:
        return False


def test_a_fetcher_does_not_tell_of_outages_that_are_over() -> None:
    """Each error costs its reader a pause: those of a hundred partitions would be an outage of their own."""
    away = [_Tail(Unreachable(f"partition {part}")) for part in range(100)]
    gone = _Tail(OffsetOutOfRange("in", 100, offset=5, log_start=9, log_end=20))
    fetcher = object.__new__(PulsarFetcher)
    fetcher._refused = []
    fetcher._tails = {("in", part): tail for part, tail in enumerate([*away, gone])}  # type: ignore[misc]
    asked: Any = SimpleNamespace(call=asyncio.run)
    fetcher._cluster = asked
    raised: list[PenstockError] = []
    for turn in range(4):
        try:
            assert fetcher.poll(0.0) == []
        except PenstockError as exc:
            raised.append(exc)
        if not turn:
            for tail in (*away, gone):
                tail.error = None  # all of them answer again; what is gone was told once
    assert [is_retriable(exc) for exc in raised] == [True, False]


def test_a_range_on_kafka_ends_before_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def latest(cluster: object, topic: str, *, read_committed: bool) -> dict[int, int]:
        asked.append(read_committed)
        return {0: 5}

    monkeypatch.setattr(source_cluster, "latest", latest)
    work, cluster = SimpleNamespace(topic="in"), object()
    assert source_latest(work, cluster) == {0: 5}  # type: ignore[arg-type]
    assert asked == [True]
