"""Products of a stored row with a few queries, by vectors that are written out.

However many queries there are, each one's product is summed in the same order: a search finds the same for a query,
to the bit, whoever asks with it. LLVM's own vectors of a loop are as wide as suits the loop.
"""

from typing import Any

from knnmt.jit import intrinsic, jit
from knnmt.loops import HALF_BITS, HALF_SHIFT

LANES = 16  # sums that a product is made of, which are added up at the end
TOGETHER = 5  # queries that a row is multiplied with when it is read: a usual number of beams

exact = jit()  # without the freedom to add in another order


@exact
def multiply(size: int, count: int, row: int, width: int, a: int, b: int, c: int, d: int, e: int, into: int) -> None:
    """Write the products of a row with the first `count` of five queries of float32; all are addresses.

    size: bytes of a row's number: 1, or 2 of float16, whose products are 2^-112 of what they should be
    """
    if size == 1:
        products(8, count, row, width, a, b, c, d, e, into)
    else:
        products(16, count, row, width, a, b, c, d, e, into)


@intrinsic
def products(
    context: Any, bits: Any, count: Any, row: Any, width: Any, a: Any, b: Any, c: Any, d: Any, e: Any, into: Any
) -> Any:
    """Write the products of a row with the first of five queries. bits: a literal, those of a row's number."""
    from llvmlite import ir
    from numba.core import cgutils, types

    size = bits.literal_value
    stored, real, whole = ir.IntType(size), ir.FloatType(), ir.IntType(32)

    def terms(builder: Any, arguments: Any, at: Any, sums: list[Any], lanes: int) -> None:
        """Add the products from a place on to sums: `lanes` of them, or one."""

        def wide(kind: Any) -> Any:
            return ir.VectorType(kind, lanes) if lanes > 1 else kind

        def all_of(bits: int) -> Any:
            return ir.Constant(wide(whole), [bits] * lanes if lanes > 1 else bits)

        def load(address: Any, kind: Any) -> Any:
            place = builder.gep(builder.inttoptr(address, kind.as_pointer()), [at])
            found = builder.load(builder.bitcast(place, wide(kind).as_pointer()))
            found.align = kind.width // 8 if isinstance(kind, ir.IntType) else 4  # rows begin anywhere
            return found

        value = builder.sext(load(arguments[2], stored), wide(whole))
        if size == 16:
            value = builder.and_(builder.shl(value, all_of(HALF_SHIFT)), all_of(HALF_BITS))
            value = builder.bitcast(value, wide(real))
        else:
            value = builder.sitofp(value, wide(real))
        for query, place in enumerate(sums):
            product = builder.fmul(value, load(arguments[4 + query], real), flags=["contract"])
            builder.store(builder.fadd(builder.load(place), product, flags=["contract"]), place)

    def multiply_with(builder: Any, arguments: Any, queries: int) -> None:
        """Write the products with so many queries: their sums stay in registers."""
        width = arguments[3]
        lanes, step = ir.VectorType(real, LANES), width.type(LANES)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * LANES)) for _ in range(queries)]
        end = builder.sub(width, builder.srem(width, step))
        with cgutils.for_range_slice(builder, width.type(0), end, step) as (at, _):
            terms(builder, arguments, at, sums, LANES)
        totals = []
        for place in sums:
            found, half = builder.load(place), LANES // 2
            while half:
                low, high = (
                    builder.shuffle_vector(found, found, ir.Constant(ir.VectorType(whole, half), list(chosen)))
                    for chosen in (range(half), range(half, 2 * half))
                )
                found, half = builder.fadd(low, high), half // 2
            totals.append(cgutils.alloca_once_value(builder, builder.extract_element(found, whole(0))))
        with cgutils.for_range_slice(builder, end, width, width.type(1)) as (at, _):
            terms(builder, arguments, at, totals, 1)
        out = builder.inttoptr(arguments[9], real.as_pointer())
        for query, place in enumerate(totals):
            builder.store(builder.load(place), builder.gep(out, [whole(query)]))

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cases = [builder.append_basic_block(f"with {queries}") for queries in range(1, TOGETHER + 1)]
        behind = builder.append_basic_block("behind")
        choice = builder.switch(arguments[1], cases[-1])
        for queries, case in enumerate(cases, 1):
            choice.add_case(queries, case)
            with builder.goto_block(case):
                multiply_with(builder, arguments, queries)
                builder.branch(behind)
        builder.position_at_end(behind)
        return context.get_dummy_value()

    return types.void(bits, *[types.int64] * 9), write
