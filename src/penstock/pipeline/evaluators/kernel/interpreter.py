"""The routing kernel with a program in it: begins on a body, goes on until something stops it.

A record that makes the kernel raise is taken back and goes the slow way, as one that is not certain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from penstock.pipeline.evaluators.kernel.batch_builder import BatchBuilder
from penstock.pipeline.evaluators.kernel.program import Program
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.kernel.text_rules import classify
from penstock.wire import routing_layout as at
from penstock.wire.buffer import as_array
from penstock.wire.kernels import IntArray
from penstock.wire.kernels.json import FIELDS, STACK_SIZE
from penstock.wire.kernels.records import F_OFFSET
from penstock.wire.kernels.routing.boxes import B_SLOTS, S_COUNT, S_USED
from penstock.wire.kernels.routing.memory import remember
from penstock.wire.kernels.routing.run import run

__all__ = ["Interpreter"]

_log = logging.getLogger(__name__)
_SCRATCH = 64 * 1024
_PATIENCE = 8
"""So often a record may stop the loop; texts that push each other out would stop it for ever."""
_RAISED = -100
"""No status of the kernel: it raised."""


class Interpreter:
    """One kernel at work; what it writes goes to an outbox."""

    def __init__(self, program: Program, outbox: BatchBuilder) -> None:
        self.state: IntArray = np.zeros(at.STATE_SIZE, np.int64)
        self._outbox = outbox
        self._code = np.array(program.code, np.int64)
        room = program.code[at.C_SCRATCH] - len(program.pool) + _SCRATCH
        self._pool = np.concatenate([np.frombuffer(program.pool, np.uint8), np.zeros(room, np.uint8)])
        self._memory = np.full(at.MEMORY_ROWS * at.M_ROW, -1, np.int64)
        self._trie = np.array(program.trie, np.int64)
        self._blank = _blank(program.pool)
        self._work = self._blank.copy()
        self._found = np.zeros(max(program.slots, 1) * FIELDS, np.int64)
        self._stack = np.zeros(STACK_SIZE, np.int64)
        self._body: Body | None = None
        self._stopped = (-1, 0)
        self._has_raised = False

    def set_now(self, micros: int) -> None:
        """Give the moment of the records to come; without one what asks for it is not certain."""
        self._code[at.C_NOW] = micros

    def begin(self, body: Body) -> None:
        """Take a body; its counters go on from those of the one before."""
        self._body = body
        self._stopped = (-1, 0)
        for name, value in {
            at.X_POS: 0,
            at.X_LEFT: body.count,
            at.X_FIRST: body.first,
            at.X_END: body.end,
            at.X_FORCED: -1 if body.unread is None else 0,
            at.X_BASE: body.base_offset,
        }.items():
            self.state[name] = value

    def go(self) -> int:
        """Go on; give DONE at the end of the body, SLOW at a record that is not certain, or BROKEN."""
        return self._run(np.empty(0, np.int64))

    def look_ahead(self, most: int) -> IntArray:
        """Find which of the next `most` records of the body are not certain, and where; write nothing.

        What follows a broken record is not looked at: the loop will stop there.
        """
        with self.elsewhere():
            self.state[at.X_LEFT] = most = min(most, int(self.state[at.X_LEFT]))
            noted = np.empty(most, np.int64)
            self.state[at.X_DRY], self.state[at.X_NOTED] = 1, 0
            self._run(noted)
            return noted[: int(self.state[at.X_NOTED])]

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Come back to this record in the end."""
        before = (self.state.copy(), self._body, self._stopped)
        try:
            yield
        finally:
            self.state[:], self._body, self._stopped = before

    @property
    def offset(self) -> int:
        """The offset of the record at which the loop stopped."""
        return int(self.state[at.X_BASE] + self._work[F_OFFSET])

    def pass_over(self) -> None:
        """Go behind the record at which the loop stopped."""
        self.state[at.X_POS] = self.state[at.X_NEXT]
        self.state[at.X_LEFT] -= 1

    def _run(self, noted: IntArray) -> int:
        while True:
            try:
                status = self._go_on(noted)
                if status == at.ASK:
                    self._judge()
            except (ArithmeticError, LookupError, ValueError) as exc:
                status = self._take_back(exc)
            patience = _PATIENCE
            if status == at.FULL:
                # Each time another batch leaves, until there is room for all targets of a record: if they can
                # have a batch each at the same time.
                patience += int(self._outbox.box[B_SLOTS])
                self._outbox.make_room()
            elif status not in (at.ASK, _RAISED):
                return status
            self._bear(patience)

    def _go_on(self, noted: IntArray) -> int:
        assert self._body is not None  # `begin` comes first
        return run(
            self._body.records,
            self._pool,
            self._code,
            self._memory,
            self.state,
            self._work,
            self._trie,
            self._found,
            self._stack,
            self._outbox.out,
            self._outbox.box,
            noted,
        )

    def _take_back(self, exc: Exception) -> int:
        """Undo what was written of the record at hand, and let it go the slow way.

        BROKEN if not even its length can be read: then it was given up before, and raised again.
        """
        box, work = self._outbox.box, self._work
        for i in range(int(work[at.W_OUTPUTS]) - 1, -1, -1):
            row, used, count = (int(n) for n in work[at.W_UNDO_AT + 3 * i : at.W_UNDO_AT + 3 * i + 3])
            box[row + S_USED], box[row + S_COUNT] = used, count
        work[:] = self._blank  # what is known of the last record's headers may be half written
        place = int(self.state[at.X_POS])
        if not self._has_raised:
            self._has_raised = True
            _log.error("a bug in Penstock: the kernel raised %s; the record goes the slow way", exc)
        if place == self.state[at.X_FORCED]:
            return at.BROKEN
        self.state[at.X_FORCED] = place
        return _RAISED

    def _bear(self, patience: int) -> None:
        """Count how often one record stops the loop; in the end it is not tried any more."""
        place, times = int(self.state[at.X_POS]), self._stopped[1]
        self._stopped = (place, times + 1 if place == self._stopped[0] else 1)
        if self._stopped[1] > patience:
            self.state[at.X_FORCED] = place

    def _judge(self) -> None:
        assert self._body is not None
        kind, place, size = (int(self.state[n]) for n in (at.X_ASKED, at.X_ASKED_AT, at.X_ASKED_SIZE))
        buffer, start = (self._body.records, place) if place >= 0 else (self._pool, ~place)
        raw = buffer[start : start + size].tobytes()
        remember(as_array(raw), self._pool, self._code, self._memory, kind, classify(kind, raw))


def _blank(pool: bytes) -> IntArray:
    """Give the notes on a record with what is the same of every one: the names of attributes of core."""
    work = np.zeros(at.WORK_SIZE, np.int64)
    for index, name in enumerate(at.CORE_NAMES.split()):
        for rows in (at.W_CORE_AT, at.W_CHANGES_AT):
            row = rows + index * at.N_ATTRIBUTE
            work[row + at.N_NAME] = ~pool.index(name)
            work[row + at.N_NAME_SIZE] = len(name)
            work[row + at.N_HEAD] = pool.index(at.head_of(name))
            work[row + at.N_STYLE] = at.STYLE_MEDIA_TYPE if index == at.A_DATACONTENTTYPE else at.STYLE_TEXT
    return work
