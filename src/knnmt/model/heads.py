"""The innermost loops of attention: four keys or values at a time, for all heads, in vectors.

The rows of a head are short, and LLVM makes vectors of long loops only.
"""

from typing import Any

from knnmt.jit import intrinsic

SIZE = 4  # bytes of a float
FOUR = 4  # rows at a time


@intrinsic
def compare(
    context: Any, lanes: Any, query: Any, rows: Any, heads: Any, size: Any, scale: Any, out: Any, to: Any
) -> Any:
    """The inner products of a query with four keys, times a scale, for each head.

    lanes: a literal, 4 or 16, that divides size; query: the address of (heads, size); rows: four addresses of the same;
    out: the address of four floats for the first head; to: how many bytes later those of the next one are
    """
    return _signature(lanes, rows, (query, heads, size, scale, out, to)), _Heads.writer(lanes.literal_value, "compare")


@intrinsic
def blend(context: Any, lanes: Any, weights: Any, rows: Any, heads: Any, size: Any, to: Any, out: Any) -> Any:
    """Add four values, weighted for each head, to `out`: the address of (heads, size), as each of rows.

    weights: the address of four floats for the first head; to: how many bytes later those of the next one are
    """
    return _signature(lanes, rows, (weights, heads, size, to, out)), _Heads.writer(lanes.literal_value, "blend")


def _signature(lanes: Any, rows: Any, others: Any) -> Any:
    from numba.core import types

    given = [types.float32 if isinstance(one, types.Float) else types.int64 for one in others]
    return types.void(lanes, given[0], rows, *given[1:])


class _Heads:
    """Writes the instructions."""

    def __init__(self, builder: Any, lanes: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.lanes = ir, builder, lanes
        self.vector = ir.VectorType(ir.FloatType(), lanes)

    @staticmethod
    def writer(lanes: int, name: str) -> Any:
        """What numba calls to write a function."""

        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from numba.core import cgutils

            first, rows, *others = arguments[1:]
            getattr(_Heads(builder, lanes), name)(first, cgutils.unpack_tuple(builder, rows), *others)
            return context.get_dummy_value()

        return write

    def compare(self, query: Any, rows: list[Any], heads: Any, size: Any, scale: Any, out: Any, to: Any) -> None:
        from numba.core import cgutils

        builder, length = self.builder, self._bytes(size)
        places = [cgutils.alloca_once(builder, self.vector) for _ in rows]
        with cgutils.for_range(builder, heads) as head:
            begin = builder.mul(head.index, length)
            for place in places:
                builder.store(self.ir.Constant(self.vector, [0.0] * self.lanes), place)
            with self._vectors(size, begin) as at:
                own = self._load(query, at)
                for place, row in zip(places, rows, strict=True):
                    builder.store(self._fused(own, self._load(row, at), builder.load(place)), place)
            a, b, c, d = map(builder.load, places)
            sums = self._folded(self._folded(a, b), self._folded(c, d))
            while sums.type.count > FOUR:
                sums = self._folded(sums)
            spread = self._spread(scale, FOUR)
            self._store(builder.fmul(sums, spread), out, builder.mul(head.index, to))

    def blend(self, weights: Any, rows: list[Any], heads: Any, size: Any, to: Any, out: Any) -> None:
        from numba.core import cgutils

        builder, length = self.builder, self._bytes(size)
        with cgutils.for_range(builder, heads) as head:
            own = builder.add(weights, builder.mul(head.index, to))
            shares = []
            for number in range(FOUR):
                place = builder.inttoptr(builder.add(own, self._int(number * SIZE)), self.ir.FloatType().as_pointer())
                shares.append(self._spread(builder.load(place), self.lanes))
            with self._vectors(size, builder.mul(head.index, length)) as at:
                sums = self._load(out, at)
                for share, row in zip(shares, rows, strict=True):
                    sums = self._fused(share, self._load(row, at), sums)
                self._store(sums, out, at)

    def _vectors(self, size: Any, begin: Any) -> Any:
        """A loop over the vectors of a row of `size` floats, as offsets in bytes from `begin` on."""
        from contextlib import contextmanager

        from numba.core import cgutils

        @contextmanager
        def loop() -> Any:
            with cgutils.for_range(self.builder, self.builder.udiv(size, self._int(self.lanes))) as each:
                yield self.builder.add(begin, self.builder.mul(each.index, self._int(self.lanes * SIZE)))

        return loop()

    def _folded(self, one: Any, other: Any = None) -> Any:
        """Sums of pairs: of the numbers of one vector, and then of the other's."""
        count = one.type.count
        both = count if other is None else 2 * count
        halves = []
        for start in (0, 1):
            mask = self.ir.Constant(
                self.ir.VectorType(self.ir.IntType(32), both // 2), list(range(start, both, 2))
            )  # fmt: skip
            halves.append(self.builder.shuffle_vector(one, one if other is None else other, mask))
        return self.builder.fadd(*halves)

    def _fused(self, one: Any, other: Any, added: Any) -> Any:
        flags = ["contract"]
        return self.builder.fadd(self.builder.fmul(one, other, flags=flags), added, flags=flags)

    def _spread(self, number: Any, lanes: int) -> Any:
        ir, builder = self.ir, self.builder
        nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
        first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))

    def _int(self, number: int) -> Any:
        return self.ir.Constant(self.ir.IntType(64), number)

    def _bytes(self, size: Any) -> Any:
        return self.builder.mul(size, self._int(SIZE))

    def _load(self, address: Any, offset: Any) -> Any:
        place = self.builder.inttoptr(self.builder.add(address, offset), self.vector.as_pointer())
        loaded = self.builder.load(place)
        loaded.align = SIZE
        return loaded

    def _store(self, numbers: Any, address: Any, offset: Any) -> None:
        place = self.builder.inttoptr(self.builder.add(address, offset), numbers.type.as_pointer())
        self.builder.store(numbers, place).align = SIZE
