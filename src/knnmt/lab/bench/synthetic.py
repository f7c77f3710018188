"""A store of random tokens, in the true format, of any size and without a model: to see how a system grows.

Types are as frequent as words are (Zipf). Up to 10⁶ tokens it has what kNN-MT, Fast, Faster and its ablations need;
from 10⁷ on only what serves Faster: means, rankings and the coarse level. The arrays of `similar` are there if they are
asked for, at any size; prototypes are not. Arrays are written block by block, so that memory stays small.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knnmt.build import kmeans
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import DEVIATIONS, HIGH, LARGEST, LOW, SHARE, numbers_of, packed
from knnmt.csr import Int64, offsets_of
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.files import digest
from knnmt.store import arrays
from knnmt.store.manifest import Manifest, journal_name, publish, seal, work_folder
from knnmt.store.schema import sizes_of
from knnmt.systems import levels

KEYED_BELOW = 10**7  # tokens from which keys are left out, and clusters are as large as the paper's
SMALL, LARGE = 512, 2048  # tokens a cluster
SEGMENT = 25  # target tokens
ROWS = 1 << 14  # that are drawn at a time
NOISE = 0.5  # of a member around its mean, which is a draw from a normal distribution
STRIDE = 4_294_967_291  # a prime, so that i ↦ i·STRIDE mod tokens visits every entry once
MOST = 2**31 - 1  # tokens: the format numbers entries by int32

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """A synthetic store in numbers; `keyed` says whether it has keys, `similar` whether it serves that system."""

    tokens: int
    width: int = 256
    vocabulary: int = 32_000
    cluster_size: int | None = None  # by the number of tokens
    k_max: int = 128
    seed: int = 1
    similar: bool = False
    parts: int = 1  # of such a shape that one store has: their clusters of a frequent type lie around the same centres

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= MOST:
            raise UsageError(f"a store of {self.tokens:,} tokens is too large: the format counts up to {MOST:,}")

    @property
    def keyed(self) -> bool:
        """Whether it keeps keys, or only what serves Faster."""
        return self.tokens < KEYED_BELOW

    @property
    def size(self) -> int:
        """m: the tokens of a cluster."""
        return self.cluster_size or (SMALL if self.keyed else LARGE)

    @cached_property
    def counts(self) -> Int64:
        """The tokens of each type, the most frequent first. (V,)."""
        shares = 1.0 / np.arange(1, self.vocabulary + 1)
        counts = np.floor(self.tokens * shares / shares.sum()).astype(np.int64)
        counts[: self.tokens - int(counts.sum())] += 1
        found: Int64 = counts
        return found

    @cached_property
    def clusters(self) -> Int64:
        """Where each type's clusters begin. (V + 1,)."""
        return offsets_of(-(-self.counts // self.size))

    @cached_property
    def starts(self) -> Int64:
        """Where each cluster's tokens begin; a type's are of one size, give or take a token. (C + 1,)."""
        numbers = np.diff(self.clusters)
        kind = np.repeat(np.arange(self.vocabulary), numbers)
        place = np.arange(kind.size) - self.clusters[kind]
        first = offsets_of(self.counts)[kind] + place * self.counts[kind] // numbers[kind]
        return np.append(first, self.tokens)

    @cached_property
    def coarse(self) -> tuple[Int64, Int64]:
        """Where each type's coarse clusters begin (V + 1,), and their ranges of clusters (Q, 2)."""
        numbers = np.diff(self.clusters)
        parts = np.where(numbers > levels.COARSE_FROM, np.ceil(np.sqrt(numbers)).astype(np.int64), 0)
        ranges = [np.empty((0, 2), np.int64)]
        for kind in np.flatnonzero(parts):
            cuts = self.clusters[kind] + np.arange(parts[kind] + 1) * numbers[kind] // parts[kind]
            ranges.append(np.stack([cuts[:-1], cuts[1:]], axis=1))
        return offsets_of(parts), np.concatenate(ranges)

    @cached_property
    def centres(self) -> Int64:
        """Around how many points a type's clusters lie in all parts together, 0 for none or the coarse ones. (V,)."""
        numbers = np.diff(self.clusters)
        whole = np.where((numbers > levels.COARSE_FROM) | (self.parts == 1), 0, numbers * self.parts)
        return np.where(whole > levels.ACROSS_FROM, np.ceil(np.sqrt(whole)), 0).astype(np.int64)

    def entries(self, places: Int64) -> Int64:
        """The target entry that each source token links to: one each, all over the store."""
        found: Int64 = places * (STRIDE % self.tokens) % self.tokens if self.tokens > 1 else places
        return found

    def places(self, entries: Int64) -> Int64:
        """The source token that links to each entry."""
        found: Int64 = entries * pow(STRIDE, -1, self.tokens) % self.tokens if self.tokens > 1 else entries
        return found

    def target_ids(self, entries: Int64) -> Int64:
        """The token of each entry."""
        found: Int64 = (entries * 2_654_435_761 >> 11) % self.vocabulary
        return found


def make(shape: Shape, out: Path, progress: Callable[[int], None] | None = None) -> Datastore:
    """Write a store of this shape at `out`, which must not be there; progress is told the tokens that are done."""
    if out.exists():
        raise UsageError(f"cannot make a synthetic store at {out}: it already exists")
    advance = progress or (lambda tokens: None)
    part = work_folder(out)
    part.mkdir(parents=True)
    _write_means(shape, part)
    advance(shape.tokens // 2)
    if shape.keyed or shape.similar:
        _write_tokens(shape, part)
    if shape.keyed:
        _write_keyed(shape, part)
    else:
        _write_rankings(shape, part)
    if shape.similar:
        _write_similar(shape, part)
    served = ("faster", *(("similar",) if shape.similar else ()))
    settings = BuildSettings(
        systems=() if shape.keyed else served, cluster_size=shape.size, k_max=shape.k_max, seed=shape.seed
    )
    sizes = {"segments": _segments(shape), "links": shape.tokens}
    sizes |= {f"{side}_vocabulary": shape.vocabulary for side in ("source", "target")}
    parts = [seal(part, sizes_of(part, sizes | {"entries": shape.tokens, "tokens": shape.tokens}))]
    manifest = Manifest(
        made_by="knnmt bench --synthetic", plan=digest(repr(shape).encode()), model="none",
        model_fingerprint="", tokenizer_fingerprint="", languages="none", key="ffn_input", metric="squared",
        scale=2.0 * shape.width * (1 + NOISE**2), settings=settings.model_dump(mode="json"),
        kept=_segments(shape), dropped={}, frequent_types=[], parts=parts,
        aligner=None, journal=journal_name(parts),
    )  # fmt: skip
    publish(out, manifest, {parts[0].name: part})
    advance(shape.tokens - shape.tokens // 2)
    return Datastore.open(out)


def _segments(shape: Shape) -> int:
    return -(-shape.tokens // SEGMENT)


def _blocks(count: int, step: int = ROWS) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _draw(rng: np.random.Generator, rows: int, width: int) -> Float32:
    return rng.standard_normal((rows, width), np.float32)


def _write_means(shape: Shape, part: Path) -> None:
    """The means of both sides; the coarse ones and centres are drawn first, and those of clusters lie around them."""
    rng = np.random.default_rng(shape.seed)
    clusters, (offsets, ranges) = shape.starts.size - 1, shape.coarse
    coarse = _draw(rng, len(ranges), shape.width)
    centres = [coarse]
    owner = np.full(clusters, -1, np.int32)  # the coarse cluster or the centre of each cluster
    for number, (begin, end) in enumerate(ranges.tolist()):
        owner[begin:end] = number
    for kind in np.flatnonzero(shape.centres).tolist():
        begin, end = shape.clusters[kind : kind + 2].tolist()
        owner[begin:end] = sum(map(len, centres)) + rng.integers(shape.centres[kind], size=end - begin)
        centres.append(_draw(np.random.default_rng(kind), int(shape.centres[kind]), shape.width))
    around = np.concatenate(centres)
    source, target = (
        arrays.create(part / f"cluster_{side}.npy", "float16", (clusters, shape.width)) for side in ("source", "target")
    )
    for some in _blocks(clusters):
        means, deep = _draw(rng, some.stop - some.start, shape.width), owner[some] >= 0
        means[deep] = around[owner[some][deep]] + NOISE * means[deep]
        source[some] = means
        target[some] = _draw(rng, some.stop - some.start, shape.width)
    made: dict[str, arrays.Rows] = {
        "cluster_offsets": shape.clusters,
        "coarse_offsets": offsets,
        "coarse_ranges": ranges,
        "coarse_source": coarse.astype(np.float16),
    }
    for name, array in made.items():
        arrays.write(part / f"{name}.npy", array)


def _write_rankings(shape: Shape, part: Path) -> None:
    """Rankings without keys: members of the cluster, at random distances that rise."""
    rng = np.random.default_rng(shape.seed + 1)
    sizes = np.diff(shape.starts)
    lengths = np.minimum(sizes, shape.k_max)
    offsets = offsets_of(lengths)
    arrays.write(part / "ranking_offsets.npy", offsets)
    entries, tokens, distances = (
        arrays.create(part / f"ranking_{name}.npy", dtype, (int(offsets[-1]),))
        for name, dtype in (("entries", "int32"), ("tokens", "int32"), ("distances", "float32"))
    )
    rank = np.arange(shape.k_max)
    for some in _blocks(sizes.size):
        there = rank < lengths[some, None]
        members = shape.starts[:-1][some, None] + rank * sizes[some, None] // lengths[some, None]
        found = shape.entries(members[there])
        place = slice(int(offsets[some.start]), int(offsets[some.stop]))
        entries[place], tokens[place] = found, shape.target_ids(found)
        drawn = np.sort(rng.random(there.shape, np.float32), axis=1)
        distances[place] = (shape.width * NOISE**2 * (0.5 + drawn))[there]


def _write_tokens(shape: Shape, part: Path) -> None:
    """The tokens of both sides, their links, and segments of equal length without text."""
    segments = _segments(shape)
    made: dict[str, arrays.Rows] = {
        "text": np.empty(0, np.uint8),
        "text_offsets": np.zeros(4 * segments + 1, np.int64),
        "target_offsets": np.minimum(np.arange(segments + 1) * SEGMENT, shape.tokens),
        "type_offsets": offsets_of(shape.counts),
        "link_offsets": np.arange(shape.tokens + 1),
    }
    for name, array in made.items():
        arrays.write(part / f"{name}.npy", array)
    ids, links = (
        arrays.create(part / f"{name}.npy", "int32", (shape.tokens,)) for name in ("target_ids", "link_entries")
    )
    for some in _blocks(shape.tokens):
        numbers = np.arange(some.start, some.stop)
        ids[some], links[some] = shape.target_ids(numbers), shape.entries(numbers)


def _write_similar(shape: Shape, part: Path) -> None:
    """The arrays of `similar`: narrow keys around projected means, and the segments of tokens, as if no segment had a
    token of one type twice."""
    rng = np.random.default_rng(shape.seed + 3)
    count, segments = shape.tokens, _segments(shape)
    eighth, quarter = (max(1, shape.width // share) for share in (8, 4))
    for side, size, width in (("source", eighth, eighth), ("target", quarter, numbers_of(quarter, shape.width))):
        halves = size < width  # of bytes; else whole ones
        matrix = np.linalg.qr(_draw(rng, shape.width, width))[0] * np.float32(np.sqrt(shape.width / width))
        step = np.float32((DEVIATIONS if halves else 4 / LARGEST) * np.sqrt(shape.width / width))
        means = arrays.read(part / f"cluster_{side}.npy").astype(np.float32) @ matrix / step
        rows = arrays.create(part / f"small_{side}.npy", "int8", (count, size))
        spread = max(1, round(3**0.5 * NOISE * float(np.sqrt(shape.width / width)) / float(step)))  # evenly, as wide
        for some in _blocks(count):
            numbers = np.arange(some.start, some.stop)
            owner = np.searchsorted(shape.starts, numbers if side == "source" else shape.places(numbers), "right") - 1
            noise = rng.integers(-spread, spread + 1, (numbers.size, width), np.int16)
            near = means[owner] + noise
            rows[some] = packed(np.rint(near).clip(LOW, HIGH)) if halves else near.clip(-LARGEST, LARGEST)
        arrays.write(part / f"small_{side}_projection.npy", (matrix / step).astype(np.float32))
        arrays.write(part / f"small_{side}_middle.npy", np.zeros(width, np.float32))
        arrays.write(part / f"small_{side}_step.npy", np.array([step], np.float32))
    rarity = np.log1p((segments - np.minimum(shape.counts, segments) + 0.5) / (shape.counts + 0.5))
    arrays.write(part / "type_segments.npy", np.minimum(shape.counts, segments).astype(np.int32))
    arrays.write(part / "segment_starts.npy", np.minimum(np.arange(segments + 1) * SEGMENT, count))
    of, shares, listed = (
        arrays.create(part / f"{name}.npy", dtype, (count,))
        for name, dtype in (("token_segments", "int32"), ("token_shares", "int16"), ("segment_tokens", "int32"))
    )
    offsets = offsets_of(shape.counts)
    for some in _blocks(count, ROWS // SEGMENT * SEGMENT):
        numbers = np.arange(some.start, some.stop)
        of[some] = shape.entries(numbers) // SEGMENT
        shares[some] = np.rint(SHARE * rarity[np.searchsorted(offsets, numbers, "right") - 1])
        tokens = shape.places(numbers)
        listed[some] = tokens[np.lexsort((tokens, numbers // SEGMENT))]


def _write_keyed(shape: Shape, part: Path) -> None:
    """All arrays: keys around the means, from which means and rankings are then made as `knnmt build` does."""
    rng, count = np.random.default_rng(shape.seed + 2), shape.tokens
    starts, every = shape.starts, np.arange(count)
    means = {side: arrays.read(part / f"cluster_{side}.npy") for side in ("source", "target")}
    keys = {}
    for side in ("source", "target"):
        keys[side] = arrays.create(part / f"{side}_keys.npy", "float16", (count, shape.width))
        norms = arrays.create(part / f"{side}_norms.npy", "float32", (count,))
        for some in _blocks(count):
            places = every[some] if side == "source" else shape.places(every[some])
            owner = np.searchsorted(starts, places, side="right") - 1
            states = means[side][owner] + NOISE * _draw(rng, len(places), shape.width)
            keys[side][some] = states
            norms[some] = np.square(keys[side][some].astype(np.float32)).sum(axis=1)
    target_ids, links = (np.asarray(arrays.read(part / f"{name}.npy")) for name in ("target_ids", "link_entries"))
    ranking = kmeans.rank(keys["target"], target_ids, starts, np.arange(count + 1), links, shape.k_max)
    del means  # they are about to be replaced by those of the keys that were drawn
    made: dict[str, arrays.Rows] = {
        "cluster_starts": starts,
        "cluster_source": kmeans.centroids(keys["source"], every, starts),
        "cluster_target": ranking.centroids,
        "ranking_offsets": ranking.offsets,
        "ranking_entries": ranking.entries,
        "ranking_tokens": ranking.tokens,
        "ranking_distances": ranking.distances,
    }
    for name, array in made.items():
        arrays.write(part / f"{name}.npy", array)
