"""Stage `similar`: narrow keys, and the words of the segments, weighted.

Keys of both sides are projected to their principal components, so that little is lost of the distances between them.
On the source side each number is kept in a byte; on the target side two numbers are. There the components are turned
at random, so that all numbers vary alike and none wastes its few bits. What the projection takes from a typical
distance it gives back by a factor, so that distances, and with them temperatures, mean what they mean between whole
keys.

Segments are compared as a search engine does (BM25, Robertson et al. 1994), over the ids of the source tokens that have
links: each keeps its share in the score.

The parts of a store share the projections, which are found from the first, and weigh types by the whole store: their
distances and scores can be compared.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.build.context import Context
from knnmt.build.workers import alone, parallel
from knnmt.csr import Int64, blocks, offsets_of
from knnmt.errors import UsageError
from knnmt.store import schema

Float32 = NDArray[np.float32]

SAMPLE = 1 << 16  # keys that the components are found from
COMPARED = 1 << 12  # of them at a time; and those whose distances are to be kept
ROWS = 1 << 14  # keys that are projected at a time
K1, B = 1.2, 0.75  # of BM25: how soon more of the same word says no more, and how much long segments are held back
SHARE = 512  # of a point of BM25: shares are whole numbers, whose sum is the same in any order
STEP = 8  # bytes that the size of a target key is a multiple of
LEAST, MOST = 32, 128  # bytes of a target key, where no budget is given
WIDE = 256  # numbers of a state: wider ones have more to leave out
LARGEST = 127  # of a byte; the numbers of later parts may lie outside the range of the first
LOW, HIGH = -8, 7  # of half a byte
DEVIATIONS = 0.3352  # between two of 16 numbers that stand for a normal distribution with the least error (Max 1960)
# what `similar` opens besides keys: its size decides how much room is left for these
OPENED = (
    "target_ids", "target_offsets", "type_offsets", "link_offsets", "link_entries",
    "token_segments", "token_shares", "segment_starts", "segment_tokens",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of all parts: segments and tokens, and the number of segments that each source type is in: (V,) int64."""

    segments: int
    tokens: int
    spread: Int64


def make_similar(context: Context) -> None:
    """Write the arrays of the system: narrow keys of both sides, and segments by their tokens."""
    sides = ("source", "target")
    advance = context.watch("similar", sum(len(context[f"{side}_keys"]) for side in sides))
    context.write(**_segments(context))
    for side in sides:
        states = context[f"{side}_keys"]
        shared = {name: np.asarray(context.common(name)) for name in projection(side)}
        context.write(**shared)
        matrix, middle, _ = shared.values()
        size = int(context.common(f"small_{side}_size")[0])
        whole = context.create(f"small_{side}", "int8", (len(states), size))
        for at, some in _projected(states, matrix, context.workers, context.settings.memory):
            numbers = np.rint(some - middle)
            whole[at : at + len(some)] = (
                packed(numbers.clip(LOW, HIGH)) if size < len(middle) else numbers.clip(-LARGEST, LARGEST)
            )
            advance(len(some))


def packed(numbers: NDArray[Any]) -> NDArray[np.int8]:
    """Two whole numbers from -8 to 7 in each byte, the first in the lower half. (N, 2n) to (N, n)."""
    both = numbers.astype(np.int8)
    return both[:, ::2] & 15 | both[:, 1::2] << 4


def find_projections(context: Context) -> None:
    """Find what makes narrow keys of states, from those of a part, for all parts."""
    settings = context.settings
    for side in ("source", "target"):
        states, size = context[f"{side}_keys"], _size(context, side)
        numbers = size if side == "source" else numbers_of(size, context.width)
        matrix = principal(states, numbers, settings.seed, turned=numbers > size)
        if numbers > size:
            found = in_halves(states, matrix)
        else:
            found = in_bytes(states, matrix, context.workers, settings.memory)
        context.share(**dict(zip(projection(side), found, strict=True)))
        share_size(context, side, size)


def share_size(context: Context, side: str, size: int) -> None:
    """Tell all parts how many bytes a narrow key has."""
    context.share(**{f"small_{side}_size": np.array([size])})


def numbers_of(size: int, width: int) -> int:
    """How many numbers a target key of so many bytes has, of states of so many numbers."""
    return max(1, min(2 * size, width - width % 2))


def projection(side: str) -> list[str]:
    """The arrays that make few whole numbers of a state, rint(state @ projection - middle), which all parts share.

    They are (d, p), (p,), and the step between two numbers, (1,).
    """
    return [f"small_{side}_{name}" for name in ("projection", "middle", "step")]


def in_bytes(states: NDArray[Any], matrix: Float32, workers: int, memory: int) -> tuple[Float32, Float32, Float32]:
    """A projection (d, p) of states (N, d) in steps such that all numbers fit into bytes."""
    edges = np.array([(some.min(axis=0), some.max(axis=0)) for _, some in _projected(states, matrix, workers, memory)])
    low, high = edges[:, 0].min(axis=0), edges[:, 1].max(axis=0)
    # one step for all numbers: those that vary little are small, and need few
    step = np.float32(max(float((high - low).max()) / 254, 1e-12))
    return matrix / step, (low + high) / 2 / step, np.array([step])


def in_halves(states: NDArray[Any], matrix: Float32) -> tuple[Float32, Float32, Float32]:
    """A projection (d, p) of states (N, d) in steps such that numbers are best kept in half a byte."""
    rows = torch.from_numpy(states[:: max(1, len(states) // ROWS)].astype(np.float64))
    sample = alone(lambda: rows @ torch.from_numpy(matrix).double())
    step = np.float32(max(DEVIATIONS * float(sample.std(dim=0, correction=0).mean()), 1e-12))
    middle = sample.mean(dim=0) / float(step) - (LOW + HIGH) / 2
    return matrix / step, middle.float().numpy(), np.array([step])


def _projected(states: NDArray[Any], matrix: Float32, workers: int, memory: int) -> Iterator[tuple[int, Float32]]:
    """Where each block of states (N, d) begins, in any order, and the block, projected."""
    by = torch.from_numpy(np.array(matrix))

    def project(start: int) -> Float32:
        rows = states[start : start + ROWS]
        # a matrix product may round otherwise at another size: all have the same, the last one is padded
        filled = torch.zeros((ROWS, len(by)))
        filled[: len(rows)] = torch.from_numpy(np.array(rows))
        found: Float32 = (filled @ by)[: len(rows)].numpy()
        return found

    cost = 4 * ROWS * sum(by.shape)
    yield from parallel(project, ((start, cost) for start in range(0, len(states), ROWS)), workers, memory)


def principal(states: NDArray[Any], size: int, seed: int = 0, *, turned: bool = False) -> Float32:
    """The matrix (d, size) that projects states (N, d) to their principal components, scaled to keep distances.

    Found from a sample of the rows. Where there is nothing to leave out, it is the identity. turned: by a random turn
    of the components, which keeps their distances
    """
    count, width = states.shape
    random = np.random.default_rng(seed)
    rows = random.choice(count, min(count, SAMPLE), replace=False)
    turn = torch.from_numpy(random.standard_normal((size, size))) if turned else None

    def made() -> Tensor:
        vectors = _principal(states, rows, size) if size < width else torch.eye(width, dtype=torch.float64)
        return vectors if turn is None else vectors @ torch.linalg.qr(turn).Q

    return alone(made).float().numpy()


def _principal(states: NDArray[Any], rows: Int64, size: int) -> Tensor:
    """The same from these rows, (d, size) float64."""
    width = states.shape[1]
    total, products = torch.zeros(width, dtype=torch.float64), torch.zeros((width, width), dtype=torch.float64)
    for some in np.split(np.sort(rows), range(COMPARED, rows.size, COMPARED)):
        sample = torch.from_numpy(states[some]).double()
        total += sample.sum(dim=0)
        products += sample.T @ sample
    components: Tensor = torch.linalg.eigh(products - torch.outer(total, total) / rows.size).eigenvectors
    vectors = components.flip(1)[:, :size]
    # which of the two directions a vector points in is left open: towards its largest number
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    apart = torch.from_numpy(states[rows[:COMPARED]]).double().diff(dim=0)
    kept, whole = (
        float(np.median(each.square().sum(dim=1).numpy())) if len(each) else 0.0 for each in (apart @ vectors, apart)
    )
    return vectors * math.sqrt(whole / kept if kept > 0 else 1.0)


def _segments(context: Context) -> dict[str, NDArray[Any]]:
    """The segment of each stored token and its share in that segment's score; and the tokens of each segment."""
    type_offsets, offsets = context["type_offsets"], context["target_offsets"]
    segments = segments_of_tokens(context["link_offsets"], context["link_entries"], offsets)
    total, _, tokens, _ = context.common("totals").tolist()
    statistics = Statistics(total, tokens, context.common("type_segments"))
    count = offsets.size - 1
    return {
        "token_segments": segments.astype(np.int32),
        "token_shares": shares(type_offsets, segments, count, statistics),
        "segment_starts": offsets_of(np.bincount(segments, minlength=count)),
        "segment_tokens": np.argsort(segments, kind="stable").astype(np.int32),
        "type_segments": spread(type_offsets, segments, count).astype(np.int32),
    }


def segments_of_tokens(link_offsets: Int64, link_entries: NDArray[np.int32], target_offsets: Int64) -> Int64:
    """The segment of each stored token: that of the first entry it links to. (tokens,)."""
    return np.searchsorted(target_offsets, link_entries[link_offsets[:-1]], side="right") - 1


def spread(type_offsets: Int64, segments: Int64, count: int) -> Int64:
    """In how many of `count` segments each type is: (V,). segments: (tokens,), of each token, by type."""
    found = np.zeros(type_offsets.size - 1, np.int64)
    for begin, end in blocks(32 * type_offsets):
        pairs, _, _ = _pairs(type_offsets, segments, count, begin, end)
        found[begin:end] = np.bincount(pairs // count - begin, minlength=end - begin)
    return found


def shares(type_offsets: Int64, segments: Int64, count: int, statistics: Statistics) -> NDArray[np.int16]:
    """What each token adds to the BM25 score of its segment, when a sentence has its type. (tokens,).

    type_offsets: (V + 1,), where each type's tokens begin; segments: (tokens,), of each; count: of the part's segments
    """
    lengths = np.bincount(segments, minlength=count)
    brake = K1 * (1 - B + B * lengths / max(1.0, statistics.tokens / statistics.segments))
    rarity = np.log1p((statistics.segments - statistics.spread + 0.5) / (statistics.spread + 0.5))
    found = np.empty(segments.size, np.int16)
    for begin, end in blocks(32 * type_offsets):
        here = slice(int(type_offsets[begin]), int(type_offsets[end]))
        pairs, place, often = _pairs(type_offsets, segments, count, begin, end)
        score = rarity[pairs[place] // count] * (K1 + 1) / (often[place] + brake[segments[here]])
        found[here] = np.rint(SHARE * score)
    return found


def _pairs(type_offsets: Int64, segments: Int64, count: int, begin: int, end: int) -> tuple[Int64, Int64, Int64]:
    """The distinct pairs of type and segment, type * count + segment, of some types' tokens; and as `np.unique` gives
    them, the pair of each token, and how many tokens a pair has."""
    some = segments[int(type_offsets[begin]) : int(type_offsets[end])]
    types = np.repeat(np.arange(begin, end), np.diff(type_offsets[begin : end + 1]))
    return np.unique(types * count + some, return_inverse=True, return_counts=True)


def _size(context: Context, side: str) -> int:
    """The bytes of a key: on the source side an eighth of its numbers; on the target side what a budget leaves, or
    without one a share of 16-bit keys (a quarter, of wide keys a fifth), less what else the system opens."""
    width = context.width
    whole = (width + 1) // 2  # all numbers of a key
    of_source = min(width, max(16, min(64, width // 8)))
    if side == "source":
        return of_source
    segments, entries, tokens, links = context.common("totals").tolist()
    sizes = {"segments": segments, "entries": entries, "tokens": tokens, "links": links}
    sizes["source_vocabulary"] = context.vocabulary
    rest = of_source * tokens + sum(_bytes(name, sizes) for name in OPENED)
    rest += (entries - 1) // context.settings.part_tokens * _bytes("type_offsets", sizes)  # each further part has them
    if (budget := context.settings.budget) is None:
        fitting = (2 * width * entries // (4 if width <= WIDE else 5) - rest) // entries
        return int(min(whole, max(LEAST, min(MOST, fitting - fitting % STEP))))
    fixed = 4 * width * (2 * MOST + 64)  # a projection takes some room too
    fitting = (budget - rest - fixed) // entries
    if fitting < min(STEP, whole):
        least = rest + fixed + min(STEP, whole) * entries
        raise UsageError(f"a budget of {budget:,} bytes is too small for this text: give at least {least:,}")
    return int(min(whole, MOST, max(STEP, fitting - fitting % STEP)))


def _bytes(name: str, sizes: dict[str, int]) -> int:
    """The bytes of an array in a part of these sizes."""
    array = schema.ARRAYS[name]
    return int(np.prod(schema.shape_of(array, sizes))) * np.dtype(array.dtype).itemsize
