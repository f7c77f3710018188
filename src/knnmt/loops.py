"""Loops that are compiled for a CPU, and shared out among its threads.

The threads are Python's: numba's own may not be used by several callers at once, and a loop without the interpreter's
lock needs no more.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.jit import intrinsic, jit

FREEDOM = {"nnan", "nsz", "arcp", "contract", "reassoc"}
compiled = jit(fastmath=FREEDOM)
inlined = jit(fastmath=FREEDOM, inline="always")  # for loops over little, where a call with many arrays takes long

LINE = 64  # bytes of a cache line
HALF_SHIFT, HALF_BITS = 13, 0x8FFFE000 - (1 << 32)
"""A float16's bits, shifted so far in an int32, and these of them kept, are the float32 that is 2^-112 times it."""


def share_out(loop: Callable[..., Any], sizes: NDArray[np.int64], least: int, *arguments: Any) -> None:
    """Call loop(first, last, *arguments) for all items, in parts of about the same size, on as many threads as torch's.

    sizes: (N,), how much work each item is; least: how much of it is worth a thread
    """
    run(loop, split(sizes, least), *arguments)


def split(sizes: NDArray[np.int64], least: int) -> list[tuple[int, int]]:
    """The parts that `share_out` makes of items, the first and the last of each."""
    threads = torch.get_num_threads()
    whole = int(sizes.sum()) if threads > 1 else 0
    parts = min(threads, whole // least)
    if parts < 2:
        return [(0, len(sizes))]
    ends = sizes.cumsum()
    inner = np.searchsorted(ends - sizes // 2, whole * np.arange(1, parts) // parts)  # an item is where its middle is
    return list(pairwise(np.unique([0, *inner, len(sizes)]).tolist()))


def run(loop: Callable[..., Any], parts: list[tuple[int, int]], *arguments: Any) -> None:
    """Call loop(first, last, *arguments) for all parts at once, the last of them here."""
    waiting = [_threads().submit(loop, first, last, *arguments) for first, last in parts[:-1]]
    loop(*parts[-1], *arguments)
    for part in waiting:
        part.result()


def share_evenly(loop: Callable[..., Any], count: int, size: int, least: int, *arguments: Any) -> None:
    """Call loop(first, last, *arguments) for `count` items of the same size, as `share_out` does."""
    parts = min(torch.get_num_threads(), count, count * size // least)
    if parts < 2:
        loop(0, count, *arguments)
        return
    ends = [count * part // parts for part in range(parts + 1)]
    waiting = [_threads().submit(loop, *part, *arguments) for part in pairwise(ends[:-1])]
    loop(ends[-2], ends[-1], *arguments)
    for each in waiting:
        each.result()


def work_together(loop: Callable[..., Any], workers: int, *arguments: Any) -> None:
    """Call loop(worker, workers, workers, …) for all workers at once, of which the first is this thread.

    Parts of the work are taken with `take`, so that nobody waits for those who come late.
    """
    others = [_threads().submit(loop, worker, workers, workers, *arguments) for worker in range(1, workers)]
    loop(0, workers, workers, *arguments)
    for each in others:
        if not each.cancel():
            each.result()


@intrinsic
def take(context: Any, address: Any, count: Any) -> Any:
    """Add to the int64 at an address that threads share, and give what was there before."""
    from numba.core import types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, added = arguments
        return builder.atomic_rmw("add", builder.inttoptr(place, added.type.as_pointer()), added, "seq_cst")

    return types.int64(types.int64, types.int64), write


@intrinsic
def element(context: Any, kind: Any, address: Any, index: Any) -> Any:
    """What is at a place of an array, by the array's address. kind: a literal, the bits of its integers (those of up to
    32 are given as int32), or 0 for float32."""
    from llvmlite import ir
    from numba.core import types

    bits = kind.literal_value
    given = types.int64 if bits == 64 else types.int32 if bits else types.float32

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = ir.IntType(bits) if bits else ir.FloatType()
        place = builder.gep(builder.inttoptr(arguments[1], stored.as_pointer()), [arguments[2]])
        found = builder.load(place)
        return builder.sext(found, ir.IntType(32)) if 0 < bits < 32 else found

    return given(kind, types.int64, types.int64), write


@intrinsic
def put(context: Any, address: Any, index: Any, value: Any) -> Any:
    """Write a float32 to a place of an array, by the array's address."""
    from llvmlite import ir
    from numba.core import types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(builder.inttoptr(arguments[0], ir.FloatType().as_pointer()), [arguments[1]])
        builder.store(arguments[2], place)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), write


@intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which may be any, without waiting for it."""
    from llvmlite import ir
    from numba.core import cgutils, types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        to_read, keep, data = number(0), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], byte), to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), write


@compiled
def fetch(address: int, size: int) -> None:
    """Have so many bytes at an address on the way to the cache, without waiting for them."""
    for at in range(address, address + size, LINE):
        prefetch(at)


@intrinsic
def larger(context: Any, one: Any, other: Any) -> Any:
    """The larger of two float32, none of them NaN: unlike `max`, in loops that LLVM makes vectors of."""
    from numba.core import types

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flags = ["nnan", "nsz"]
        return builder.select(builder.fcmp_ordered(">", *arguments, flags=flags), *arguments, flags=flags)

    return types.float32(types.float32, types.float32), write


@compiled
def largest(row: Any) -> Any:
    """The maximum of a row of float32."""
    most = np.float32(-np.inf)
    for number in range(len(row)):
        most = larger(most, row[number])
    return most


@compiled
def last_begun(starts: Any, number: int) -> int:
    """The last of blocks that begins at or before a number. starts: (P,), where each begins, rising, the first at 0."""
    low, high = 0, len(starts)  # it is in low..high - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= number:
            low = middle
        else:
            high = middle
    return low


@compiled
def powers_of_two(values: Any, bits: Any) -> Any:
    """2^x of a row of float32 between -126 and 126, in place; gives their sum. bits: as many int32, to compute with.

    2^x is 2^i·2^f with -½ ≤ f ≤ ½: so many terms of its series are exact to the last bit or two, and vectors compute
    them, while a call of exp computes one number at a time. Exponents beyond the range count as its ends.
    """
    for number in range(len(values)):
        x = min(max(values[number], np.float32(-126.0)), np.float32(126.0))
        i = np.floor(x + np.float32(0.5))
        f = np.float32(0.6931471805599453) * (x - i)
        series = np.float32(1 / 720)
        for factor in (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = series * f + np.float32(factor)
        values[number] = series
        bits[number] = (np.int32(i) + np.int32(127)) << np.int32(23)  # those of 2^i
    scales = bits.view(np.float32)
    whole = np.float32(0.0)
    for number in range(len(values)):
        values[number] *= scales[number]
        whole += values[number]
    return whole


@compiled
def logarithms(values: Any, added: Any) -> None:
    """ln x + a number, of a row of positive float32 that are not denormal, in place.

    ln x is i·ln 2 + ln m with 0.7 < m < 1.42, and ln m = 2·artanh((m − 1)/(m + 1)): so many terms of its series are
    exact to the last bit or two.
    """
    raw = values.view(np.int32)
    for number in range(len(values)):
        whole = (raw[number] - np.int32(0x3F3504F3)) >> np.int32(23)
        part = np.int32(raw[number] - (whole << np.int32(23))).view(np.float32)
        ratio = (part - np.float32(1.0)) / (part + np.float32(1.0))
        square = ratio * ratio
        series = np.float32(2 / 9)
        for factor in (2 / 7, 2 / 5, 2 / 3, 2.0):
            series = series * square + np.float32(factor)
        values[number] = np.float32(whole) * np.float32(0.6931471805599453) + ratio * series + np.float32(added)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads that wait for their part."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="knnmt-loops")
