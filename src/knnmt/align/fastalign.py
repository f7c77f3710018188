"""The FastAlign model (Dyer, Chahuneau and Smith 2013) on the translation model's own token ids.

It is IBM model 2 with a prior that favours the diagonal, trained by variational Bayes in both directions.

Memory is proportional to the corpus and to the number of distinct pairs of types that cooccur in a segment, about 50
bytes per pair; the parameters of a large corpus are fitted on a sample, which bounds both. The result does not depend
on the number of threads: each direction sums its counts in corpus order.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from knnmt.align.bitext import Bitext, Links
from knnmt.align.kernels import expect, expected_feature, find_partners, locate, maximise, pack, viterbi
from knnmt.align.links import cover, symmetrise
from knnmt.align.settings import AlignSettings
from knnmt.csr import Int32, Int64, blocks, offsets_of, rises
from knnmt.settings import refusal
from knnmt.tensor_files import Kind

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Called with segments done and segments in total."""

FILE = Kind("knnmt-align 1", "aligner", "train it again")

FIRST_TENSION, LEAST_TENSION, MOST_TENSION = 4.0, 0.1, 14.0
TENSION_STEPS, TENSION_RATE = 8, 20.0  # of gradient ascent, in each iteration

FLOOR = 1e-9
"""The probability of unseen pairs; less likely pairs are dropped after training."""

SEED = 1  # of the sample
KEPT_CELLS = 1 << 27  # cells whose places in the table are cached between iterations (512 MiB)
THREADS = max(2, os.cpu_count() or 1)


@dataclass(frozen=True, eq=False)
class Aligner:
    """Trained parameters of both directions; types are token ids, logarithms are natural.

    rows: (source types + 1,) int64, offsets of each source type's pairs; targets: (P,) int32, ascending in a row;
    log_forward, log_backward: (P,) float32, log p(target | source) and log p(source | target); target_null,
    source_null: (types,) float32, the same given the null word; tensions: (2,) float64, forward and backward. A
    missing pair has log FLOOR.
    """

    settings: AlignSettings
    rows: Int64
    targets: Int32
    log_forward: Float32
    log_backward: Float32
    target_null: Float32
    source_null: Float32
    tensions: Float64

    def align(self, bitext: Bitext, progress: Progress | None = None) -> Links:
        """The symmetrised links of each segment; with `settings.cover`, every target token has one."""
        links = symmetrise(bitext, *self.best(bitext, progress))
        return cover(links, bitext) if self.settings.cover else links

    def best(self, bitext: Bitext, progress: Progress | None = None) -> tuple[Int32, Int32]:
        """The best position for each token in both directions, -1 for the null word.

        The first is (target tokens,) int32, source positions; the second (source tokens,) int32, target positions.
        """
        best = np.full(bitext.target_ids.size, -1, np.int32), np.full(bitext.source_ids.size, -1, np.int32)
        model = self._lexicon, self.tensions, self.settings.p0
        cells = bitext.cells
        with ThreadPoolExecutor(THREADS) as pool:
            for first, last in blocks(cells):
                _spread(pool, viterbi, cells, first, last, bitext.arrays, *model, best)
                if progress:
                    progress(last, len(bitext))
        return best

    @cached_property
    def _lexicon(self) -> tuple[Int64, Int32, Float32, Float32, Float32]:
        """Hash rows of pairs (starts, places, values), and the null words; the last of each is for unknown types."""
        unknown = np.float32(np.log(FLOOR))
        starts = _room(np.append(np.diff(self.rows), 0))
        places = np.full(starts[-1], -1, np.int32)
        nulls = np.append(self.target_null, unknown), np.append(self.source_null, unknown)
        lexicon = starts, places, np.full((places.size, 2), unknown), *nulls
        pack(self.rows, self.targets, (self.log_forward, self.log_backward), lexicon)
        return lexicon

    def save(self, path: str | Path) -> None:
        """Write the parameters to a safetensors file, atomically."""
        FILE.write(Path(path), {n: getattr(self, n) for n in _KINDS}, {"settings": self.settings.model_dump_json()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read parameters that `save` wrote."""
        path = Path(path)
        metadata, arrays = FILE.read(path, _KINDS)
        try:
            settings = AlignSettings.model_validate_json(metadata.get("settings", ""))
        except ValidationError as error:
            raise FILE.corrupt(path, " ".join(refusal(AlignSettings, error))) from error
        if not _consistent(arrays):
            raise FILE.corrupt(path, "inconsistent arrays")
        return cls(settings, **arrays)


_LOGS = ("log_forward", "log_backward", "target_null", "source_null")
_KINDS = {"rows": np.int64, "targets": np.int32, **dict.fromkeys(_LOGS, np.float32), "tensions": np.float64}


def _consistent(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether these arrays are valid parameters: compiled loops do no bounds checking."""
    pairs = arrays["targets"].size
    return (
        all(arrays[name].dtype == kind and arrays[name].ndim == 1 for name, kind in _KINDS.items())
        and all(np.isfinite(array).all() for array in arrays.values())
        and rises(arrays["rows"], pairs)
        and bool((arrays["targets"] >= 0).all())
        and arrays["log_forward"].size == arrays["log_backward"].size == pairs
        and arrays["tensions"].size == 2
    )


def train(bitext: Bitext, settings: AlignSettings | None = None, progress: Progress | None = None) -> Aligner:
    """Train both directions on a bitext, or on a sample of a large one. Segments with an empty side are ignored."""
    settings = settings or AlignSettings()
    if len(bitext) > settings.sample:
        chosen = np.random.default_rng(SEED).choice(len(bitext), settings.sample, replace=False)
        bitext = bitext.take(np.sort(chosen))
    updates = settings.iterations - 1
    with ThreadPoolExecutor(THREADS) as pool:
        pairs = _Pairs(bitext, pool)
        directions = [_Direction(pairs, settings, forward) for forward in (True, False)]
        for update in range(updates):
            for first, last in blocks(pairs.cells):
                slots = pairs.slots(first, last)
                # One thread per direction: each sums its counts in corpus order.
                list(pool.map(_Direction.expect, directions, repeat(slots), repeat(first), repeat(last)))
                if progress:
                    progress(update * len(bitext) + last, updates * len(bitext))
            list(pool.map(_Direction.maximise, directions, repeat(update > 0)))
    return _aligner(settings, pairs, *directions)


class _Pairs:
    """The pairs of types that cooccur in a bitext, and the place of each cell's pair in the table."""

    def __init__(self, bitext: Bitext, pool: ThreadPoolExecutor) -> None:
        self.bitext, self.pool, self.cells = bitext, pool, bitext.cells
        types = _types(bitext.source_ids)
        # The segments of each source type, as a sorted set of (type, segment) packed into one integer.
        keys = bitext.source_ids.astype(np.int64) << 32 | np.repeat(np.arange(len(bitext)), bitext.source_lengths)
        keys.sort()
        keys = keys[np.diff(keys, prepend=-1) > 0]
        groups = np.searchsorted(keys, np.arange(types + 1) << 32)
        segments = keys & 0xFFFFFFFF

        find = partial(_spread, pool, find_partners, groups, 0, types, groups, segments, bitext.arrays)
        lengths = np.zeros(types, np.int64)
        find(groups, np.empty(0, np.int32), lengths)
        self.starts = _room(lengths)
        self.places = np.full(self.starts[-1], -1, np.int32)
        find(self.starts, self.places, lengths)
        kinds = np.repeat(np.arange(types, dtype=np.int32), np.diff(self.starts))
        self.sources = np.where(self.places >= 0, kinds, np.int32(-1))
        self._kept: dict[int, NDArray[Any]] = {}

    def slots(self, first: int, last: int) -> NDArray[Any]:
        """The place of each cell of segments first..last; the first KEPT_CELLS of the corpus are cached."""
        if first in self._kept:
            return self._kept[first]
        cells = self.cells
        slots = np.empty(cells[last] - cells[first], np.int32 if self.places.size < 2**31 else np.int64)
        table = self.starts, self.places
        _spread(self.pool, locate, cells, first, last, self.bitext.arrays, *table, cells, cells[first], slots)
        if cells[last] <= KEPT_CELLS:
            self._kept[first] = slots
        return slots


class _Direction:
    """One direction in training: counts, probabilities and tension."""

    def __init__(self, pairs: _Pairs, settings: AlignSettings, forward: bool) -> None:
        self.pairs, self.settings, self.forward = pairs, settings, forward
        arrays = pairs.bitext.arrays
        self.generated, self.given = (arrays[2:], arrays[:2]) if forward else (arrays[:2], arrays[2:])
        lengths = np.stack([np.diff(self.generated[1]), np.diff(self.given[1])], axis=1)
        self.sizes, self.times = np.unique(lengths[lengths.all(axis=1)], axis=0, return_counts=True)
        # Probability and count are read and written together.
        self.table = np.tile([1.0, 0.0], (pairs.places.size, 1))
        self.null = np.tile([1.0, 0.0], (_types(self.generated[0]), 1))
        self.tension, self.feature = FIRST_TENSION, 0.0

    def expect(self, slots: NDArray[Any], first: int, last: int) -> None:
        """Add the posteriors of segments first..last to the counts."""
        sides, model = (*self.generated, self.given[1]), (self.table, self.null, self.tension, self.settings.p0)
        self.feature = expect(first, last, slots, self.pairs.cells, sides, self.forward, model, self.feature)

    def maximise(self, fit_tension: bool) -> None:
        """Turn counts into probabilities, and update the tension by gradient ascent if `fit_tension`."""
        tokens = float(self.sizes[:, 0] @ self.times)
        linked = tokens - self.null[:, 1].sum()
        if fit_tension and linked > 0:
            # The gradient of the expected log-likelihood per token; null links do not depend on the tension.
            observed = self.feature / linked
            for _ in range(TENSION_STEPS):
                expected = expected_feature(self.sizes, self.times, self.tension) / tokens
                tension = self.tension + TENSION_RATE * (observed - expected)
                self.tension = min(max(tension, LEAST_TENSION), MOST_TENSION)
        self.feature = 0.0
        given = self.pairs.sources if self.forward else self.pairs.places
        maximise(given, self.table, _types(self.given[0]), self.settings.alpha)
        unseen = self.null[:, 1] == 0
        maximise(-unseen.astype(np.int32), self.null, 1, self.settings.alpha)
        self.null[unseen, 0] = 0.0


def _aligner(settings: AlignSettings, pairs: _Pairs, forward: _Direction, backward: _Direction) -> Aligner:
    """Keep the pairs above the floor in at least one direction, sorted."""
    likely = (forward.table[:, 0] > FLOOR) | (backward.table[:, 0] > FLOOR)
    keep = np.flatnonzero(likely & (pairs.places >= 0))
    keep = keep[np.lexsort((pairs.places[keep], pairs.sources[keep]))]
    return Aligner(
        settings=settings,
        rows=offsets_of(np.bincount(pairs.sources[keep], minlength=pairs.starts.size - 1)),
        targets=pairs.places[keep],
        log_forward=_log(forward.table[keep, 0]),
        log_backward=_log(backward.table[keep, 0]),
        target_null=_log(forward.null[:, 0]),
        source_null=_log(backward.null[:, 0]),
        tensions=np.array([forward.tension, backward.tension]),
    )


def _log(probabilities: Float64) -> Float32:
    return np.log(np.maximum(probabilities, FLOOR)).astype(np.float32)


def _room(lengths: Int64) -> Int64:
    """Offsets of hash rows for so many pairs: a quarter larger, and never full."""
    return offsets_of(lengths + lengths // 4 + 1)


def _types(ids: Int32) -> int:
    return int(ids.max()) + 1 if ids.size else 0


def _spread(
    pool: ThreadPoolExecutor, kernel: Callable[..., None], weights: Int64, first: int, last: int, *arguments: Any
) -> None:
    """Run a kernel on first..last in parallel, in pieces of about equal weight; weights: running sums."""
    inner = np.linspace(weights[first], weights[last], 4 * THREADS + 1)[1:-1]
    bounds = [first, *np.clip(np.searchsorted(weights, inner), first, last).tolist(), last]
    list(pool.map(lambda start, stop: kernel(start, stop, *arguments), bounds[:-1], bounds[1:]))
