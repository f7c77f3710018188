"""Normalising and ranking the scores of a step with tensors, on any device."""

import torch
from torch import Tensor

NEVER = -1.0e9  # score of an impossible hypothesis; finite, so that sums stay comparable
BLOCK = 64  # vocabulary entries per block in `top`


def normaliser(logits: Tensor, end: int) -> Tensor:
    """log Σ exp, (B, K, V) to (B, K); twice as fast as logsumexp. end: a token whose logits are finite."""
    return logits[:, :, end] - logits.log_softmax(dim=-1)[:, :, end]


def top(logits: Tensor, shift: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of logits (B, K, V) + shift (B, K), and their indices into K·V. Both (B, count).

    Two steps: the best blocks of the vocabulary by their maxima, then the best entries of those blocks. The best
    `count` entries lie in the best `count` blocks, and maxima are many times faster than a top-k of everything.
    """
    vocabulary = logits.size(2)
    blocks = vocabulary // BLOCK
    if blocks <= count:
        scores, at = (logits + shift[:, :, None]).flatten(1).topk(count, dim=1)
        return scores, at
    whole = logits[:, :, : blocks * BLOCK].unflatten(2, (blocks, BLOCK)).amax(dim=3)
    if vocabulary % BLOCK:
        rest = logits[:, :, blocks * BLOCK :].amax(dim=2, keepdim=True)
        whole, blocks = torch.cat((whole, rest), dim=2), blocks + 1
    best = (whole + shift[:, :, None]).flatten(1).topk(count, dim=1, sorted=False).indices
    beam, inside = best // blocks, best % blocks
    entry = inside[:, :, None] * BLOCK + torch.arange(BLOCK, device=logits.device)
    at = beam[:, :, None] * vocabulary + entry.clamp(max=vocabulary - 1)
    found = logits.flatten(1).gather(1, at.flatten(1)).view_as(at) + shift.gather(1, beam)[:, :, None]
    scores, order = found.masked_fill_(entry >= vocabulary, -torch.inf).flatten(1).topk(count, dim=1)
    return scores, at.flatten(1).gather(1, order)
