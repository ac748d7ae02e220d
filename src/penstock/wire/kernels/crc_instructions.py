"""CRC32C of eight bytes by the instruction that x86 (SSE 4.2) and ARM (CRC) processors have for it."""

from __future__ import annotations

import platform
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config
from numba.core import types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

__all__ = ["add_eight", "has_instructions"]

_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)
_X86: Final = ("x86_64", "AMD64")
_FEATURES: Final = {"x86_64": "+sse4.2", "AMD64": "+sse4.2", "aarch64": "+crc", "arm64": "+crc"}
_EDITION: Final = 1
"""To be raised with every change below: caches know kernels by what they are made of."""


def has_instructions() -> bool:
    """Tell whether compiled kernels may use it: plain Python cannot, nor code for a lesser processor."""
    wanted = _FEATURES.get(platform.machine())
    if config.DISABLE_JIT or wanted is None:
        return False
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return wanted in features.split(",")


@intrinsic  # type: ignore[untyped-decorator]
def add_eight(typing: Any, data: Any, pos: Any, crc: Any) -> Any:
    """Give the register `crc` after data[pos:pos + 8], which must be there: no bounds are checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        eight = builder.load(builder.bitcast(start, _I64.as_pointer()), align=1)
        if platform.machine() in _X86:
            kind = ir.FunctionType(_I64, (_I64, _I64))
            step = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), kind)
            return builder.call(step, (args[2], eight))
        kind = ir.FunctionType(_I32, (_I32, _I64))
        step = builder.module.declare_intrinsic("llvm.aarch64.crc32cx", (), kind)
        return builder.zext(builder.call(step, (builder.trunc(args[2], _I32), eight)), _I64)

    return types.int64(data, pos, crc), generate


add_eight.edition = _EDITION
