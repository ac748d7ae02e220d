"""SHA-256 in a kernel against the one of Python, at every length around a block, by both ways of working."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest
from numba import config

from penstock.wire.kernels.sha256 import SCHEDULE, SHA_ROOM, by_arithmetic, sha256_hex
from penstock.wire.kernels.sha_instructions import has_instructions

DIGITS = 64
BLOCK = 64


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


@pytest.mark.skipif(not has_instructions(), reason="this processor has no instructions for SHA")
def test_instructions_and_arithmetic_work_a_block_in_alike() -> None:
    from penstock.wire.kernels.sha256 import _block

    assert _block is not by_arithmetic
    dice = random.Random(2)
    for _ in range(200):
        buffer = np.frombuffer(dice.randbytes(BLOCK + 7), np.uint8).copy()
        before = np.array([dice.getrandbits(32) for _ in range(SCHEDULE)], np.int64)
        hashes = []
        for way in (_block, by_arithmetic):
            numbers = before.copy()
            way(buffer, 3, numbers, 0)
            hashes.append(numbers[64:].tolist())
        assert hashes[0] == hashes[1]


@pytest.mark.parametrize(("pos", "at"), [(-1, 0), (1, 0), (0, -1), (0, 1)])
def test_a_block_that_leaves_its_array_is_refused(pos: int, at: int) -> None:
    from penstock.wire.kernels.sha256 import _block

    if _block is by_arithmetic:
        pytest.skip("arithmetic is checked by the compiler")
    with pytest.raises(IndexError):
        _block(np.zeros(BLOCK, np.uint8), pos, np.zeros(SCHEDULE, np.int64), at)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="plain Python has no processor to choose for")
def test_code_for_another_processor_does_without_instructions() -> None:
    code = (
        "from penstock.wire.kernels.sha_instructions import has_instructions\n"
        "from numba import config; print(has_instructions())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.strip() == "False"
