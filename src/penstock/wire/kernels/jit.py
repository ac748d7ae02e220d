"""How a kernel is made: compiled once for one signature, cached on disk, plain Python on demand.

A kernel takes byte arrays and 64-bit signed integers only. Its one signature is compiled when its
module is imported (or loaded from the cache), so nothing compiles during a call. With
NUMBA_DISABLE_JIT=1 the same source runs as plain Python.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType
from typing import Any, TypeVar, cast

from penstock.errors import MissingExtra

try:
    import numpy as np
    from numba import config, njit, types
    from numba.core import event
    from numpy.typing import NDArray

    from penstock.wire.kernels.archive import archive_cache, is_archived
except ImportError as exc:
    raise MissingExtra("gateway", "numba", purpose="transcoding batches") from exc

__all__ = [
    "BYTES",
    "FOUR",
    "INT",
    "INTS",
    "OUT",
    "PAIR",
    "ByteArray",
    "IntArray",
    "cache_misses",
    "inner",
    "kernel",
    "kernels",
    "part",
]

ByteArray = NDArray[np.uint8]
IntArray = NDArray[np.int64]

INT = types.int64
"""Every scalar: one width and one signedness, because int64 with uint64 becomes a float in Numba."""
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""An input: contiguous and read-only, so that `bytes` fits as well as a `bytearray`."""
OUT = types.uint8[::1]
"""An output of bytes."""
INTS = types.int64[::1]
"""An output of numbers."""
PAIR = types.UniTuple(types.int64, 2)
"""A value and the position behind it; a negative position is an error."""
FOUR = types.UniTuple(types.int64, 4)

# A kernel allocates nothing, so Numba's reference counting of arrays is switched off: with it each call
# from kernel to kernel costs two atomic operations per array, and the mapping is three to six times slower.
_OPTIONS = {"nogil": True, "_nrt": False, "forceinline": True}

_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_stamps: dict[int, str] = {}
_kernels: dict[str, Any] = {}


class _FirstCompile(event.Listener):  # type: ignore[misc]
    """Says once, before it happens, that this process compiles: it may be silent for minutes behind that."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: object) -> None:
        if not self.said:
            self.said = True
            _log.warning(
                "compiling kernels that no cache has: a minute or more, for the first start of this version"
            )

    def on_end(self, event: object) -> None:
        """Nothing: others may follow at once."""


event.register("numba:compile", _FirstCompile())


def kernel(
    signature: Any, *, boundscheck: bool = True, inline: bool = True
) -> Callable[[_Function], _Function]:
    """Compile a function for one signature, without the GIL, with bounds checks unless told otherwise.

    A large kernel that several others call is better not put into each of them: `inline` says so.
    """

    return _maker(_compile, signature, _OPTIONS | {"boundscheck": boundscheck, "forceinline": inline})


def inner(
    signature: Any, *, boundscheck: bool = True, inline: bool = True
) -> Callable[[_Function], _Function]:
    """Make a part of kernels, which only they call: compiled with the first of them, and cached inside it.

    A process that finds those kernels in the cache has nothing to do for their parts. With `inline` the part
    is put into its callers before they are compiled, else it is compiled and linked with them.
    """
    options = _OPTIONS | _NO_WRAPPERS | {"boundscheck": boundscheck, "forceinline": False}
    return _maker(_insert if inline else _postpone, signature, options)


def part(signature: Any, *, boundscheck: bool = True) -> Callable[[_Function], _Function]:
    """Make a part of kernels that the compiler puts into each of them; like `inner` it is never loaded."""
    return _maker(_postpone, signature, _OPTIONS | _NO_WRAPPERS | {"boundscheck": boundscheck})


def _maker(
    make: Callable[..., Any], signature: Any, options: dict[str, bool]
) -> Callable[[_Function], _Function]:
    def decorate(function: _Function) -> _Function:
        stamp = _stamp(function, f"{signature}{options}")
        made = function if config.DISABLE_JIT else make(function, signature, options, stamp)
        _stamps[id(made)] = stamp
        return cast(_Function, made)

    return decorate


def kernels() -> dict[str, Any]:
    """Give every compiled kernel by module and name; empty when they run as plain Python."""
    return dict(_kernels)


def cache_misses() -> int:
    """Count the kernels that this process had to compile because no cache had them."""
    return sum(sum(made.stats.cache_misses.values()) for made in _kernels.values())


def _compile(function: Any, signature: Any, options: dict[str, bool], stamp: str) -> Any:
    name = f"{function.__module__}.{function.__name__}"
    # Numba names its cache file after __qualname__ and looks only at this function's own file for
    # changes; the stamp covers the kernels it calls, so an edited callee is never linked stale.
    function.__qualname__ = f"{function.__name__}_{stamp}"
    file = function.__code__.co_filename
    try:
        with archive_cache(file) if is_archived(file) else nullcontext():
            made = njit(signature, cache=True, **options)(function)
    except RuntimeError as exc:
        # Neither the package's folder nor the user's cache folder can be written: compile in memory.
        if "cannot cache function" not in str(exc):
            raise
        made = njit(signature, **options)(function)
    _kernels[name] = made
    return made


def _insert(function: Any, signature: Any, options: dict[str, bool], stamp: str) -> Any:
    """Give a function whose source becomes part of its callers."""
    return njit(inline="always", **options)(function)


def _postpone(function: Any, signature: Any, options: dict[str, bool], stamp: str) -> Any:
    """Give a function that is compiled for its signature when a kernel that calls it is compiled."""
    made = njit(**options)(function)
    template_of = made.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        if not made.signatures:
            made.compile(signature)
            made.disable_compile()
        return template_of(args, kws)

    made.get_call_template = get_call_template
    return made


def _stamp(function: Any, form: str) -> str:
    """Digest a function, its form, its constants and, through their stamps, the kernels it calls."""
    code: CodeType = function.__code__
    digest = hashlib.sha256(code.co_code + repr((code.co_consts, form)).encode())
    for name in code.co_names:
        value = function.__globals__.get(name)
        digest.update(f"{name}={_stamps.get(id(value)) or _constant(value)};".encode())
    return digest.hexdigest()[:8]


def _constant(value: object) -> str:
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, int | str | bytes | tuple):
        return repr(value)
    # Code that is written for kernels, not compiled from Python, says by itself which one it is.
    return str(getattr(value, "edition", ""))
