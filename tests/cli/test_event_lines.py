"""Lines of a pipe are events as soon as they are whole; nothing waits for the end of the input."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import event_lines
from penstock.cli.event_lines import PipedEvents, is_live
from penstock.errors import UsageError


def line(number: int) -> bytes:
    return b'{"specversion":"1.0","id":"%d","source":"/s","type":"t"}' % number


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.FileIO]:
    """Standard input is a pipe; gives its other end."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, io.FileIO(writing, "w") as ours:
        monkeypatch.setattr("sys.stdin", stdin)
        yield ours


def found(events: Iterator[object]) -> list[str]:
    """The ids of what is there now."""
    ids = []
    while (event := next(events, None)) is not None:
        ids.append(event.id)  # type: ignore[attr-defined]
    return ids


def test_a_line_is_an_event_while_the_pipe_is_open(pipe: io.FileIO) -> None:
    events = iter(PipedEvents())
    assert found(events) == []
    pipe.write(line(1) + b"\n" + line(2)[:10])
    assert found(events) == ["1"]
    pipe.write(line(2)[10:] + b"\r\n\n" + line(3) + b"\n" + line(4))
    assert found(events) == ["2", "3"]
    pipe.close()
    assert found(events) == ["4"]
    assert list(events) == []


def test_a_line_that_is_no_event_is_told_and_the_next_are_read(
    pipe: io.FileIO, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe.write(line(1) + b"\nnonsense\n" + line(3) + b"\n")
    pipe.close()
    events = PipedEvents()
    assert [event.id for event in events if event is not None] == ["1", "3"]
    assert events.refused == 1
    assert "line 2" in capsys.readouterr().err


def test_a_line_without_an_end_is_refused(pipe: io.FileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lines, "LONGEST_LINE", 100)
    pipe.write(bytes(101))
    with pytest.raises(UsageError, match="a line is longer"):
        list(PipedEvents())


def test_only_what_is_written_meanwhile_is_read_line_by_line(
    pipe: io.FileIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert is_live("-")
    assert is_live(None)
    assert not is_live("events.jsonl")
    file = tmp_path / "events.jsonl"
    file.write_bytes(line(1))
    with file.open() as redirected:
        monkeypatch.setattr("sys.stdin", redirected)
        assert not is_live("-")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert not is_live("-")
