"""Rows of a task: cut for transactions, left out by the mark, routed before the transaction that writes them.

Histories with kills, fences and lost answers are in tests/simulation (`rows...`); records that a real
Kafka refuses in test_refused_by_kafka.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.brokers.kafka_raw.produce_call import BatchError
from penstock.brokers.kafka_raw.producer import BatchRefusal
from penstock.brokers.kafka_raw.refusal import refusal
from penstock.errors import InternalError, JobFailed
from penstock.events.bindings.pulsar import Profile
from penstock.events.cloudevent import with_data
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.delivery import kafka_sink, progress_sinks, range_delivery, refused_records, task_sink
from penstock.pipeline.delivery.kafka_sink import FanOut
from penstock.pipeline.delivery.progress import PulsarProgress
from penstock.pipeline.delivery.range_progress import Belonging, RangeProgress
from penstock.pipeline.delivery.source_cluster import SourceCluster
from penstock.pipeline.delivery.task_sink import PartitionRows, _pieces, partition_rows, write_rows
from penstock.pipeline.evaluators.kernel.program import reference_program_of
from penstock.pipeline.plan.route import Expiry, RoutePlan
from penstock.pipeline.ports import Invoked, Routed, Target
from penstock.pipeline.stage import IS_EVENT, Stage, StageRoute, condition_column
from penstock.record import KafkaRecord
from penstock.wire.kafka.error_codes import ErrorCode

EVENT = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"a"))


def stage_of(*sql: str | None, **more: Any) -> Stage:
    routes = [
        StageRoute(
            plan=RoutePlan(name=f"r{number}"),
            targets=(Target(topic=f"out{number}"),),
            dead=Target(topic="dead"),
            sql=text,
            **more,
        )
        for number, text in enumerate(sql)
    ]
    return Stage(pipeline="p", routes=tuple(routes), dead=Target(topic="dead"), servers=("kafka",))


def record(offset: int, partition: int = 0) -> KafkaRecord:
    return KafkaRecord(
        key=b"k", value=b"%d" % offset, headers=EVENT, topic="in", partition=partition, offset=offset
    )


def rows(*offsets: int, partition: int = 0, answer: bool = True) -> PartitionRows:
    return PartitionRows.of([record(each, partition) for each in offsets], [(answer,)] * len(offsets))


# Rows as Spark gives them


def batch_of(records: Sequence[KafkaRecord], **columns: list[bool | None]) -> pa.RecordBatch:
    def headers(each: KafkaRecord) -> list[dict[str, Any]] | None:
        return [{"key": name, "value": value} for name, value in each.headers] or None

    found: dict[str, pa.Array] = {
        "key": pa.array([each.key for each in records], pa.binary()),
        "value": pa.array([each.value for each in records], pa.binary()),
        "headers": pa.array([headers(each) for each in records], HEADERS),
        "topic": pa.array([each.topic for each in records], pa.utf8()),
        "partition": pa.array([each.partition for each in records], pa.int32()),
        "offset": pa.array([each.offset for each in records], pa.int64()),
        "timestamp": pa.array([each.timestamp for each in records], pa.int64()),
    }
    columns = {IS_EVENT: [False] * len(records), **columns}
    return pa.RecordBatch.from_pydict({**found, **{name: pa.array(each) for name, each in columns.items()}})


def test_rows_are_the_records_that_were_read_with_the_answers_of_all_routes() -> None:
    given = [
        replace(record(3), headers=(("a", None), ("a", b""), *EVENT), timestamp=12),
        KafkaRecord(key=None, value=None, topic="in", partition=0, offset=5, timestamp=-1),
        replace(record(6), value=b""),
    ]
    batch = batch_of(given, **{condition_column(1): [True, None, False]})
    (found,) = partition_rows([batch, batch.slice(0, 0)], stage_of(None, "x", None))
    assert list(found.records) == given
    assert list(found.answers) == [(True, True, True), (True, False, True), (True, False, True)]
    (part,) = partition_rows([batch.slice(1, 2)], stage_of(None, "x", None))
    assert (list(part.records), list(part.answers)) == (given[1:], list(found.answers)[1:])


def test_events_that_no_route_takes_are_only_counted(broker: Broker) -> None:
    given = [record(offset) for offset in range(2, 9)]
    is_event = [True, True, False, True, True, True, True]
    first = [False, True, False, False, False, False, False]
    second = [False, False, False, None, True, False, False]
    columns = {IS_EVENT: is_event, condition_column(0): first, condition_column(1): second}
    stage, batch = stage_of("x", "y"), batch_of(given, **columns)
    (found,) = partition_rows([batch], stage)
    assert (found.offsets, list(found.records)) == (list(range(2, 9)), given[1:3] + given[4:5])
    assert list(found.answers) == [(True, False), (False, False), (False, True)]
    whole = write_rows(work_of(stage), [found])
    # The record that is said to be no event is one here, so it is unmatched, too.
    assert {name: count for name, count in whole.items() if count} == {
        "n_in": 7,
        "n_out": 2,
        "n_unmatched": 5,
    }
    assert broker.marks[0].offset == 9
    # A batch that was done in part before counts each row once.
    broker.marks.clear()
    write_rows(work_of(stage), [found.part(0, 3)])
    assert (broker.marks[0].offset, write_rows(work_of(stage), [found])) == (5, whole)
    # Rows that are only counted move the mark; those that a route may discard are routed.
    assert write_rows(work_of(stage), partition_rows([batch.slice(5, 1)], stage))["n_unmatched"] == 0
    discards = replace(stage.routes[0], plan=replace(stage.routes[0].plan, expiry=Expiry.DISCARD))
    (found,) = partition_rows([batch], replace(stage, routes=(stage.routes[1], discards)))
    assert list(found.records) == given


def test_events_that_no_route_takes_are_counted_once_beside_refused_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_records, "_RECORDS", 2)
    broker.refused = lambda records: b"\x025" in records  # the value of offset 5
    found = replace(rows(3, 5, 6, 9), offsets=list(range(2, 12)))
    counts = write_rows(work_of(stage_of("x")), [found])
    assert {name: counts[name] for name in COUNTERS if counts[name]} == {
        "n_in": 10,
        "n_out": 3,
        "n_dead": 1,
        "n_unmatched": 6,
    }
    assert (broker.log.count("commit"), broker.marks[0].offset) == (2, 12)


def test_rows_are_cut_at_partitions_and_where_a_transaction_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [record(offset, partition) for partition in (2, 0) for offset in range(5)]
    monkeypatch.setattr(task_sink, "_RECORDS", 3)
    found = list(partition_rows([batch_of(given)], stage_of(None)))
    assert [(each.partition, each.offsets) for each in found] == [
        (2, [0, 1, 2]),
        (2, [3, 4]),
        (0, [0, 1, 2]),
        (0, [3, 4]),
    ]
    monkeypatch.setattr(task_sink, "_BYTES", 1)
    assert [each.offsets for each in partition_rows([batch_of(given[:2])], stage_of(None))] == [[0], [1]]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
@pytest.mark.parametrize("at", [None, 1, 2, 3, 4, 5])
def test_rows_that_share_an_offset_are_never_parted(
    monkeypatch: pytest.MonkeyPatch, most: int, at: int | None
) -> None:
    """The messages of a batch in a transaction of Pulsar: a mark between them would lose some."""
    offsets = (3, 4, 4, 4, 5, 6)
    batch = batch_of([replace(record(offset), value=b"%d" % n) for n, offset in enumerate(offsets)])
    given = [batch] if at is None else [batch.slice(0, at), batch.slice(0, 0), batch.slice(at)]
    monkeypatch.setattr(task_sink, "_RECORDS", most)
    found = list(partition_rows(given, stage_of(None)))
    assert [value for each in found for value in values_of(each)] == [b"%d" % n for n in range(6)]
    assert sum(4 in each.offsets for each in found) == 1
    assert all(len(each.offsets) <= most or 4 in each.offsets for each in found)


def values_of(rows: PartitionRows) -> list[bytes | None]:
    return [each.value for each in rows.records]


# Transactions


@dataclass
class Broker:
    """A cluster that has one partition of each topic, and an outlet to it: what happened, in order."""

    refused: Callable[[bytes], bool] = lambda records: False
    log: list[str] = field(default_factory=list)
    marks: dict[int, RangeProgress] = field(default_factory=dict)
    written: Counter[bytes] = field(default_factory=Counter)
    """Committed values of topics that are no dead letters."""
    topic_id: str = "then"
    was_refused: bool = False
    expired: bool = False
    every: float = 0.0
    _open: list[tuple[int, bytes]] = field(default_factory=list)

    def put(self, output: Any) -> None:
        self.log.append("put")
        self._open.append((output.target, bytes(output.body.records)))
        self.was_refused = self.was_refused or self._refuses(output)

    def offer(self, output: Any) -> BatchRefusal | None:
        if self._refuses(output):
            return BatchRefusal(ErrorCode.INVALID_RECORD, BatchError())
        self._open.append((output.target, bytes(output.body.records)))
        return None

    def _refuses(self, output: Any) -> bool:
        return output.target == 0 and self.refused(bytes(output.body.records))

    def restart(self) -> None:
        self.log.append("restart")
        self.was_refused = False
        self._open.clear()

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        if self.was_refused:
            raise refusal(ErrorCode.INVALID_RECORD, "a batch was refused")
        self.log.append("commit")
        self.marks |= marks
        self.written.update(data for target, data in self._open if target == 0)
        self._open.clear()

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    @contextmanager
    def opened(work: Any, cluster: Any, name: str) -> Iterator[Broker]:
        found.log.append(f"open {name}")
        yield found
        found.close()

    @contextmanager
    def cluster(work: Any, seen: Any) -> Iterator[Any]:
        yield SimpleNamespace(partitions=lambda topic: 1, topic_id=lambda topic: found.topic_id)

    def group_offsets(cluster: Any, group: str) -> Any:
        found.log.append("read the mark")
        known = {part: GroupOffset(mark.offset, mark.text) for part, mark in found.marks.items()}
        return SimpleNamespace(committed=lambda topic: known)

    monkeypatch.setattr(task_sink, "opened", opened)
    monkeypatch.setattr(task_sink, "source_cluster", cluster)
    monkeypatch.setattr(range_delivery, "GroupOffsets", group_offsets)
    return found


def work_of(stage: Stage) -> Any:
    return SimpleNamespace(
        stage=stage,
        program=reference_program_of(stage, has_answers=True),
        outputs={},
        pulsar=None,
        belonging=Belonging(topic_id="then"),
        settings=None,
        topic="in",
        group="g",
        exactly_once=True,
    )


def test_the_mark_is_read_behind_the_fence_and_committed_with_each_part(broker: Broker) -> None:
    counts = write_rows(work_of(stage_of("x")), [rows(3, 5), rows(9, answer=False)])
    assert broker.log == ["open 0", "read the mark", "put", "commit", "commit", "close"]
    assert broker.marks[0].offset == 10
    assert {name: count for name, count in counts.items() if count} == {
        "n_in": 3,
        "n_out": 2,
        "n_unmatched": 1,
    }


def test_a_task_that_runs_again_writes_nothing_and_counts_the_same(broker: Broker) -> None:
    work = work_of(stage_of("x"))
    first = write_rows(work, [rows(3, 5, 9)])
    broker.log.clear()
    again = write_rows(work, [rows(3), rows(5, 9)])
    assert (again, "put" in broker.log, "commit" in broker.log) == (first, False, False)


def test_a_batch_that_is_cut_otherwise_goes_on_behind_the_mark(broker: Broker) -> None:
    work = work_of(stage_of("x"))
    write_rows(work, [rows(3, 5)])
    counts = write_rows(work, [rows(3, 5, 6, 8, 9)])
    assert (counts["n_in"], counts["n_out"], broker.marks[0].offset) == (5, 5, 10)
    assert (len(broker.written), broker.log.count("commit")) == (2, 2)
    # The rows of the next batch have counts of their own.
    assert write_rows(work, [rows(10, 11)])["n_in"] == 2


def test_a_task_without_rows_asks_no_cluster(broker: Broker) -> None:
    assert (write_rows(work_of(stage_of("x")), []).total(), broker.log) == (0, [])


@pytest.mark.parametrize("given", [[rows(5), rows(4)], [rows(5), rows(5)], [rows(4, 6, 5)]])
def test_rows_out_of_order_end_the_task_before_a_mark_passes_them(
    broker: Broker, given: list[PartitionRows]
) -> None:
    with pytest.raises(InternalError, match=r"in, partition 0, out of their order"):
        write_rows(work_of(stage_of("x")), given)
    assert broker.log.count("commit") == len(given) - 1


def test_a_topic_that_was_made_again_ends_the_task(broker: Broker) -> None:
    work = work_of(stage_of("x"))
    write_rows(work, [rows(3, 5)])
    broker.topic_id = "now"
    with pytest.raises(JobFailed, match="made again"):
        write_rows(work, [rows(0, 1)])
    assert broker.log.count("commit") == 1


def test_partitions_have_marks_of_their_own(broker: Broker) -> None:
    given = [rows(3, partition=1), rows(7, partition=2), rows(4, partition=1)]
    counts = write_rows(work_of(stage_of("x")), given)
    assert ({part: mark.offset for part, mark in broker.marks.items()}, counts["n_in"]) == ({1: 5, 2: 8}, 3)


def test_functions_are_called_before_the_transaction_and_once_though_records_are_refused(
    broker: Broker,
) -> None:
    def function(events: Sequence[Routed]) -> list[Invoked]:
        broker.log.append(f"call {[each.record.offset for each in events]}")
        return [Invoked(events=(each.event,)) for each in events]

    broker.refused = lambda records: b"\x025" in records  # the value of offset 5
    counts = write_rows(work_of(stage_of("x", invoker=function)), [rows(3, 5, 9)])
    assert broker.log.index("call [3, 5, 9]") < broker.log.index("put")
    assert sum("call" in line for line in broker.log) == 1
    assert (counts["n_in"], counts["n_out"], counts["n_dead"]) == (3, 2, 1)
    assert broker.marks[0].offset == 10


def test_rows_are_cut_before_the_one_at_a_mark() -> None:
    found = [*_pieces([3, 5, 8, 9], {0: 5, 1: 9})]
    assert found == [(1, 3, frozenset({1})), (3, 4, frozenset())]


def test_each_of_several_records_at_one_offset_has_the_answer_of_a_function_about_itself(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when they are routed again, a few at a time, because another record was refused."""

    def function(events: Sequence[Routed]) -> list[Invoked]:
        broker.log.append(f"call {len(events)}")
        return [Invoked(events=(with_data(each.event, b"<%s>" % each.record.value),)) for each in events]

    monkeypatch.setattr(refused_records, "_RECORDS", 1)
    broker.refused = lambda records: b"<9>" in records
    given = [replace(record(offset), value=value) for offset, value in ((4, b"a"), (4, b"b"), (9, b"9"))]
    found = PartitionRows.of(given, [(True,)] * 3)
    counts = write_rows(work_of(stage_of("x", invoker=function)), [found])
    assert [line for line in broker.log if "call" in line] == ["call 3"]
    written = b"".join(broker.written)
    assert (written.count(b"<a>"), written.count(b"<b>"), counts["n_dead"]) == (1, 1, 1)
    # The two are one transaction, the refused one is the next.
    assert (broker.log.count("commit"), broker.marks[0].offset) == (2, 10)


@pytest.mark.parametrize(("ahead", "committed"), [(12, True), (15, False)])
def test_partitions_of_targets_are_adopted_when_no_cluster_is_ahead(ahead: int, committed: bool) -> None:
    """The mark of one that is ahead stays: what is behind that of the others goes where it went."""
    marks: list[Any] = []
    sink = task_sink._PartitionSink.__new__(task_sink._PartitionSink)
    sink._partition, sink._mark, sink._offsets, sink._fixed = (
        0,
        RangeProgress(5, 12),
        {0: 12, 1: ahead},
        {"a": 4},
    )
    sink._cluster, sink._outlet = SourceCluster.__new__(SourceCluster), FanOut.__new__(FanOut)
    sink._outlet.adopt_partitions = lambda: True  # type: ignore[method-assign]
    sink._outlet._stored_before, sink._next = {}, 12
    sink._outlet.commit = marks.append  # type: ignore[method-assign,assignment]
    sink.finish()
    assert marks == ([{0: RangeProgress(5, 12)}] if committed else [])


# From Pulsar to Pulsar


@dataclass
class PulsarBroker:
    """A Pulsar that is read and written, with the marks of its partitions: what happened, in order."""

    log: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """Those of all records that were put."""
    marks: dict[int, GroupOffset] = field(default_factory=dict)

    def opened(self, work: Any, progress: PulsarProgress, cluster: Any, name: str) -> Any:
        self.log.append(f"fence {name}")
        return SimpleNamespace(
            flush=lambda: None, close=lambda: None, commit=self._commit, expired=False, was_refused=False
        )

    def read(self, work: Any, progress: PulsarProgress, cluster: Any, parts: Any) -> Any:
        self.log.append("read the mark")
        return {part: mark for part, mark in self.marks.items() if part in parts}

    def _commit(self, marks: Mapping[int, RangeProgress]) -> None:
        for part, mark in marks.items():
            self.log.append(f"mark {mark.offset}")
            self.marks[part] = GroupOffset(mark.offset, mark.text)

    def output(self, *_: Any, exactly_once: bool, check: Any) -> Any:
        assert exactly_once

        def put(output: Any) -> None:
            self.log.append("put")
            self.ids += output.ids.tolist()

        return SimpleNamespace(
            put=put,
            flush=lambda: self.log.append("stored"),
            place=lambda *_, **__: None,
            committed=lambda offsets, since: None,
            close=lambda: None,
            was_refused=False,
        )


class NoCluster(SourceCluster):
    """Clients that are never asked for anything but numbers of partitions."""

    def __init__(self) -> None:
        self.outputs, self.seen, self.fixed_partitions = {}, {}, {}

    def pulsar(self, sink: int) -> Any:
        return None

    def is_on_pulsar(self, sink: int) -> bool:
        return True

    def pulsar_partitions(self, target: Target) -> int:
        return 2


@pytest.fixture
def pulsar_broker(monkeypatch: pytest.MonkeyPatch) -> PulsarBroker:
    found = PulsarBroker()
    for module in (kafka_sink, progress_sinks):
        monkeypatch.setattr(module, "pulsar_progress_sink", found.opened)
    monkeypatch.setattr(kafka_sink, "_marks_on_pulsar", found.read)
    monkeypatch.setattr(kafka_sink, "PulsarOutput", found.output)
    monkeypatch.setattr(task_sink, "source_cluster", lambda work, seen: nullcontext(NoCluster()))
    return found


def work_within_pulsar() -> Any:
    def on_pulsar(name: str) -> Target:
        return Target(topic=f"persistent://t/n/{name}", sink=1, profile=Profile.V1_0)

    stage = stage_of("x")
    route = replace(stage.routes[0], targets=(on_pulsar("out"),), dead=on_pulsar("dead"))
    stage = replace(stage, routes=(route,), dead=on_pulsar("dead"), servers=("pulsar", "other"))
    work = vars(work_of(stage)) | {
        "pulsar": SimpleNamespace(),
        "pulsar_outputs": {1: None},
        "progress": PulsarProgress(1, "t/n"),
        "has_outputs": True,
        "is_repeatable": True,
        "plan": "digest",
    }
    return SimpleNamespace(**work)


def test_within_pulsar_the_mark_follows_what_is_stored_and_a_second_run_writes_nothing(
    pulsar_broker: PulsarBroker,
) -> None:
    work, broker = work_within_pulsar(), pulsar_broker
    counts = write_rows(work, [rows(3, 5), rows(9, answer=False)])
    assert broker.log[:3] == ["fence 0", "read the mark", "stored"]
    # How records are placed is durable before the first of them is.
    assert broker.log[3:] == ["mark 3", "put", "stored", "mark 6", "stored", "mark 10"]
    assert broker.ids == [3 << 16, 5 << 16]
    assert (counts["n_in"], counts["n_out"], counts["n_unmatched"]) == (3, 2, 1)
    broker.log.clear()
    assert write_rows(work, [rows(3, 5, 9)]) == counts
    assert broker.log == ["fence 0", "read the mark"]
    # What is cut otherwise goes on behind the mark.
    write_rows(work, [rows(5, 9, 12)])
    assert broker.ids == [3 << 16, 5 << 16, 12 << 16]
    assert broker.marks[0].offset == 13


def test_within_pulsar_rows_that_share_an_offset_have_ids_that_grow(pulsar_broker: PulsarBroker) -> None:
    write_rows(work_within_pulsar(), [rows(4, 4, 4, 5)])
    assert pulsar_broker.ids == [4 << 16, (4 << 16) + 1, (4 << 16) + 2, 5 << 16]
    assert pulsar_broker.marks[0].offset == 6
