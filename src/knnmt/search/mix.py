"""p_kNN by token; and p = λ·p_kNN + (1 − λ)·p_MT, written into the logits, without a distribution over all tokens."""

from typing import NamedTuple

import torch
from torch import Tensor


class Falling(NamedTuple):
    """λ of a state whose nearest neighbour is at distance d: weight − slope·d, between 0 and most."""

    weight: float
    slope: float
    most: float


class Scores(NamedTuple):
    """The model's scores of a step: logits (B, K, V), which are changed in place, and their normaliser (B, K), or
    None where it is not known yet, on a CPU; places: (V,), where the logit of each token is, if elsewhere, as in a
    shortlist; over: (B,) bool, sentences of which nothing is wanted any more."""

    logits: Tensor
    normaliser: Tensor | None
    places: Tensor | None
    over: Tensor | None = None


def merge(tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of scores (-inf: nothing there), summed by token: the tokens, in any order, and log p of each.

    All (..., k). A token that was there twice stays there twice, each time with the sum.
    """
    p = torch.nan_to_num(scores.softmax(dim=-1))  # a row of nothing has no softmax
    tokens, order = tokens.sort(dim=-1)
    p = p.gather(-1, order)
    new = torch.ones_like(tokens, dtype=torch.bool)
    new[..., 1:] = tokens[..., 1:] != tokens[..., :-1]
    run = new.cumsum(dim=-1) - 1  # which distinct token of its row each is
    total = torch.zeros_like(p).scatter_add_(-1, run, p)
    return tokens, total.gather(-1, run).log()


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
