"""Frames between worker and child: plain values only, of bounded length."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.pipeline.functions.frames import LENGTH, dump, length_of, load, read_frame, write_frame
from penstock.pipeline.functions.isolation import isolate
from penstock.pipeline.functions.process import Failure

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_values_come_back(value: object) -> None:
    assert load(dump(value)[LENGTH.size :]) == value


@given(st.binary(max_size=50))
def test_what_is_no_frame_is_refused_in_our_words(raw: bytes) -> None:
    try:
        load(raw)
    except WireError as exc:
        assert "frame" in str(exc)


def test_a_frame_that_names_code_is_refused() -> None:
    with pytest.raises(WireError, match="only plain values"):
        load(pickle.dumps(os.getcwd))


def test_a_frame_that_is_too_long_is_refused_by_its_length() -> None:
    assert length_of(LENGTH.pack(10), 10) == 10
    with pytest.raises(WireError, match="11 bytes; the limit is 10"):
        length_of(LENGTH.pack(11), 10)


def test_frames_go_through_a_pipe_until_it_ends() -> None:
    reading, writing = os.pipe()
    write_frame(writing, dump(["a", 1]))
    assert read_frame(reading) == ["a", 1]
    os.write(writing, LENGTH.pack(5) + b"ab")
    os.close(writing)
    with pytest.raises(EOFError):
        read_frame(reading)
    os.close(reading)


@given(st.lists(st.booleans(), max_size=30), st.sampled_from(["none", "right", "wrong"]))
def test_every_record_that_breaks_a_batch_is_found_and_no_other(bad: list[bool], hint: str) -> None:
    calls: list[int] = []

    def call(part: Sequence[tuple[int, bool]]) -> list[int] | Failure:
        calls.append(len(part))
        broken = [at for at, (_, is_bad) in enumerate(part) if is_bad]
        if not broken:
            return [number for number, _ in part]
        return Failure("bad", "", {"none": -1, "right": broken[0], "wrong": len(part) - 1}[hint])

    answers = isolate(call, list(enumerate(bad)))
    assert [isinstance(answer, Failure) for answer in answers] == bad
    assert [answer for answer in answers if not isinstance(answer, Failure)] == [
        number for number, is_bad in enumerate(bad) if not is_bad
    ]
    if hint == "right":
        assert len(calls) <= 3 * sum(bad) + 1
