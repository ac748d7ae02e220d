"""Records that a topic refuses: which of them become letters, in how many steps, and when the job stops."""

from __future__ import annotations

import json
import logging
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_raw.produce_call import BatchError
from penstock.brokers.kafka_raw.producer import BatchRefusal
from penstock.errors import JobFailed, Unreachable
from penstock.pipeline.delivery import partition_reader as feed_module
from penstock.pipeline.delivery import refused_records
from penstock.pipeline.delivery.range_clock import RangeClock
from penstock.pipeline.delivery.refused_records import Narrowing, RowNarrowing, redo
from penstock.pipeline.evaluators.kernel.batch_builder import Output, numbered, record_bytes
from penstock.pipeline.evaluators.kernel.fallback import Place
from penstock.pipeline.evaluators.kernel.program import program_of
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.size import BATCH
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kernels.hashing import partition_of

INVALID_RECORD, TOO_LARGE, INVALID_TIMESTAMP = 87, 10, 32
NO_KEY = "Compacted topic cannot accept message without key in topic partition b-0."
Judge = Callable[[str, KafkaRecord], "tuple[int, str] | None"]


def event(number: int, *, key: bytes | None = b"k", size: int = 0) -> KafkaRecord:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "a"}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in attributes.items())
    value = b'{"n":%d,"more":"%s"}' % (number, b"x" * size)
    return KafkaRecord(key=key, value=value, headers=(*headers, ("content-type", b"application/json")))


def stage_of(**target: Any) -> Stage:
    """Two routes: all events to b and c, those with n below 0 to b again."""
    dead = Target(topic="dead")
    both = (Target(topic="b", **target), Target(topic="c"))
    routes = (
        StageRoute(plan=RoutePlan(name="all", where=parse_sql("type = 'a'")), targets=both, dead=dead),
        StageRoute(plan=RoutePlan(name="few", where=parse_sql("data.n < 0")), targets=both[:1], dead=dead),
    )
    return Stage(pipeline="p", routes=routes, dead=dead)


@dataclass
class Topics:
    """An outlet whose topics refuse batches for the sake of records."""

    stage: Stage
    judge: Judge
    names_records: bool = True
    committed: list[tuple[str, KafkaRecord]] = field(default_factory=list)
    open: list[tuple[str, KafkaRecord]] = field(default_factory=list)
    exactly_once: bool = True
    """Whether a restart takes back what was written."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Bytes of a batch that topics take."""
    offers: int = 0
    restarts: int = 0
    sizes: dict[str, list[int]] = field(default_factory=dict)
    """Bytes of the batches that were offered."""
    parts: list[tuple[str, int, KafkaRecord]] = field(default_factory=list)
    """What was taken, and by which partition."""

    def offer(self, output: Output) -> BatchRefusal | None:
        self.offers += 1
        topic = program_of(self.stage).targets[output.target].topic
        size = BATCH + len(output.body.records)
        self.sizes.setdefault(topic, []).append(size)
        if topic in self.most and size > self.most[topic]:
            return BatchRefusal(TOO_LARGE, BatchError())
        body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
        records = body.kafka_records(body.starts(), "", 0)
        found = [(at, why) for at, record in enumerate(records) if (why := self.judge(topic, record))]
        if found:
            code = found[0][1][0]
            named = tuple((at, why) for at, (_, why) in found) if self.names_records else ()
            return BatchRefusal(code, BatchError(named, found[0][1][1]))
        self.open += [(topic, record) for record in records]
        self.parts += [(topic, output.partition, record) for record in records]
        return None

    def restart(self) -> None:
        self.restarts += 1
        if self.exactly_once:
            self.open.clear()

    def commit(self) -> None:
        self.committed += self.open
        self.open.clear()

    def numbers(self, topic: str) -> list[int]:
        return [json.loads(record.value or b"")["n"] for name, record in self.committed if name == topic]

    @property
    def letters(self) -> list[Any]:
        return [json.loads(record.value or b"") for name, record in self.committed if name == "dead"]


def narrowed(
    topics: Topics, records: list[KafkaRecord], base: int = 100, partitions: int = 1
) -> tuple[list[int | None], Narrowing]:
    """Deliver records, each slice committed; give where each slice ended."""
    cluster: Any = SimpleNamespace(partitions=lambda topic: partitions)
    found = Narrowing(work_of(topics), cluster)
    end = base + len(records)
    found.feed(batch_of(records, base), topic="in", partition=3, first=base, end=end, now=1)
    return list(_committing(found, topics)), found


def work_of(topics: Topics) -> Any:
    return SimpleNamespace(program=program_of(topics.stage), stage=topics.stage, topic="in")


def batch_of(records: list[KafkaRecord], base: int) -> bytes:
    rows = [numbered(record_bytes(r.key, r.value, r.headers), n) for n, r in enumerate(records)]
    data = framed(BatchBody(b"".join(rows), len(rows), 1000, 1000))
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


def _committing(found: Narrowing, topics: Topics) -> Iterator[int | None]:
    outlet: Any = topics
    for offset in found.delivered(outlet):
        topics.commit()
        yield offset


def no_key(topic: str, record: KafkaRecord) -> tuple[int, str] | None:
    return (INVALID_RECORD, NO_KEY) if topic == "b" and record.key is None else None


@pytest.mark.parametrize("names_records", [True, False])
def test_only_the_refused_record_is_a_letter(names_records: bool) -> None:
    topics = Topics(stage_of(), no_key, names_records)
    bad = {0, 4, 5, 9}
    _, found = narrowed(topics, [event(n, key=None if n in bad else b"k") for n in range(10)])
    assert sorted(topics.numbers("b")) == sorted(set(range(10)) - bad)
    assert sorted(topics.numbers("c")) == list(range(10))  # the other target takes it
    assert [letter["origin"]["offset"] for letter in topics.letters] == [100, 104, 105, 109]
    assert {(letter["code"], letter["route"]) for letter in topics.letters} == {("no-key", "all")}
    assert NO_KEY in topics.letters[0]["reason"]
    assert topics.restarts == 1
    assert (found.counts["n_in"], found.counts["n_out"], found.counts["n_dead"]) == (10, 16, 4)


def test_the_order_of_a_partition_stays() -> None:
    topics = Topics(
        stage_of(), lambda topic, r: (TOO_LARGE, "") if topic == "b" and len(r.value or b"") > 400 else None
    )
    narrowed(topics, [event(n, size=500 if n % 7 == 0 else 0) for n in range(50)])
    assert topics.numbers("b") == [n for n in range(50) if n % 7]
    assert {letter["code"] for letter in topics.letters} == {"too-large"}


@pytest.mark.parametrize(
    ("code", "message", "letter"),
    [
        (INVALID_RECORD, NO_KEY, "refused"),  # it has a key: the broker means something else
        (INVALID_RECORD, "Log record DefaultRecord(...) is rejected by the record interceptor", "refused"),
        (
            INVALID_TIMESTAMP,
            "Timestamp 5 of message with offset 0 is out of range.",
            "timestamp-out-of-bounds",
        ),
        (TOO_LARGE, "", "too-large"),
        (18, "", "too-large"),
    ],
)
def test_each_refusal_has_its_code(code: int, message: str, letter: str) -> None:
    topics = Topics(stage_of(), lambda topic, record: (code, message) if topic == "b" else None)
    narrowed(topics, [event(1)])
    assert [each["code"] for each in topics.letters] == [letter]


def test_a_batch_that_is_too_large_and_has_no_such_record_is_only_cut() -> None:
    topics = Topics(stage_of(), lambda topic, record: None, most={"b": 1000})
    _, found = narrowed(topics, [event(n) for n in range(40)])
    assert topics.letters == []
    assert (topics.numbers("b"), topics.restarts) == (list(range(40)), 0)
    # Who goes on sends batches that are smaller than each that was refused.
    [target] = [n for n, each in enumerate(program_of(topics.stage).targets) if each.topic == "b"]
    assert found.limits == {target: min(size for size in topics.sizes["b"] if size > 1000) - 1}


def test_batches_are_no_larger_than_what_the_topic_is_known_to_take() -> None:
    topics = Topics(stage_of(limit=1000), lambda topic, record: None, most={"b": 1000})
    narrowed(topics, [event(n) for n in range(40)])
    assert topics.numbers("b") == list(range(40))
    assert len(topics.sizes["b"]) > 1
    assert max(topics.sizes["b"]) <= 1000


@pytest.mark.parametrize("names_records", [True, False])
def test_without_transactions_records_come_in_order_though_some_come_again(names_records: bool) -> None:
    """What was written before a record is refused stays there; who reads each once reads them in order."""
    topics = Topics(stage_of(limit=1000), no_key, names_records, exactly_once=False)
    narrowed(topics, [event(n, key=None if n % 10 == 2 else b"k") for n in range(40)])
    assert topics.restarts == 1
    assert list(dict.fromkeys(topics.numbers("b"))) == [n for n in range(40) if n % 10 != 2]
    # Those beside the refused ones are not left for the next attempt.
    assert Counter(topics.numbers("b")) == {n: 2 for n in range(40) if n % 10 != 2}


def test_a_key_decides_about_the_partition_and_the_others_go_to_one() -> None:
    topics = Topics(stage_of(), lambda topic, record: None)
    narrowed(topics, [event(n, key=None if n % 2 else b"%d" % n) for n in range(40)], partitions=8)
    found = [(part, record.key) for topic, part, record in topics.parts if topic == "b"]
    for part, key in found:
        assert key is None or part == partition_of(as_array(key), 0, len(key), 8)
    assert len({part for part, key in found if key is None}) == 1


def test_a_letter_that_is_too_large_leaves_without_its_record() -> None:
    def judge(topic: str, record: KafkaRecord) -> tuple[int, str] | None:
        return (TOO_LARGE, "") if len(record.value or b"") > 600 and topic in ("b", "dead") else None

    topics = Topics(stage_of(), judge)
    narrowed(topics, [event(1, size=700), event(2)])
    assert [(letter["code"], letter["record"]) for letter in topics.letters] == [("too-large", None)]
    assert topics.restarts == 2


def test_a_letter_that_is_refused_stops_the_job() -> None:
    def judge(topic: str, record: KafkaRecord) -> tuple[int, str] | None:
        return (INVALID_TIMESTAMP, "the clock is wrong") if topic in ("b", "dead") else None

    topics = Topics(stage_of(), judge)
    with pytest.raises(JobFailed, match="dead refuses a dead letter") as caught:
        narrowed(topics, [event(n) for n in range(3)])
    assert "in, partition 3, offset 100" in str(caught.value.where)
    assert topics.offers < 20


def test_topics_that_refuse_others_each_time_stop_the_job() -> None:
    topics = Topics(stage_of(), lambda topic, record: None, names_records=False)

    def judge(topic: str, record: KafkaRecord) -> tuple[int, str] | None:
        # Each attempt meets one more record that is refused.
        moving = topic == "b" and json.loads(record.value or b"")["n"] == topics.restarts
        return (INVALID_RECORD, "not this one") if moving else None

    topics.judge = judge
    with pytest.raises(JobFailed, match="go on refusing"):
        narrowed(topics, [event(n) for n in range(refused_records._ATTEMPTS + 5)])
    assert topics.restarts == refused_records._ATTEMPTS


def test_marks_are_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_records, "_RECORDS", 4)
    topics = Topics(stage_of(), no_key)
    offsets, _ = narrowed(topics, [event(n, key=None if n == 5 else b"k") for n in range(10)])
    assert offsets == [104, 108, None]
    assert topics.restarts == 1


def test_a_compacted_topic_of_which_it_is_known_is_not_asked() -> None:
    topics = Topics(stage_of(compacted=True), no_key)
    narrowed(topics, [event(1, key=None), event(2)])
    assert (topics.numbers("b"), topics.restarts) == ([2], 0)
    assert [letter["code"] for letter in topics.letters] == ["no-key"]


def test_a_compacted_topic_of_letters_gets_keys() -> None:
    dead = Target(topic="dead", compacted=True)
    stage = stage_of(compacted=True)
    stage = replace(stage, dead=dead, routes=tuple(replace(route, dead=dead) for route in stage.routes))
    topics = Topics(stage, lambda topic, record: None)
    narrowed(topics, [event(1, key=None)])
    assert [record.key is not None for name, record in topics.committed if name == "dead"] == [True]


def test_two_routes_to_the_topic_that_refuses_are_two_letters() -> None:
    topics = Topics(stage_of(), no_key)
    narrowed(topics, [event(-1, key=None)])
    assert sorted(letter["route"] for letter in topics.letters) == ["all", "few"]
    assert topics.restarts == 1


# Whole ranges


class Fetches:
    """A fetcher that gives at each poll what it is told to, and lets time pass."""

    def __init__(self, *polls: list[tuple[int, list[KafkaRecord], int]], seconds: float = 0.0) -> None:
        """Of each fetch: the offset of its first record, its records, and the offset behind it."""
        self._left = list(polls)
        self._seconds = seconds
        self.now = 1000.0

    def poll(self, timeout: float) -> Iterator[Any]:
        self.now += self._seconds
        for base, records, behind in self._left.pop(0) if self._left else []:
            yield SimpleNamespace(
                topic="in",
                partition=3,
                first=base,
                next_offset=behind,
                last_stable_offset=behind,
                data=memoryview(batch_of(records, base) if records else b""),
                aborted=(),
            )

    def close(self) -> None:
        return None


@pytest.fixture
def redone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[int], Counter[str]]]:
    """Do the range from 100; give the marks and what was counted. A mark says what is in the topic c."""

    def redone(topics: Topics, fetches: Fetches, end: int) -> tuple[list[int], Counter[str]]:
        monkeypatch.setattr(feed_module, "source_fetcher", lambda *_, **__: fetches)
        clock = SimpleNamespace(monotonic=lambda: fetches.now, time_ns=time.time_ns)
        monkeypatch.setattr(refused_records, "time", clock)
        marks: list[int] = []
        counted: Counter[str] = Counter()

        def commit(offset: int, counts: Mapping[str, int]) -> None:
            topics.commit()
            marks.append(offset)
            counted.update(counts)
            assert all(100 + number < offset for number in topics.numbers("c"))
            assert counted["n_in"] == len(topics.numbers("c"))

        outlet: Any = topics
        cluster: Any = SimpleNamespace(partitions=lambda topic: 1)
        redo(work_of(topics), cluster, outlet, 3, 100, end, commit, RangeClock())
        assert not topics.open, "what is not committed is lost"
        return marks, counted

    return redone


def test_a_mark_is_never_ahead_of_what_was_written(redone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_records, "_RECORDS", 4)
    topics = Topics(stage_of(), no_key)
    events = [event(n, key=None if n in (5, 11) else b"k") for n in range(12)]
    marks, counted = redone(topics, Fetches([(100, events[:6], 106), (106, events[6:], 112)]), 112)
    assert marks == [104, 108, 112]
    assert topics.numbers("c") == list(range(12))
    assert (counted["n_in"], counted["n_dead"]) == (12, 2)


def test_a_range_that_ends_with_what_nobody_may_see_is_marked_to_its_end(redone: Any) -> None:
    topics = Topics(stage_of(), no_key)
    marks, counted = redone(topics, Fetches([(100, [event(0)], 101)], [(101, [], 108)]), 108)
    assert (marks, counted["n_in"]) == ([101, 108], 1)


def test_a_range_may_take_long_and_may_not_stand_still(redone: Any) -> None:
    polls = [poll for n in range(5) for poll in ([], [(100 + n, [event(n)], 101 + n)])]
    assert redone(Topics(stage_of(), no_key), Fetches(*polls, seconds=100.0), 105)[0][-1] == 105
    with pytest.raises(Unreachable, match="nothing came") as caught:
        redone(Topics(stage_of(), no_key), Fetches(polls[1], seconds=100.0), 105)
    assert caught.value.where == "in, partition 3, offset 101"


def test_a_topic_that_goes_on_refusing_is_told_of_every_five_minutes(
    redone: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_records, "_told", {})
    fetches = Fetches()
    with caplog.at_level(logging.WARNING, refused_records.__name__):
        for seconds, told in ((0.0, 1), (299.0, 1), (1.0, 2)):
            fetches.now += seconds
            redone(Topics(stage_of(), no_key), fetches, 100)
            assert len(caplog.records) == told
    assert "records of in-3 between 100 and 100 are refused" in caplog.text


def test_records_of_one_offset_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of a Pulsar transaction may share one: a mark before it would repeat what is written."""
    delivered: list[list[int]] = []
    monkeypatch.setattr(refused_records, "_RECORDS", 3)
    monkeypatch.setattr(
        Narrowing, "_deliver", lambda self, rows, outlet: delivered.append([row.offset for row in rows])
    )
    made: Any = object.__new__(Narrowing)
    made._rows = [SimpleNamespace(offset=offset) for offset in (0, 1, 2, 2, 2, 3, 4, 5, 6, 6)]
    assert [*made.delivered(None)] == [3, 6, None]
    assert delivered == [[0, 1, 2, 2, 2], [3, 4, 5], [6, 6]]


def test_records_of_one_offset_have_a_number_each_for_a_target_on_pulsar() -> None:
    """Else a broker would take the second of them for the first, sent again."""

    class Doubled(RowNarrowing[Any]):
        def _written(self, rows: Any, refused: object, known: object) -> Any:
            return [[(0, KafkaRecord(value=b"x", key=b"k"))] * 2 for _ in rows], {}

    made: Any = object.__new__(Doubled)
    made._partitions, made._on_pulsar = [1], frozenset({0})
    made._targets = [SimpleNamespace(sink=1)]
    rows = [SimpleNamespace(offset=offset, place=Place("in", 3, 1)) for offset in (4, 5, 5, 5, 6)]
    outputs, _, _ = made._routed(rows, {}, {})
    [sent] = outputs.values()
    found = [(each.offset, each.ordinal) for each in sent]
    assert found == [(4, 0), (4, 1), *((5, number) for number in range(6)), (6, 0), (6, 1)]
