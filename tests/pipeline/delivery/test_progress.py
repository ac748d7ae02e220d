"""Marks in the progress topic: which of them count, whatever neighbours and hostile writers leave there."""

from __future__ import annotations

import struct
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.errors import JobFailed, Unreachable, WireError
from penstock.pipeline.delivery import progress_reader
from penstock.pipeline.delivery.cluster_marks import (
    earlier_plan,
    lowest_marks,
    offsets_by_sink,
    plan_of,
    same_plan,
    steps,
)
from penstock.pipeline.delivery.progress import ProgressKey, Snapshot, mark_value
from penstock.pipeline.delivery.progress_reader import read_progress
from penstock.pipeline.delivery.range_clock import RangeClock
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.record_batch import write_batch_head

KEY = ProgressKey("g", "c", "t", "i")
NEIGHBOUR = ProgressKey("g2", "c", "t", "i")
CONTROL = 0x30


class Log:
    """The one partition of the topic; it gives a few batches at a time."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.read: list[int] = []

    def add(self, data: bytearray, count: int) -> Log:
        struct.pack_into(">q", data, 0, self.end)
        self.batches.append((self.end, bytes(data)))
        self.end += count
        return self

    def write(self, who: int, *rows: tuple[bytes | None, bytes | None], codec: str = "none") -> Log:
        records = [numbered(record_bytes(key, value, ()), n) for n, (key, value) in enumerate(rows)]
        body = BatchBody(b"".join(records), len(rows), 0, 0)
        data = framed(body, compression=codec, producer_id=who, epoch=0, sequence=0, transactional=True)
        return self.add(data, len(rows))

    def mark(self, who: int, partition: int, offset: int, key: ProgressKey = KEY, **more: Any) -> Log:
        return self.write(who, (key.of(partition), mark_value(offset, '{"start":0}')), **more)

    def ends(self, who: int, *, committed: bool) -> Log:
        key, value = struct.pack(">hh", 0, committed), struct.pack(">hi", 0, 0)
        data = framed(BatchBody(numbered(record_bytes(key, value, ()), 0), 1, 0, 0))
        write_batch_head(
            memoryview(data),
            base_offset=0,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=1,
            attributes=CONTROL,
            producer_id=who,
            producer_epoch=0,
        )
        return self.add(data, 1)

    def fetcher(self, cluster: Any, wanted: list[Any], *, read_committed: bool) -> Any:
        assert not read_committed, "an open transaction of a neighbour would stop it"
        at = [wanted[0].offset]

        def poll(_: float) -> list[Any]:
            self.read.append(at[0])
            found = [(base, data) for base, data in self.batches if base >= at[0]][:2]
            data = memoryview(b"".join(data for _, data in found))
            at[0] = found[-1][0] + struct.unpack_from(">i", found[-1][1], 57)[0] if found else at[0]
            return [SimpleNamespace(data=data, next_offset=at[0], high_watermark=self.end)]

        return SimpleNamespace(poll=poll, close=lambda: None)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(progress_reader, "Fetcher", made.fetcher)
    ends = {progress_reader.EARLIEST: lambda: 0, progress_reader.LATEST: lambda: made.end}
    monkeypatch.setattr(progress_reader, "list_offsets", lambda _, __, which, **___: {0: ends[which]()})
    return made


def read(seen: Snapshot | None = None, **more: Any) -> Snapshot:
    return read_progress(None, KEY, seen or Snapshot(), **more)  # type: ignore[arg-type]


def offsets(found: Snapshot) -> dict[int, int]:
    return {part: mark.offset for part, mark in found.marks.items()}


def test_only_committed_marks_count_and_the_newest_wins(log: Log) -> None:
    log.mark(1, 0, 5).ends(1, committed=True).mark(1, 0, 9).mark(2, 1, 4).ends(1, committed=False)
    log.ends(2, committed=True)
    assert offsets(read()) == {0: 5, 1: 4}
    log.mark(1, 0, 12, codec="lz4").ends(1, committed=True)
    assert offsets(read()) == {0: 12, 1: 4}


def test_open_transactions_of_neighbours_do_not_stop_it(log: Log) -> None:
    log.mark(7, 0, 99, NEIGHBOUR).mark(1, 0, 5).ends(1, committed=True)
    found = read(decided=None)
    assert (offsets(found), found.position) == ({0: 5}, log.end)


def test_what_was_seen_is_not_read_again_but_what_was_open_is(log: Log) -> None:
    log.mark(1, 0, 5).ends(1, committed=True)
    open_at = log.end
    log.mark(2, 1, 7).mark(1, 0, 6).ends(1, committed=True)
    first = read()
    assert (offsets(first), first.position) == ({0: 6}, open_at)
    log.ends(2, committed=True)
    log.read.clear()
    second = read(first)
    assert (offsets(second), second.position) == ({0: 6, 1: 7}, log.end)
    assert min(log.read) == open_at


def test_an_open_mark_of_the_own_partition_is_waited_for_and_of_another_is_not(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.mark(2, 1, 7)
    monkeypatch.setattr(progress_reader, "_OPEN_SECONDS", 0.0)
    assert offsets(read(decided=(0,))) == {}
    with pytest.raises(Unreachable, match="is open"):
        read(decided=(1,))
    with pytest.raises(Unreachable, match="is open"):
        read(decided=None)


def test_an_end_that_moves_back_while_it_is_read_is_asked_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader has less than the one that told the end: what it does not have never comes."""
    log.mark(1, 0, 5).ends(1, committed=True)
    end, polls = log.end, Counter[str]()
    log.end += 3

    def fetcher(cluster: Any, wanted: Any, *, read_committed: bool) -> Any:
        at = wanted[0].offset

        def poll(_: float) -> list[Any]:
            nonlocal at
            polls["n"] += 1
            assert polls["n"] < 100, "it polls for what is not there"
            found = b"".join(data for base, data in log.batches if base >= at)
            at, log.end = max(at, end), end
            return [SimpleNamespace(data=memoryview(found), next_offset=at, high_watermark=end)]

        return SimpleNamespace(poll=poll, close=lambda: None)

    monkeypatch.setattr(progress_reader, "Fetcher", fetcher)
    assert offsets(read()) == {0: 5}


def test_a_tombstone_forgets_a_mark(log: Log) -> None:
    log.mark(1, 0, 5).ends(1, committed=True).write(1, (KEY.of(0), None)).ends(1, committed=True)
    assert offsets(read()) == {}


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b'{"offset":-1}', b'{"offset":true}', b"[" * 9999, b"\xff", b'{"offset":%d}' % 2**63],
)
def test_a_mark_that_cannot_be_read_stops_the_job(log: Log, value: bytes) -> None:
    log.write(1, (KEY.of(0), value)).ends(1, committed=True)
    with pytest.raises(JobFailed, match="cannot be read"):
        read()


def test_keys_of_others_are_left_alone(log: Log) -> None:
    huge = KEY.prefix + b"9" * 5000 + b"]"
    for key in (b'["g","c","t","i",x]', b'["g","c","t","i",0', None, b"", KEY.prefix, KEY.of(-1), huge):
        log.write(1, (key, b"?"))
    log.ends(1, committed=True)
    assert offsets(read()) == {}


def test_a_range_has_one_moment_and_a_fixed_one_is_that_of_all() -> None:
    fixed = RangeClock(7)
    assert [fixed.read(), fixed.reset(), fixed.read()] == [7, None, 7]
    clock = RangeClock()
    first = clock.read()
    assert clock.read() == first
    clock.reset()
    assert clock.read() >= first


def test_an_end_that_compaction_took_is_not_waited_for(log: Log) -> None:
    log.mark(1, 0, 5).ends(1, committed=True)
    log.end += 3
    found = read()
    assert (offsets(found), found.position) == ({0: 5}, log.end)


def test_bytes_that_are_no_records_are_refused(log: Log) -> None:
    body = BatchBody(KEY.prefix + b"\xff" * 20, 3, 0, 0)
    log.add(framed(body, producer_id=1, epoch=0, sequence=0, transactional=True), 3)
    with pytest.raises(WireError):
        read()


def test_a_topic_that_ends_before_what_was_read_was_made_again(log: Log) -> None:
    log.mark(1, 0, 5).ends(1, committed=True)
    with pytest.raises(JobFailed, match="ends at"):
        read(Snapshot(100, {}))


def test_stale_marks_of_others_are_not_parsed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = progress_reader._records
    monkeypatch.setattr(
        progress_reader, "_records", lambda data, count: parsed.append(count) or real(data, count)
    )
    for number in range(200):
        log.mark(1, 0, number, ProgressKey(f"old-{number}", "c", "t", "i"))
    log.mark(1, 0, 5).ends(1, committed=True)
    assert offsets(read()) == {0: 5}
    assert parsed == [1]


# What the marks of several clusters mean


def test_ranges_are_cut_at_the_marks() -> None:
    assert list(steps({1: 5, 0: 5}, 9)) == [(9, frozenset())]
    assert list(steps({1: 12, 0: 5}, 9)) == [(9, frozenset({1}))]
    assert list(steps({1: 9, 2: 7, 0: 5}, 12)) == [
        (7, frozenset({1, 2})),
        (9, frozenset({1})),
        (12, frozenset()),
    ]


def test_a_cluster_that_is_new_begins_where_the_others_are() -> None:
    marks = {0: {0: GroupOffset(3)}, 1: {0: GroupOffset(8)}, 2: {}}
    assert offsets_by_sink(0, 0, marks, (1, 2, 0)) == {1: 8, 2: 3, 0: 3}
    # Where nothing is written on the cluster that is read, its group only shows the lag.
    assert offsets_by_sink(0, 0, marks, (1,)) == {1: 8}
    assert offsets_by_sink(0, 0, {0: {0: GroupOffset(3)}, 1: {}}, (1,)) == {1: 3}


def test_a_group_that_only_shows_the_lag_counts_where_a_loop_has_written_it() -> None:
    old = {1: {0: GroupOffset(8)}, 2: {}}
    ours = {0: {0: GroupOffset(9, '{"run":"a"}')}, **old}
    assert offsets_by_sink(0, 0, ours, (1, 2)) == {1: 9, 2: 9}
    assert lowest_marks(ours, (1, 2)) == ours[0]
    for text in ("", "?", '{"start":0}'):
        moved = {0: {0: GroupOffset(9, text)}, **old}
        assert offsets_by_sink(0, 0, moved, (1, 2)) == {1: 8, 2: 8}
        assert lowest_marks(moved, (1, 2)) == old[1]


@pytest.mark.parametrize(("run", "begun"), [("a", None), (None, "b")])
def test_what_marks_say_that_are_older_than_the_group_is_open_no_more(
    run: str | None, begun: str | None
) -> None:
    group = GroupOffset(9, "" if run is None else f'{{"run":"{run}"}}')
    assert earlier_plan({0: {0: group}, 1: {0: GroupOffset(8, '{"begun":"b"}')}}, (1,), "c") == begun


def test_a_mark_behind_the_cluster_that_is_committed_last_is_an_old_one() -> None:
    found = {0: {0: GroupOffset(9)}, 1: {0: GroupOffset(7)}}
    assert offsets_by_sink(0, 5, found, [0, 1]) == {0: 9, 1: 9}


def test_nothing_is_left_out_after_an_edit() -> None:
    marks = [GroupOffset(9, '{"start":0,"plan":"a"}')]
    assert same_plan(marks, "a")
    assert not same_plan(marks, "b")
    assert not same_plan(marks, None)
    assert not same_plan([GroupOffset(9, "?")], "a")


def test_the_plan_of_a_loop_counts_when_it_is_committed_and_the_newest_wins(log: Log) -> None:
    log.write(1, (KEY.plan, b"one"), (KEY.of(0), mark_value(5, '{"start":0}'))).ends(1, committed=True)
    log.write(2, (KEY.plan, b"aborted")).ends(2, committed=False)
    log.write(7, (NEIGHBOUR.plan, b"a neighbour's")).ends(7, committed=True)
    found = read()
    assert (found.plan, offsets(found)) == (b"one", {0: 5})
    # One that is open is read again, and what was seen is kept.
    log.write(1, (KEY.plan, b"two"))
    still = read(found)
    assert (still.plan, still.position) == (b"one", log.end - 1)
    log.ends(1, committed=True)
    assert read(still).plan == b"two"


def test_a_mark_is_no_plan_and_a_plan_no_mark() -> None:
    assert KEY.partition_of(KEY.plan) is None
    assert plan_of([GroupOffset(1, '{"plan":"a"}'), GroupOffset(2, '{"plan":"a"}')]) == "a"
    for other in ("", "?", '{"plan":5}', '{"plan":"b"}'):
        assert plan_of([GroupOffset(1, '{"plan":"a"}'), GroupOffset(2, other)]) is None
    assert plan_of([]) is None


def test_a_moment_is_in_microseconds() -> None:
    assert abs(RangeClock().read() - 1_000_000 * time.time()) < 60_000_000
