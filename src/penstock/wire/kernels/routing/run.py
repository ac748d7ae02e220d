"""The loop over the records of a batch: each event read once, on every route, to every target.

The loop stops at a record that is not certain, for which there is no room, or of which a text has to be
judged; nothing of that record has been written then, and the loop can go on with it or behind it. If a record
makes it raise, X_POS is that record, and W_OUTPUTS with the rows at W_UNDO_AT is what was written of it.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, kernel, part
from penstock.wire.kernels.json import FIELDS as FOUND
from penstock.wire.kernels.json import value_end
from penstock.wire.kernels.json_tokens import skip_space
from penstock.wire.kernels.records import F_KEY, F_KEY_SIZE, F_OFFSET, F_VALUE, F_VALUE_SIZE, read_record
from penstock.wire.kernels.routing.attributes import has_required
from penstock.wire.kernels.routing.changes import change
from penstock.wire.kernels.routing.conditions import compute_values, evaluate
from penstock.wire.kernels.routing.emission import choose_key, emit
from penstock.wire.kernels.routing.envelope import read_envelope
from penstock.wire.kernels.routing.envelope_01 import read_envelope_01
from penstock.wire.kernels.routing.headers import read_headers
from penstock.wire.kernels.routing.placement import undo
from penstock.wire.kernels.routing.properties_01 import read_properties_01
from penstock.wire.kernels.routing.sizes import measure_binary, measure_structured
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
    BROKEN,
    C_ADMISSION,
    C_ROUTES,
    C_ROUTES_AT,
    C_SCRATCH,
    C_SLOTS,
    C_VALUES,
    DATA_BASE64,
    DATA_JSON,
    DATA_NONE,
    DATA_TEXT,
    DONE,
    J_CHARSET,
    J_JSON,
    J_OTHER,
    J_STRUCTURED,
    J_TEXT,
    MODE_KEEP,
    MODE_STRUCTURED,
    N_ATTRIBUTE,
    N_SIZE,
    PASSED,
    R_BODY,
    R_COMPUTED_COUNT,
    R_GUARD,
    R_LEFT,
    R_MODE,
    R_NO_DATA_AS_EVENT,
    R_READS_DATA,
    R_ROUTE,
    R_TOMBSTONES,
    SLOW,
    TOMBSTONES_DROP,
    TOMBSTONES_REJECT,
    TRUE,
    UNSURE,
    W_CORE_AT,
    W_DATA,
    W_DATA_IS_JSON,
    W_DATA_SIZE,
    W_DROPPED,
    W_EXTENSIONS,
    W_KEY_TEXT,
    W_KEY_TEXT_SIZE,
    W_MEDIA,
    W_OUTPUTS,
    W_SCANNED,
    W_SCRATCH,
    W_STRUCTURED,
    W_WRITTEN,
    WORK_SIZE,
    X_DROPPED,
    X_DRY,
    X_END,
    X_FIRST,
    X_FORCED,
    X_IN,
    X_LEFT,
    X_NEXT,
    X_NOTED,
    X_OUT,
    X_POS,
    X_UNMATCHED,
)

__all__ = ["run"]

_MAX_JSON = 8 << 20
_DROPPED = -1
"""A route takes the record and writes nothing."""


# The event


@inner(INT(INTS))
def _owned(work: IntArray) -> int:
    """Count the attributes that headers gave, content-type aside."""
    count = work[W_EXTENSIONS]
    for i in range(A_CORE):
        count += int(i != A_DATACONTENTTYPE and work[W_CORE_AT + i * N_ATTRIBUTE + N_SIZE] >= 0)
    return int(count)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS))
def _read_event(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
) -> int:
    """Read the event of the record at hand; PASSED for a null value that is none."""
    work[W_DATA] = work[F_VALUE]
    work[W_DATA_SIZE] = work[F_VALUE_SIZE]
    work[W_DATA_IS_JSON] = work[W_SCANNED] = work[W_STRUCTURED] = 0
    for i in range(code[C_SLOTS] * FOUND):
        found[i] = 0
    verdict = read_headers(data, state[X_NEXT], pool, code, memory, state, work)
    if verdict != DONE:
        return verdict
    media = work[W_MEDIA]
    if media & J_STRUCTURED:
        # Kafka 3.3.3: headers that repeat attributes are compared by the binding.
        if work[F_VALUE_SIZE] < 0 or _owned(work):
            return SLOW
        work[W_STRUCTURED] = 1
        verdict = read_envelope(data, pool, code, memory, state, work, trie, found, stack)
    elif media == 0 and work[F_VALUE_SIZE] < 0 and not _owned(work):
        return PASSED
    if verdict == DONE and (media & J_OTHER or not has_required(work)):
        return SLOW
    return verdict


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS), inline=False)
def _read_event_01(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
) -> int:
    """Read the record at hand, which no event of 1.0 certainly is, as a message of Pulsar's profile 0.1."""
    work[W_DATA] = work[F_VALUE]
    work[W_DATA_SIZE] = work[F_VALUE_SIZE]
    work[W_DATA_IS_JSON] = work[W_SCANNED] = work[W_STRUCTURED] = 0
    verdict = read_properties_01(data, state[X_NEXT], pool, code, memory, state, work)
    if verdict != DONE:
        return verdict
    if work[W_MEDIA] & J_STRUCTURED:
        if work[F_VALUE_SIZE] < 0 or _owned(work):
            return SLOW
        work[W_STRUCTURED] = 1
        # The mark does not say which version the JSON is of.
        verdict = read_envelope_01(data, pool, code, memory, state, work, trie, found, stack)
        if verdict == SLOW:
            verdict = read_envelope(data, pool, code, memory, state, work, trie, found, stack)
    if verdict == DONE and (work[W_MEDIA] & J_OTHER or not has_required(work)):
        return SLOW
    return verdict


@part(INT(BYTES, BYTES, INTS, INTS, INTS, INTS))
def _scan(
    data: ByteArray, pool: ByteArray, work: IntArray, trie: IntArray, found: IntArray, stack: IntArray
) -> int:
    """See to it that data of a JSON type is JSON; SLOW if it is not certainly."""
    size = work[W_DATA_SIZE]
    if work[W_SCANNED] or size < 0 or not work[W_MEDIA] & J_JSON:
        return DONE
    pos = work[W_DATA]
    end = pos + size
    if size > _MAX_JSON or not is_utf8(data, pos, end):
        return SLOW
    pos = value_end(data, skip_space(data, pos, end), end, trie, pool, found, stack, 0, 1)
    if pos < 0 or skip_space(data, pos, end) != end:
        return SLOW
    work[W_SCANNED] = 1
    return DONE


# A route


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def _holds(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int) -> int:
    """Test a condition: DONE if it is true, PASSED if it is not, SLOW if that is not certain."""
    if at < 0:
        return DONE
    value = evaluate(data, pool, code, work, found, at)
    if value == UNSURE:
        return SLOW
    return DONE if value == TRUE else PASSED


@inner(INT(BYTES, INTS))
def _data_style(data: ByteArray, work: IntArray) -> int:
    """Say how data stands in a structured event, -1 if it is not certain; JSON is scanned already."""
    if work[W_DATA_SIZE] < 0:
        return DATA_NONE
    if work[W_SCANNED]:
        return DATA_JSON
    if work[W_MEDIA] & J_CHARSET:
        return -1
    if work[W_MEDIA] & J_TEXT and is_utf8(data, work[W_DATA], work[W_DATA] + work[W_DATA_SIZE]):
        return DATA_TEXT
    return DATA_BASE64


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INTS, INT))
def _measure(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    route: int,
) -> int:
    """Choose the mode in which the event leaves, and note its size; SLOW if that is not certain."""
    mode = code[route + R_MODE]
    structured = mode == MODE_STRUCTURED or (mode == MODE_KEEP and work[W_STRUCTURED] == 1)
    # A tombstone stays one: a null value is an event without data, which only binary mode can say.
    if structured and (work[W_DATA_SIZE] >= 0 or work[W_STRUCTURED] or code[route + R_NO_DATA_AS_EVENT]):
        if _scan(data, pool, work, trie, found, stack) != DONE:
            return SLOW
        style = _data_style(data, work)
        if style < 0:
            return SLOW
        measure_structured(data, pool, work, style)
    else:
        typed = work[W_CORE_AT + A_DATACONTENTTYPE * N_ATTRIBUTE + N_SIZE] >= 0
        measure_binary(work, int(work[W_DATA_IS_JSON] == 1 and not typed))
    return DONE


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS, INT))
def _route(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    route: int,
) -> int:
    """Work out what leaves on a route: DONE, PASSED for nothing, or why it cannot be done here and now."""
    verdict = _holds(data, pool, code, work, found, code[route + R_GUARD])
    if verdict == DONE and code[route + R_READS_DATA]:
        verdict = _scan(data, pool, work, trie, found, stack)
        if verdict == DONE:
            verdict = _holds(data, pool, code, work, found, code[route + R_BODY])
    if verdict == DONE and code[route + R_LEFT]:
        verdict = SLOW
    if verdict == DONE:
        work[W_SCRATCH] = code[C_SCRATCH]
        if code[route + R_COMPUTED_COUNT] and compute_values(data, pool, code, work, found, route) == UNSURE:
            return SLOW
        verdict = change(data, pool, code, memory, state, work, found, route)
    if verdict == DONE:
        verdict = choose_key(data, pool, code, work, found, route)
    if verdict == DONE:
        verdict = _measure(data, pool, code, work, trie, found, stack, route)
    return verdict


@inner(INT(INTS, INTS, INT))
def _pass_null(code: IntArray, work: IntArray, route: int) -> int:
    """Do with a null value that is no event what the route says: DONE if it leaves, _DROPPED or SLOW."""
    if code[route + R_TOMBSTONES] == TOMBSTONES_REJECT:
        return SLOW
    if code[route + R_TOMBSTONES] == TOMBSTONES_DROP:
        work[W_DROPPED] += 1
        return _DROPPED
    work[W_WRITTEN] = 0
    work[W_KEY_TEXT] = work[F_KEY]
    work[W_KEY_TEXT_SIZE] = work[F_KEY_SIZE]
    measure_binary(work, 0)
    return DONE


# A record


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS, OUT, INTS))
def _record(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    out: ByteArray,
    box: IntArray,
) -> int:
    """Do one record, wholly or not at all; PASSED if no route takes it."""
    work[W_OUTPUTS] = work[W_DROPPED] = 0
    event = _read_event(data, pool, code, memory, state, work, trie, found, stack)
    if event == SLOW and code[C_VALUES]:
        event = _read_event_01(data, pool, code, memory, state, work, trie, found, stack)
    if event not in (DONE, PASSED):
        return event
    if event == DONE and _holds(data, pool, code, work, found, code[C_ADMISSION]) != DONE:
        return SLOW
    passed = 1
    for i in range(code[C_ROUTES]):
        route = code[C_ROUTES_AT] + i * R_ROUTE
        if event == PASSED:
            verdict = _pass_null(code, work, route)
        else:
            verdict = _route(data, pool, code, memory, state, work, trie, found, stack, route)
        if verdict == DONE:
            verdict = emit(data, pool, code, work, state, out, box, route)
        if verdict not in (DONE, PASSED, _DROPPED):
            undo(work, box)
            return verdict
        passed &= int(verdict == PASSED)
    return PASSED if passed else DONE


@inner(INT(INTS, INTS, INT))
def _count(state: IntArray, work: IntArray, verdict: int) -> int:
    """Count a record that is done; from here on there is nothing of it to undo."""
    if not state[X_DRY]:
        state[X_IN] += 1
        state[X_OUT] += work[W_OUTPUTS]
        state[X_DROPPED] += work[W_DROPPED]
        state[X_UNMATCHED] += int(verdict == PASSED)
    work[W_OUTPUTS] = 0
    return DONE


@kernel(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS, OUT, INTS, INTS), inline=False)
def run(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    out: ByteArray,
    box: IntArray,
    noted: IntArray,
) -> int:
    """Go on from where `state` stands; DONE at the end of the batch, else why the loop stopped.

    With X_DRY nothing is written or counted, and records that are not certain are noted, not stopped at.
    """
    if len(work) < WORK_SIZE:
        raise IndexError("too few numbers to note a record")
    while state[X_LEFT] > 0:
        behind = read_record(data, state[X_POS], len(data), work, 0)
        if behind < 0:
            return BROKEN
        state[X_NEXT] = behind
        if state[X_FIRST] <= work[F_OFFSET] < state[X_END]:
            verdict = SLOW
            if state[X_POS] != state[X_FORCED]:
                verdict = _record(data, pool, code, memory, state, work, trie, found, stack, out, box)
            if verdict in (DONE, PASSED):
                _count(state, work, verdict)
            elif verdict == SLOW and state[X_DRY]:
                noted[state[X_NOTED]] = state[X_POS]
                state[X_NOTED] += 1
            else:
                return verdict
        state[X_POS] = behind
        state[X_LEFT] -= 1
    return DONE
