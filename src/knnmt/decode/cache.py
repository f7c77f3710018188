"""What the decoder's self-attention keeps between steps.

Nothing is copied when beams change places. All K beams of a sentence write their keys side by side, K a step, and a
mask `(B, K, steps·K)` says which of them are a beam's own past: when beam b goes on from beam p, row p of the mask
becomes row b. Attention over K times the keys costs less than moving them.
"""

import torch
from torch import Tensor

from knnmt.model.transformer import Encoded, Transformer

FIRST_STEPS = 32  # room at the start; doubled when it is used up


class Cache:
    """Keys and values of B sentences with K beams; `keys[layer]` is (B, H, steps·K, e)."""

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        batch, heads, _, size = source.keys[0][0].shape
        rows = FIRST_STEPS * beams
        empty = source.states.new_empty
        self.keys = [(empty(batch, heads, rows, size), empty(batch, heads, rows, size)) for _ in model.decoder.layers]
        self.hidden = torch.finfo(source.states.dtype).min
        self.mask = source.states.new_full((batch, beams, rows), self.hidden)
        self.beams = beams
        self.length = 0
        self._open()

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Store the new keys and values (B, H, K, e) of a layer; give back all so far and the mask."""
        start, stop = self.length * self.beams, (self.length + 1) * self.beams
        stored_keys, stored_values = self.keys[layer]
        stored_keys[:, :, start:stop] = keys
        stored_values[:, :, start:stop] = values
        mask = None if self.beams == 1 else self.mask[:, None, :, :stop]
        return stored_keys[:, :, :stop], stored_values[:, :, :stop], mask

    def advance(self, parents: Tensor) -> None:
        """The step is done, and beam b goes on from beam parents[:, b]. parents: (B, K) int64."""
        self.length += 1
        if self.beams > 1:
            past = self.mask[:, :, : self.length * self.beams]
            past.copy_(past.gather(1, parents[:, :, None].expand_as(past)))
        if (self.length + 1) * self.beams > self.mask.size(2):
            self.keys = [(_longer(keys), _longer(values)) for keys, values in self.keys]
            self.mask = torch.cat((self.mask, torch.full_like(self.mask, self.hidden)), dim=2)
        self._open()

    def _open(self) -> None:
        """Each beam sees the key that it is about to write."""
        start = self.length * self.beams
        self.mask[:, :, start : start + self.beams].diagonal(dim1=1, dim2=2).zero_()

    def keep(self, rows: Tensor) -> None:
        """Drop the sentences that are not in rows (int64)."""
        self.keys = [(keys[rows], values[rows]) for keys, values in self.keys]
        self.mask = self.mask[rows]


def _longer(stored: Tensor) -> Tensor:
    """Twice the room, the past in front. (B, H, L, e) to (B, H, 2L, e)."""
    return torch.cat((stored, torch.empty_like(stored)), dim=2)
