"""What the system `similar` is served from: narrow keys in bytes, and the words of the segments, weighted.

Keys of both sides are projected to their principal components, so that little is lost of the distances between them,
and kept in bytes. What the projection takes from a typical distance it gives back by a factor, so that distances, and
with them temperatures, mean what they mean between whole keys. Segments are compared as a search engine does (BM25,
Robertson et al. 1994), over the ids of the source tokens that have links: each keeps its share in the score.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.build.stages import Job
from knnmt.csr import Int64, blocks, offsets_of
from knnmt.errors import UsageError
from knnmt.store import arrays

Float32 = NDArray[np.float32]

SAMPLE = 1 << 16  # keys that the components are found from
COMPARED = 1 << 12  # of them at a time; and those whose distances are to be kept
ROWS = 1 << 14  # keys that are projected at a time
K1, B = 1.2, 0.75  # of BM25: how soon more of the same word says no more, and how much long segments are held back
SHARE = 512  # of a point of BM25: shares are whole numbers, whose sum is the same in any order
STEP = 8  # numbers that the width of a target key is a multiple of
LEAST, MOST = 32, 128  # numbers of a target key, where no budget is given


def make_similar(job: Job) -> None:
    """Write the arrays of the system: narrow keys of both sides, and segments by their tokens."""
    keys = {side: arrays.read(job.part / f"{side}_keys.npy") for side in ("source", "target")}
    advance = job.watch("similar", 2 * sum(map(len, keys.values())))
    made = _segments(job)
    for name, values in made.items():
        arrays.write(job.part / f"{name}.npy", values)
    width = keys["target"].shape[1]
    sizes = {"source": min(width, max(16, min(64, width // 8)))}
    sizes["target"] = _target_size(job, len(keys["target"]), width, made, len(keys["source"]) * sizes["source"])
    for side, states in keys.items():
        matrix = principal(states, sizes[side], job.settings.seed)
        low, high = (edge(np.array(list(_projected(states, matrix, edge))), axis=0) for edge in (np.min, np.max))
        advance(len(states))
        # one step for all numbers: those that vary little are small, and need few
        step = max(float((high - low).max()) / 254, 1e-12)
        middle = (low + high) / 2 / step
        whole = arrays.create(job.part / f"small_{side}.npy", "int8", (len(states), sizes[side]))
        at = 0
        for some in _projected(states, matrix / np.float32(step)):
            whole[at : at + len(some)] = np.rint(some - middle)
            at += len(some)
            advance(len(some))
        for name, values in {"projection": matrix / step, "middle": middle, "step": np.array([step])}.items():
            arrays.write(job.part / f"small_{side}_{name}.npy", values.astype(np.float32))


def _projected(states: NDArray[Any], matrix: Float32, of: Callable[..., Float32] | None = None) -> Iterator[Float32]:
    """Blocks of states (N, d), projected; `of` each block, taken over its rows."""
    for start in range(0, len(states), ROWS):
        rows = states[start : start + ROWS]
        # a matrix product may round otherwise at another size: all have the same, the last one is filled up
        filled = np.zeros((ROWS, states.shape[1]), np.float32)
        filled[: len(rows)] = rows
        block: Float32 = (filled @ matrix)[: len(rows)]
        yield block if of is None else of(block, axis=0)


def principal(states: NDArray[Any], size: int, seed: int = 0) -> Float32:
    """The matrix (d, size) that projects states (N, d) to their principal components, scaled to keep distances.

    Found from a sample of the rows. Where there is nothing to leave out, it is the identity.
    """
    count, width = states.shape
    if size >= width:
        return np.eye(width, dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = rng.choice(count, min(count, SAMPLE), replace=False)
    total, products = np.zeros(width), np.zeros((width, width))
    for some in np.split(np.sort(rows), range(COMPARED, rows.size, COMPARED)):
        sample = states[some].astype(np.float64)
        total += sample.sum(axis=0)
        products += sample.T @ sample
    _, vectors = np.linalg.eigh(products - np.outer(total, total) / rows.size)
    vectors = vectors[:, ::-1][:, :size]
    # which of the two directions a vector points in is left open: towards its largest number
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(size)])
    apart = np.diff(states[rows[:COMPARED]].astype(np.float64), axis=0)
    kept, whole = (np.median(np.square(each).sum(axis=1)) if len(each) else 0.0 for each in (apart @ vectors, apart))
    matrix: Float32 = (vectors * np.sqrt(whole / kept if kept > 0 else 1.0)).astype(np.float32)
    return matrix


def _segments(job: Job) -> dict[str, NDArray[Any]]:
    """The segment of each stored token and its share in that segment's score; and the tokens of each segment."""
    read = {
        name: arrays.read(job.part / f"{name}.npy")
        for name in ("type_offsets", "link_offsets", "link_entries", "target_offsets")
    }
    first = read["link_entries"][read["link_offsets"][:-1]]
    segments = np.searchsorted(read["target_offsets"], first, side="right") - 1
    count = read["target_offsets"].size - 1
    return {
        "token_segments": segments.astype(np.int32),
        "token_shares": shares(read["type_offsets"], segments, count),
        "segment_starts": offsets_of(np.bincount(segments, minlength=count)),
        "segment_tokens": np.argsort(segments, kind="stable").astype(np.int32),
    }


def shares(type_offsets: Int64, segments: Int64, count: int) -> NDArray[np.int16]:
    """What each token adds to the BM25 score of its segment, when a sentence has its type. (tokens,).

    type_offsets: (V + 1,), where each type's tokens begin; segments: (tokens,), of each; count: of segments
    """
    lengths = np.bincount(segments, minlength=count)
    brake = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean())))
    found = np.empty(segments.size, np.int16)
    for begin, end in blocks(32 * type_offsets):
        here = slice(int(type_offsets[begin]), int(type_offsets[end]))
        some = segments[here]
        types = np.repeat(np.arange(begin, end), np.diff(type_offsets[begin : end + 1]))
        pairs, place, often = np.unique(types * count + some, return_inverse=True, return_counts=True)
        spread = np.bincount(pairs // count - begin, minlength=end - begin)  # segments that a type is in
        rarity = np.log1p((count - spread + 0.5) / (spread + 0.5))
        score = rarity[types - begin] * (K1 + 1) / (often[place] + brake[some])
        found[here] = np.rint(SHARE * score)
    return found


def _target_size(job: Job, entries: int, width: int, made: dict[str, NDArray[Any]], source: int) -> int:
    """The numbers of a target key: what a budget leaves for it, or without one a quarter of whole 16-bit keys."""
    others = ("target_ids", "target_offsets", "type_offsets", "link_offsets", "link_entries")
    rest = source + sum(array.nbytes for array in made.values())
    rest += sum(arrays.read(job.part / f"{name}.npy").nbytes for name in others)
    if (budget := job.settings.budget) is None:
        fitting = (width * entries // 2 - rest) // entries
        return min(width, max(LEAST, min(MOST, fitting - fitting % STEP)))
    fitting = (budget - rest - 4 * width * (MOST + 64)) // entries  # a projection takes some room too
    if fitting < min(STEP, width):
        least = rest + 4 * width * (MOST + 64) + min(STEP, width) * entries
        raise UsageError(f"a budget of {budget:,} bytes is too small for this text: give at least {least:,}")
    return int(min(width, MOST, max(STEP, fitting - fitting % STEP)))
