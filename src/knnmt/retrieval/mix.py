"""λ of each beam: constant, by distance, or by a gate."""

import torch
from torch import Tensor

from knnmt.retrieval.gate import Gate, features
from knnmt.search.mix import Falling
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Neighbours

MOST = 1.0 - 1e-6  # of λ: with 1, nothing of p_MT would be left where p_kNN is silent


def weights(nearest: Tensor, settings: RetrievalSettings) -> Tensor:
    """λ of each beam (B, K): constant, or the smaller the farther away the nearest neighbour is; 0 without one.

    The settings are complete. Where λ is learned, this is what it is without the gate.
    """
    weight, slope, most = falling(settings)
    if not slope:
        return torch.where(nearest < torch.inf, most, 0.0)
    return (nearest * -slope).add_(weight).clamp_(0.0, most)


def falling(settings: RetrievalSettings) -> Falling:
    """How λ falls with the distance of the nearest neighbour under complete settings, without a gate."""
    assert settings.weight is not None
    most = min(settings.weight, MOST)
    if settings.adapt == "constant":
        return Falling(settings.weight, 0.0, most)
    assert settings.reach is not None
    return Falling(settings.weight, settings.weight / settings.reach, most)


def learned(found: Neighbours, logits: Tensor, normaliser: Tensor, gate: Gate, scale: float) -> Tensor:
    """λ of each beam (B, K), by a gate; 0 where nothing was found."""
    weight = gate(features(found, logits, normaliser, scale)).clamp_(max=MOST)
    return torch.where(found.nearest < torch.inf, weight, 0.0)
