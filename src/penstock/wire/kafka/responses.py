"""Answers to a Kafka client as frames: size, correlation id, header tags, body.

The hot answers have encoders of their own in `answers`; every other one is written by kio.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from penstock.errors import MissingExtra
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.apis import response_header_tags

__all__ = ["encode_body", "response_frame", "response_pieces"]

_HEAD = struct.Struct(">ii")


def response_pieces(key: int, version: int, correlation_id: int, body: Iterable[Buffer]) -> list[Buffer]:
    """Put size and header in front of the pieces of a body; nothing is copied, for `writelines`."""
    pieces = list(body)
    tags = response_header_tags(key, version)
    size = 4 + len(tags) + sum(map(len, pieces))
    return [_HEAD.pack(size, correlation_id) + tags, *pieces]


def response_frame(key: int, version: int, correlation_id: int, body: Buffer) -> bytes:
    """Give a whole frame for a small body."""
    return b"".join(response_pieces(key, version, correlation_id, (body,)))


def encode_body(answer: Any) -> bytes:
    """Write an answer that is one of kio's response classes."""
    out = io.BytesIO()
    schema: Any = type(answer)
    _writer(schema)(out, answer)
    return out.getvalue()


@cache
def _writer(schema: Any) -> Callable[[io.BytesIO, Any], None]:
    try:
        from kio.serial import entity_writer
    except ImportError as exc:
        raise MissingExtra("gateway", "kio", purpose="writing Kafka answers") from exc
    return entity_writer(schema)
