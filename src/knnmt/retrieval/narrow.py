"""`Small` on a CPU, compiled with numba: a step reads bytes where torch would read floats, and tells only shares that
count.

That is worth a compiled loop because a step has little to do: four bytes for one, the padding of a batch, and tokens
that have no share are most of its time. Without numba, and on a GPU, `Small` does the same.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.retrieval.combine import Neighbours
from knnmt.retrieval.lookup import Small
from knnmt.retrieval.select import Selection
from knnmt.retrieval.tensors import Tensors
from knnmt.search.loops import compiled, share_out
from knnmt.systems.settings import RetrievalSettings

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Ints = NDArray[np.integer[Any]]

TOGETHER = 8  # numbers of a key that are read in one pass over the entries
FADED = 100.0  # doublings: what weighs so much less than the nearest weighs nothing in float32
WORTH = 1 << 15  # comparisons of an entry that are worth a thread
LEAST = 1e-6  # of p_kNN: a token that has less has nothing


class CompiledSmall(Small):
    """Everything that a sentence sees, by its narrow keys, looked up in a compiled loop."""

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        super().__init__(tensors, selection, settings)
        (batch, longest), keys, step = self.entries.shape, self.keys, self.keys.step
        rows = keys.rows.index_select(0, self.entries.flatten().clamp_min(0)).view(batch, longest, -1)
        self.rows = torch.zeros((batch, keys.width + -keys.width % TOGETHER, longest), dtype=torch.int8)
        self.rows[:, : keys.width] = rows.mT
        self.lengths = rows.float().square_().sum(dim=2)
        self.counts, self.every = (self.entries >= 0).sum(dim=1), (self.slots, self.distinct)
        self.here = torch.arange(batch)  # the sentence of each row that is still searched
        # to T in steps of the rows, as it is used there; cosine is half of a squared distance
        units = {"squared": step**2, "cosine": step**2 / 2, "euclidean": step}
        self.temperature = settings.temperature_of(tensors.scale) / units[tensors.metric]

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution: of the tokens that have a share."""
        queries = self.keys.narrow(states).div_(self.keys.step)
        if queries.size(2) < self.rows.size(1):
            queries = torch.nn.functional.pad(queries, (0, self.rows.size(1) - queries.size(2)))
        shape = (*queries.shape[:2], self.distinct.size(1))
        nearest, tokens, log_p = torch.empty(shape[:2]), torch.empty(shape, dtype=torch.int64), torch.empty(shape)
        used = torch.empty(shape[:2], dtype=torch.int64)
        arrays = self.here, self.rows, self.lengths, self.counts, *self.every, nearest, used, tokens, log_p
        share_out(
            look_up, self.counts[self.here].numpy() * shape[1], WORTH, queries.numpy(),
            self.temperature, self.tensors.metric == "euclidean", *(array.numpy() for array in arrays),
        )  # fmt: skip
        most = _fill_up(used.numpy(), tokens.numpy(), log_p.numpy())
        nearest = self.tensors.distance(nearest.mul_(self.keys.step**2))
        return Neighbours(tokens[:, :, :most], log_p[:, :, :most], nearest)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        super().keep(rows)
        self.here = self.here[rows]


@compiled
def look_up(
    first: int, last: int, queries: Floats, temperature: float, root: bool,
    here: Ints, rows: Bytes, lengths: Floats, counts: Ints, slots: Ints, distinct: Ints,
    nearest: Floats, used: Ints, tokens: Ints, log_p: Floats,
) -> None:  # fmt: skip
    """Find the tokens that have a share in p_kNN, and the nearest entry, for the queries first to last of a batch.

    queries: (B, K, p), in steps of the rows; root: whether d is the square root of the squared distance; here: (B,),
    the sentence of each; rows: (sentences, p, N), of which the first counts[s] are there; lengths: (sentences, N),
    squared; slots: (sentences, N), which of its sentence's tokens, distinct[s], each entry has. Fills nearest (B, K),
    squared, and the first used (B, K) of tokens and log_p (B, K, D).
    """
    shares, total = np.empty(rows.shape[2], np.float32), np.empty(distinct.shape[1], np.float32)
    for row in range(first, last):
        sentence = here[row]
        some = shares[: counts[sentence]]
        for beam in range(queries.shape[1]):
            own = _compare(queries[row, beam], rows[sentence], lengths[sentence], some)
            nearest[row, beam] = _softmax(some, own, temperature, root)
            total[:] = 0.0
            for n in range(len(some)):
                total[slots[sentence, n]] += some[n]
            used[row, beam] = _with_a_share(total, distinct[sentence], tokens[row, beam], log_p[row, beam])


@compiled
def _fill_up(used: Ints, tokens: Ints, log_p: Floats) -> int:
    """Fill up rows of which so much is used to the most of all, which is returned: what is there twice is the same."""
    most = max(used.max(), 1)
    for row in range(used.shape[0]):
        for beam in range(used.shape[1]):
            last = used[row, beam]
            tokens[row, beam, last:most] = tokens[row, beam, 0] if last else 0
            log_p[row, beam, last:most] = log_p[row, beam, 0] if last else -np.inf
    return int(most)


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
    """From squared distances (N,) less `own` to the softmax of -d/T, in place; gives the smallest squared distance."""
    least = np.float32(np.inf)
    for n in range(len(shares)):
        least = min(least, shares[n])
    nearest = max(least + own, np.float32(0.0))
    if root:
        for n in range(len(shares)):
            shares[n] = np.sqrt(max(shares[n] + own, np.float32(0.0)))
        least = np.sqrt(nearest)
    doublings = np.float32(-1.0 / (np.log(2.0) * temperature))
    whole = np.float32(0.0)
    powers = np.empty(len(shares), np.int32)
    for n in range(len(shares)):
        # 2^x as 2^i·2^f, -½ ≤ f ≤ ½: this many terms of its series are exact to the last bit or two
        x = max(doublings * (shares[n] - least), np.float32(-FADED))
        i = np.floor(x + np.float32(0.5))
        f = np.float32(np.log(2.0)) * (x - i)
        series = np.float32(1 / 720)
        for factor in (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = series * f + np.float32(factor)
        shares[n] = series
        powers[n] = (np.int32(i) + np.int32(127)) << np.int32(23)  # the bits of 2^i
    scales = powers.view(np.float32)
    for n in range(len(shares)):
        shares[n] *= scales[n]
        whole += shares[n]
    share = np.float32(1.0) / whole
    for n in range(len(shares)):
        shares[n] *= share
    return nearest


@compiled
def _with_a_share(total: Floats, distinct: Ints, tokens: Ints, log_p: Floats) -> int:
    """List the tokens that have a share worth speaking of, and return how many they are."""
    used = 0
    for slot in range(len(total)):
        if total[slot] > LEAST:
            tokens[used] = distinct[slot]
            log_p[used] = np.log(total[slot])
            used += 1
    return used
