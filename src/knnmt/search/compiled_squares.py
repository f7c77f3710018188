"""The squared distance of a row in bytes to a state, written for vectors: LLVM makes them of much longer rows only."""

from typing import Any

from knnmt.jit import intrinsic
from knnmt.loops import compiled, element

LANES = 16  # numbers that are compared at once


@compiled
def squared(row: int, state: int, width: int) -> Any:
    """The squared distance of a row of int8 to a state of float32, both (width,), by their addresses."""
    whole = width // LANES * LANES
    total = _squared(row, state, whole)
    for at in range(whole, width):
        apart = element(8, row, at) - element(0, state, at)
        total += apart * apart
    return total


@intrinsic
def _squared(context: Any, row: Any, state: Any, width: Any) -> Any:
    """The same of a width that is a multiple of LANES."""
    from llvmlite import ir
    from numba.core import cgutils, types

    number, float_ = ir.IntType(32), ir.FloatType()
    vector = ir.VectorType(float_, LANES)

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, state, width = arguments
        place = cgutils.alloca_once(builder, vector)
        builder.store(ir.Constant(vector, [0.0] * LANES), place)
        step = ir.IntType(64)(LANES)
        with cgutils.for_range(builder, builder.sdiv(width, step)) as loop:
            at = builder.mul(loop.index, step)
            read = builder.load(
                builder.inttoptr(builder.add(row, at), ir.VectorType(ir.IntType(8), LANES).as_pointer())
            )
            read.align = 1
            own = builder.inttoptr(builder.add(state, builder.mul(at, ir.IntType(64)(4))), vector.as_pointer())
            asked = builder.load(own)
            asked.align = 4
            values = builder.sitofp(builder.sext(read, ir.VectorType(number, LANES)), vector)
            apart = builder.fsub(values, asked)
            square = builder.fmul(apart, apart, flags=["contract"])
            builder.store(builder.fadd(builder.load(place), square, flags=["contract"]), place)
        total, lanes = builder.load(place), LANES
        while lanes > 1:  # the upper half is added to the lower one
            lanes //= 2
            halves = (
                ir.Constant(ir.VectorType(number, lanes), list(range(first, first + lanes))) for first in (0, lanes)
            )
            low, high = (builder.shuffle_vector(total, total, half) for half in halves)
            total = builder.fadd(low, high)
        return builder.extract_element(total, number(0))

    return types.float32(types.int64, types.int64, types.int64), write
