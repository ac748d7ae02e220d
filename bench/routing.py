"""The routing kernel alone, on batches in memory: its interpreter against the same job written out by hand.

The job is that of bench/pipeline.py: binary CloudEvents with about 200 B of JSON, filtered by type and by a
number in the data, the subject set from the data, written in structured mode. The kernel by hand does nothing
else: no program, no table of attributes that leave, its conditions and names are constants; it reads records,
headers and JSON with the same parts as the interpreter. Both give the same bytes. The sides take turns batch
by batch; CPU seconds are of one core. The last figure is the time to load the kernels from their cache in a
new process.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from statistics import median
from time import process_time

import numpy as np

from penstock.contract.selection import Selector
from penstock.pipeline.evaluators.kernel.batch_builder import BatchBuilder, Output, record_bytes
from penstock.pipeline.evaluators.kernel.interpreter import Interpreter
from penstock.pipeline.evaluators.kernel.program import program_of
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, Mode, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form
from penstock.wire import routing_layout as at
from penstock.wire.buffer import as_array
from penstock.wire.kernels import ByteArray, IntArray, varint_size, write_varint
from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, inner, kernel
from penstock.wire.kernels.json import FIELDS, NUMBER, STRING, value_end
from penstock.wire.kernels.json_values import read_decimal
from penstock.wire.kernels.records import F_KEY, F_KEY_SIZE, F_VALUE, F_VALUE_SIZE, read_record
from penstock.wire.kernels.routing.headers import read_headers
from penstock.wire.kernels.sha256 import sha256_hex
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.words import equal
from pipeline import TYPE, body_of, headers_of
from table import Report

PARTITIONS = 4
BATCH = 1000
BATCH_BYTES = 512 * 1024
GOAL = 1.2
CACHE_GOAL = 0.5
_WARM_UP = 2


# By hand

_TYPE = np.frombuffer(TYPE.encode(), np.uint8)
_MEMBERS = tuple(
    np.frombuffer(text, np.uint8)
    for text in (
        b'{"specversion":"1.0","id":"',
        b'","source":"',
        b'","type":"com.shop.order.placed","subject":"',
        b'","time":"',
        b'","datacontenttype":"application/json","causationid":"',
        b'","traceparent":"',
        b'","data":',
    )
)
_OPENED, _SOURCE, _SUBJECT, _TIME, _CAUSE, _TRACE, _DATA = _MEMBERS
_FIXED = sum(map(len, _MEMBERS)) + 32 + 1
_LARGEST = 2048
"""Bytes of a record that leaves, at most: the events of the bench are much smaller."""
_ROUTE = np.frombuffer(b"5:large,", np.uint8)
_ORDINAL = np.frombuffer(b"1:0,", np.uint8)
_MARK = np.frombuffer(b"\x02\x18content-type\x56application/cloudevents+json; charset=utf-8", np.uint8)
_ID = at.W_CORE_AT + at.A_ID * at.N_ATTRIBUTE + at.N_TEXT
_FROM = at.W_CORE_AT + at.A_SOURCE * at.N_ATTRIBUTE + at.N_TEXT
_KIND = at.W_CORE_AT + at.A_TYPE * at.N_ATTRIBUTE + at.N_TEXT
_WHEN = at.W_CORE_AT + at.A_TIME * at.N_ATTRIBUTE + at.N_TEXT
_TRACED = at.W_EXTENSIONS_AT + at.N_TEXT
_NUMBER = at.W_NUMBER
_SCRATCH = at.C_SCRATCH
_SHA_AT = at.W_SHA_AT
# The slots of the two paths, in the order in which the program reads them.
_AMOUNT = 0
_CUSTOMER = FIELDS


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT), inline=False)
def _member(head: ByteArray, data: ByteArray, texts: IntArray, text: int, out: ByteArray, to: int) -> int:
    """Write a member's name and its value, which stand behind each other."""
    to = copy(head, 0, out, to, len(head))
    return copy(data, texts[text], out, to, texts[text + 1])


@inner(INT(BYTES, OUT, INTS, INT, INT), inline=False)
def _netstring(data: ByteArray, pool: ByteArray, work: IntArray, text: int, to: int) -> int:
    """Write a text of 10 to 99 bytes as a netstring."""
    size = work[text + 1]
    pool[to] = 0x30 + size // 10
    pool[to + 1] = 0x30 + size % 10
    pool[to + 2] = 0x3A
    to = copy(data, work[text], pool, to + 3, size)
    pool[to] = 0x2C
    return to + 1


@inner(INT(BYTES, OUT, INTS, INT), inline=False)
def _derive(data: ByteArray, pool: ByteArray, work: IntArray, room: int) -> int:
    """Write the derived id at pool[room]."""
    to = copy(_ROUTE, 0, pool, room + 32, len(_ROUTE))
    to = _netstring(data, pool, work, _FROM, to)
    to = _netstring(data, pool, work, _ID, to)
    to = copy(_ORDINAL, 0, pool, to, len(_ORDINAL))
    return sha256_hex(pool, room + 32, to, work, _SHA_AT, room, 32)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS), inline=False)
def _is_wanted(
    data: ByteArray, pool: ByteArray, work: IntArray, trie: IntArray, found: IntArray, stack: IntArray
) -> int:
    """Say 1 for an event of the type whose amount is above 100, -1 if that is not certain."""
    if work[_KIND + 1] != len(_TYPE) or not equal(data, work[_KIND], _TYPE, 0, len(_TYPE)):
        return 0
    pos, end = work[F_VALUE], work[F_VALUE] + work[F_VALUE_SIZE]
    for i in range(2 * FIELDS):
        found[i] = 0
    if not is_utf8(data, pos, end) or value_end(data, pos, end, trie, pool, found, stack, 0, 1) != end:
        return -1
    if found[_AMOUNT] != NUMBER or found[_CUSTOMER] != STRING:
        return -1
    scale = read_decimal(data, found[_AMOUNT + 1], found[_AMOUNT + 1] + found[_AMOUNT + 2], work, _NUMBER)
    return int(work[_NUMBER] > 100 * 10**scale) if scale >= 0 else -1


@inner(INT(BYTES, BYTES, INTS, INTS, OUT, INT, INT, INT), inline=False)
def _write(
    data: ByteArray,
    pool: ByteArray,
    work: IntArray,
    found: IntArray,
    out: ByteArray,
    to: int,
    number: int,
    room: int,
) -> int:
    """Write the record that leaves; give the position behind it."""
    size = _FIXED + work[_ID + 1] + work[_FROM + 1] + work[_WHEN + 1] + work[_TRACED + 1]
    size += found[_CUSTOMER + 2] + work[F_VALUE_SIZE]
    length = 2 + varint_size(number) + varint_size(work[F_KEY_SIZE]) + work[F_KEY_SIZE]
    to = write_varint(out, to, length + varint_size(size) + size + len(_MARK))
    out[to] = out[to + 1] = 0
    to = write_varint(out, to + 2, number)
    to = write_varint(out, to, work[F_KEY_SIZE])
    to = copy(data, work[F_KEY], out, to, work[F_KEY_SIZE])
    to = write_varint(out, to, size)
    to = copy(_OPENED, 0, out, to, len(_OPENED))
    to = copy(pool, room, out, to, 32)
    to = _member(_SOURCE, data, work, _FROM, out, to)
    to = _member(_SUBJECT, data, found, _CUSTOMER + 1, out, to)
    to = _member(_TIME, data, work, _WHEN, out, to)
    to = _member(_CAUSE, data, work, _ID, out, to)
    to = _member(_TRACE, data, work, _TRACED, out, to)
    to = _member(_DATA, data, work, F_VALUE, out, to)
    out[to] = 0x7D
    return copy(_MARK, 0, out, to + 1, len(_MARK))


@kernel(INT(BYTES, INT, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS, OUT, INTS))
def by_hand(
    data: ByteArray,
    left: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    out: ByteArray,
    filled: IntArray,
) -> int:
    """Do a batch of the job; `filled` has bytes and records of each partition. Give 0, or -1 if it cannot."""
    pos, room = 0, code[_SCRATCH]
    for _ in range(left):
        pos = read_record(data, pos, len(data), work, 0)
        if pos < 0 or read_headers(data, pos, pool, code, memory, state, work) != 0:
            return -1
        wanted = _is_wanted(data, pool, work, trie, found, stack)
        if wanted < 0:
            return -1
        if wanted:
            _derive(data, pool, work, room)
            key = work[F_KEY]
            partition = partition_of(data, key, key + work[F_KEY_SIZE], PARTITIONS)
            start = partition * BATCH_BYTES
            if filled[partition] > BATCH_BYTES - _LARGEST:
                filled[partition] = filled[PARTITIONS + partition] = 0  # a full batch leaves
            number = filled[PARTITIONS + partition]
            end = _write(data, pool, work, found, out, start + filled[partition], number, room)
            filled[partition] = end - start
            filled[PARTITIONS + partition] = number + 1
    return 0


# The sides


def stage() -> Stage:
    plan = RoutePlan(
        name="large",
        where=parse_sql(f"type = '{TYPE}' AND data.amount > 100"),
        set=(Assignment("subject", parse_sql("data.customer", Type.TEXT)),),
        mode=Mode.STRUCTURED,
    )
    forms = (Form(name="order", selector=Selector(types=(TYPE,)), codec="json"),)
    return Stage(
        pipeline="bench",
        routes=(StageRoute(plan=plan, targets=(Target(topic="out"),), dead=Target(topic="dead")),),
        dead=Target(topic="dead"),
        unknown=(),
        checks=(ContractCheck(operation="onOrder", forms=forms),),
    )


def bodies(count: int) -> list[Body]:
    """Make the batches that a consumer would fetch."""
    made = []
    for start in range(0, count, BATCH):
        rows = bytearray()
        for number in range(start, start + BATCH):
            key = b"customer-%05d" % (number % 1000)
            rest = record_bytes(key, body_of(number), tuple(headers_of(number)))
            rows += numbered(rest, number - start)
        made.append(Body.whole(as_array(bytes(rows)), BATCH))
    return made


def numbered(rest: bytes, offset: int) -> bytes:
    room = np.zeros(32, np.uint8)
    end = write_varint(room, 2, offset)
    body = room[:end].tobytes() + rest
    return room[: write_varint(room, 0, len(body))].tobytes() + body


class Sides:
    """The same batches by the interpreter and by hand."""

    def __init__(self, count: int) -> None:
        self.bodies = bodies(count)
        program = program_of(stage())
        self.outbox = BatchBuilder(
            [PARTITIONS] * len(program.targets),
            [None] * len(program.targets),
            self._put,
            batch_bytes=BATCH_BYTES,
        )
        self.interpreter = Interpreter(program, self.outbox)
        self.out = np.zeros(PARTITIONS * BATCH_BYTES, np.uint8)
        self.filled = np.zeros(2 * PARTITIONS, np.int64)
        self.kept: list[bytes] | None = []
        self._compare()

    def _put(self, output: Output) -> None:
        if self.kept is not None:
            self.kept.append(bytes(output.body.records))

    def _compare(self) -> None:
        """Make sure that both do the same work, batch by batch."""
        for body in self.bodies[:20]:
            self.kept = []
            self.interpret(body)
            self.outbox.flush()
            self.filled[:] = 0
            self.hand(body)
            assert sorted(self.kept) == sorted(
                self.out[n * BATCH_BYTES :][: self.filled[n]].tobytes() for n in range(PARTITIONS)
            )
        self.kept = None

    def interpret(self, body: Body) -> None:
        self.interpreter.begin(body)
        assert self.interpreter.go() == at.DONE

    def hand(self, body: Body) -> None:
        its = self.interpreter
        parts = (its._pool, its._code, its._memory, its.state, its._work, its._trie, its._found, its._stack)
        assert by_hand(body.records, body.count, *parts, self.out, self.filled) == 0

    def by_turns(self, rounds: int) -> dict[str, float]:
        """Give the median CPU seconds of a batch by each side.

        The sides take turns batch by batch: a thousandth of a second, in which a neighbour slows both.
        """
        sides = {"by hand": self.hand, "interpreter": self.interpret}
        taken: dict[str, list[float]] = {name: [] for name in sides}
        gc.disable()
        for number in range(_WARM_UP + rounds):
            for body in self.bodies:
                for name, side in sides.items():
                    began = process_time()
                    side(body)
                    if number >= _WARM_UP:
                        taken[name].append(process_time() - began)
        gc.enable()
        return {name: median(each) for name, each in taken.items()}


_LOADED = """
import time
import penstock.wire.kernels.jit
began = time.process_time()
import penstock.wire.kernels.routing.memory, penstock.wire.kernels.routing.run
from penstock.wire.kernels.jit import cache_misses
print(time.process_time() - began if cache_misses() == 0 else -1.0)
"""


def loading() -> float:
    """Give the CPU seconds in which a new process has the kernels, Numba itself left out."""
    ran = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    return float(ran.stdout)


def main() -> None:
    report = Report.from_arguments(
        "The routing kernel alone, one core", ("side", "CPU s per M", "x by hand", "million/s")
    )
    count, rounds = (40_000, 15) if report.quick else (200_000, 31)
    taken = Sides(count).by_turns(rounds)
    cost = {name: seconds / BATCH * 1e6 for name, seconds in taken.items()}
    for name, value in cost.items():
        report.row(name, f"{value:.2f}", f"{value / cost['by hand']:.2f}", f"{1 / value:.2f}")
        report.figure(f"{name}: CPU s per M", value)
    report.goal("interpreter against by hand", cost["interpreter"] / cost["by hand"], GOAL, at_least=False)
    load = min(loading() for _ in range(3))
    report.row("kernels from the cache", f"{load:.2f} s", "", "")
    report.goal("CPU s to load the kernels from their cache", load, CACHE_GOAL, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
