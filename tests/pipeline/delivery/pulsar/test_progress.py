"""The marks of a source on Pulsar: one owner at a time, the last mark is found and kept, by a real Pulsar."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import JobFailed, ProducerFenced
from penstock.pipeline.delivery.progress import ProgressKey, PulsarProgress
from penstock.pipeline.delivery.pulsar import progress as pulsar_progress
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.pipeline.delivery.pulsar.progress import (
    SUBSCRIPTION,
    PulsarProgressSink,
    locate,
    read_marks,
    require_topics,
)
from penstock.pipeline.delivery.range_progress import RangeProgress, read_mark

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
PROGRESS = PulsarProgress(0, "public/default")


@pytest.fixture
def key() -> ProgressKey:
    return ProgressKey(f"g-{secrets.token_hex(4)}", "pulsar", "persistent://public/default/in", "")


@pytest.fixture
def opened(cluster: PulsarCluster, key: ProgressKey) -> Any:
    sinks: list[PulsarProgressSink] = []

    def make(*partitions: int) -> PulsarProgressSink:
        sinks.append(PulsarProgressSink(cluster, PROGRESS, key, partitions))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


Open = Callable[..., PulsarProgressSink]


def offsets(cluster: PulsarCluster, key: ProgressKey, partitions: int = 2) -> dict[int, int]:
    found = read_marks(cluster, PROGRESS, key, range(partitions))
    return {part: mark.offset for part, mark in found.items()}


def test_the_last_mark_is_read_with_its_text(cluster: PulsarCluster, key: ProgressKey, opened: Open) -> None:
    require_topics(cluster, PROGRESS, key, 2)
    assert offsets(cluster, key) == {}
    sink = opened(0)
    assert offsets(cluster, key) == {}, "a fence is no mark"
    sink.commit({0: RangeProgress(0, 5, {"n_in": 5})})
    sink.commit(
        {0: RangeProgress(0, 9, {"n_in": 9}), 1: RangeProgress(0, 3)}
    )  # the second one is opened by its first mark
    found = read_marks(cluster, PROGRESS, key, range(2))
    assert {part: mark.offset for part, mark in found.items()} == {0: 9, 1: 3}
    assert read_mark(0, found[0].offset, found[0].metadata).counts == {"n_in": 9}


def test_who_takes_over_shuts_out_and_goes_on(cluster: PulsarCluster, key: ProgressKey, opened: Open) -> None:
    first = opened(0)
    first.commit({0: RangeProgress(0, 5)})
    second = opened(0)
    with pytest.raises(ProducerFenced, match="another one writes the marks"):
        first.commit({0: RangeProgress(0, 7)})
    with pytest.raises(ProducerFenced):
        first.flush()
    assert first.fenced is not None
    assert offsets(cluster, key) == {0: 5}
    second.commit({0: RangeProgress(0, 9)})
    third = opened(0)
    assert offsets(cluster, key) == {0: 9}
    third.commit({})
    with pytest.raises(ProducerFenced):
        second.commit({0: RangeProgress(0, 11)})


def test_who_waits_for_the_new_owner_learns_that_it_is_shut_out(
    cluster: PulsarCluster, key: ProgressKey, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two that hold names of producers which the other wants would wait for each other."""
    monkeypatch.setattr(pulsar_progress, "_PROBE_SECONDS", 0.0)
    first = opened(0, 1)
    first.commit({0: RangeProgress(0, 5)})
    first.probe()
    second = opened(0, 1)

    def is_told() -> bool:
        try:
            first.probe()
        except ProducerFenced:
            return True
        return False

    wait_until(is_told)
    second.probe()
    second.commit({1: RangeProgress(0, 2)})
    assert offsets(cluster, key) == {0: 5, 1: 2}


def test_a_mark_that_was_on_its_way_is_found_behind_an_older_fence(
    cluster: PulsarCluster, key: ProgressKey, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new owner sees mark 5, then mark 9 of the old one is stored, then the fence that names mark 5."""
    first = opened(0)
    first.commit({0: RangeProgress(0, 5)})
    usual = pulsar_progress._last_mark
    seen = cluster.call(usual(cluster, PROGRESS.topic(key, 0)))
    first.commit({0: RangeProgress(0, 9)})

    async def before(*_: object) -> Any:
        return seen

    monkeypatch.setattr(pulsar_progress, "_last_mark", before)
    second = opened(0)
    monkeypatch.undo()
    assert offsets(cluster, key) == {0: 9}
    third = opened(0)  # the end of the topic is a fence behind a fence
    assert offsets(cluster, key) == {0: 9}
    third.commit({0: RangeProgress(0, 12)})
    assert offsets(cluster, key) == {0: 12}
    assert second.fenced is not None or third.fenced is None


def test_the_last_mark_is_kept_and_older_ones_are_not(
    cluster: PulsarCluster, key: ProgressKey, opened: Open
) -> None:
    """The namespace keeps nothing that is acknowledged."""
    topic, sink = PROGRESS.topic(key, 0), opened(0)
    for offset in (5, 7, 9):
        sink.commit({0: RangeProgress(0, offset)})
    sink.close()
    for _ in range(2):  # each ends a ledger
        cluster.call(cluster.admin.unload(topic))
        assert offsets(cluster, key) == {0: 9}
    stats = cluster.call(cluster.admin.stats(topic))
    assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 1
    again = opened(0)
    again.commit({0: RangeProgress(0, 11)})
    again.commit({0: RangeProgress(0, 13)})
    again.close()
    stats = cluster.call(cluster.admin.stats(topic))
    assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 1, "all but the last may be removed"
    assert offsets(cluster, key) == {0: 13}


def test_marks_that_are_gone_or_not_ours_stop_the_job(
    cluster: PulsarCluster, key: ProgressKey, opened: Open
) -> None:
    topic, sink = PROGRESS.topic(key, 0), opened(0)
    sink.commit({0: RangeProgress(0, 5)})
    sink.close()
    cluster.call(cluster.admin.unload(topic))  # ends the ledger
    opened(0).close()  # its fence names the mark
    last = cluster.call(pulsar_progress._last_place(cluster, topic))
    assert last is not None
    cluster.call(cluster.admin.reset_cursor(topic, SUBSCRIPTION, last))
    wait_until(lambda: cluster.call(cluster.admin.unload(topic)) or is_removed(cluster, key))
    with pytest.raises(JobFailed, match="the last mark of this source was removed"):
        offsets(cluster, key)

    async def strange() -> None:
        producer = await cluster.client.producer(PROGRESS.topic(key, 1))
        metadata = pulsar_progress.MessageMetadata(publish_time=1)
        await (await producer.send_message(metadata, b"not ours"))
        await producer.close()

    cluster.call(strange())
    with pytest.raises(JobFailed, match="cannot be read"):
        read_marks(cluster, PROGRESS, key, [1])


def is_removed(cluster: PulsarCluster, key: ProgressKey) -> bool:
    try:
        offsets(cluster, key, 1)
    except JobFailed:
        return True
    return False


def test_marks_are_found_where_they_were_before_the_routes_were_edited(
    cluster: PulsarCluster, key: ProgressKey, opened: Open
) -> None:
    namespace = f"public/n-{secrets.token_hex(4)}"
    cluster.call(cluster.admin.create_namespace(namespace))
    edited = PulsarProgress(1, namespace, ((0, "public/default"),))
    assert locate(lambda sink: cluster, edited, key) == PulsarProgress(1, namespace)
    opened(0).commit({0: RangeProgress(0, 5)})
    assert locate(lambda sink: cluster, edited, key) == PROGRESS
    # A run that began anew elsewhere has left the newer ones there, whatever an edit names first.
    elsewhere = PulsarProgress(1, namespace)
    sink = PulsarProgressSink(cluster, elsewhere, key, [0])
    sink.commit({0: RangeProgress(0, 3)})
    sink.close()
    assert locate(lambda sink: cluster, edited, key) == elsewhere
    edited = replace(PROGRESS, others=((1, namespace),))
    assert locate(lambda sink: cluster, edited, key) == elsewhere


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    from pulsar_project import wait_until as wait

    wait(holds, seconds)
