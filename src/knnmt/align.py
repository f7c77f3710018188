"""Word alignment: which source token each target token translates.

The model is FastAlign's (Dyer, Chahuneau and Smith 2013): IBM model 2 with a prior that favours the
diagonal, trained by variational Bayes in both directions on the translation model's own token ids, and
symmetrised by grow-diag-final-and. Links made elsewhere are read from Pharaoh files instead.

Memory is bounded by the corpus and by the number of distinct pairs of types that occur together in a
segment, about 50 bytes a pair. The result does not depend on the number of threads: each direction adds up
its counts in corpus order.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from knnmt.errors import DataError, MissingExtraError, UsageError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Called with the work done and the whole of it, both in segments."""

FORMAT = "knnmt-align"
VERSION = 1

LEAST_TENSION, MOST_TENSION = 0.1, 14.0
TENSION_STEPS, TENSION_RATE = 8, 20.0  # of gradient ascent, in each iteration

LOG_FLOOR = float(np.float32(np.log(1e-9)))
"""The log-probability of a pair that was never seen, or that training found no likelier than this."""

BLOCK_SIZE = 1 << 22  # cells (pairs of positions of one segment) or tokens that are worked on at a time
KEPT_CELLS = 1 << 27  # cells whose places in the table are remembered between iterations (512 MiB)


class AlignSettings(BaseModel):
    """How the aligner is trained. The defaults are FastAlign's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: int = Field(default=5, ge=2, description="passes over the corpus; the last one is the alignment")
    p0: float = Field(default=0.08, ge=0, lt=1, description="probability that a token translates nothing")
    alpha: float = Field(default=0.01, gt=0, description="concentration of the symmetric Dirichlet prior")
    tension: float = Field(default=4.0, ge=LEAST_TENSION, le=MOST_TENSION, description="pull of the diagonal, at first")
    optimise_tension: bool = Field(default=True, description="fit the tension to the corpus")
    variational_bayes: bool = Field(default=True, description="variational Bayes; else maximum likelihood")
    cover: bool = Field(default=True, description="link every target token, see `cover`")


@dataclass(frozen=True, eq=False)
class Bitext:
    """Parallel segments of token ids, with `</s>` where the caller wants it aligned.

    source_ids: (S,) int32; source_offsets: (N + 1,) int64, from 0 to S; the target side alike
    """

    source_ids: Int32
    source_offsets: Int64
    target_ids: Int32
    target_offsets: Int64

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            ids = _integers(getattr(self, f"{side}_ids"), np.int32, f"{side} ids")
            offsets = _integers(getattr(self, f"{side}_offsets"), np.int64, f"{side} offsets")
            if ids.size and ids.min() < 0:
                raise DataError(f"bitext: {side} id {ids.min()} is negative")
            if not offsets.size or offsets[0] != 0 or offsets[-1] != ids.size or np.any(np.diff(offsets) < 0):
                raise DataError(f"bitext: {side} offsets do not rise from 0 to the {ids.size} {side} ids")
            object.__setattr__(self, f"{side}_ids", ids)
            object.__setattr__(self, f"{side}_offsets", offsets)
        if self.source_offsets.size != self.target_offsets.size:
            raise DataError(
                f"bitext: {self.source_offsets.size - 1} source segments, "
                f"but {self.target_offsets.size - 1} target segments"
            )

    def __len__(self) -> int:
        return self.source_offsets.size - 1

    @classmethod
    def from_sequences(cls, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Self:
        """Join lists of token ids, one list a segment."""
        return cls(*_join(source), *_join(target))

    @property
    def arrays(self) -> tuple[Int32, Int64, Int32, Int64]:
        """The four fields, in their order."""
        return self.source_ids, self.source_offsets, self.target_ids, self.target_offsets

    @property
    def source_lengths(self) -> Int64:
        """Tokens of each source segment: (N,) int64."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> Int64:
        """Tokens of each target segment: (N,) int64."""
        return np.diff(self.target_offsets)


@dataclass(frozen=True, eq=False)
class Links:
    """Aligned positions, counted from 0 in each segment, sorted by target and then by source.

    source, target: (L,) int32; offsets: (N + 1,) int64, where each segment's links begin
    """

    source: Int32
    target: Int32
    offsets: Int64

    def __len__(self) -> int:
        return self.offsets.size - 1

    def segment(self, index: int) -> list[tuple[int, int]]:
        """Return the (source, target) positions that are linked in one segment."""
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return list(zip(self.source[part].tolist(), self.target[part].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Aligner:
    """Trained parameters of both directions; types are token ids, and log-probabilities are natural.

    rows: (source types + 1,) int64, where each source type's pairs begin; targets: (P,) int32, ascending in
    a row; log_forward, log_backward: (P,) float32, log p(target | source) and log p(source | target);
    target_null, source_null: (types,) float32, the same given the null word; tensions: (2,) float64, forward
    and backward. A pair that is not there has LOG_FLOOR.
    """

    settings: AlignSettings
    rows: Int64
    targets: Int32
    log_forward: Float32
    log_backward: Float32
    target_null: Float32
    source_null: Float32
    tensions: Float64

    @cached_property
    def _table(self) -> tuple[Int64, Int32, Float32]:
        """The pairs as hash rows: starts (types + 1,), places (R,), values (R, 2)."""
        starts, places, place_of = _pack(self.rows, self.targets)
        values = np.zeros((places.size, 2), np.float32)
        values[place_of, 0] = self.log_forward
        values[place_of, 1] = self.log_backward
        return starts, places, values

    def align(self, bitext: Bitext, progress: Progress | None = None) -> Links:
        """Return the symmetrised links of each segment; of every target token where `settings.cover`."""
        links = symmetrise(bitext, *self.best(bitext, progress))
        return cover(links, bitext) if self.settings.cover else links

    def best(self, bitext: Bitext, progress: Progress | None = None) -> tuple[Int32, Int32]:
        """Return each direction's best position for each token, -1 where it translates nothing.

        The first is (target tokens,) int32, source positions; the second (source tokens,) int32, the reverse.
        """
        forward = np.empty(bitext.target_ids.size, np.int32)
        backward = np.empty(bitext.source_ids.size, np.int32)
        table, nulls, p0 = self._table, (self.target_null, self.source_null), self.settings.p0
        cells, viterbi = _cells(bitext), _kernels().viterbi

        def decide(first: int, last: int) -> None:
            out = forward, backward
            viterbi(table, nulls, bitext.arrays, first, last, self.tensions, p0, LOG_FLOOR, *out)

        with ThreadPoolExecutor(_threads()) as pool:
            for first, last in _blocks(cells):
                _spread(pool, decide, cells, first, last)
                if progress:
                    progress(last, len(bitext))
        return forward, backward

    def save(self, path: str | Path) -> None:
        """Write the parameters to one safetensors file, whole or not at all."""
        path = Path(path)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        metadata = {"format": FORMAT, "version": str(VERSION), "settings": self.settings.model_dump_json()}
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with temporary.open("wb") as file:
                file.write(save(arrays, metadata))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read parameters that `save` wrote; they align as they did then."""
        path = Path(path)
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file of alignment parameters")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise DataError(f"{path}: not a file of alignment parameters")
                if metadata.get("version") != str(VERSION):
                    raise DataError(
                        f"{path}: alignment parameters of version {metadata.get('version')}; "
                        f"this knnmt reads version {VERSION}: train again, or use the knnmt that wrote it"
                    )
                settings = AlignSettings.model_validate_json(metadata.get("settings", ""))
                # Copied: what comes from a file may be read-only, which would be compiled a second time.
                arrays = {name: np.array(file.get_tensor(name)) for name in _ARRAYS}
        except ValidationError as error:
            raise DataError(f"{path}: damaged settings: {error.errors()[0]['msg']}") from error
        except SafetensorError as error:
            raise DataError(f"{path}: damaged alignment parameters: {error}") from error
        reason = _damage(arrays)
        if reason:
            raise DataError(f"{path}: damaged alignment parameters: {reason}")
        return cls(settings, **arrays)


_ARRAYS: dict[str, type[np.generic]] = {
    "rows": np.int64,
    "targets": np.int32,
    "log_forward": np.float32,
    "log_backward": np.float32,
    "target_null": np.float32,
    "source_null": np.float32,
    "tensions": np.float64,
}


def _damage(arrays: dict[str, NDArray[Any]]) -> str | None:
    """Say what makes these arrays impossible as parameters, if anything does."""
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != kind or arrays[name].ndim != 1:
            return f"{name} is {arrays[name].dtype} of {arrays[name].ndim} dimensions"
        if kind in (np.float32, np.float64) and not np.isfinite(arrays[name]).all():
            return f"{name} has values that are not finite"
    rows, targets, tensions = arrays["rows"], arrays["targets"], arrays["tensions"]
    pairs = targets.size
    if not rows.size or rows[0] != 0 or rows[-1] != pairs or np.any(np.diff(rows) < 0):
        return f"rows do not rise from 0 to the {pairs} pairs"
    row = np.repeat(np.arange(rows.size - 1), np.diff(rows))
    if np.any((np.diff(targets) <= 0) & (np.diff(row) == 0)) or (pairs and targets.min() < 0):
        return "targets do not rise in each row"
    if arrays["log_forward"].size != pairs or arrays["log_backward"].size != pairs:
        return "there is not one probability a pair"
    if tensions.size != 2 or tensions.min() < LEAST_TENSION or tensions.max() > MOST_TENSION:
        return f"tensions are {tensions.tolist()}"
    return None


def train(bitext: Bitext, settings: AlignSettings | None = None, progress: Progress | None = None) -> Aligner:
    """Fit both directions to a bitext. A segment with an empty side teaches nothing."""
    settings = settings or AlignSettings()
    updates = settings.iterations - 1
    with ThreadPoolExecutor(_threads()) as pool:
        pairs = _Pairs(bitext, pool)
        directions = (_Direction(bitext, settings, pairs, True), _Direction(bitext, settings, pairs, False))
        for update in range(updates):
            for first, last in _blocks(pairs.cells):
                slots = pairs.slots(first, last)
                # One thread a direction: each adds up its counts in corpus order.
                list(pool.map(_Direction.expect, directions, [slots] * 2, [first] * 2, [last] * 2))
                if progress:
                    progress(update * len(bitext) + last, updates * len(bitext))
            list(pool.map(_Direction.maximise, directions))
    return _aligner(settings, pairs, *directions)


class _Pairs:
    """The pairs of types that occur together in a bitext, and where in the table each cell's pair is."""

    def __init__(self, bitext: Bitext, pool: ThreadPoolExecutor) -> None:
        self.bitext, self.pool = bitext, pool
        self.cells = _cells(bitext)
        self.starts, self.places, _ = _pack(*self._partners())
        self._kept: dict[int, NDArray[Any]] = {}

    def _partners(self) -> tuple[Int64, Int32]:
        """List the distinct target types beside each source type: rows (types + 1,), partners (P,)."""
        kernels = _kernels()
        source_ids, source_offsets, *target = self.bitext.arrays
        starts = _offsets(np.bincount(source_ids, minlength=_types(source_ids)))
        segments = np.empty(source_ids.size, np.int32)
        kernels.group_by_type(source_ids, source_offsets, starts, segments)
        lengths = np.zeros(starts.size - 1, np.int64)
        target_types = _types(self.bitext.target_ids)
        rows, partners = np.zeros(starts.size, np.int64), np.empty(0, np.int32)

        def visit(first: int, last: int) -> None:
            out = rows, partners, lengths
            kernels.list_partners(starts, segments, *target, first, last, target_types, *out)

        _spread(self.pool, visit, starts, 0, lengths.size)
        rows = _offsets(lengths)
        partners = np.empty(int(rows[-1]), np.int32)
        if partners.size:
            _spread(self.pool, visit, starts, 0, lengths.size)
        return rows, partners

    def slots(self, first: int, last: int) -> NDArray[Any]:
        """Return the place of each cell of segments first..last; the corpus's first KEPT_CELLS are kept."""
        if first in self._kept:
            return self._kept[first]
        kernels, cells = _kernels(), self.cells
        kind = np.int32 if self.places.size <= np.iinfo(np.int32).max else np.int64
        slots = np.empty(int(cells[last] - cells[first]), kind)

        def locate(start: int, stop: int) -> None:
            rest = slots[cells[start] - cells[first] :]
            kernels.locate(self.starts, self.places, self.bitext.arrays, cells, start, stop, rest)

        _spread(self.pool, locate, cells, first, last)
        if cells[last] <= KEPT_CELLS:
            self._kept[first] = slots
        return slots


class _Direction:
    """One direction while it is trained: its counts, probabilities and tension."""

    def __init__(self, bitext: Bitext, settings: AlignSettings, pairs: _Pairs, forward: bool) -> None:
        self.settings, self.pairs, self.forward = settings, pairs, forward
        source_ids, source_offsets, target_ids, target_offsets = bitext.arrays
        source, target = (source_ids, source_offsets), (target_ids, target_offsets)
        self.generated, (given_ids, self.given_offsets) = (target, source) if forward else (source, target)
        self.given_types = _types(given_ids)
        lengths = np.stack([np.diff(self.generated[1]), np.diff(self.given_offsets)], axis=1)
        sizes, times = np.unique(lengths[(lengths > 0).all(axis=1)], axis=0, return_counts=True)
        self.sizes = (sizes[:, 0].copy(), sizes[:, 1].copy(), times.astype(np.int64))
        self.seen = np.zeros(_types(self.generated[0]), np.bool_)
        self.seen[self.generated[0][np.repeat(lengths[:, 1] > 0, lengths[:, 0])]] = True
        # Probability and count side by side: they are read and written together.
        self.table = np.zeros((pairs.places.size, 2))
        self.null = np.zeros((self.seen.size, 2))
        self.table[:, 0] = self.null[:, 0] = 1.0
        self.tension = settings.tension
        self.feature = 0.0

    def expect(self, slots: NDArray[Any], first: int, last: int) -> None:
        """Add the posteriors of segments first..last to the counts."""
        sides = self.generated, self.given_offsets, self.forward
        model = self.table, self.null, self.tension, self.settings.p0, self.feature
        self.feature = _kernels().expect(slots, self.pairs.cells, first, last, *sides, *model)

    def maximise(self) -> None:
        """Make the counts into probabilities, and follow the gradient of the tension.

        In the first iteration the posteriors are the prior, and the gradient is nil.
        """
        kernels = _kernels()
        generated, _, times = self.sizes
        tokens = float(generated @ times)
        linked = tokens - self.null[:, 1].sum()
        if self.settings.optimise_tension and linked > 0:
            # The gradient of the expected log-likelihood, a token: only what is linked pulls on the tension.
            observed = self.feature / linked
            for _ in range(TENSION_STEPS):
                expected = kernels.expected_feature(*self.sizes, self.tension) / tokens
                tension = self.tension + TENSION_RATE * (observed - expected)
                self.tension = min(max(tension, LEAST_TENSION), MOST_TENSION)
        self.feature = 0.0
        table = self.pairs.starts, self.pairs.places, self.table
        null = self.null, self.seen
        prior = self.settings.alpha, self.settings.variational_bayes
        kernels.maximise(*table, *null, self.given_types, self.forward, *prior)

    def log_null(self) -> Float32:
        """Return the log-probability of each type given the null word."""
        return _floored(np.where(self.seen, self.null[:, 0], 0.0))


def _aligner(settings: AlignSettings, pairs: _Pairs, forward: _Direction, backward: _Direction) -> Aligner:
    """Keep the pairs that are likelier than the floor in one direction at least, sorted."""
    starts, places, floor = pairs.starts, pairs.places, np.exp(LOG_FLOOR)
    keep = np.flatnonzero((places >= 0) & ((forward.table[:, 0] > floor) | (backward.table[:, 0] > floor)))
    row = np.searchsorted(starts, keep, side="right") - 1
    order = np.lexsort((places[keep], row))
    keep, row = keep[order], row[order]
    return Aligner(
        settings=settings,
        rows=_offsets(np.bincount(row, minlength=starts.size - 1)),
        targets=places[keep],
        log_forward=_floored(forward.table[keep, 0]),
        log_backward=_floored(backward.table[keep, 0]),
        target_null=forward.log_null(),
        source_null=backward.log_null(),
        tensions=np.array([forward.tension, backward.tension]),
    )


def _floored(probabilities: Float64) -> Float32:
    return np.log(np.maximum(probabilities, np.exp(LOG_FLOOR))).astype(np.float32)


def _pack(rows: Int64, partners: Int32) -> tuple[Int64, Int32, Int64]:
    """Lay lists of partners out as hash rows, a quarter larger; return starts, places, each pair's place."""
    lengths = np.diff(rows)
    starts = _offsets(np.where(lengths > 0, lengths + lengths // 4 + 1, 0))
    places = np.full(int(starts[-1]), -1, np.int32)
    place_of = np.empty(partners.size, np.int64)
    _kernels().pack(rows, partners, starts, places, place_of)
    return starts, places, place_of


def symmetrise(bitext: Bitext, forward: Int32, backward: Int32) -> Links:
    """Join two directions by grow-diag-final-and (Koehn, Och and Marcu 2003).

    forward: (target tokens,) int32, each one's source position or -1; backward: (source tokens,) the reverse
    """
    parts = []
    for first, last in _blocks(_cells(bitext)):
        spans = bitext.source_offsets[[first, last]], bitext.target_offsets[[first, last]]
        room = sum(int(np.ptp(span)) for span in spans)
        source, target = np.empty(room, np.int32), np.empty(room, np.int32)
        counts = np.zeros(last - first, np.int64)
        made = _kernels().grow_diag_final_and(forward, backward, bitext.arrays, first, last, source, target, counts)
        parts.append(Links(source[:made].copy(), target[:made].copy(), _offsets(counts)))
    return _links(parts)


def cover(links: Links, bitext: Bitext) -> Links:
    """Link every target token, so that all can be retrieved from the source side.

    An unaligned token joins its nearest aligned neighbour, the left one of two: it gets all of that one's
    links. A segment without any links gets those of the diagonal, the mode of the aligner's prior, which
    joins the last tokens (`</s>`) of both sides. Where the source is empty there is nothing to link to.
    """
    if len(links) != len(bitext):
        raise DataError(f"links of {len(links)} segments, but the bitext has {len(bitext)}")
    parts = [_cover(links, bitext, first, last) for first, last in _blocks(bitext.target_offsets)]
    return _links(parts)


def _cover(links: Links, bitext: Bitext, first: int, last: int) -> Links:
    """Cover segments first..last. Tokens, and the links of each, are counted from the first segment's."""
    offsets = bitext.target_offsets[first : last + 1] - bitext.target_offsets[first]
    tokens = int(offsets[-1])
    segment = np.repeat(np.arange(last - first), np.diff(offsets))
    begin, end = offsets[segment], offsets[segment + 1]
    part = slice(int(links.offsets[first]), int(links.offsets[last]))
    linked_at = links.target[part] + np.repeat(offsets[:-1], np.diff(links.offsets[first : last + 1]))
    counts = np.bincount(linked_at, minlength=tokens)

    here = np.arange(tokens)
    left = np.maximum.accumulate(np.where(counts > 0, here, -1))
    right = np.minimum.accumulate(np.where(counts > 0, here, tokens)[::-1])[::-1]
    has_left, has_right = left >= begin, right < end
    model = np.where(has_left & (~has_right | (here - left <= right - here)), left, right)
    alone = ~has_left & ~has_right
    model[alone] = 0
    n, m = bitext.source_lengths[first:last][segment], end - begin

    copies = np.where(alone, n > 0, counts[model])
    token = np.repeat(here, copies)
    nth = np.arange(token.size) - _offsets(copies)[token]
    copied = ~alone[token]
    # The source position of n that is nearest to j of m on the diagonal, both from 1, the lower of two.
    source = (np.maximum(-((m - 2 * (here - begin + 1) * n) // (2 * m)), 1) - 1)[token]
    source[copied] = links.source[part][(_offsets(counts)[model[token]] + nth)[copied]]
    return Links(
        source.astype(np.int32),
        (token - begin[token]).astype(np.int32),
        _offsets(np.bincount(segment[token], minlength=last - first)),
    )


_LINK = rb"[0-9]{1,9}-[0-9]{1,9}"
_LINE_OF_LINKS = re.compile(rb"\s*(?:" + _LINK + rb"(?:\s+|$))*")
_LINES_AT_ONCE = 10_000


def read_pharaoh(path: str | Path, bitext: Bitext) -> Links:
    """Read links written "i-j i-j …", source-target from 0: a line a segment, empty where it has none."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file of links")
    number, parts = 0, []
    with path.open("rb") as file:
        while lines := list(islice(file, _LINES_AT_ONCE)):
            if number + len(lines) > len(bitext):
                raise DataError(
                    f"{path}, line {len(bitext) + 1}: more lines than the corpus has segments, "
                    f"which is {len(bitext)}; a file of links has one line a segment"
                )
            for at, line in enumerate(lines, number + 1):
                if not _LINE_OF_LINKS.fullmatch(line):
                    wrong = next(entry for entry in line.split() if not re.fullmatch(_LINK, entry))
                    shown = wrong.decode("utf-8", "replace")
                    raise DataError(f"{path}, line {at}: {shown!r} is no link; write i-j, from 0")
            parts.append(_parse_links(lines, path, bitext, number))
            number += len(lines)
    if number < len(bitext):
        raise DataError(
            f"{path}, line {number + 1}: the file ends here, but the corpus has {len(bitext)} segments; "
            "a file of links has one line a segment"
        )
    return _links(parts)


def _parse_links(lines: list[bytes], path: Path, bitext: Bitext, first: int) -> Links:
    """Turn lines of well-formed links into arrays, sorted and without repeats."""
    entries = np.array(b" ".join(lines).replace(b"-", b" ").split()).astype(np.int64).reshape(-1, 2)
    row = np.repeat(np.arange(len(lines)), [line.count(b"-") for line in lines])
    part = slice(first, first + len(lines))
    limits = np.stack([bitext.source_lengths[part], bitext.target_lengths[part]], axis=1)[row]
    outside = np.flatnonzero((entries >= limits).any(axis=1))
    if outside.size:
        (i, j), (n, m) = entries[outside[0]], limits[outside[0]]
        raise DataError(
            f"{path}, line {first + row[outside[0]] + 1}: link {i}-{j} is outside the segment, "
            f"which has {n} source and {m} target tokens; was another tokenizer used?"
        )
    order = np.lexsort((entries[:, 0], entries[:, 1], row))
    rows = np.column_stack([row, entries])[order]
    rows = rows[np.append(True, (np.diff(rows, axis=0) != 0).any(axis=1))[: len(rows)]]
    counts = np.bincount(rows[:, 0], minlength=len(lines))
    return Links(rows[:, 1].astype(np.int32), rows[:, 2].astype(np.int32), _offsets(counts))


def write_pharaoh(links: Links, path: str | Path) -> None:
    """Write links as "i-j i-j …", source-target from 0, one line a segment."""
    with Path(path).open("w", encoding="ascii", newline="\n") as file:
        for index in range(len(links)):
            file.write(" ".join(f"{i}-{j}" for i, j in links.segment(index)) + "\n")


def _kernels() -> ModuleType:
    """Import the compiled loops: only training and aligning need numba."""
    try:
        from knnmt import align_kernels
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise MissingExtraError(
            "aligning needs numba, which is not installed: pip install numba, or give links in a Pharaoh file"
        ) from error
    return align_kernels


def _threads() -> int:
    return max(2, os.cpu_count() or 1)


def _spread(pool: ThreadPoolExecutor, work: Callable[[int, int], None], weights: Int64, first: int, last: int) -> None:
    """Do the work on first..last in pieces of about equal weight; weights: running sums, as offsets are."""
    inner = np.linspace(weights[first], weights[last], 4 * _threads() + 1)[1:-1]
    bounds = [first, *np.clip(np.searchsorted(weights, inner), first, last).tolist(), last]
    list(pool.map(work, bounds[:-1], bounds[1:]))


def _cells(bitext: Bitext) -> Int64:
    """Return where each segment's pairs of positions begin: (N + 1,) int64."""
    return _offsets(bitext.source_lengths * bitext.target_lengths)


def _blocks(offsets: Int64) -> Iterator[tuple[int, int]]:
    """Cut segments into runs of at most BLOCK_SIZE cells or tokens, or a single larger segment."""
    first = 0
    while first < offsets.size - 1:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK_SIZE, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _types(ids: Int32) -> int:
    return int(ids.max()) + 1 if ids.size else 0


def _offsets(counts: NDArray[np.integer[Any]]) -> Int64:
    """Return where each of these counts begins, and their sum at the end."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _integers(values: NDArray[Any], kind: type[np.signedinteger[Any]], name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise DataError(f"bitext: {name} are {array.dtype} of {array.ndim} dimensions, not a row of integers")
    if array.size and array.max() > np.iinfo(kind).max:
        raise DataError(f"bitext: {name} have {array.max()}, which is too large")
    return np.ascontiguousarray(array, kind)


def _join(sequences: Sequence[Sequence[int]]) -> tuple[Int32, Int64]:
    offsets = _offsets(np.array([len(sequence) for sequence in sequences], np.int64))
    ids = np.fromiter((token for sequence in sequences for token in sequence), np.int64, int(offsets[-1]))
    return _integers(ids, np.int32, "ids"), offsets


def _links(parts: list[Links]) -> Links:
    """Put the links of successive runs of segments together."""
    empty = np.empty(0, np.int32)
    return Links(
        np.concatenate([empty, *(part.source for part in parts)]),
        np.concatenate([empty, *(part.target for part in parts)]),
        _offsets(np.concatenate([np.empty(0, np.int64), *(np.diff(part.offsets) for part in parts)])),
    )
