"""Mixing on a CPU, compiled with numba: one loop over the tokens that have a share, where torch needs ten operations
on padded rows."""

from typing import Any

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
FAR_BELOW = np.float32(87.0)  # 2^126 as a logarithm, nearly: what is so far below is nothing beside what is added
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
    """Mix p_kNN into the logits of sentences first to last, in place, and fill in their normaliser."""
    count = log_p.shape[2]
    new, gaps, bits = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int32)
    for sentence in range(first, last):
        for beam in range(weight.shape[1]):
            after[sentence, beam] = mix_row(
                logits[sentence, beam], normaliser[sentence, beam], tokens[sentence, beam], log_p[sentence, beam],
                weight[sentence, beam], new, gaps, bits,
            )  # fmt: skip


@counted
def mix_row(
    row: Floats, normaliser: Any, names: Ints, shares: Floats, weight: Any, new: Floats, gaps: Floats, bits: Any
) -> Any:
    """Mix p_kNN into the logits (V,) of a beam, in place, given λ; gives their normaliser.

    names, shares: (k,), where its tokens are, and log p of each; new, gaps, bits: (k or more,), to compute with. All
    logits are read before any is written: a token that is there twice is written twice, each time the same.
    """
    if weight <= 0:
        return normaliser
    count = len(shares)
    after = normaliser - np.float32(np.log1p(-weight))
    added = np.float32(np.log(weight)) + after
    for n in range(count):
        new[n] = row[names[n]]
    for n in range(count):  # log(exp a + exp b) is the larger, and log(1 + exp −|a − b|)
        a, b = new[n], shares[n] + added
        gap = -abs(a - b) * np.float32(LOG2_E)
        gaps[n] = gap if gap > FADED else FADED
        new[n] = a if a > b else b
    powers_of_two(gaps[:count], bits[:count])
    for n in range(count):
        gaps[n] += np.float32(1.0)
    logarithms(gaps[:count], np.float32(0.0))
    for n in range(count):
        row[names[n]] = new[n] + gaps[n]
    return after


@counted
def mix_sums(
    row: Floats, normaliser: Any, names: Any, sums: Floats, whole: Any, weight: Any, new: Floats, powers: Floats,
    bits: Any,
) -> Any:  # fmt: skip
    """`mix_row` of p = sums / whole, by one logarithm for each token: it adds log(1 + λ·p·exp(normaliser' − logit)).

    names, sums: (k,), each token once; new, powers, bits: (k or more,), to compute with. λ is above 0
    """
    count = len(sums)
    after = normaliser - np.float32(np.log1p(-weight))
    share, lowest = weight / whole, after - FAR_BELOW
    for n in range(count):
        new[n] = row[names[n]]
    for n in range(count):
        new[n] = new[n] if new[n] > lowest else lowest
        powers[n] = (after - new[n]) * np.float32(LOG2_E)
    powers_of_two(powers[:count], bits[:count])
    for n in range(count):
        powers[n] = np.float32(1.0) + sums[n] * share * powers[n]
    logarithms(powers[:count], np.float32(0.0))
    for n in range(count):
        row[names[n]] = new[n] + powers[n]
    return after
