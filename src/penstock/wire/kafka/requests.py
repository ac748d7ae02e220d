"""Requests of a Kafka client: the header by hand, the body by `kio`, loaded when a version is first seen."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from penstock.errors import MissingExtra, WireError
from penstock.wire.kafka.apis import APIS, is_flexible

__all__ = ["RequestHeader", "decode_request", "decode_request_header"]

_HEAD = struct.Struct(">hhih")
_FIXED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
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
        return RequestHeader(
            api_key=key, api_version=version, correlation_id=correlation, client_id=None, body=None
        )
    client_id, pos = _client_id(frame, size)
    if is_flexible(key, version):
        pos = _skip_tags(frame, pos)
    return RequestHeader(
        api_key=key, api_version=version, correlation_id=correlation, client_id=client_id, body=pos
    )


def decode_request(header: RequestHeader, frame: memoryview) -> Any:
    """Read the body of a request as kio's class for it; all of the frame must be used."""
    if header.body is None:
        raise _broken(f"asks API {header.api_key} in version {header.api_version}, which cannot be read")
    read, foreign = _reader(header.api_key, header.api_version)
    try:
        body, size = read(frame, header.body)
    except foreign as exc:
        raise _broken(
            f"of API {APIS[header.api_key].name} v{header.api_version} cannot be read", exc
        ) from exc
    if header.body + size != len(frame):
        raise _broken(f"has {len(frame) - header.body - size} bytes too many")
    return body


@cache
def _reader(key: int, version: int) -> tuple[Callable[..., tuple[Any, int]], tuple[type[Exception], ...]]:
    try:
        from kio.index import load_request_schema
        from kio.serial import entity_reader
        from kio.serial.errors import SerialError
    except ImportError as exc:
        raise MissingExtra("gateway", "kio", purpose="reading Kafka requests") from exc
    # ValueError: a negative array length; OverflowError: a time that no datetime holds.
    return entity_reader(load_request_schema(key, version)), (SerialError, ValueError, OverflowError)


def _no_client(frame: memoryview) -> tuple[int, int, int, int]:
    key, version, correlation = struct.unpack_from(">hhi", frame)
    return key, version, correlation, 0


def _client_id(frame: memoryview, size: int) -> tuple[str | None, int]:
    # The client id keeps its classic encoding in header v2, so that v0 to v2 begin alike.
    if size < -1 or _HEAD.size + max(size, 0) > len(frame):
        raise _broken("has a client id that leaves the frame")
    if size == -1:
        return None, _HEAD.size
    data = bytes(frame[_HEAD.size : _HEAD.size + size])
    try:
        return data.decode(), _HEAD.size + size
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


def _broken(what: str, exc: Exception | None = None) -> WireError:
    return WireError(f"a Kafka request {what}", why=str(exc) if exc else None)
