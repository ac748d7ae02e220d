"""The three ways a kernel runs: compiled, from the cache of another process, as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import int64, njit
from numba.core import event

import penstock.mapping
import penstock.wire.kernels.json
import penstock.wire.kernels.json_values  # noqa: F401  loads every kernel
from penstock.wire.kernels.jit import _FirstCompile, kernels

ROOT = Path(__file__).parents[2]

_ALL = """
import penstock.mapping, penstock.wire.pulsar, penstock.wire.kernels as k
import penstock.wire.kernels.json, penstock.wire.kernels.json_values
from penstock.wire.kernels.jit import kernels
"""


def python(code: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_second_process_compiles_nothing() -> None:
    python(_ALL)
    assert python(_ALL + "print(k.cache_misses(), len(kernels()) > 30)") == "0 True"


def test_a_process_that_compiles_says_so_once_and_before(caplog: pytest.LogCaptureFixture) -> None:
    with event.install_listener("numba:compile", _FirstCompile()):
        njit(int64(int64))(lambda x: x + 1)
        said = [each.getMessage() for each in caplog.records if each.name == "penstock.wire.kernels.jit"]
        assert "compiling kernels" in said[0]
        caplog.clear()
        njit(int64(int64))(lambda x: x + 2)
    assert caplog.records == []


def test_kernels_compile_without_any_folder_for_a_cache() -> None:
    # Numba finds no folder for a function of no file, as it does when neither site-packages nor the
    # user's home can be written.
    code = """
import numba, numpy as np
from penstock.wire.kernels.jit import BYTES, INT, kernel
def first(data): return int(data[0])
try:
    numba.njit(cache=True)(first)
except RuntimeError:
    print("no folder")
print(kernel(INT(BYTES))(first)(np.frombuffer(b"a", np.uint8)))
"""
    assert python(code) == "no folder\n97"


def test_every_kernel_has_one_signature() -> None:
    assert {name for name, made in kernels().items() if len(made.signatures) != 1} == set()


def test_an_edited_kernel_changes_the_stamp_of_its_callers(tmp_path: Path) -> None:
    source = """
from penstock.wire.kernels.jit import INT, kernel
@kernel(INT(INT))
def inner(x): return x + {number}
@kernel(INT(INT))
def outer(x): return inner(x)
"""
    stamps = set()
    for number in (1, 2):
        path = tmp_path / f"made{number}.py"
        path.write_text(source.format(number=number))
        code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from made{number} import outer
print(outer(1), outer.py_func.__qualname__)
"""
        result, stamp = python(code).split()
        assert int(result) == 1 + number
        stamps.add(stamp)
    assert len(stamps) == 2


def test_the_kernels_are_plain_python_when_jit_is_off() -> None:
    assert (
        python(_ALL + "print(len(kernels()), type(k.copy).__name__)", NUMBA_DISABLE_JIT="1") == "0 function"
    )


SAME_TESTS = (
    "tests/wire/test_kernels.py",
    "tests/wire/test_words.py",
    "tests/wire/test_sha256_kernel.py",
    "tests/wire/test_json_kernel.py",
    "tests/wire/kafka/test_produce_request.py",
    "tests/wire/pulsar/test_commands.py",
    "tests/wire/pulsar/test_entry.py",
    "tests/mapping/test_mapping.py",
    "tests/mapping/test_mapping_fuzz.py",
    "tests/pipeline/evaluators/kernel/test_batch_router.py",
    "tests/pipeline/evaluators/kernel/test_expressions.py::test_generated_expressions_mean_what_they_mean_to_the_reference",
)


@pytest.mark.slow
def test_the_same_tests_pass_as_plain_python() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *SAME_TESTS, "-q", "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "fast"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_all_run_without_the_gil_and_most_with_bounds_checks() -> None:
    assert {made.targetoptions["nogil"] for made in kernels().values()} == {True}
    unchecked = {name for name, made in kernels().items() if not made.targetoptions["boundscheck"]}
    # These check their ranges themselves, once.
    assert {name.removeprefix("penstock.wire.kernels.") for name in unchecked} == {
        *("copying._by_blocks", "varint.byte_at"),
        *("words.word_at", "words.put_word", "words.short_word"),
    }


def test_a_missing_package_is_named() -> None:
    code = """
import importlib, sys
from penstock.errors import MissingExtra
for missing, module in (
    ("numpy", "penstock.wire.buffer"),
    ("numba", "penstock.wire.kernels"),
    ("google.protobuf.message", "penstock.wire.pulsar"),
):
    sys.modules[missing] = None
    try:
        importlib.import_module(module)
    except MissingExtra as error:
        print(error.module, error.next)
    del sys.modules[missing]
"""
    named = [line.split()[0] for line in python(code).splitlines()]
    assert named == ["numpy", "numba", "protobuf"]
