"""A machine and what it is fed: ranges, markers, aborted batches, broken bytes, odd texts."""

from __future__ import annotations

import json
import logging
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from penstock.errors import RecordsError, UnsupportedPlan
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.evaluators.kernel import batch_router, interpreter
from penstock.pipeline.evaluators.kernel.batch_builder import record_bytes
from penstock.pipeline.evaluators.kernel.fallback import Fallback
from penstock.pipeline.evaluators.kernel.program import reference_program_of
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference import batch_router as reference_batches
from penstock.pipeline.evaluators.reference.batch_router import ReferenceBatchRouter
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, Mode, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.record import KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kernels import crc32c
from penstock.wire.kernels.json import STACK_SIZE

Trials = Callable[..., Any]
LARGE = RoutePlan(
    name="large",
    where=parse_sql("type = 'placed' AND data.total > 100"),
    set=(Assignment("subject", parse_sql("data.customer", Type.TEXT)),),
    mode=Mode.STRUCTURED,
)
_CONTROL_AT = 21


def order(number: int, total: float, **other: str) -> KafkaRecord:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "placed", **other}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in attributes.items())
    body = b'{"total":%g,"customer":"c-%d"}' % (total, number)
    return KafkaRecord(key=b"k", value=body, headers=(*headers, ("content-type", b"application/json")))


def batch(records: list[KafkaRecord], base: int = 0, **options: Any) -> bytearray:
    rows = b""
    for number, record in enumerate(records):
        body = b"\x00\x00" + bytes([2 * number]) + record_bytes(record.key, record.value, record.headers)
        rows += _varint(2 * len(body)) + body
    made = framed(BatchBody(rows, len(records), 1000, 1000), **options)
    struct.pack_into(">q", made, 0, base)
    return made


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


@pytest.fixture
def fed(trial_of: Trials) -> Callable[..., tuple[list[Any], Any]]:
    def feed(
        data: bytes | bytearray, first: int = 0, end: int = 1000, **options: Any
    ) -> tuple[list[Any], Any]:
        trial = trial_of(LARGE)
        rows: list[Any] = []
        machine = trial.machine(lambda output: rows.append((output.target, output.body.count)))
        machine.feed(bytes(data), topic="in", partition=0, first=first, end=end, **options)
        machine.flush()
        return rows, machine.counts

    return feed


def test_a_fetch_is_inflated_in_parts(fed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its batches may inflate to a thousand times its size."""
    inflated: list[int] = []
    routed: list[int] = []
    real, route = batch_router.bodies_of, batch_router.BatchRouter._route

    def noted(*arguments: Any) -> Iterator[Any]:
        for body in real(*arguments):
            inflated.append(body.base_offset)
            yield body

    def counted(self: Any, bodies: Any, place: Any) -> None:
        routed.append(len(inflated))
        route(self, bodies, place)

    monkeypatch.setattr(batch_router, "bodies_of", noted)
    monkeypatch.setattr(batch_router.BatchRouter, "_route", counted)
    monkeypatch.setattr(batch_router, "HELD", 500)
    data = b"".join(batch([order(n, 200, note="ä") for n in range(9)], base=base) for base in (0, 9, 18, 27))
    _, counts = fed(data)
    assert (counts["n_in"], counts["n_out"]) == (36, 36)
    assert routed == [1, 2, 3, 4]


def test_plain_events_need_no_stage(fed: Any) -> None:
    rows, counts = fed(batch([order(n, 50 * n) for n in range(5)], base=10))
    assert rows == [(0, 2)]
    assert {name: count for name, count in counts.items() if count} == {
        "n_in": 5,
        "n_out": 2,
        "n_unmatched": 3,
    }


def test_a_batch_may_begin_before_the_range_and_end_behind_it(fed: Any) -> None:
    rows, counts = fed(batch([order(n, 200) for n in range(5)], base=10), first=11, end=14)
    assert (rows, counts["n_in"]) == ([(0, 3)], 3)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(fed: Any, compression: str) -> None:
    rows, _ = fed(batch([order(n, 200) for n in range(5)], compression=compression))
    assert rows == [(0, 5)]


def test_markers_and_aborted_batches_are_passed_over(fed: Any) -> None:
    marker = batch([order(0, 200)], base=2)
    marker[_CONTROL_AT + 1] |= 0x30
    struct.pack_into(">I", marker, 17, crc32c(bytes(marker[21:])))
    data = batch([order(0, 200)]) + batch([order(1, 200)], base=1) + marker
    rows, counts = fed(data, skip=lambda found: found.base_offset == 1)
    assert (rows, counts["n_in"]) == ([(0, 1)], 1)


def test_a_batch_with_a_wrong_checksum_is_refused(fed: Any) -> None:
    data = batch([order(0, 200)])
    data[-1] ^= 1
    with pytest.raises(RecordsError, match="checksum"):
        fed(data)


def test_slow_records_keep_their_places(trial_of: Trials) -> None:
    odd = {
        3: {"time": "1990-12-31T23:59:60Z"},
        5: {"expirytime": "2025-01-01T00:00:00Z"},
        6: {"time": "never"},
    }
    records = [order(n, 200, **odd.get(n, {})) for n in range(9)]
    trial = trial_of(LARGE)
    trial.check(records)
    assert trial.slow == len(odd)


def test_odd_sources_and_schemas_are_asked_about_once(trial_of: Trials) -> None:
    records = [
        order(n, 200, source=f"//host:{n % 3}/a?b", dataschema="https://x.example/s#t") for n in range(50)
    ]
    trial = trial_of(LARGE)
    trial.check(records)
    assert trial.slow == 0


def test_texts_that_push_each_other_out_do_not_stop_the_loop(trial_of: Trials) -> None:
    records = [
        order(n, 200, source=f"//host:{n}/a?{n * 7}", dataschema=f"https://x.example/{n * 13}#t")
        for n in range(900)
    ]
    trial = trial_of(LARGE)
    trial.check(records)
    _, counts = trial.routed(records)
    assert (counts["n_in"], counts["n_out"]) == (900, 900)


def test_a_record_larger_than_a_slot_leaves_alone(trial_of: Trials) -> None:
    records = [order(1, 200), order(2, 200, extra="x" * 3000), order(3, 200)]
    trial = trial_of(LARGE)
    trial.check(records, batch_bytes=1000)
    sink = trial.sink()
    machine = trial.machine(sink, batch_bytes=1000)
    machine.feed(bytes(batch(records)), topic="in", partition=0, first=0, end=3)
    machine.flush()
    assert (sink.batches, sum(map(len, sink.rows.values()))) == (3, 3)


def test_a_shadow_compares_kernel_and_stage(trial_of: Trials, caplog: pytest.LogCaptureFixture) -> None:
    trial = trial_of(LARGE)
    machine = trial.machine(lambda output: None, shadow=3)
    data = bytes(batch([order(n, 50 * n) for n in range(12)], base=40))
    machine.feed(data, topic="in", partition=0, first=40, end=60)
    assert (machine.counts["n_shadow"], machine.counts["n_different"]) == (4, 0)
    wrong: Any = patch.object(Fallback, "written", lambda path, rows, place: ([[(0, KafkaRecord())]] * 4, {}))
    with wrong, caplog.at_level(logging.ERROR):
        machine.feed(data, topic="in", partition=0, first=40, end=60)
    assert (machine.counts["n_shadow"], machine.counts["n_different"]) == (8, 4)
    assert [each.getMessage() for each in caplog.records][0] == "kernel and reference differ: in-0 at 40"


def test_what_the_kernel_cannot_do_is_named_with_its_route(trial_of: Trials) -> None:
    where = parse_sql("type = 'a' OR data.total = data.sum OR hop < 1234567890123456789")
    plan = RoutePlan(name="r", where=where)
    with pytest.raises(UnsupportedPlan) as caught:
        trial_of(LARGE, plan)
    assert caught.value.stops == (
        "route r: the kernel cannot: data.total = data.sum",
        "route r: the kernel cannot: 1234567890123456789",
    )


def test_now_is_the_moment_of_the_fetch_for_kernel_and_stage(trial_of: Trials) -> None:
    """Both are given one moment, so that a record that falls back is routed as its neighbours are."""
    time = Assignment("time", parse_sql("now()", Type.TIME))
    trial = trial_of(RoutePlan(name="r", where=parse_sql("time < now()"), set=(time,), mode=Mode.BINARY))
    sink = trial.sink()
    machine = trial.machine(sink, shadow=1)
    past, to_come = "2020-02-29T00:00:00Z", "2999-01-01T00:00:00Z"
    odd = order(3, 1, time="2020-01-01t00:00:00z")  # a spelling that is left to the stage
    data = bytes(batch([order(1, 1, time=past), order(2, 1, time=to_come), odd, order(4, 1)]))
    machine.feed(data, topic="in", partition=0, first=0, end=4)
    machine.flush()
    written = [dict(headers) for rows in sink.rows.values() for _, _, headers in rows]
    assert [each["ce_causationid"] for each in written] == [b"1", b"3"]
    assert len({each["ce_time"] for each in written}) == 1
    assert (machine.counts["n_slow"], machine.counts["n_different"]) == (1, 0)


def test_events_of_a_leap_day_stay_in_the_kernel(trial_of: Trials) -> None:
    days = ("2024-02-29T10:00:00Z", "2000-02-29T10:00:00Z", "2026-02-29T10:00:00Z", "1900-02-29T10:00:00Z")
    trial = trial_of(LARGE)
    trial.check([order(number, 200, time=day) for number, day in enumerate(days)])
    assert trial.slow == 2  # days that do not exist


def test_a_second_process_compiles_nothing() -> None:
    code = """
import penstock.pipeline.evaluators.kernel.batch_router
from penstock.wire.kernels.jit import cache_misses
print(cache_misses())
"""
    for expected in (None, "0"):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=280,
            check=True,
        )
        assert expected in (None, ran.stdout.strip())


def test_mutated_batches_are_read_or_refused(trial_of: Trials, records_by: Any) -> None:
    dice = random.Random(5)
    trial = trial_of(LARGE)
    good = batch([order(n, 200, subject='q"') for n in range(20)])
    outcomes = set()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(dice.choice([1, 2, 8])):
            data[61 + dice.randrange(len(data) - 61)] = dice.randrange(256)
        outcomes.add(_outcome(trial, data))
    assert outcomes == {"read", "refused"}


def _outcome(trial: Any, data: bytearray) -> str:
    """Feed a batch with its checksum set right; whatever is written must be JSON."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    sink = trial.sink()
    machine = trial.machine(sink)
    try:
        machine.feed(bytes(data), topic="in", partition=0, first=0, end=1 << 40)
    except RecordsError:
        return "refused"
    machine.flush()
    for rows in sink.rows.values():
        for _, value, headers in rows:
            if value is not None and dict(headers)["content-type"] != b"application/octet-stream":
                json.loads(value)
    return "read"


def test_a_record_that_makes_the_kernel_raise_is_taken_back_and_goes_the_slow_way(
    trial_of: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    """The first route has written the record when the second one reads its data."""
    first = RoutePlan(name="first", where=parse_sql("type = 'placed'"))
    trial = trial_of(first, LARGE)
    records = [order(n, 200) for n in range(6)]
    for n in (2, 5):
        records[n] = replace(records[n], value=b'{"total":200,"customer":"c-%d","x":1,"y":2,"z":3}' % n)
    sink = trial.sink()
    machine = trial.machine(sink)
    # With room for the digests of three names only, the fourth one leaves the stack of the JSON kernel.
    machine._interpreter._stack = np.zeros(STACK_SIZE - 256 + 3, np.int64)
    machine.feed(bytes(batch(records)), topic="in", partition=0, first=0, end=1000)
    machine.flush()
    assert (dict(sink.rows), {name: machine.counts[name] for name in COUNTERS}) == trial.expected(records)
    assert (machine.counts["n_out"], machine.counts["n_slow"]) == (2 * 6 + 6, 2)
    assert caplog.text.count("the kernel raised") == 1


def test_a_record_that_raises_even_before_it_is_read_is_no_record(
    trial_of: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: Any) -> int:
        raise IndexError("out of bounds")

    monkeypatch.setattr(interpreter, "run", raises)
    machine = trial_of(LARGE).machine(lambda output: None)
    with pytest.raises(RecordsError, match="no records"):
        machine.feed(bytes(batch([order(0, 200)])), topic="in", partition=0, first=0, end=10)


UNCERTAIN = KafkaRecord(value=b"no event")
MIXED = [UNCERTAIN if n % 4 else order(n, 200) for n in range(40)]


def _in_turns(trial: Any, data: bytes, end: int) -> tuple[list[Any], dict[str, int], list[int]]:
    """Feed until everything was taken, with a flush wherever it was full."""
    sink, stops, left = trial.sink(), list[int](), 0
    machine = trial.machine(sink)
    with patch("penstock.pipeline.evaluators.kernel.batch_router.time.time_ns", lambda: 0):
        while True:
            found = machine.feed(data, topic="in", partition=0, first=left, end=end)
            machine.flush()
            if found is None:
                return sink.rows, {name: machine.counts[name] for name in COUNTERS}, stops
            assert found > left, "a flush makes room for one record at least"
            stops.append(left := found)


def _seen_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    written = Fallback.written

    def noted(self: Any, rows: Any, *more: Any) -> Any:
        seen.append(sum(len(starts) for _, starts in rows))
        return written(self, rows, *more)

    monkeypatch.setattr(Fallback, "written", noted)
    return seen


@pytest.mark.parametrize(
    ("bound", "ahead", "size"),
    [("_AHEAD", 7, 1 << 20), ("_AT_ONCE", 7, 1 << 20), ("_AHEAD", 4096, 100), ("_AHEAD", 4096, 1)],
)
def test_the_reference_gets_a_bounded_number_of_records_at_once(
    trial_of: Trials, monkeypatch: pytest.MonkeyPatch, bound: str, ahead: int, size: int
) -> None:
    """A small compressed batch may hold millions that the kernel is not certain of."""
    trial, data = trial_of(LARGE), bytes(batch(MIXED[:20]) + batch(MIXED[20:], base=20))
    wanted = _in_turns(trial, data, 40)
    seen = _seen_at_once(monkeypatch)
    monkeypatch.setattr(batch_router, bound, ahead)
    monkeypatch.setattr(batch_router, "_AHEAD_BYTES", size)
    assert _in_turns(trial, data, 40) == wanted
    assert (sum(seen), wanted[1]["n_in"], wanted[1]["n_dead"]) == (30, 40, 30)
    assert max(seen) < 10


@pytest.mark.parametrize("bound", ["_SLOW_SECONDS", "_FULL_SECONDS"])
def test_records_that_take_long_are_left_for_the_next_transaction(
    trial_of: Trials, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    trial, data = trial_of(LARGE), bytes(batch(MIXED[:20]) + batch(MIXED[20:], base=20))
    _, wanted, stops = _in_turns(trial, data, 40)
    assert stops == []
    monkeypatch.setattr(batch_router, "_AHEAD", 5)
    monkeypatch.setattr(batch_router, bound, 0.0)
    _, counts, stops = _in_turns(trial, data, 40)
    assert (counts, len(stops) > 5) == (wanted, True)


def test_a_machine_that_is_full_takes_no_further_fetch(
    trial_of: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = trial_of(LARGE).machine(lambda output: None)
    monkeypatch.setattr(batch_router, "_SLOW_SECONDS", 0.0)
    assert machine.feed(bytes(batch([UNCERTAIN])), topic="in", partition=0, first=0, end=9) is None
    assert machine.is_full
    assert machine.feed(bytes(batch(MIXED, base=7)), topic="in", partition=1, first=7, end=90) == 7
    assert machine.counts["n_in"] == 1
    machine.flush()
    assert not machine.is_full


@pytest.mark.parametrize("first", [10, 12])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_batch_that_inflates_to_too_much_is_one_letter(
    trial_of: Trials, monkeypatch: pytest.MonkeyPatch, first: int, compression: str
) -> None:
    """It would do so in each run: the job goes on behind it, whoever decides about its records."""
    large = [replace(order(n, 200), value=b"0" * 5000) for n in range(5)]
    data = bytes(batch(large, base=10, compression=compression) + batch([order(1, 200)], base=15))
    trial = trial_of(LARGE)
    by_kernel, by_reference = trial.sink(), trial.sink()
    machine = trial.machine(by_kernel, inflated=10_000)
    monkeypatch.setattr(reference_batches, "INFLATED", 10_000)
    counts = [trial.partitions] * len(trial.program.targets)
    program = reference_program_of(trial.stage)
    router = ReferenceBatchRouter(program, trial.stage, counts, by_reference, pick=lambda target, count: 0)
    for each in (machine, router):
        each.feed(data, topic="in", partition=3, first=first, end=99)
        each.flush()
        assert {name: each.counts[name] for name in ("n_in", "n_out", "n_dead")} == {
            "n_in": 2,
            "n_out": 1,
            "n_dead": 1,
        }
    assert by_kernel.rows == by_reference.rows
    (letter,) = (row for rows in by_kernel.rows.values() for row in rows if b"batch-too-large" in row[1])
    found = json.loads(letter[1])
    assert found["origin"] == {
        "server": None,
        "topic": "in",
        "partition": 3,
        "offset": first,
        "timestamp": 1000,
    }
    assert (found["code"], found["record"]) == ("batch-too-large", None)
    assert found["reason"].endswith("inflates to more than 10000 bytes: 5 records, offsets 10 to 14")


def test_headers_that_leave_their_record_are_no_headers() -> None:
    """As the kernel has it: they end where their record ends, whatever follows it."""
    rows = bytearray()
    for number in range(2):
        body = b"\x00\x00" + bytes([2 * number]) + record_bytes(None, b"v", (("name", b"value"),))
        rows += _varint(2 * len(body)) + body
    whole = Body.whole(as_array(bytes(rows)), 2)
    assert [record.headers for record in whole.kafka_records(whole.starts(), None, None)] == [
        (("name", b"value"),)
    ] * 2
    rows[rows.index(b"value") - 1] += 2  # one byte more: the first of the next record
    broken = Body.whole(as_array(bytes(rows)), 2)
    with pytest.raises(RecordsError):
        broken.kafka_records(broken.starts(), None, None)
