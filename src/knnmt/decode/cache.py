"""The key-value cache of the decoder's self-attention.

Reordering beams copies no keys. All K beams of a sentence append their keys, K per step, and a mask `(B, K, steps·K)`
says which of them are a beam's past: when beam b continues beam p, row p of the mask becomes row b. Attending to K
times as many keys costs less than copying them.
"""

import torch
from torch import Tensor

from knnmt.model.transformer import Encoded, Transformer

FIRST_STEPS = 32  # initial capacity, doubled when full


class Cache:
    """Keys and values of B sentences with K beams; `keys[layer]` is (B, H, steps·K, e)."""

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        batch, heads, _, size = source.keys[0][0].shape
        rows = FIRST_STEPS * beams
        new = source.states.new_zeros  # what is masked is multiplied by 0 all the same, and must be finite
        self.keys = [(new(batch, heads, rows, size), new(batch, heads, rows, size)) for _ in model.decoder.layers]
        self.hidden = torch.finfo(source.states.dtype).min
        self.mask = source.states.new_full((batch, beams, rows), self.hidden)
        self.beams = beams
        self.length = 0
        self._open()

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the keys and values (B, H, K, e) of a layer; return all so far and the mask."""
        start, stop = self.length * self.beams, (self.length + 1) * self.beams
        stored_keys, stored_values = self.keys[layer]
        stored_keys[:, :, start:stop] = keys
        stored_values[:, :, start:stop] = values
        mask = None if self.beams == 1 else self.mask[:, None, :, :stop]
        return stored_keys[:, :, :stop], stored_values[:, :, :stop], mask

    def advance(self, parents: Tensor) -> None:
        """Finish a step: beam b continues beam parents[:, b]. parents: (B, K) int64."""
        self.length += 1
        if self.beams > 1:
            past = self.mask[:, :, : self.length * self.beams]
            past.copy_(past.gather(1, parents[:, :, None].expand_as(past)))
        self.reserve(self.length)
        self._open()

    def reserve(self, step: int) -> bool:
        """Make sure that there is capacity for a step; says whether the cache had to grow."""
        if (step + 1) * self.beams <= self.mask.size(2):
            return False
        self.keys = [(_longer(keys), _longer(values)) for keys, values in self.keys]
        self.mask = torch.cat((self.mask, torch.full_like(self.mask, self.hidden)), dim=2)
        return True

    def _open(self) -> None:
        """Let each beam attend to the key it writes next."""
        start = self.length * self.beams
        self.mask[:, :, start : start + self.beams].diagonal(dim1=1, dim2=2).zero_()

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        self.keys = [(keys[rows], values[rows]) for keys, values in self.keys]
        self.mask = self.mask[rows]


class StaticCache(Cache):
    """The same on a GPU, where a step must not depend on numbers of the host: it may be replayed (`decode.graph`).

    The number of the step is on the device, and attention goes over the whole capacity, masked. Before each step,
    `reserve` the one after it: the mask is opened for it at the end of this one.
    """

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        self.columns = torch.arange(beams, device=source.states.device)  # where the step writes
        super().__init__(model, source, beams)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the keys and values (B, H, K, e) of a layer; return the whole capacity and the mask."""
        stored_keys, stored_values = self.keys[layer]
        stored_keys.index_copy_(2, self.columns, keys)
        stored_values.index_copy_(2, self.columns, values)
        return stored_keys, stored_values, self.mask[:, None]

    def advance(self, parents: Tensor) -> None:
        """Finish a step: beam b continues beam parents[:, b]. parents: (B, K) int64."""
        self.mask.copy_(self.mask.gather(1, parents[:, :, None].expand_as(self.mask)))
        self.columns += self.beams
        self._open()

    def _open(self) -> None:
        """Let each beam attend to the key it writes next."""
        own = self.columns[None, :, None].expand(len(self.mask), -1, -1)
        self.mask.scatter_(2, own, 0.0)


def _longer(stored: Tensor) -> Tensor:
    """Double the capacity. (B, H, L, e) to (B, H, 2L, e)."""
    return torch.cat((stored, torch.zeros_like(stored)), dim=2)
