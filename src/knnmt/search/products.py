"""Products of a stored row with a few queries, by vectors that are written out.

However many queries there are, each one's product is summed in the same order: a search finds the same for a query,
to the bit, whoever asks with it. LLVM's own vectors of a loop are as wide as suits the loop.
"""

from typing import Any

from knnmt.jit import intrinsic, jit

LANES = 16  # sums that a product is made of, which are added up at the end
SHIFT, KEPT = 13, 0x8FFFE000 - (1 << 32)
"""A float16's bits, shifted into a float32 with the sign moved to the front, are the same number times 2^-112."""

exact = jit()  # without the freedom to add in another order


@exact
def multiply_halves(count: int, row: int, width: int, a: int, b: int, c: int, d: int, e: int, into: int) -> None:
    """Write the products of a float16 row, times 2^-112, with up to five queries of float32; all are addresses."""
    if count == 1:
        products(16, 1, row, width, a, b, c, d, e, into)
    elif count == 2:
        products(16, 2, row, width, a, b, c, d, e, into)
    elif count == 3:
        products(16, 3, row, width, a, b, c, d, e, into)
    elif count == 4:
        products(16, 4, row, width, a, b, c, d, e, into)
    else:
        products(16, 5, row, width, a, b, c, d, e, into)


@exact
def multiply_bytes(count: int, row: int, width: int, a: int, b: int, c: int, d: int, e: int, into: int) -> None:
    """Write the products of a row in bytes with up to five queries of float32; all are addresses."""
    if count == 1:
        products(8, 1, row, width, a, b, c, d, e, into)
    elif count == 2:
        products(8, 2, row, width, a, b, c, d, e, into)
    elif count == 3:
        products(8, 3, row, width, a, b, c, d, e, into)
    elif count == 4:
        products(8, 4, row, width, a, b, c, d, e, into)
    else:
        products(8, 5, row, width, a, b, c, d, e, into)


@intrinsic
def products(
    context: Any, bits: Any, number: Any, row: Any, width: Any, a: Any, b: Any, c: Any, d: Any, e: Any, into: Any
) -> Any:
    """Write the products of a row with the first of five queries. bits, number: literals, those of a row's number, and
    how many queries there are."""
    from llvmlite import ir
    from numba.core import cgutils, types

    size, queries = bits.literal_value, number.literal_value
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
            value = builder.and_(builder.shl(value, all_of(SHIFT)), all_of(KEPT))
            value = builder.bitcast(value, wide(real))
        else:
            value = builder.sitofp(value, wide(real))
        for query, place in enumerate(sums):
            product = builder.fmul(value, load(arguments[4 + query], real), flags=["contract"])
            builder.store(builder.fadd(builder.load(place), product, flags=["contract"]), place)

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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
        return context.get_dummy_value()

    return types.void(bits, number, *[types.int64] * 8), write
