"""Hostile bytes in front of the kernels and the codecs of both protocols, guided by coverage.

The kernels run as plain Python here, so that atheris sees their branches. What is looked for: an
exception that is not ours, a write behind the output, records that do not survive the way through
Pulsar and back, and routed records that differ from what the stage makes of them. atheris has no
place in the lock; give it an environment of its own:

    python -m venv .fuzz && .fuzz/bin/pip install atheris
    PYTHONPATH=src:.venv/lib/python3.11/site-packages .fuzz/bin/python fuzz/kernels.py -max_total_time=60
"""

from __future__ import annotations

import os
import sys

os.environ["NUMBA_DISABLE_JIT"] = "1"

import atheris
import numpy as np

with atheris.instrument_imports(include=["penstock"]):
    from penstock.errors import WireError
    from penstock.events.jsontext import loads
    from penstock.mapping import entry_to_batch, to_kafka, to_pulsar
    from penstock.pipeline.evaluators.kernel.batch_builder import record_bytes
    from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter, Output
    from penstock.pipeline.evaluators.kernel.program import program_of
    from penstock.pipeline.evaluators.kernel.record_body import Body
    from penstock.pipeline.plan.nodes import Type
    from penstock.pipeline.plan.route import Assignment, Mode, RoutePlan
    from penstock.pipeline.plan.sql import parse_sql
    from penstock.pipeline.ports import Target
    from penstock.pipeline.stage import Stage, StageRoute
    from penstock.wire.buffer import as_array
    from penstock.wire.framing import FrameBuffer
    from penstock.wire.kafka import decode_request, decode_request_header, read_batches
    from penstock.wire.kafka.batch_body import BatchBody, framed
    from penstock.wire.kernels import json as scanner
    from penstock.wire.kernels import write_varint
    from penstock.wire.kernels.json_tokens import NOT_JSON
    from penstock.wire.pulsar import decode_command, read_entry

GUARD = 64
SPACE = 4096
BASE = 10**12


def guarded() -> np.ndarray:
    """Give an output with a guard behind it."""
    return np.full(SPACE + GUARD, 0xA5, np.uint8)


def to_entry(data: bytes, count: int) -> bytes | None:
    """Run the kernel towards Pulsar."""
    out = guarded()
    facts = np.zeros(to_pulsar.FACTS, np.int64)
    array = np.frombuffer(data, np.uint8)
    end = to_pulsar.records_to_entry(array, 0, len(data), count, BASE, out[:SPACE], 0, facts)
    assert (out[SPACE:] == 0xA5).all(), "a write behind the output"
    return bytes(out[:end]) if end >= 0 else None


def to_records(data: bytes, count: int) -> bytes | None:
    """Run the kernel towards Kafka; None also if a message was compacted out and leaves a hole."""
    out = guarded()
    facts = np.zeros(to_kafka.FACTS, np.int64)
    room = np.zeros(50, np.int64)
    array = np.frombuffer(data, np.uint8)
    end = to_kafka.entry_to_records(array, 0, len(data), count, BASE, facts, room, out[:SPACE], 0)
    assert (out[SPACE:] == 0xA5).all(), "a write behind the output"
    return bytes(out[:end]) if end >= 0 and facts[to_kafka.KEPT] == count else None


def records(data: bytes) -> None:
    """Kafka records that are taken must survive: what comes back, goes and comes back the same."""
    count, rest = data[0] % 4 + 1, data[1:]
    entry = to_entry(rest, count)
    if entry is None:
        return
    back = to_records(entry, count)
    assert back is not None, "taken from Kafka and not given back"
    assert to_records(to_entry(back, count) or b"", count) == back, "changed on the way"


def entries(data: bytes) -> None:
    """Pulsar messages that are given must be records that a producer may send."""
    count, rest = data[0] % 4 + 1, data[1:]
    back = to_records(rest, count)
    if back is not None and len(back) < SPACE // 16:
        assert to_entry(back, count) is not None, "given to Kafka and not taken back"


def entry(data: bytes) -> None:
    """Read an entry with its metadata."""
    entry_to_batch(read_entry(memoryview(data)), base_offset=0, limit=SPACE)


def command(data: bytes) -> None:
    """Read a command of Pulsar."""
    decode_command(memoryview(data))


def request(data: bytes) -> None:
    """Read a request of Kafka."""
    frame = memoryview(data)
    header = decode_request_header(frame)
    if header.supported:
        decode_request(header, frame)


def batches(data: bytes) -> None:
    """Read and inflate record batches."""
    for batch in read_batches(data):
        batch.records(SPACE)


def frames(data: bytes) -> None:
    """Cut a stream into frames."""
    buffer = FrameBuffer(limit=SPACE, first=32)
    for pos in range(0, len(data), 7):
        buffer.receive(data[pos : pos + 7])
        for _ in buffer.frames():
            pass


# The paths a and a[0]: three nodes, then two edges.
TRIE = (6, -1, 11, 0, -1, 1, 0, 0, 1, 2, -1, 1, 0, 0, 4, -1)


def json(data: bytes) -> None:
    """JSON that is called valid must be JSON, and what is called broken must not be."""
    offsets, rows = np.array([0, len(data)], np.int64), np.zeros(1, np.int64)
    status, found = np.zeros(1, np.int64), np.zeros(2 * scanner.FIELDS, np.int64)
    names, stack = np.frombuffer(b"a", np.uint8), np.zeros(scanner.STACK_SIZE, np.int64)
    array = np.frombuffer(data, np.uint8)
    scanner.scan_json(array, offsets, rows, np.array(TRIE, np.int64), names, status, found, stack)
    try:
        loads(data)
    except ValueError:
        assert status[0] != scanner.VALID, "called valid and is not JSON"
    else:
        assert status[0] != NOT_JSON, "called broken and is JSON"


LARGE = RoutePlan(
    name="large",
    where=parse_sql("type LIKE 'a%' AND (data.a[0] > 1 OR data.b = 'x') OR subject IS NULL"),
    set=(Assignment("subject", parse_sql("data.c", Type.TEXT)),),
    mode=Mode.STRUCTURED,
)
OUT, DEAD = Target(topic="out"), Target(topic="dead")
STAGE = Stage(pipeline="p", routes=(StageRoute(plan=LARGE, targets=(OUT,), dead=DEAD),), dead=DEAD)
PROGRAM = program_of(STAGE)


def written(output: Output) -> None:
    """Take what the routing kernel writes: records, and JSON where a route says so."""
    body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
    found = [record.value for record in body.kafka_records(body.starts(), "out", output.partition)]
    for value in found if PROGRAM.targets[output.target] is OUT else ():
        assert value is None or loads(value) is not None, "an event that is null"


def routed(rows: bytes, count: int) -> None:
    """Route records by the kernel and, each of them, by the stage."""
    partitions = [3] * len(PROGRAM.targets)
    machine = BatchRouter(PROGRAM, STAGE, partitions, written, pick=lambda target, many: 0, shadow=1)
    batch = bytes(framed(BatchBody(rows, count, 0, 0)))
    machine.feed(batch, topic="in", partition=0, first=0, end=count)
    machine.flush()
    assert machine.counts["n_different"] == 0, "the kernel and the stage differ"


def routes(data: bytes) -> None:
    """Bytes that may be records are routed, or refused as a whole."""
    routed(data[1:], data[0] % 4 + 1)


HEADERS = {
    "content-type": b"application/json",
    "ce_id": b"1",
    "ce_source": b"/s",
    "ce_type": b"ab",
    "ce_subject": b"s",
    "ce_time": b"2026-01-01T00:00:00Z",
    "other": b"",
}
"""What stands where the input says nothing."""


def event(data: bytes) -> None:
    """A record with hostile headers and data is routed as the stage does it."""
    value, *texts = data.split(b"\xff")
    said = {name: text for name, text in zip(HEADERS, texts, strict=False) if text}
    headers = {"ce_specversion": b"1.0", **HEADERS, **said}
    body = b"\x00\x00\x00" + record_bytes(b"k", value, tuple(headers.items()))
    size = np.zeros(5, np.uint8)
    end = write_varint(size, 0, len(body))
    routed(bytes(size[:end]) + body, 1)


TARGETS = (records, entries, entry, command, request, batches, frames, json, routes, event)


def one_input(data: bytes) -> None:
    """Choose a target by the first byte."""
    if len(data) < 2:
        return
    try:
        TARGETS[data[0] % len(TARGETS)](data[1:])
    except WireError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
