"""Clusters of states: k-means inside every group of rows, the centroids, and what each cluster links to, ranked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.build.lloyd import DISTANCES, Float16, States, assign, read, train
from knnmt.build.workers import parallel
from knnmt.csr import Int32, Int64, blocks, offsets_of, rises
from knnmt.errors import DataError, UsageError
from knnmt.systems.levels import COARSE_FROM

Float32 = NDArray[np.float32]
Pieces = NDArray[Any]

TRAINING_ROWS = 256  # a centroid: more make k-means slower and hardly better, as FAISS has it
STUCK = 0.95  # share of the rows in one part from which k-means is taken not to have separated them
BATCH_BYTES = 1 << 24  # of states that k-means runs over again and again: a few times a core's cache
BATCH_BYTES_GPU = 1 << 28
THREADS_GPU = 4  # that prepare batches for a GPU
# stretches of the order that k-means is to split: begin, size, parts to make, random key, level
PIECE = [("begins", "i8"), ("sizes", "i8"), ("parts", "i8"), ("keys", "u8"), ("coarse", "?")]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Rows of G groups in C clusters, and Q coarse clusters of the groups that have two levels.

    order: (N,) int64, rows of the states: clusters one after another, inside each in the order they had
    starts: (C + 1,) int64, where each cluster begins in the order
    offsets: (G + 1,) int64, where each group's clusters begin
    coarse_offsets: (G + 1,) int64, where each group's coarse clusters begin; a group of one level has none
    coarse_ranges: (Q, 2) int64, each coarse cluster's first cluster, and the one after its last
    """

    order: Int64
    starts: Int64
    offsets: Int64
    coarse_offsets: Int64
    coarse_ranges: Int64


@dataclass(frozen=True, eq=False)
class Ranking:
    """The target entries of C clusters, the nearest to the cluster's target centroid first.

    centroids: (C, d) float16, zero for a cluster without links; offsets: (C + 1,) int64, where each list begins
    entries, tokens: (R,) int32; distances: (R,) float32, squared, to the centroid as it is stored
    """

    centroids: Float16
    offsets: Int64
    entries: Int32
    tokens: Int32
    distances: Float32


def cluster(
    states: States,
    offsets: Int64,
    m: int,
    *,
    order: Int64 | None = None,
    cap: int | None = None,
    iterations: int = 10,
    seed: int = 0,
    coarse_from: int = COARSE_FROM,
    memory: int = 1 << 30,
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Clusters:
    """Split each group of f rows into ceil(f / m) clusters by k-means, and again those of more than `cap` rows.

    Equal rows share a cluster, so that there can be fewer, up to the cap (2m unless told), where they are
    cut in their order. A group's clusters depend on its rows, its number and the seed alone.

    states: (M, d) float16, memory-mapped or on a GPU; offsets: (G + 1,) int64, where each group begins in the
    order; order: (N,) int64, rows of the states, all of them as they come if None; memory: bytes of states
    and distances held at a time; progress is told the rows that have found their cluster since it last was
    """
    order = np.arange(states.shape[0]) if order is None else np.array(order, np.int64)
    cap = 2 * m if cap is None else cap
    if not 0 < m <= cap:
        raise UsageError(f"clusters of {m} rows, capped at {cap}: give a positive size, and a cap not below it")
    if not rises(offsets, order.size):
        raise DataError(f"clusters: the groups' offsets do not rise from 0 to the {order.size} rows")
    begun = np.zeros(order.size + 1, bool)  # whether a cluster begins here
    begun[offsets] = True
    pieces = _first_pieces(offsets, m, coarse_from, seed)
    coarse = [np.empty((0, 2), np.int64)]
    progress = progress or (lambda rows: None)
    progress(order.size - int(pieces["sizes"].sum()))

    def split(batch: Pieces) -> Int64:
        return _split(states, order, batch, iterations, memory)

    on_gpu = isinstance(states, Tensor)
    workers = min(workers, THREADS_GPU) if on_gpu else workers
    while pieces.size:
        following = [pieces[:0]]
        for batch, counts in parallel(split, _batches(pieces, states.shape[1], memory, on_gpu), workers, memory):
            parent, part = np.nonzero(counts)
            sizes, batch = counts[parent, part], batch[parent]
            inside = (np.cumsum(counts, axis=1) - counts)[parent, part]
            begins = batch["begins"] + inside
            begun[begins] = True
            coarse.append(np.stack([begins, begins + sizes], axis=1)[batch["coarse"]])
            large = sizes > np.where(batch["coarse"], m, cap)
            stuck = large & ~batch["coarse"] & (sizes > STUCK * batch["sizes"])
            for begin, size in zip(begins[stuck], sizes[stuck], strict=True):
                parts = -(-size // m)
                begun[begin + np.arange(parts) * size // parts] = True
            keys = _mix(batch["keys"] + inside.astype(np.uint64))
            rest = np.rec.fromarrays((begins, sizes, -(-sizes // m), keys, np.zeros(sizes.size, bool)), dtype=PIECE)
            rest = rest[large & ~stuck]
            following.append(rest)
            progress(int(sizes.sum() - rest["sizes"].sum()))
        pieces = np.concatenate(following)

    starts = np.flatnonzero(begun)
    ranges = np.sort(np.concatenate(coarse), axis=0)
    coarse_offsets, coarse_ranges = np.searchsorted(ranges[:, 0], offsets), np.searchsorted(starts, ranges)
    return Clusters(order, starts, np.searchsorted(starts, offsets), coarse_offsets, coarse_ranges)


def centroids(
    states: States,
    order: Int64,
    starts: Int64,
    unit: bool = False,
    workers: int = 1,
    out: Float16 | None = None,
) -> Float16:
    """Return the mean of each cluster's rows, (C, d) float16, zero where there are none.

    states: (M, d) float16, memory-mapped or on a GPU; order: (N,) int64, rows of the states; starts: (C + 1,)
    int64, where each cluster begins in the order; unit: bring the means to length 1 (for cosine); out: where
    they are written, block by block, such as a memory-map
    """
    means = np.empty((starts.size - 1, states.shape[1]), np.float16) if out is None else out

    def average(block: tuple[int, int]) -> None:
        first, last = block
        means[first:last] = _means(states, order, starts[first : last + 1], unit, first)

    for _ in parallel(average, ((block, 0) for block in blocks(states.shape[1] * starts)), workers):
        pass
    return means


def rank(
    target_keys: States,
    target_ids: Int32,
    cluster_starts: Int64,
    link_offsets: Int64,
    link_entries: NDArray[np.integer[Any]],
    k_max: int | None,
    unit: bool = False,
    workers: int = 1,
    out: Float16 | None = None,
) -> Ranking:
    """Rank the target entries that each cluster's tokens link to by their distance to the entries' centroid.

    An entry counts once in a cluster, however many of its tokens link to it. The k_max nearest are listed,
    all if None; of entries equally near, the lower number goes first.

    target_keys: (E, d) float16, memory-mapped or on a GPU; target_ids: (E,) int32; cluster_starts: (C + 1,) int64,
    where each cluster begins in the tokens; link_offsets: (tokens + 1,) int64, where each token's links begin
    in link_entries: (L,) rows of the keys; unit: bring the centroids to length 1 (for cosine); out: where the
    centroids are written, as in `centroids`
    """
    means = np.empty((cluster_starts.size - 1, target_keys.shape[1]), np.float16) if out is None else out
    counts = np.zeros(cluster_starts.size - 1, np.int64)
    links = link_offsets[cluster_starts]

    def rank_block(block: tuple[int, int]) -> tuple[Int32, Float32]:
        first, last = block
        here = np.repeat(np.arange(last - first), np.diff(links[first : last + 1]))
        linked = link_entries[links[first] : links[last]].astype(np.int64)
        pairs = np.unique(here * target_ids.size + linked)  # by cluster, then by entry
        here, linked = np.divmod(pairs, target_ids.size)
        starts = np.searchsorted(here, np.arange(last - first + 1))
        means[first:last] = _means(target_keys, linked, starts, unit, first)
        distances = _distances(target_keys, linked, means[first:last], here)
        nearest = np.lexsort((distances, here))  # stable: entries still rise where the distance is the same
        if k_max is not None:
            nearest = nearest[np.arange(here.size) - starts[here] < k_max]
        counts[first:last] = np.bincount(here[nearest], minlength=last - first)
        return linked[nearest].astype(np.int32), distances[nearest]

    # A cluster without links still takes the room of its centroid.
    jobs = ((block, 0) for block in blocks(target_keys.shape[1] * (links + np.arange(links.size))))
    ranked = sorted(parallel(rank_block, jobs, workers), key=itemgetter(0))
    entries = np.concatenate([np.empty(0, np.int32), *(lists for _, (lists, _) in ranked)])
    distances = np.concatenate([np.empty(0, np.float32), *(lists for _, (_, lists) in ranked)])
    return Ranking(means, offsets_of(counts), entries, target_ids[entries], distances)


def _first_pieces(offsets: Int64, m: int, coarse_from: int, seed: int) -> Pieces:
    """List the groups that have more than one cluster, the largest with their coarse clusters as parts."""
    sizes = np.diff(offsets)
    groups = np.flatnonzero(sizes > m)
    parts = -(-sizes[groups] // m)
    coarse = parts > coarse_from
    keys = _mix(_mix(np.array([seed % 2**64], np.uint64)) + groups.astype(np.uint64))
    parts = np.where(coarse, np.ceil(np.sqrt(parts)).astype(np.int64), parts)
    return np.rec.fromarrays((offsets[groups], sizes[groups], parts, keys, coarse), dtype=PIECE)


def _batches(pieces: Pieces, width: int, memory: int, on_gpu: bool) -> Iterator[tuple[Pieces, int]]:
    """Put pieces of one size together (none needs padding), the largest first; say how many bytes a batch takes.

    On a GPU, where a batch costs the more the less is in it, those of half the size are padded; what is trained on a
    sample of its rows has a batch of its own.
    """
    room = min(memory, BATCH_BYTES_GPU if on_gpu else BATCH_BYTES)
    pieces = pieces[np.lexsort((pieces["begins"], -pieces["sizes"]))]
    first = 0
    while first < pieces.size:
        size, parts = int(pieces["sizes"][first]), int(pieces["parts"][first])
        trained = _training_rows(size, parts, width, memory)
        values = width * (trained + 2 * parts)
        cost = 8 * values + 4 * min(size * parts, DISTANCES)  # a value is read as float16, and copied to float32
        least = -(-size // 2) if on_gpu and trained == size else size
        last = int(np.searchsorted(-pieces["sizes"], -least, side="right"))
        batch = pieces[first : min(last, first + max(1, room // cost))]
        yield batch, cost * batch.size
        first += batch.size


def _training_rows(size: int, parts: int, width: int, memory: int) -> int:
    """Return how many of a piece's rows k-means is trained on."""
    return min(size, parts * TRAINING_ROWS, max(parts, memory // (16 * width)))


def _split(states: States, order: Int64, pieces: Pieces, iterations: int, memory: int) -> Int64:
    """Sort the rows of B pieces by the part that k-means puts them in; count the parts' rows.

    order: (N,) int64, changed in place where the pieces are; returns (B, parts) int64
    """
    size, parts = int(pieces["sizes"].max()), int(pieces["parts"].max())
    inside = np.arange(size) < pieces["sizes"][:, None]  # the rest is padding
    places = pieces["begins"][:, None] + np.where(inside, np.arange(size), 0)
    rows = order[places]
    draws = _mix(pieces["keys"][:, None] + np.arange(size).astype(np.uint64))
    shuffled = np.argsort(np.where(inside, draws, np.iinfo(np.uint64).max), axis=1)
    means = read(states, np.take_along_axis(rows, shuffled[:, :parts], axis=1))
    trained = _training_rows(size, parts, states.shape[1], memory)
    if trained == size:
        points = read(states, rows)
        means = train(points, means, iterations, pieces["sizes"], pieces["parts"])
        labels = assign(points, means, pieces["parts"])
    else:
        sample = np.take_along_axis(rows, shuffled[:, :trained], axis=1)
        means = train(read(states, sample), means, iterations)
        cuts = np.split(rows, range(trained, size, trained), axis=1)
        labels = np.concatenate([assign(read(states, cut), means) for cut in cuts], axis=1)
    labels[~inside] = parts  # behind all others
    order[places[inside]] = np.take_along_axis(rows, np.argsort(labels, axis=1, kind="stable"), axis=1)[inside]
    labels += (parts + 1) * np.arange(len(rows))[:, None]
    return np.bincount(labels.ravel(), minlength=len(rows) * (parts + 1)).reshape(len(rows), parts + 1)[:, :parts]


def _means(states: States, rows: Int64, starts: Int64, unit: bool, number: int) -> Float16:
    """Average the rows of some clusters, the first of which has this number; starts: (c + 1,) int64, in the rows."""
    counts = np.diff(starts)
    labels = np.repeat(np.arange(counts.size), counts)
    sums = np.zeros((counts.size, states.shape[1]))
    for part in _stretches(labels.size, states.shape[1]):
        first, last = labels[part][0], labels[part][-1] + 1
        points = read(states, rows[starts[0] :][part])[:, : states.shape[1]].double()
        lengths = torch.from_numpy(np.bincount(labels[part] - first)).to(points.device)
        sums[first:last] += torch.segment_reduce(points, "sum", lengths=lengths, axis=0).cpu().numpy()
    means = sums / np.maximum(counts, 1)[:, None]
    if unit:
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    if not np.isfinite(means).all():
        wrong = number + int(np.flatnonzero(~np.isfinite(means).all(axis=1))[0])
        raise DataError(f"cluster {wrong}: the mean of its states is not finite: some are too large for float16")
    return means.astype(np.float16)


def _distances(keys: States, rows: Int64, means: Float16, labels: Int64) -> Float32:
    """Return the squared distance of each row's key to the mean it is labelled with, (rows,) float32."""
    distances = np.empty(rows.size, np.float32)
    for part in _stretches(rows.size, keys.shape[1]):
        points = read(keys, rows[part])
        difference = points - read(means, labels[part])[:, : points.size(1)].to(points.device)
        distances[part] = difference.square_().sum(dim=1).cpu().numpy()
    return distances


def _stretches(count: int, width: int) -> Iterator[slice]:
    """Cut rows of this width into stretches of BATCH_BYTES in float64."""
    step = max(1, BATCH_BYTES // (8 * width))
    return (slice(at, min(at + step, count)) for at in range(0, count, step))


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Turn numbers into random ones (the finaliser of SplitMix64): the same for each, whatever stands around it."""
    keys = keys * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
