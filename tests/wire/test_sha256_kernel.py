"""SHA-256 in a kernel against the one of Python, at every length around a block."""

from __future__ import annotations

import hashlib
import random

import numpy as np

from penstock.wire.kernels.sha256 import SCHEDULE, SHA_ROOM, sha256_hex

DIGITS = 64


def hexadecimal(message: bytes) -> str:
    size = len(message)
    buffer = np.zeros(size + SHA_ROOM + DIGITS, np.uint8)
    buffer[:size] = np.frombuffer(message, np.uint8)
    to = size + SHA_ROOM
    end = sha256_hex(buffer, 0, size, np.zeros(SCHEDULE, np.int64), 0, to, DIGITS)
    return buffer[to:end].tobytes().decode()


def test_it_is_sha_256() -> None:
    dice = random.Random(1)
    for size in (*range(140), 1000):
        message = dice.randbytes(size)
        assert hexadecimal(message) == hashlib.sha256(message).hexdigest()
