"""Answers as frames."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.static.primitive import i32Timedelta

from penstock.wire.framing import FrameBuffer
from penstock.wire.kafka import encode_body, response_frame, response_pieces
from penstock.wire.kafka.answers.groups import encode_heartbeat


def test_a_frame_has_size_correlation_id_and_tags() -> None:
    assert response_frame(12, 3, 7, b"body").hex(" ") == "00 00 00 08 00 00 00 07 62 6f 64 79"
    assert response_frame(12, 4, 7, b"body").hex(" ") == "00 00 00 09 00 00 00 07 00 62 6f 64 79"


def test_pieces_are_the_frame_and_are_not_copied() -> None:
    big = memoryview(bytes(100))
    pieces = response_pieces(1, 12, 7, iter([b"a", big]))
    assert pieces[2] is big
    buffer = FrameBuffer(limit=1000)
    buffer.receive(b"".join(pieces))
    assert [len(frame) for frame in buffer.frames()] == [4 + 1 + 1 + 100]


def test_rare_answers_are_written_by_kio() -> None:
    answer = HeartbeatResponse(
        throttle_time=i32Timedelta.parse(timedelta(seconds=1)),
        error_code=ErrorCode.rebalance_in_progress,
    )
    assert encode_body(answer) == encode_heartbeat(4, error_code=27, throttle_time_ms=1000)
