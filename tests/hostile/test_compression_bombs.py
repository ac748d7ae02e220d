"""Small Produce requests that would inflate to gigabytes, or take long to inflate to nothing."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from penstock.gateway.server import Limits

Play = Callable[..., None]
MIB = 1024 * 1024
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_HUGE = bytes(64 * MIB)
_JAVA = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _java(*blocks: bytes) -> bytes:
    return _JAVA + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip, 64 MiB": (GZIP, lambda: gzip.compress(_HUGE)),
    "gzip in gzip": (GZIP, lambda: gzip.compress(gzip.compress(_HUGE) * 50)),
    "gzip, empty members": (GZIP, lambda: gzip.compress(b"") * 20_000),
    "snappy, 64 MiB": (SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(_HUGE))),
    "snappy, a length that lies": (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy-java, 64 MiB": (
        SNAPPY,
        lambda: _java(*[bytes(cramjam.snappy.compress_raw(bytes(MIB)))] * 64),
    ),
    "snappy-java, empty blocks": (SNAPPY, lambda: _java(*[b"\0"] * 60_000)),
    "snappy-java, blocks of one byte": (SNAPPY, lambda: _java(*[b"\x01\x00a"] * 60_000)),
    "lz4, 64 MiB": (LZ4, lambda: _lz4(_HUGE)),
    "lz4, empty frames": (LZ4, lambda: _lz4(b"") * 20_000),
    "zstd, 64 MiB": (ZSTD, lambda: bytes(cramjam.zstd.compress(_HUGE))),
    "zstd, empty frames": (ZSTD, lambda: bytes(cramjam.zstd.compress(b"")) * 20_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_others_are_served(play: Play, tools: Any, name: str) -> None:
    number, make = BOMBS[name]
    bomb = tools.produce("mapped", tools.batch_of(make(), attributes=number))

    async def scenario(scene: Any) -> None:
        tracemalloc.start()
        try:
            neighbour = await scene.neighbour()
            attackers = [await scene.connect() for _ in range(3)]
            for each in attackers:
                each.write(bomb)
            await neighbour.is_served()
            for each in attackers:
                # One partition of one topic, then its error.
                answer = await each.answer()
                assert struct.unpack_from(">h", answer, 4 + 4 + 2 + len("mapped") + 4 + 4)[0] != 0
            assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        finally:
            tracemalloc.stop()

    play(scenario, limits=Limits())
