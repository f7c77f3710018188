"""Adding up runs that all begin with the same token, written for vectors: LLVM would keep the sums in memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.jit import intrinsic
from knnmt.loops import compiled

TOGETHER = 16  # tokens whose shares are added up at once, in a register
SIZE = 4  # bytes of a float


@compiled
def sum_runs(values: NDArray[np.float32], runs: NDArray[np.integer[Any]], total: NDArray[np.float32]) -> None:
    """Add up values, which are runs that all begin with the first token, to the total of each token.

    runs: int32, how long each is, falling. There is room for TOGETHER numbers behind the values and the totals.
    """
    for first in range(0, runs[0], TOGETHER):
        _sum(values.ctypes.data, runs.ctypes.data, len(runs), first, total.ctypes.data + SIZE * first)


@intrinsic
def _sum(context: Any, values: Any, runs: Any, count: Any, first: Any, into: Any) -> Any:
    """Write the totals of TOGETHER tokens from `first` on; all but `count` and `first` are addresses."""
    from llvmlite import ir
    from numba.core import types

    number, place = ir.IntType(32), ir.IntType(64)
    vector, lengths = ir.VectorType(ir.FloatType(), TOGETHER), ir.VectorType(number, TOGETHER)

    def spread(builder: Any, value: Any) -> Any:
        nothing = ir.Constant(lengths, ir.Undefined)
        one = builder.insert_element(nothing, value, number(0))
        return builder.shuffle_vector(one, nothing, ir.Constant(lengths, [0] * TOGETHER))

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, runs, count, first, into = arguments
        before = builder.block
        loop, body, add, end = (builder.append_basic_block(name) for name in ("runs", "run", "add", "summed"))
        builder.branch(loop)
        builder.position_at_end(loop)
        which, at, total = builder.phi(place), builder.phi(place), builder.phi(vector)
        for phi, begin in ((which, place(0)), (at, values), (total, ir.Constant(vector, [0.0] * TOGETHER))):
            phi.add_incoming(begin, before)
        builder.cbranch(builder.icmp_signed("<", which, count), body, end)
        builder.position_at_end(body)
        length = builder.load(builder.gep(builder.inttoptr(runs, number.as_pointer()), [which]))
        # the runs behind one that is too short are too short, too
        builder.cbranch(builder.icmp_signed(">", length, builder.trunc(first, number)), add, end)
        builder.position_at_end(add)
        left = spread(builder, builder.sub(length, builder.trunc(first, number)))
        there = builder.icmp_signed("<", ir.Constant(lengths, list(range(TOGETHER))), left)
        address = builder.add(at, builder.mul(first, place(SIZE)))
        read = builder.load(builder.inttoptr(address, vector.as_pointer()))
        read.align = SIZE
        added = builder.fadd(total, builder.select(there, read, ir.Constant(vector, [0.0] * TOGETHER)))
        following = builder.add(at, builder.mul(builder.sext(length, place), place(SIZE)))
        for phi, value in ((which, builder.add(which, place(1))), (at, following), (total, added)):
            phi.add_incoming(value, add)
        builder.branch(loop)
        builder.position_at_end(end)
        builder.store(total, builder.inttoptr(into, vector.as_pointer())).align = SIZE
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), write
