"""How two states are compared. All search is by squared distances; the metric is applied to what was found."""

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.settings import Metric


class Decay(NamedTuple):
    """What a row at distance d weighs in p_kNN: exp(−d/T)."""

    metric: Metric
    temperature: float


def distance(squared: Tensor, metric: Metric) -> Tensor:
    """The metric of a squared distance; with `cosine` that of two vectors of length 1."""
    match metric:
        case "squared":
            return squared
        case "euclidean":
            return squared.sqrt()
        case "cosine":
            return squared / 2


def as_query(states: Tensor, metric: Metric) -> Tensor:
    """States as they are compared: in float32, and of length 1 where only the direction counts."""
    states = states.float()
    return torch.nn.functional.normalize(states, dim=-1) if metric == "cosine" else states
