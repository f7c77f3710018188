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
HEADS = {True: 3, False: 1}  # vectors of 64 before the weights, in bytes or not
FLOATS, BYTES, MIXED = 0, 1, 2  # kinds of tiles: inputs and weights both floats, both bytes, or floats and bytes
NARROW = 3  # FLOATS, of which only the first FEW columns are computed
HALVES = 4  # MIXED, with two weights to a byte
FEW = 16
VNNI = {16: "avx512vnni", 8: "avxvnni", 4: ""}  # the feature that multiplies bytes four at a time, by lanes
PAIRS = {  # instructions that multiply bytes two at a time, and add pairs of what they give, by lanes
    16: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
}
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
    return "avx2" not in features() or VNNI[lanes()] in features()


def multiplies_bytes() -> bool:
    """Whether bytes are multiplied several at a time: faster than floats."""
    return lanes() in PAIRS


def lanes() -> int:
    """Numbers of 32 bits in a vector."""
    return 16 if "avx512bw" in features() else 8 if "avx2" in features() else 4


@intrinsic
def tile(
    context: Any, rows: Any, kind: Any, panel: Any, inputs: Any, stride: Any, count: Any, scale: Any, out: Any,
    to: Any,
) -> Any:  # fmt: skip
    """Compute rows × 64 outputs; `rows` and `kind` are literals.

    All others are addresses, but for `count`, and for `stride` and `to`: how many bytes a row is after the one before.
    panel: of vectors of 64 numbers of 32 bits, a head and `count` of weights; inputs: rows of `count` such numbers;
    out: rows of 64 floats, to be filled. With floats the head is the bias, also where the weights are bytes, one each,
    or two to a byte, the first in its lower half: `count` is then of bytes. In bytes a number is four of them, of
    unsigned inputs and signed weights; the head is what their sums begin with, the scales and the bias of the outputs;
    scale: (rows,), those of the inputs
    """
    from numba.core import types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Tile(builder, rows.literal_value, kind.literal_value).write(*arguments[2:])
        return context.get_dummy_value()

    return types.void(rows, kind, *[types.int64] * 7), write


class _Tile:
    """Writes the instructions of a tile."""

    def __init__(self, builder: Any, rows: int, kind: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.rows, self.in_bytes, self.lanes = ir, builder, rows, kind == BYTES, lanes()
        self.weight_size = 1 if kind in (MIXED, HALVES) else SIZE
        self.halves = 2 if kind == HALVES else 1
        self.number = ir.IntType(32) if self.in_bytes else ir.FloatType()
        self.vector = ir.VectorType(self.number, self.lanes)
        self.columns = FEW if kind == NARROW else COLUMNS
        # vectors of columns: with five rows, their sums fit in registers
        self.together = min(4 if self.lanes == 16 else 2, self.columns // self.lanes)

    def write(self, panel: Any, inputs: Any, stride: Any, count: Any, scale: Any, out: Any, to: Any) -> None:
        from numba.core import cgutils

        builder, width, line = self.builder, self.together * self.lanes * SIZE, COLUMNS * SIZE
        places = [[cgutils.alloca_once(builder, self.vector) for _ in range(self.together)] for _ in range(self.rows)]
        with cgutils.for_range(builder, self._int(self.columns * SIZE // width)) as columns:
            part = builder.mul(columns.index, self._int(width))
            head = builder.add(panel, part)
            weights = builder.add(panel, self._int(HEADS[self.in_bytes] * line))
            weights = builder.add(weights, builder.mul(columns.index, self._int(width // SIZE * self.weight_size)))
            for row in places:
                for number, place in enumerate(row):
                    builder.store(self._load(head, self.vector, number), place)
            with cgutils.for_range(builder, count) as loop:
                at = builder.add(weights, builder.mul(loop.index, self._int(COLUMNS * self.weight_size)))
                for half in range(self.halves):
                    read = [self._weights(at, number, half) for number in range(self.together)]
                    offset = builder.mul(loop.index, self._int(self.halves * SIZE))
                    offset = builder.add(offset, self._int(half * SIZE))
                    for number, row in enumerate(places):
                        own = self._spread(builder.add(self._row(inputs, stride, number), offset), self.number)
                        for place, weight in zip(row, read, strict=True):
                            builder.store(self._added(builder.load(place), own, weight), place)
            for number, row in enumerate(places):
                into = builder.add(self._row(out, to, number), part)
                found = [builder.load(place) for place in row]
                if self.in_bytes:
                    own = self._spread(builder.add(scale, self._int(number * SIZE)), self.ir.FloatType())
                    found = [self._scaled(sums, own, head, vector) for vector, sums in enumerate(found)]
                for vector, numbers in enumerate(found):
                    builder.store(numbers, self._pointer(into, numbers.type, vector)).align = SIZE

    def _weights(self, address: Any, number: int, half: int) -> Any:
        """The vector of weights of this number, after an address; of each byte this half, where there are two."""
        if self.weight_size == SIZE:
            return self._load(address, self.vector, number)
        narrow = self.ir.VectorType(self.ir.IntType(8), self.lanes)
        wide = self.ir.VectorType(self.ir.IntType(32), self.lanes)
        at = self.builder.add(address, self._int(number * self.lanes))
        read = self.builder.load(self.builder.inttoptr(at, narrow.as_pointer()))
        read.align = 1
        whole = self.builder.sext(read, wide)
        if self.halves > 1:
            whole = whole if half else self.builder.shl(whole, self._constant(wide, 28))
            whole = self.builder.ashr(whole, self._constant(wide, 4 if half else 28))
        return self.builder.sitofp(whole, self.vector)

    def _scaled(self, sums: Any, scale: Any, head: Any, vector: int) -> Any:
        """Sums in bytes as floats: times the scale of the row and of the output, and the bias."""
        builder, line, flags = self.builder, COLUMNS * SIZE, ["contract"]
        own, bias = (
            self._load(builder.add(head, self._int(number * line)), scale.type, vector) for number in (1, 2)
        )  # fmt: skip
        factor = builder.fmul(scale, own)
        return builder.fadd(builder.fmul(builder.sitofp(sums, scale.type), factor, flags=flags), bias, flags=flags)

    def _added(self, sums: Any, inputs: Any, weights: Any) -> Any:
        """Sums + inputs · weights."""
        ir, builder = self.ir, self.builder
        if not self.in_bytes:
            flags = ["contract"]
            return builder.fadd(sums, builder.fmul(inputs, weights, flags=flags), flags=flags)
        if VNNI[self.lanes] in features():
            return self._call(f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}", self.vector, sums, inputs, weights)
        if self.lanes in PAIRS:
            products, added = PAIRS[self.lanes]
            eight = ir.VectorType(ir.IntType(8), 4 * self.lanes)
            sixteen = ir.VectorType(ir.IntType(16), 2 * self.lanes)
            pair = builder.bitcast(inputs, eight), builder.bitcast(weights, eight)
            ones = ir.Constant(sixteen, [1] * sixteen.count)
            return builder.add(sums, self._call(added, self.vector, self._call(products, sixteen, *pair), ones))
        for byte in range(4):
            own = builder.and_(builder.lshr(inputs, self._all(8 * byte)), self._all(255))
            weight = builder.ashr(builder.shl(weights, self._all(24 - 8 * byte)), self._all(24))
            sums = builder.add(sums, builder.mul(own, weight))
        return sums

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        from numba.core import cgutils

        kind = self.ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    def _all(self, number: int) -> Any:
        return self._constant(self.vector, number)

    def _constant(self, vector: Any, number: int) -> Any:
        return self.ir.Constant(vector, [number] * self.lanes)

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

    def _row(self, address: Any, stride: Any, number: int) -> Any:
        """The address of a row."""
        return self.builder.add(address, self.builder.mul(stride, self._int(number)))

    def _spread(self, address: Any, kind: Any) -> Any:
        """A number, in all lanes of a vector."""
        ir, builder = self.ir, self.builder
        nothing, zero = ir.Constant(ir.VectorType(kind, self.lanes), ir.Undefined), ir.Constant(ir.IntType(32), 0)
        first = builder.insert_element(nothing, self._load(address, kind), zero)
        where = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(first, nothing, where)
