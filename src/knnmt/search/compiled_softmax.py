"""`Softmax` on a CPU, compiled with numba: a step reads bytes where torch would read floats, and lists only tokens with
a share.

That is worth a compiled loop because a step has little to do: four times the bytes, padding, and tokens without a share
would be most of its time.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, powers_of_two, share_out
from knnmt.search.metric import distance
from knnmt.search.nearest import Buffers
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Shares, Softmax
from knnmt.settings import Metric

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Ints = NDArray[np.integer[Any]]

TOGETHER = 8  # numbers of a row that are read in one pass over the rows
WORTH = 1 << 15  # row comparisons that are worth a thread
LEAST = 1e-6  # of p: a token with less has no share


class CompiledSoftmax(Softmax):
    """All rows that a sentence sees, compared in a compiled loop."""

    by_sentence = *Softmax.by_sentence, "here"

    def __init__(self, buffers: Buffers, keys: Keys[ProjectedRows], numbers: Tensor, tokens: Tensor) -> None:
        super().__init__(buffers, keys, numbers, tokens)
        (batch, longest), width = self.numbers.shape, keys.width
        values = torch.empty((batch * longest, width), dtype=torch.int8)
        keys.copy_values(self.numbers.flatten().clamp_min(0), values)
        self.rows = torch.zeros((batch, width + -width % TOGETHER, longest), dtype=torch.int8)
        self.norms = torch.empty((batch, longest))
        arrays = values.view(batch, longest, width), self.rows, self.norms
        share_out(lay_out, np.full(batch, longest), WORTH // 8, *(array.numpy() for array in arrays))
        self.counts, self.every = (self.numbers >= 0).sum(dim=1), (self.slots, self.distinct)
        self.here = torch.arange(batch)  # the sentence of each row that is still searched

    def shares(self, states: Tensor, temperature: float, metric: Metric, *, summed: bool = False) -> Shares:
        """The softmax of −d/T, summed by token; only tokens with a share."""
        block = self.keys.blocks[0]
        queries = block.project(states).div_(block.step)
        if queries.size(2) < self.rows.size(1):
            queries = torch.nn.functional.pad(queries, (0, self.rows.size(1) - queries.size(2)))
        shape = (*queries.shape[:2], self.distinct.size(1))
        nearest, tokens, log_p = torch.empty(shape[:2]), torch.empty(shape, dtype=torch.int64), torch.empty(shape)
        used, whole = torch.empty(shape[:2], dtype=torch.int64), torch.empty(shape[:2])
        # T in steps of the rows; cosine is half of a squared distance
        units = {"squared": block.step**2, "cosine": block.step**2 / 2, "euclidean": block.step}
        arrays = self.here, self.rows, self.norms, self.counts, *self.every, nearest, whole, used, tokens, log_p
        share_out(
            look_up, self.counts[self.here].numpy() * shape[1], WORTH, queries.numpy(),
            temperature / units[metric], metric == "euclidean", *(array.numpy() for array in arrays),
        )  # fmt: skip
        most = max(1, int(used.max()))
        nearest = distance(nearest.mul_(block.step**2), metric)
        return Shares(tokens[:, :, :most], log_p[:, :, :most], nearest, whole.log_() - nearest / temperature)


@compiled
def look_up(
    first: int, last: int, queries: Floats, temperature: float, root: bool,
    here: Ints, rows: Bytes, lengths: Floats, counts: Ints, slots: Ints, distinct: Ints,
    nearest: Floats, whole: Floats, used: Ints, tokens: Ints, log_p: Floats,
) -> None:  # fmt: skip
    """Find the tokens that have a share in p_kNN, and the nearest entry, for the queries first to last of a batch.

    queries: (B, K, p), in steps of the rows; root: whether d is the square root of the squared distance; here: (B,),
    the sentence of each; rows: (sentences, p, N), of which the first counts[s] are there; norms: (sentences, N),
    squared; slots: (sentences, N), which of its sentence's tokens, distinct[s], each entry has. Fills nearest (B, K),
    squared, whole (B, K), the sum of exp(−d/T) relative to the nearest, and the first used (B, K) of tokens and log_p
    (B, K, D).
    """
    shares, total = np.empty(rows.shape[2], np.float32), np.empty(distinct.shape[1], np.float32)
    for row in range(first, last):
        sentence = here[row]
        some = shares[: counts[sentence]]
        for beam in range(queries.shape[1]):
            own = _compare(queries[row, beam], rows[sentence], lengths[sentence], some)
            nearest[row, beam], whole[row, beam] = _softmax(some, own, temperature, root)
            total[:] = 0.0
            for n in range(len(some)):
                total[slots[sentence, n]] += some[n]
            used[row, beam] = _with_a_share(total, distinct[sentence], tokens[row, beam], log_p[row, beam])


@compiled
def lay_out(first: int, last: int, values: Bytes, rows: Bytes, norms: Floats) -> None:
    """From rows (B, N, p) of sentences first to last to (B, p, N), with their squared lengths (B, N)."""
    for sentence in range(first, last):
        for n in range(values.shape[1]):
            squared = np.int32(0)
            for number in range(values.shape[2]):
                value = np.int32(values[sentence, n, number])
                rows[sentence, number, n] = value
                squared += value * value
            norms[sentence, n] = squared


@compiled
def _compare(query: Floats, rows: Bytes, lengths: Floats, squared: Floats) -> Any:
    """Fill in squared (N,), the squared distances of a query (p,) less its own squared length, which is returned."""
    squared[:] = lengths[: len(squared)]
    own, minus = np.float32(0.0), np.float32(-2.0)
    for number in range(len(query)):
        own += query[number] * query[number]
    for at in range(0, len(query), TOGETHER):
        a, b, c, d = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
        e, f, g, h = rows[at + 4], rows[at + 5], rows[at + 6], rows[at + 7]
        s, t, u, v = minus * query[at], minus * query[at + 1], minus * query[at + 2], minus * query[at + 3]
        w, x, y, z = minus * query[at + 4], minus * query[at + 5], minus * query[at + 6], minus * query[at + 7]
        for n in range(len(squared)):
            squared[n] += s * a[n] + t * b[n] + u * c[n] + v * d[n] + w * e[n] + x * f[n] + y * g[n] + z * h[n]
    return own


@compiled
def _softmax(shares: Floats, own: float, temperature: float, root: bool) -> Any:
    """From squared distances (N,) less `own` to the softmax of -d/T, in place; gives the smallest squared distance,
    and the sum relative to it."""
    least = np.float32(np.inf)
    for n in range(len(shares)):
        least = min(least, shares[n])
    nearest = max(least + own, np.float32(0.0))
    if root:
        for n in range(len(shares)):
            shares[n] = np.sqrt(max(shares[n] + own, np.float32(0.0)))
        least = np.sqrt(nearest)
    doublings = np.float32(-1.0 / (np.log(2.0) * temperature))
    for n in range(len(shares)):
        shares[n] = doublings * (shares[n] - least)
    whole = powers_of_two(shares, np.empty(len(shares), np.int32))
    share = np.float32(1.0) / whole
    for n in range(len(shares)):
        shares[n] *= share
    return nearest, whole


@compiled
def _with_a_share(total: Floats, distinct: Ints, tokens: Ints, log_p: Floats) -> int:
    """List the tokens that have a share worth speaking of, padded with the first; return how many they are."""
    used = 0
    tokens[0], log_p[0] = 0, -np.inf
    for slot in range(len(total)):
        if total[slot] > LEAST:
            tokens[used] = distinct[slot]
            log_p[used] = np.log(total[slot])
            used += 1
    tokens[used:] = tokens[0]
    log_p[used:] = log_p[0]
    return used
