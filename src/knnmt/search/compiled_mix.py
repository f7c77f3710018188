"""Mixing on a CPU, compiled with numba: one loop over the tokens that have a share, where torch needs ten operations
on padded rows."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.jit import jit
from knnmt.loops import logarithms, powers_of_two, share_evenly

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

WORTH = 1 << 15  # tokens that are worth a thread
FADED = np.float32(-100.0)  # of log2: what is added is less than the last bit
LOG2_E = 1.4426950408889634
counted = jit(fastmath={"nsz", "arcp", "contract", "reassoc"})  # logits may be -inf, and the difference of two NaN


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """`search.mix.mix` by a compiled loop."""
    after = np.empty(normaliser.shape, np.float32)
    arrays = (each.numpy() for each in (logits, normaliser, tokens, log_p, weight))
    share_evenly(mix_rows, len(after), log_p.size(1) * log_p.size(2), WORTH, *arrays, after)
    return torch.from_numpy(after)


@counted
def mix_rows(
    first: int, last: int, logits: Floats, normaliser: Floats, tokens: Ints, log_p: Floats, weight: Floats,
    after: Floats,
) -> None:  # fmt: skip
    """Mix p_kNN into the logits of sentences first to last, in place, and fill in their normaliser.

    All logits are read before any is written: a token that is there twice is written twice, each time the same.
    """
    count = log_p.shape[2]
    new, gaps, bits = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int32)
    for sentence in range(first, last):
        for beam in range(weight.shape[1]):
            own = weight[sentence, beam]
            after[sentence, beam] = normaliser[sentence, beam]
            if own <= 0:
                continue
            after[sentence, beam] -= np.float32(np.log1p(-own))
            added = np.float32(np.log(own)) + after[sentence, beam]
            row, names, shares = logits[sentence, beam], tokens[sentence, beam], log_p[sentence, beam]
            for n in range(count):
                new[n] = row[names[n]]
            for n in range(count):  # log(exp a + exp b) is the larger, and log(1 + exp −|a − b|)
                a, b = new[n], shares[n] + added
                gap = -abs(a - b) * np.float32(LOG2_E)
                gaps[n] = gap if gap > FADED else FADED
                new[n] = a if a > b else b
            powers_of_two(gaps, bits)
            for n in range(count):
                gaps[n] += np.float32(1.0)
            logarithms(gaps, np.float32(0.0))
            for n in range(count):
                row[names[n]] = new[n] + gaps[n]
