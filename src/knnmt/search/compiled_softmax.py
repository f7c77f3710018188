"""`Softmax` on a CPU, compiled with numba: a batch is laid out in one loop, and a step is one loop.

A step reads bytes where torch would read floats, and each once for five beams. Rows are laid out in panels of 64, the
first row of every token before the second of any, and so on, tokens with many rows first: what a token gets is then a
sum of runs that all begin with the same token, which vectors add up.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.loops import compiled, fetch, largest, logarithms, powers_of_two, run, share_out, split
from knnmt.model.normalise import CHUNK, normaliser_of
from knnmt.model.panels import multiply
from knnmt.model.tiles import COLUMNS, HALVES, MIXED, ROWS, tile
from knnmt.search.compiled_mix import mix_sums
from knnmt.search.compiled_runs import TOGETHER, sum_runs
from knnmt.search.metric import Decay
from knnmt.search.mix import Falling, Scores
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Seen, Shares, Softmax

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Ints = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]

HEAD = 4 * COLUMNS  # bytes of a panel before its rows: their squared lengths
WORTH = 1 << 14  # row comparisons that are worth a thread
LAID_OUT = 1 << 12  # rows that are worth one
AHEAD = 12  # rows that are on their way from memory while one is laid out
FADED = np.float32(-100.0)  # of log2 p: less is all the same, and no denormal number
NONE_OVER = np.empty(0, np.bool_)
NORMALISED = 8  # entries of the vocabulary that take as long to normalise as a row to be compared
SCATTERED = 2_654_435_769  # 2^32 by the golden ratio: neighbouring tokens lie far apart in a table


class CompiledSoftmax(Softmax):
    """All rows that a sentence sees, compared in a compiled loop."""

    by_sentence = ("here", "distinct")

    def __init__(self, buffers: Buffers, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> None:
        self.buffers, self.keys, self.decay, self.given = buffers, keys, decay, seen
        shape, block = seen.numbers.shape, keys.blocks[0]
        counts = (seen.numbers >= 0).sum(dim=1).numpy()
        panels = -(-counts // COLUMNS)
        size = HEAD + COLUMNS * block.values.size(1)
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(panels * size, out=starts[1:])
        memory, _ = buffers.lend(self, int(starts[-1]) // 4)
        laid_out = memory.view(torch.int8).numpy()
        chosen, distinct = np.empty(shape, np.int64), np.empty(shape, np.int64)
        runs, shapes = np.empty(shape, np.int32), np.empty((shape[0], 2), np.int64)
        numbers, tokens = seen.numbers.numpy(), seen.tokens.numpy()
        farther = (seen.farther / block.step**2).numpy()
        share_out(arrange, counts, LAID_OUT, numbers, tokens, counts, chosen, distinct, runs, shapes)
        for values, first in zip((some.values.numpy() for some in keys.blocks), keys.starts, strict=False):
            share_out(
                lay_out, counts, LAID_OUT, values, block.halves, first, numbers, farther, chosen, counts, starts,
                laid_out,
            )  # fmt: skip
        self.most = max(1, int(shapes[:, 0].max(initial=0)))
        self.distinct = torch.from_numpy(distinct[:, : self.most])
        self._all_distinct = self.distinct
        # where the logits of these are, by places of a shortlist
        self._names: tuple[Tensor | None, NDArray[np.int32]] = None, self.distinct.int().numpy()
        self.here = torch.arange(shape[0])  # the sentence of each row that is still searched
        self.counts, self.rows = counts, (counts, starts, laid_out, runs, shapes)
        self.projection = block.panels  # which own what `matrix` is the address of
        root, step = decay.metric == "euclidean", block.step
        unit = step if root else step**2 if decay.metric == "squared" else step**2 / 2  # of d in steps
        temperature = np.float32(decay.temperature / unit)
        self._measured = self.projection.matrix, block.halves, np.float32(unit), temperature, root
        self._prepare()

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        super().keep(sentences)
        self._prepare()

    def _prepare(self) -> None:
        """Set what all steps with the same sentences share."""
        self._table = None
        here = self.here.numpy()
        self._shared = (here, *self.rows)
        self._parts: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def listed(self) -> Seen:
        """The rows as `distances` has them."""
        return Seen(*(each[self.here] for each in self.given)).by_token()

    def shares(self, states: Tensor, *, summed: bool = False) -> Shares:
        """The softmax of −d/T, summed by token."""
        beams = states.size(1)
        nearest, log_z = (np.empty((len(self.here), beams), np.float32) for _ in range(2))
        log_p = np.empty((len(self.here), beams, self.most), np.float32)
        self._run(look_up, 0, states, nearest, log_z, log_p)
        tokens = self.distinct[:, None].expand(log_p.shape)
        return Shares(tokens, torch.from_numpy(log_p), torch.from_numpy(nearest), torch.from_numpy(log_z))

    def mix(self, states: Tensor, scores: Scores, falling: Falling, stretch: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mix the softmax into logits, in place."""
        logits, normaliser, places, over = scores
        if logits.dtype != torch.float32:  # of models that torch runs in other precisions
            return None
        if self._names[0] is not places:
            self._names = places, (self._all_distinct if places is None else places[self._all_distinct]).int().numpy()
        nearest, after = (np.empty(logits.shape[:2], np.float32) for _ in range(2))
        known = normaliser is not None
        self._run(
            look_up_and_mix, 0 if known else logits.size(2) // NORMALISED, states, self._names[1],
            stretch.numpy(), *map(np.float32, falling), logits.numpy(), known,
            normaliser.numpy() if normaliser is not None else after, NONE_OVER if over is None else over.numpy(),
            nearest, after,
        )  # fmt: skip
        return torch.from_numpy(after), torch.from_numpy(nearest)

    def _run(self, loop: Callable[..., Any], more: int, states: Tensor, *arguments: Any) -> None:
        """Call a loop for all rows of a batch, each of which is as much work as `more` rows of a sentence besides."""
        key = more, -(-WORTH // states.size(1)), torch.get_num_threads()
        if key not in self._parts:
            self._parts[key] = split(self.counts[self.here.numpy()] + more, key[1])
        run(loop, self._parts[key], states.contiguous().numpy(), *self._measured, *self._shared, *arguments)


@compiled
def arrange(
    first: int, last: int, numbers: Ints, tokens: Ints, counts: Ints, chosen: Ints, distinct: Ints, runs: Ints,
    shapes: Ints,
) -> None:  # fmt: skip
    """Order the rows of sentences first to last: the first rows of all tokens, then the second ones, and so on.

    numbers, tokens: (B, N), none where the number is -1. Fills the places of the rows in that order, (B, N); the
    distinct tokens, those with most rows first, padded with the first (B, N); the length of each run, one for each time
    that tokens occur, (B, N); and how many tokens and runs there are, (B, 2).
    """
    for sentence in range(first, last):
        count = counts[sentence]
        bits = 4
        while (1 << bits) < 2 * count:
            bits += 1
        table = np.full(1 << bits, -1, np.int32)  # places among the tokens, by token
        found, often = np.empty(count, np.int64), np.zeros(count, np.int32)
        of, turn = np.empty(count, np.int32), np.empty(count, np.int32)  # of each row: the token, how many were before
        rows = np.empty(count, np.int64)
        kinds, most, at = 0, 0, 0
        for n in range(numbers.shape[1]):
            if numbers[sentence, n] < 0:
                continue
            token = tokens[sentence, n]
            slot = np.int64(np.uint32(np.uint32(token) * np.uint32(SCATTERED)) >> np.uint32(32 - bits))
            while table[slot] >= 0 and found[table[slot]] != token:
                slot = (slot + 1) & ((1 << bits) - 1)
            if table[slot] < 0:
                table[slot], found[kinds] = kinds, token
                kinds += 1
            kind = table[slot]
            rows[at], of[at], turn[at] = n, kind, often[kind]
            often[kind] += 1
            most = max(most, often[kind])
            at += 1
        # tokens with most rows first: where those of each number of rows begin
        begin = np.zeros(most + 2, np.int64)
        for kind in range(kinds):
            begin[often[kind]] += 1
        behind = 0
        for number in range(most, 0, -1):
            begin[number], behind = behind, behind + begin[number]
            runs[sentence, number - 1] = behind  # tokens that have so many rows, or more
        rank = np.empty(kinds, np.int32)
        for kind in range(kinds):
            rank[kind] = begin[often[kind]]
            begin[often[kind]] += 1
            distinct[sentence, rank[kind]] = found[kind]
        distinct[sentence, kinds:] = distinct[sentence, 0] if kinds else 0
        behind = 0
        for number in range(most):  # now where each run begins
            begin[number], behind = behind, behind + runs[sentence, number]
        for n in range(count):
            chosen[sentence, begin[turn[n]] + rank[of[n]]] = rows[n]
        shapes[sentence, 0], shapes[sentence, 1] = kinds, most


@compiled
def lay_out(
    first: int, last: int, values: Bytes, halves: bool, begin: int, numbers: Ints, farther: Floats, chosen: Ints,
    counts: Ints, starts: Ints, panels: Bytes,
) -> None:  # fmt: skip
    """Write the rows (N, p) of a block, which begin with this number, to the panels of sentences first to last.

    halves: whether a byte holds two numbers; numbers: (B, N), of the rows; farther: (B, N), what is added to their
    squared lengths; chosen: (B, N), their places in both, in order, of which counts[s] are there; starts: (B + 1,),
    where the panels of each sentence begin
    """
    width = values.shape[1]
    size = HEAD + COLUMNS * width
    lengths = panels.view(np.float32)
    for sentence in range(first, last):
        for at in range(counts[sentence]):
            if at + AHEAD < counts[sentence]:
                fetch(values.ctypes.data + (numbers[sentence, chosen[sentence, at + AHEAD]] - begin) * width, width)
            number = numbers[sentence, chosen[sentence, at]] - begin
            if number < 0 or number >= len(values):
                continue
            panel, column = starts[sentence] + at // COLUMNS * size, at % COLUMNS
            row, into = values[number], panel + HEAD + column
            squared = np.int32(0)
            for place in range(width):
                value = np.int32(row[place])
                panels[into + place * COLUMNS] = value
                if halves:
                    high, value = value >> 4, (value & 15 ^ 8) - 8
                    squared += high * high
                squared += value * value
            lengths[panel // 4 + column] = -np.float32(squared) - farther[sentence, chosen[sentence, at]]


@compiled
def look_up(
    first: int, last: int, states: Floats, projection: NDArray[np.int64], halves: bool, unit: float, temperature: float,
    root: bool, here: Ints, counts: Ints, starts: Ints, panels: Bytes, runs: Ints, shapes: Ints, nearest: Floats,
    log_z: Floats, log_p: Floats,
) -> None:  # fmt: skip
    """Find p_kNN and the nearest entry for the beams of rows first to last of a batch.

    states: (B, K, d); projection: to steps of the rows, a `matrix` of panels; halves: as in `lay_out`; unit: what a
    distance in steps counts; temperature: in these; root: whether d is the square root of the squared distance; here:
    (B,), the sentence of each row; counts, starts, panels, runs, shapes: as `arrange` and `lay_out` made them. Fills
    nearest (B, K), log_z (B, K), the log of the sum of exp(−d/T), and log_p (B, K, D), in the order of the distinct
    tokens, padded with the first.
    """
    beams, width = states.shape[1], projection[2]
    room = _room(counts, here[first:last])
    queries, own = np.empty((beams, width), np.float32), np.empty(beams, np.float32)
    found, bits, sums = np.empty((beams, room), np.float32), np.empty(room, np.int32), np.empty(room, np.float32)
    doublings = np.float32(1.0 / (np.log(2.0) * temperature))
    for row in range(first, last):
        sentence = here[row]
        count, kinds, times = counts[sentence], shapes[sentence, 0], shapes[sentence, 1]
        if count == 0:
            nearest[row], log_z[row], log_p[row] = np.inf, -np.inf, -np.inf
            continue
        _compare(states[row], projection, halves, panels.ctypes.data + starts[sentence], count, queries, own, found)
        for beam in range(beams):
            near = _nearest(found[beam, :count], own[beam], root)
            whole = _softmax(found[beam, :count], own[beam], near, doublings, root, bits)
            nearest[row, beam] = unit * near
            log_z[row, beam] = np.log(whole) - near / temperature
            sum_runs(found[beam], runs[sentence, :times], sums)
            logarithms(sums[:kinds], -np.log(whole))
            log_p[row, beam, :kinds] = sums[:kinds]
            log_p[row, beam, kinds:] = sums[0]


@compiled
def look_up_and_mix(
    first: int, last: int, states: Floats, projection: NDArray[np.int64], halves: bool, unit: float, temperature: float,
    root: bool, here: Ints, counts: Ints, starts: Ints, panels: Bytes, runs: Ints, shapes: Ints, names: Ints,
    stretch: Floats, weight: float, slope: float, most: float, logits: Floats, known: bool, normaliser: Floats,
    over: Flags, nearest: Floats, after: Floats,
) -> None:  # fmt: skip
    """`look_up`, λ by the nearest entry, and `mix_sums`, without p_kNN in between.

    names: (B, D), where the logits of the distinct tokens are; known: whether the normaliser is, or else is found here,
    while the logits are in the cache; over: (B,), the rows that are left out, or empty
    """
    beams, width = states.shape[1], projection[2]
    room = _room(counts, here[first:last])
    queries, own = np.empty((beams, width), np.float32), np.empty(beams, np.float32)
    found, bits = np.empty((beams, room), np.float32), np.empty(room, np.int32)
    sums, new, powers = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    chunk, exponents = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.int32)
    doublings = np.float32(1.0 / (np.log(2.0) * temperature))
    for row in range(first, last):
        sentence = here[row]
        count, kinds, times = counts[sentence], shapes[sentence, 0], shapes[sentence, 1]
        if len(over) and over[row]:
            nearest[row], after[row] = 0.0, 0.0
            continue
        size = (starts[sentence + 1] - starts[sentence]) // beams
        for beam in range(beams):
            if known:
                after[row, beam] = normaliser[row, beam]
            else:  # the rows come from memory meanwhile
                fetch(panels.ctypes.data + starts[sentence] + beam * size, size)
                after[row, beam] = normaliser_of(logits[row, beam], chunk, exponents)
        if count > 0:
            _compare(states[row], projection, halves, panels.ctypes.data + starts[sentence], count, queries, own, found)
        for beam in range(beams):
            if count == 0:
                nearest[row, beam] = np.inf
                continue
            near = _nearest(found[beam, :count], own[beam], root)
            nearest[row, beam] = unit * near
            falling = weight - slope * nearest[row, beam] / stretch[row, 0]
            if falling > 0:  # not too far away for any share
                whole = _softmax(found[beam, :count], own[beam], near, doublings, root, bits)
                sum_runs(found[beam], runs[sentence, :times], sums)
                after[row, beam] = mix_sums(
                    logits[row, beam], after[row, beam], names[sentence, :kinds], sums[:kinds], whole,
                    np.float32(min(falling, most)), new, powers, bits,
                )  # fmt: skip


@compiled
def _room(counts: Ints, sentences: Ints) -> int:
    """The rows of whole panels that the largest of some sentences has, and what `sum_runs` may read behind them."""
    room = COLUMNS
    for sentence in sentences:
        room = max(room, -(-counts[sentence] // COLUMNS) * COLUMNS)
    return room + TOGETHER


@compiled
def _compare(
    states: Floats, projection: NDArray[np.int64], halves: bool, panels: int, count: int, queries: Floats, own: Floats,
    found: Floats,
) -> None:  # fmt: skip
    """Fill in the negated squared distances (K, N) of states (K, d) to the rows of a sentence, less `own` (K,)."""
    beams, width = queries.shape
    multiply(0, -(-width // COLUMNS), projection, states, 0, queries)
    for beam in range(beams):
        squared = np.float32(0.0)
        for place in range(width):
            squared += queries[beam, place] * queries[beam, place]
            queries[beam, place] *= np.float32(2.0)
        own[beam] = squared
    size = width // 2 if halves else width  # bytes of a row
    for panel in range(-(-count // COLUMNS)):
        at = panels + panel * (HEAD + COLUMNS * size)
        beam = 0
        while beam < beams:
            into, to = found.ctypes.data + 4 * (beam * found.shape[1] + panel * COLUMNS), 4 * found.shape[1]
            start = queries.ctypes.data + 4 * beam * width
            whole = beam + ROWS <= beams
            if whole and halves:
                tile(ROWS, HALVES, at, start, 4 * width, size, 0, into, to)
            elif whole:
                tile(ROWS, MIXED, at, start, 4 * width, size, 0, into, to)
            elif halves:
                tile(1, HALVES, at, start, 4 * width, size, 0, into, to)
            else:
                tile(1, MIXED, at, start, 4 * width, size, 0, into, to)
            beam += ROWS if whole else 1


@compiled
def _nearest(values: Floats, own: Any, root: bool) -> Any:
    """The smallest distance, given squared distances (N,) with the other sign and without `own`."""
    near = max(own - largest(values), np.float32(0.0))
    return np.sqrt(near) if root else near


@compiled
def _softmax(values: Floats, own: Any, near: Any, doublings: Any, root: bool, bits: Ints) -> Any:
    """From the values of `_nearest`, and what that found, to exp(−d/T) relative to the nearest, in place; gives the
    sum."""
    most = -near
    if root:
        for n in range(len(values)):
            values[n] = -np.sqrt(max(own - values[n], np.float32(0.0)))
    else:
        most += own
    for n in range(len(values)):
        values[n] = max(doublings * (values[n] - most), FADED)
    return powers_of_two(values, bits[: len(values)])
