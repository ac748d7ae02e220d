"""ApiVersions answers, versions 0 to 4.

1 adds the throttle time, 3 is flexible and can list features (KIP-584); this gateway has none. The
answer to an unknown version is error 35 in the form of version 0 (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.wire.kafka.apis import API_VERSIONS, is_flexible
from penstock.wire.kafka.primitives import encoding

__all__ = ["encode_api_versions"]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_RANGE = struct.Struct(">hhh")
_THROTTLE_FROM = 1


def encode_api_versions(
    ranges: Iterable[tuple[int, int, int]], version: int, *, error_code: int = 0, throttle_time_ms: int = 0
) -> bytes:
    """Write the body of an answer: for every API its key, lowest and highest version."""
    form = encoding(is_flexible(API_VERSIONS, version))
    rows = [_RANGE.pack(*row) + form.tags for row in ranges]
    parts = [_INT16.pack(error_code), form.length(len(rows)), *rows]
    if version >= _THROTTLE_FROM:
        parts.append(_INT32.pack(throttle_time_ms))
    parts.append(form.tags)
    return b"".join(parts)
