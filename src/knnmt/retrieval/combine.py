"""p = λ·p_kNN + (1 − λ)·p_MT, written into the logits without making a distribution over the vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.retrieval.gate import Gate, features
from knnmt.systems.settings import RetrievalSettings

MOST = 1.0 - 1e-6  # of λ: with 1, nothing of p_MT would be left where p_kNN is silent


class Neighbours(NamedTuple):
    """What a lookup found for each beam, as p_kNN: tokens (B, K, k), each once or as often with the same log_p;
    log_p (B, K, k), -inf where there is nothing; nearest (B, K), the smallest distance, inf where nothing was found."""

    tokens: Tensor
    log_p: Tensor
    nearest: Tensor


def merge(tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of scores (-inf: nothing there), summed by token: the tokens in rising order, and log p of each.

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


def weights(nearest: Tensor, settings: RetrievalSettings, scale: float) -> Tensor:
    """λ of each beam (B, K): constant, or the smaller the farther away the nearest neighbour is; 0 without one.

    Where λ is learned, this is what it is without the gate.
    """
    most = min(settings.most_weight, MOST)
    if settings.adapt == "constant" or not most:
        return torch.where(nearest < torch.inf, most, 0.0)
    falling = nearest * (-settings.most_weight / settings.reach_of(scale))
    return falling.add_(settings.most_weight).clamp_(0.0, most)


def learned(found: Neighbours, logits: Tensor, normaliser: Tensor, gate: Gate, scale: float) -> Tensor:
    """λ of each beam (B, K), by a gate; 0 where nothing was found."""
    weight = gate(features(found, logits, normaliser, scale)).clamp_(max=MOST)
    return torch.where(found.nearest < torch.inf, weight, 0.0)


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """Mix a distribution into logits (B, K, V) in place and give back their new normaliser (B, K).

    tokens, log_p: (B, K, k), as `Neighbours` has them; weight: (B, K), λ. With logits z and their normaliser n,
    p_MT = exp(z − n). Only the logits of these tokens change, to log(exp z + λ/(1−λ)·p_kNN·exp n); all are then
    normalised by n − log(1−λ). λ = 0 changes no bit.
    """
    normaliser_after = normaliser - torch.log1p(-weight)
    added = log_p + (weight.log() + normaliser_after)[:, :, None]
    logits.scatter_(-1, tokens, torch.logaddexp(logits.gather(-1, tokens), added))
    return normaliser_after
