"""The innermost loop of a matrix product, written for the vector instructions of the CPU at hand.

A tile is the product of up to five rows with 64 columns. Its sums stay in registers while the loop goes over the
inputs: a vector of weights is read once for all rows. LLVM finds no such code by itself. Each row's sums are added in
the order of the inputs, whatever rows are beside it: its result depends on nothing but that row.

Bytes are multiplied four at a time where a processor can (VNNI); AVX2 adds two products in 16 bits, which overflow if
weights have more than 7 bits; other processors multiply them as 32-bit numbers.
"""

import os
from functools import cache
from typing import Any

from knnmt.jit import intrinsic

COLUMNS = 64  # of a tile
ROWS = 5  # of a tile, at most
SIZE = 4  # bytes of a float, or of the four inputs in bytes that are multiplied at once


@cache
def features() -> frozenset[str]:
    """The features of the CPU that numba compiles for, by LLVM's names."""
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is None and os.environ.get("NUMBA_CPU_NAME", "").lower() != "generic":
        from llvmlite import binding

        given = binding.get_host_cpu_features().flatten()
    return frozenset(name[1:] for name in (given or "").split(",") if name.startswith("+"))


def sums_of_bytes_fit() -> bool:
    """Whether products of bytes are added in 32 bits."""
    return "avx2" not in features() or bool({"avx512vnni", "avxvnni"} & features())


def lanes() -> int:
    """Numbers of 32 bits in a vector."""
    return 16 if "avx512f" in features() else 8 if "avx2" in features() else 4


@intrinsic
def tile(context: Any, rows: Any, in_bytes: Any, weights: Any, inputs: Any, stride: Any, count: Any, sums: Any) -> Any:
    """Compute rows × 64 sums; `rows` and `in_bytes` are literals.

    Addresses: weights (1 + count, 64) of 32 bits, at first what the sums begin with; inputs, of which a row has
    `count` of 32 bits and is `stride` bytes after the one before; sums (rows, 64), to be filled. In bytes, 32 bits are
    four of them, unsigned inputs and signed weights; else they are a float.
    """
    from numba.core import types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Tile(builder, rows.literal_value, bool(in_bytes.literal_value)).write(*arguments[2:])
        return context.get_dummy_value()

    return types.void(rows, in_bytes, *[types.int64] * 5), write


class _Tile:
    """Writes the instructions of a tile."""

    def __init__(self, builder: Any, rows: int, in_bytes: bool) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.rows, self.in_bytes, self.lanes = ir, builder, rows, in_bytes, lanes()
        self.number = ir.IntType(32) if in_bytes else ir.FloatType()
        self.vector = ir.VectorType(self.number, self.lanes)
        self.together = 4 if self.lanes == 16 else 2  # vectors of columns: with five rows, their sums fit in registers

    def write(self, weights: Any, inputs: Any, stride: Any, count: Any, sums: Any) -> None:
        from numba.core import cgutils

        builder, width = self.builder, self.together * self.lanes * SIZE
        places = [[cgutils.alloca_once(builder, self.vector) for _ in range(self.together)] for _ in range(self.rows)]
        with cgutils.for_range(builder, self._int(COLUMNS * SIZE // width)) as columns:
            part = builder.mul(columns.index, self._int(width))
            begin = builder.add(weights, part)
            for row in places:
                for number, place in enumerate(row):
                    builder.store(self._load(begin, self.vector, number), place)
            with cgutils.for_range(builder, count) as loop:
                after = builder.mul(builder.add(loop.index, self._int(1)), self._int(COLUMNS * SIZE))
                read = [self._load(builder.add(begin, after), self.vector, number) for number in range(self.together)]
                at = builder.add(inputs, builder.mul(loop.index, self._int(SIZE)))
                for number, row in enumerate(places):
                    own = self._spread(builder.add(at, builder.mul(stride, self._int(number))))
                    for place, weight in zip(row, read, strict=True):
                        builder.store(self._added(builder.load(place), own, weight), place)
            for number, row in enumerate(places):
                into = builder.add(builder.add(sums, part), self._int(number * COLUMNS * SIZE))
                for vector, place in enumerate(row):
                    builder.store(builder.load(place), self._pointer(into, self.vector, vector)).align = SIZE

    def _added(self, sums: Any, inputs: Any, weights: Any) -> Any:
        """Sums + inputs · weights."""
        ir, builder = self.ir, self.builder
        if not self.in_bytes:
            flags = ["contract"]
            return builder.fadd(sums, builder.fmul(inputs, weights, flags=flags), flags=flags)
        if self.lanes >= 8 and sums_of_bytes_fit() and (self.lanes == 8 or "avx512vnni" in features()):
            name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
            return self._call(name, self.vector, sums, inputs, weights)
        if self.lanes == 8:
            eight, sixteen = ir.VectorType(ir.IntType(8), 32), ir.VectorType(ir.IntType(16), 16)
            pair = builder.bitcast(inputs, eight), builder.bitcast(weights, eight)
            pairs = self._call("llvm.x86.avx2.pmadd.ub.sw", sixteen, *pair)
            return builder.add(
                sums, self._call("llvm.x86.avx2.pmadd.wd", self.vector, pairs, ir.Constant(sixteen, [1] * 16))
            )
        for byte in range(4):
            shift = lambda bits: ir.Constant(self.vector, [bits] * self.lanes)  # noqa: E731
            own = builder.and_(builder.lshr(inputs, shift(8 * byte)), shift(255))
            weight = builder.ashr(builder.shl(weights, shift(24 - 8 * byte)), shift(24))
            sums = builder.add(sums, builder.mul(own, weight))
        return sums

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        from numba.core import cgutils

        kind = self.ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    def _int(self, number: int) -> Any:
        return self.ir.Constant(self.ir.IntType(64), number)

    def _pointer(self, address: Any, kind: Any, number: int) -> Any:
        """Where the vector of this number is, after an address."""
        offset = self._int(number * self.lanes * SIZE)
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def _load(self, address: Any, kind: Any, number: int = 0) -> Any:
        loaded = self.builder.load(self._pointer(address, kind, number))
        loaded.align = SIZE
        return loaded

    def _spread(self, address: Any) -> Any:
        """A number, in all lanes of a vector."""
        ir, builder = self.ir, self.builder
        nothing, zero = ir.Constant(self.vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        first = builder.insert_element(nothing, self._load(address, self.number), zero)
        where = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(first, nothing, where)
