"""p = λ·p_kNN + (1 − λ)·p_MT, written into the logits without making a distribution over the vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor


class Falling(NamedTuple):
    """λ of a state whose nearest neighbour is at distance d: weight − slope·d, between 0 and most."""

    weight: float
    slope: float
    most: float


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """Mix a distribution into logits (B, K, V) in place; the result is their new normaliser (B, K).

    tokens, log_p: (B, K, k), each token once or as often with the same log_p, -inf where there is nothing; weight:
    (B, K), λ. With logits z and their normaliser n, p_MT = exp(z − n). Only the logits of these tokens change, to
    log(exp z + λ/(1−λ)·p_kNN·exp n); all are then normalised by n − log(1−λ). λ = 0 changes no bit.
    """
    normaliser_after = normaliser - torch.log1p(-weight)
    added = log_p + (weight.log() + normaliser_after)[:, :, None]
    logits.scatter_(-1, tokens, torch.logaddexp(logits.gather(-1, tokens), added))
    return normaliser_after
