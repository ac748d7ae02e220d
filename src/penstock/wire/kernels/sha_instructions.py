"""SHA-256 by the instructions that many x86 processors have for it: one block in a tenth of the time."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

__all__ = ["has_instructions", "work_in"]

_I32: Final = ir.IntType(32)
_FOUR: Final = ir.VectorType(_I32, 4)
_GROUPS: Final = 16
"""A block is 64 rounds, four of them at a time."""
_EDITION: Final = 1
"""To be raised with every change below: caches know kernels by what they are made of."""


def has_instructions() -> bool:
    """Tell whether compiled kernels may use them: plain Python cannot, nor code for a lesser processor."""
    if config.DISABLE_JIT:
        return False
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return "+sha" in features.split(",")


def work_in(constants: tuple[int, ...]) -> Any:
    """Give a function for kernels: f(buffer, pos, numbers, top) works a block into the hash at numbers[top].

    It checks no bounds: buffer[pos:pos + 64] and numbers[top:top + 8] must be there. `constants` are those of
    FIPS 180-4 4.2.2.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def block(typing: Any, buffer: Any, pos: Any, numbers: Any, top: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data, hashed = (
                context.make_array(signature.args[n])(context, builder, args[n]).data for n in (0, 2)
            )
            _Block(builder, constants).write(builder.gep(data, [args[1]]), builder.gep(hashed, [args[3]]))
            return args[3]

        return types.int64(buffer, pos, numbers, top), generate

    block.edition = _EDITION
    return block


class _Block:
    """Writes the code of one block; a vector holds four numbers of 32 bits, lane 0 first."""

    def __init__(self, builder: Any, constants: tuple[int, ...]) -> None:
        self._builder = builder
        self._constants = constants

    def write(self, data: Any, hashed: Any) -> None:
        """Read 64 bytes and eight numbers, write the numbers."""
        add = self._builder.add
        a, b, c, d, e, f, g, h = (self._number(hashed, n) for n in range(8))
        # The instructions want the hash in this order.
        first = low, high = self._vector(f, e, b, a), self._vector(h, g, d, c)
        words = [self._words(data, n) for n in range(4)]
        for group in range(_GROUPS):
            if group >= len(words):
                words.append(self._next(*words[-4:]))
            known = ir.Constant(_FOUR, self._constants[4 * group : 4 * group + 4])
            two = add(words[group], known)
            high = self._call("sha256rnds2", high, low, two)
            low = self._call("sha256rnds2", low, high, self._shuffle(two, two, (2, 3, 0, 1)))
        f, e, b, a = self._lanes(add(low, first[0]))
        h, g, d, c = self._lanes(add(high, first[1]))
        for n, value in enumerate((a, b, c, d, e, f, g, h)):
            wide = self._builder.zext(value, ir.IntType(64))
            self._builder.store(wide, self._builder.gep(hashed, [self._at(n)]))

    def _next(self, *before: Any) -> Any:
        """Make four numbers of the message schedule of the sixteen before them (6.2.2, step 1)."""
        middle = self._shuffle(before[2], before[3], (1, 2, 3, 4))
        begun = self._builder.add(self._call("sha256msg1", before[0], before[1]), middle)
        return self._call("sha256msg2", begun, before[3])

    def _words(self, data: Any, number: int) -> Any:
        """Read four numbers, big end first."""
        place = self._builder.gep(data, [self._at(16 * number)])
        found = self._builder.load(self._builder.bitcast(place, _FOUR.as_pointer()), align=1)
        return self._call("bswap", found, kind="llvm.bswap.v4i32")

    def _number(self, hashed: Any, number: int) -> Any:
        found = self._builder.load(self._builder.gep(hashed, [self._at(number)]))
        return self._builder.trunc(found, _I32)

    def _vector(self, *numbers: Any) -> Any:
        made = ir.Constant(_FOUR, ir.Undefined)
        for lane, number in enumerate(numbers):
            made = self._builder.insert_element(made, number, ir.Constant(_I32, lane))
        return made

    def _lanes(self, vector: Any) -> tuple[Any, ...]:
        return tuple(self._builder.extract_element(vector, ir.Constant(_I32, lane)) for lane in range(4))

    def _shuffle(self, first: Any, second: Any, lanes: tuple[int, ...]) -> Any:
        return self._builder.shuffle_vector(first, second, ir.Constant(_FOUR, lanes))

    def _call(self, name: str, *vectors: Any, kind: str = "") -> Any:
        wanted = ir.FunctionType(_FOUR, [_FOUR] * len(vectors))
        module = self._builder.module
        function = cgutils.get_or_insert_function(module, wanted, kind or f"llvm.x86.{name}")
        return self._builder.call(function, vectors)

    def _at(self, number: int) -> Any:
        return ir.Constant(ir.IntType(64), number)
