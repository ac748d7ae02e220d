"""Requests of a Kafka client: the header by hand, the body by `kio`, loaded when a version is first seen."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from penstock.errors import MissingExtra, WireError
from penstock.wire.buffer import Buffer
from penstock.wire.kafka import guard
from penstock.wire.kafka.apis import APIS
from penstock.wire.kernels import IntArray

__all__ = ["RequestHeader", "check_request", "decode_request", "decode_request_header", "prepare_request"]

_HEAD = struct.Struct(">hhih")
_FIXED = 8


class RequestHeader(NamedTuple):
    """The header of a request; `body` is where its body begins, None if the version is not known here."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int | None

    @property
    def supported(self) -> bool:
        """Say whether Kafka 4.3.1 serves this API in this version, so that the body can be read."""
        return self.body is not None


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Read the header of a request; only the first eight bytes are read of an unknown API or version."""
    if len(frame) < _FIXED:
        raise _broken("is too short for a header")
    key, version, correlation, size = (
        _HEAD.unpack_from(frame) if len(frame) >= _HEAD.size else _no_client(frame)
    )
    api = APIS.get(key)
    if api is None or not api.lowest <= version <= api.highest:
        return RequestHeader(key, version, correlation, None, None)
    client_id, pos = _client_id(frame, size)
    if version >= api.flexible_from:
        # KIP-482: most headers have no tagged field, which is a zero.
        pos = pos + 1 if bytes(frame[pos : pos + 1]) == b"\0" else _skip_tags(frame, pos)
    return RequestHeader(key, version, correlation, client_id, pos)


def decode_request(header: RequestHeader, frame: memoryview) -> Any:
    """Read the body of a request as kio's class for it."""
    if header.body is None:
        raise _broken(f"asks API {header.api_key} in version {header.api_version}, which cannot be read")
    cuts = check_request(header, frame)
    reader = _reader(header.api_key, header.api_version)
    try:
        return _read(reader, header.body, frame.toreadonly(), cuts)
    except reader.errors as exc:
        raise _broken(f"{_name(header)} cannot be read", exc) from exc


def prepare_request(key: int, version: int) -> None:
    """Load what reads this version now, so that the first request does not wait for it."""
    _reader(key, version)


def check_request(header: RequestHeader, frame: memoryview) -> list[tuple[int, int]]:
    """Check every length of a body; give where tagged fields are."""
    assert header.body is not None
    reader = _reader(header.api_key, header.api_version)
    end, cuts = guard.check(frame, header.body, reader.program)
    if end < 0:
        raise _broken(f"{_name(header)} {guard.REASONS[end]}")
    # What follows the body is ignored, as Kafka does: librdkafka 2.16 sends three bytes more in Metadata v13
    # when it asks for all topics.
    return cuts


def _read(reader: _Reader, pos: int, frame: Buffer, cuts: list[tuple[int, int]]) -> Any:
    try:
        return reader.read(frame, pos)[0]
    except KeyError:
        # KIP-482: a tagged field that is not known is ignored; kio does not know that.
        return reader.read(guard.without(memoryview(frame), cuts), pos)[0]


class _Reader(NamedTuple):
    """How one version of a request is read, and what kio raises when it cannot."""

    program: IntArray
    read: Callable[..., tuple[Any, int]]
    errors: tuple[type[Exception], ...]


@cache
def _reader(key: int, version: int) -> _Reader:
    try:
        from kio.index import load_request_schema
        from kio.serial import entity_reader
        from kio.serial.errors import SerialError
    except ImportError as exc:
        raise MissingExtra("gateway", "kio", purpose="reading Kafka requests") from exc
    # ValueError: a negative array length; OverflowError: a time that no datetime holds; KeyError: a tag.
    schema: Any = load_request_schema(key, version)
    return _Reader(
        guard.compile_guard(schema), entity_reader(schema), (SerialError, ValueError, OverflowError, KeyError)
    )


def _no_client(frame: memoryview) -> tuple[int, int, int, int]:
    key, version, correlation = struct.unpack_from(">hhi", frame)
    return key, version, correlation, 0


def _client_id(frame: memoryview, size: int) -> tuple[str | None, int]:
    # The client id keeps its classic encoding in header v2, so that v0 to v2 begin alike.
    if size < -1 or _HEAD.size + max(size, 0) > len(frame):
        raise _broken("has a client id that leaves the frame")
    if size == -1:
        return None, _HEAD.size
    try:
        return str(frame[_HEAD.size : _HEAD.size + size], "utf-8"), _HEAD.size + size
    except UnicodeDecodeError as exc:
        raise _broken("has a client id that is not UTF-8", exc) from exc


def _skip_tags(frame: memoryview, pos: int) -> int:
    count, pos = _uvarint(frame, pos)
    for _ in range(count):
        _, pos = _uvarint(frame, pos)
        size, pos = _uvarint(frame, pos)
        pos += size
        if pos > len(frame):
            raise _broken("has a tagged field that leaves the frame")
    return pos


def _uvarint(frame: memoryview, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if pos >= len(frame):
            raise _broken("ends inside its header")
        value |= (frame[pos] & 0x7F) << shift
        pos += 1
        if frame[pos - 1] < 0x80:
            return value, pos
    raise _broken("has a number of more than 32 bits in its header")


def _name(header: RequestHeader) -> str:
    return f"of API {APIS[header.api_key].name} v{header.api_version}"


def _broken(what: str, exc: Exception | None = None) -> WireError:
    return WireError(f"a Kafka request {what}", why=str(exc) if exc else None)
