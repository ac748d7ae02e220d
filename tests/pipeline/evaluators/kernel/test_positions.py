"""Records for Pulsar: their ids and partitions come from the position of their input, whoever writes them."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from penstock.errors import Refused
from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.delivery.partition_reader import Router
from penstock.pipeline.evaluators.kernel.batch_builder import (
    BLOCK,
    GrowingIds,
    Output,
    numbered,
    record_bytes,
    sequence_id,
)
from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter
from penstock.pipeline.evaluators.kernel.program import program_of, reference_program_of
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference.batch_router import Bounds, ReferenceBatchRouter
from penstock.pipeline.plan.nodes import Boolean
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.routing_layout import ORDINAL_BITS

ALL = RoutePlan(name="all", where=Boolean(True))
SOME = RoutePlan(name="some", where=parse_sql("type = 'a'"))
PARTITIONS = 3
ROUTERS = ("kernel", "reference")


def stage_of(profile: Profile = Profile.V1_0) -> Stage:
    """Two routes to one topic on Pulsar, of which one also sends to Kafka; letters on Pulsar."""
    pulsar, dead = Target(topic="p", sink=1, profile=profile), Target(topic="d", sink=1, profile=profile)
    kafka = Target(topic="k")
    routes = (
        StageRoute(plan=ALL, targets=(pulsar, kafka), dead=dead),
        StageRoute(plan=SOME, targets=(pulsar,), dead=dead),
    )
    return Stage(pipeline="p", routes=routes, dead=dead, servers=("kafka", "pulsar"))


def record(number: int, **other: Any) -> KafkaRecord:
    """Every fourth has no key, every fifth is left to the reference, every seventh is no event."""
    if number % 7 == 6:
        return KafkaRecord(value=b"poison")
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "ab"[number % 2]}
    if number % 5 == 4:
        attributes["time"] = "2026-01-07T00:00:00.123456789+05:30"
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    headers += other.get("headers", ())
    return KafkaRecord(
        key=None if number % 4 == 3 else b"k%d" % (number % 11), value=b"{}", headers=tuple(headers)
    )


def batches(numbers: range, size: int, *, one_offset: bool = False) -> bytes:
    """The records of a topic whose offsets are their numbers; with `one_offset` all of a batch have one."""
    found = b""
    for first in range(numbers.start, numbers.stop, size):
        some = [record(number) for number in range(first, min(first + size, numbers.stop))]
        rows = b"".join(
            numbered(record_bytes(each.key, each.value, each.headers), 0 if one_offset else at)
            for at, each in enumerate(some)
        )
        made = framed(BatchBody(rows, len(some), 1000, 1000))
        struct.pack_into(">q", made, 0, first)
        found += bytes(made)
    return found


Row = tuple[int, int, int, bytes | None]
"""Source partition, partition, id and key."""


def written(
    stage: Stage, feeds: list[tuple[int, bytes]], *, batch_bytes: int = 512 * 1024, by: str = "kernel"
) -> dict[str, list[Row]]:
    """What leaves, by topic and in its order."""
    program = program_of(stage) if by == "kernel" else reference_program_of(stage)
    found: dict[str, list[Row]] = {target.topic: [] for target in program.targets}

    def put(output: Output) -> None:
        body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
        ids = [-1] * body.count if output.ids is None else output.ids.tolist()
        for each, identity in zip(body.kafka_records(body.starts(), None, None), ids, strict=True):
            row = (output.source, output.partition, identity, each.key)
            found[program.targets[output.target].topic].append(row)

    partitions = [PARTITIONS] * len(program.targets)
    made = BatchRouter if by == "kernel" else partial(ReferenceBatchRouter, bounds=Bounds(flush_records=150))
    router: Router = made(program, stage, partitions, put, batch_bytes=batch_bytes)
    for source, data in feeds:
        router.feed(data, topic="in", partition=source, first=0, end=1 << 60)
    router.flush()
    while router.holds:
        router.flush()
    return found


def expected(numbers: range, source: int) -> list[Row]:
    """What the topic p gets: every event, and those of type a twice."""
    rows: list[Row] = []
    for number in numbers:
        key = record(number).key
        if number % 7 == 6:
            continue
        part = (
            (number // BLOCK + source) % PARTITIONS
            if key is None
            else partition_of(as_array(key), 0, len(key), PARTITIONS)
        )
        ordinals = range(2 if number % 2 == 0 else 1)
        rows += [(source, part, (number << ORDINAL_BITS) + ordinal, key) for ordinal in ordinals]
    return rows


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("size", [1, 13, 500])
@pytest.mark.parametrize("batch_bytes", [2048, 512 * 1024])
@pytest.mark.parametrize("by", ROUTERS)
def test_ids_and_partitions_do_not_depend_on_batches(
    profile: Profile, size: int, batch_bytes: int, by: str
) -> None:
    numbers = range(BLOCK - 200, BLOCK + 400)
    found = written(stage_of(profile), [(2, batches(numbers, size))], batch_bytes=batch_bytes, by=by)
    assert sorted(found["p"]) == sorted(expected(numbers, 2))
    poison = [number for number in numbers if number % 7 == 6]
    assert [row[2] for row in sorted(found["d"], key=lambda row: row[2])] == [n << 16 for n in poison]
    for part in range(PARTITIONS):
        ids = [row[2] for row in found["p"] if row[1] == part]
        assert ids == sorted(set(ids)), "ids of one partition do not grow"
    assert all(row[2] == -1 for row in found["k"])


@pytest.mark.parametrize("by", ROUTERS)
def test_a_batch_has_records_of_one_source_partition(by: str, caplog: pytest.LogCaptureFixture) -> None:
    feeds, order = [], random.Random(5)
    at = {0: 0, 1: 0}
    for _ in range(40):
        source, many = order.randrange(2), order.randrange(1, 30)
        feeds.append((source, batches(range(at[source], at[source] + many), 7)))
        at[source] += many
    found = written(stage_of(), feeds, by=by)
    wanted = expected(range(at[0]), 0) + expected(range(at[1]), 1)
    assert sorted(found["p"]) == sorted(wanted)
    for source in (0, 1):
        for part in range(PARTITIONS):
            ids = [row[2] for row in found["p"] if row[:2] == (source, part)]
            assert ids == sorted(set(ids))
    assert not caplog.records


@pytest.mark.parametrize("by", ROUTERS)
def test_what_has_no_id_is_refused(by: str) -> None:
    with pytest.raises(Refused, match="no sequence id"):
        sequence_id(1, 1 << ORDINAL_BITS)
    with pytest.raises(Refused, match="no sequence id"):
        sequence_id(1 << 47, 0)
    offset = 1 << 47
    data = bytearray(batches(range(1), 1))
    struct.pack_into(">q", data, 0, offset)
    with pytest.raises(Refused, match="no sequence id"):
        written(stage_of(), [(0, bytes(data))], by=by)


@pytest.mark.parametrize("by", ROUTERS)
@pytest.mark.parametrize("size", [13, 300])
def test_records_that_have_one_offset_have_an_id_each(by: str, size: int) -> None:
    """Pulsar counts a batch of a transaction as one message; how output is divided is no matter."""
    data, found = batches(range(600), size, one_offset=True), []
    for batch_bytes in (2048, 5000, 512 * 1024):
        rows = written(stage_of(), [(0, data)], batch_bytes=batch_bytes, by=by)
        for topic in ("p", "d"):
            for part in range(PARTITIONS):
                ids = [row[2] for row in rows[topic] if row[1] == part]
                assert ids == sorted(set(ids)), "ids of one partition do not grow"
                assert {identity >> ORDINAL_BITS for identity in ids} <= {*range(0, 600, size)}
        found.append({topic: sorted(rows[topic]) for topic in ("p", "d")})
    assert found[0] == found[1] == found[2]
    assert len(found[0]["p"]) == len(expected(range(600), 0))


def test_an_offset_with_more_output_than_numbers_is_refused() -> None:
    at_five = np.full(1 << ORDINAL_BITS, 5 << ORDINAL_BITS, np.int64)
    growing = GrowingIds()
    assert growing.of(0, 0, 0, at_five).tolist()[-1] == (6 << ORDINAL_BITS) - 1
    with pytest.raises(Refused, match="no sequence id"):
        growing.of(0, 0, 0, at_five[:1])
    assert growing.of(0, 1, 0, at_five[:1]).tolist() == [5 << ORDINAL_BITS], "another partition has its own"


def test_records_without_an_index_have_no_ids() -> None:
    program = replace(program_of(stage_of()), has_ids=False)
    seen: list[Output] = []
    machine = BatchRouter(program, stage_of(), [PARTITIONS] * len(program.targets), seen.append)
    data = bytearray(batches(range(20), 20))
    struct.pack_into(">q", data, 0, 1 << 60)  # a ledger's number is part of such an offset
    machine.feed(bytes(data), topic="in", partition=0, first=0, end=1 << 62)
    machine.flush()
    assert seen
    assert all(output.ids is None for output in seen)


def test_a_header_that_would_be_an_attribute_on_pulsar_is_a_dead_letter() -> None:
    given = record(0, headers=[("CE-Mine", b"x")])
    rows = numbered(record_bytes(given.key, given.value, given.headers), 0)
    found = written(stage_of(), [(0, bytes(framed(BatchBody(rows, 1, 1000, 1000))))])
    assert (len(found["p"]), len(found["k"]), len(found["d"])) == (0, 1, 2)


def test_targets_on_kafka_have_no_ids() -> None:
    seen: list[Output] = []
    stage = Stage(
        pipeline="p",
        routes=(StageRoute(plan=ALL, targets=(Target(topic="k"),), dead=Target(topic="d")),),
        dead=Target(topic="d"),
    )
    machine = BatchRouter(program_of(stage), stage, [3, 1], seen.append)
    machine.feed(batches(range(20), 20), topic="in", partition=0, first=0, end=20)
    machine.flush()
    assert seen
    assert all(output.ids is None for output in seen)
    assert np.array_equal(machine._outbox.box[5:7], [len(machine._outbox.box), 0])  # no room for ids


def test_names_of_profile_0_1_are_written_by_both() -> None:
    stage = stage_of(Profile.V0_1)
    names: dict[str, set[str]] = {}
    for by in ROUTERS:
        program = program_of(stage) if by == "kernel" else reference_program_of(stage)
        found = names.setdefault(by, set())

        def put(output: Output, program: Any = program, found: set[str] = found) -> None:
            if program.targets[output.target].topic == "p":
                body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
                for each in body.kafka_records(body.starts(), None, None):
                    found.update(name for name, _ in each.headers)

        router: Any = (BatchRouter if by == "kernel" else ReferenceBatchRouter)(
            program, stage, [PARTITIONS] * len(program.targets), put
        )
        router.feed(batches(range(30), 10), topic="in", partition=0, first=0, end=30)
        router.flush()
    assert names["kernel"] == names["reference"] >= {"CE-EventID", "CE-CloudEventsVersion"}
