"""Exact search for nearest rows: ties go to the lowest number, so that results do not depend on batching."""

import torch
from torch import Tensor

FAR = torch.inf  # the distance of what is not there


def squared_distances(queries: Tensor, keys: Tensor, norms: Tensor) -> Tensor:
    """Squared distances (..., Q, N) of queries (..., Q, d) to keys (..., N, d) with squared lengths norms (..., N)."""
    own = queries.square().sum(-1, keepdim=True)
    return torch.add(norms.unsqueeze(-2), queries @ keys.mT, alpha=-2).add_(own).clamp_min_(0.0)


def least(distances: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` smallest of each row with their places, in order; equal ones by place. (..., N) to (..., count).

    Distances are not negative, so their bits order as they do: bits and place make one number without ties.
    """
    places = torch.arange(distances.size(-1), device=distances.device)
    return unpack(pack(distances, places).topk(count, dim=-1, largest=False).values)


def pack(distances: Tensor, numbers: Tensor) -> Tensor:
    """One int64 of a float32 distance and a number below 2^31, which orders by the one and then the other."""
    return (distances.contiguous().view(torch.int32).long() << 32) | numbers


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The distances and the numbers."""
    return (packed >> 32).int().view(torch.float32), packed & 0xFFFFFFFF


def runs(starts: Tensor, lengths: Tensor) -> Tensor:
    """The numbers start, start + 1, … of each run, one run after the other."""
    ends = lengths.cumsum(0)
    return torch.arange(int(ends[-1]) if len(ends) else 0, device=starts.device) + torch.repeat_interleave(
        starts - ends + lengths, lengths
    )
