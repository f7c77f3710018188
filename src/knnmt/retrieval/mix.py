"""p = λ·p_kNN + (1 − λ)·p_MT, written into the logits without making a distribution over the vocabulary."""

import torch
from torch import Tensor

from knnmt.retrieval.gate import Gate, features
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Neighbours

MOST = 1.0 - 1e-6  # of λ: with 1, nothing of p_MT would be left where p_kNN is silent


def weights(nearest: Tensor, settings: RetrievalSettings) -> Tensor:
    """λ of each beam (B, K): constant, or the smaller the farther away the nearest neighbour is; 0 without one.

    The settings are complete. Where λ is learned, this is what it is without the gate.
    """
    assert settings.weight is not None
    most = min(settings.weight, MOST)
    if settings.adapt == "constant" or not most:
        return torch.where(nearest < torch.inf, most, 0.0)
    assert settings.reach is not None
    falling = nearest * (-settings.weight / settings.reach)
    return falling.add_(settings.weight).clamp_(0.0, most)


def learned(found: Neighbours, logits: Tensor, normaliser: Tensor, gate: Gate, scale: float) -> Tensor:
    """λ of each beam (B, K), by a gate; 0 where nothing was found."""
    weight = gate(features(found, logits, normaliser, scale)).clamp_(max=MOST)
    return torch.where(found.nearest < torch.inf, weight, 0.0)


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """Mix a distribution into logits (B, K, V) in place; the result is their new normaliser (B, K).

    tokens, log_p: (B, K, k), as `Neighbours` has them; weight: (B, K), λ. With logits z and their normaliser n,
    p_MT = exp(z − n). Only the logits of these tokens change, to log(exp z + λ/(1−λ)·p_kNN·exp n); all are then
    normalised by n − log(1−λ). λ = 0 changes no bit.
    """
    normaliser_after = normaliser - torch.log1p(-weight)
    added = log_p + (weight.log() + normaliser_after)[:, :, None]
    logits.scatter_(-1, tokens, torch.logaddexp(logits.gather(-1, tokens), added))
    return normaliser_after
