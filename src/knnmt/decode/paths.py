"""What the decoder attends to on a CPU: each beam reads the keys of its own past, and of its sentence's source.

A path says in which beam a beam's past is at each step: reordering beams moves paths and copies no keys. Sentences that
leave the batch leave their keys where they are; `slots` says where those of the others are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from knnmt.model.kernels import add_norm, attend_past, attend_source, reorder
from knnmt.model.transformer import Attention, Encoded, Past, Transformer

FIRST_STEPS = 32  # initial capacity, doubled when full


class PathCache(Past):
    """Keys and values of B sentences with K beams; `keys[layer]` is a pair of (B, steps, K, H, e)."""

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        batch, heads, _, size = source.keys[0][0].shape
        shape = batch, FIRST_STEPS, beams, heads, size
        self.keys = [(np.empty(shape, np.float32), np.empty(shape, np.float32)) for _ in model.decoder.layers]
        self.slots = np.arange(batch)
        self.paths = np.zeros((batch, beams, FIRST_STEPS), np.int64)
        self.length = 0

    def attend(self, layer: int, projected: Tensor, attention: Attention) -> Tensor:
        """Append a step, and attend from it. projected: (B, K, 3d), query, key and value; (B, K, d)."""
        keys, values = self.keys[layer]
        return attend_past(projected, keys, values, self.slots, self.paths, self.length, attention.scale)

    def add_norm(self, layer: nn.LayerNorm, x: Tensor, branch: Tensor) -> Tensor:
        """The layer norm of a sum."""
        return add_norm(x, branch, layer.weight, layer.bias, layer.eps)

    def advance(self, parents: Tensor) -> None:
        """Finish a step: beam b continues beam parents[:, b]. parents: (B, K) int64."""
        self.length += 1
        reorder(self.paths, parents.numpy(), self.length)

    def reserve(self, step: int) -> bool:
        """Make sure that there is capacity for a step; says whether the cache had to grow."""
        if step < self.paths.shape[2]:
            return False
        self.keys = [(_longer(keys[self.slots], 1), _longer(values[self.slots], 1)) for keys, values in self.keys]
        self.slots = np.arange(len(self.slots))
        self.paths = _longer(self.paths, 2)
        return True

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        self.slots, self.paths = self.slots[rows.numpy()], self.paths[rows.numpy()]


class SourceKeys:
    """The source's keys and values as a past of one beam, and how many of them a sentence has."""

    def __init__(self, source: Encoded) -> None:
        self.keys = [(_of_one_beam(keys), _of_one_beam(values)) for keys, values in source.keys]
        self.lengths = source.mask.sum(dim=1).numpy()
        self.slots = np.arange(len(self.lengths))

    def attend(self, layer: int, projected: Tensor, attention: Attention) -> Tensor:
        """Attend to the source from queries (B, K, d) of a layer. (B, K, d)."""
        keys, values = self.keys[layer]
        return attend_source(projected, keys, values, self.slots, self.lengths, attention.scale)

    def keep(self, rows: Tensor) -> "SourceKeys":
        """Keep only these sentences. rows: (N,) int64."""
        self.slots = self.slots[rows.numpy()]
        return self


def _of_one_beam(keys: Tensor) -> NDArray[np.float32]:
    """(B, H, S, e) to (B, S, 1, H, e)."""
    found: NDArray[np.float32] = keys.transpose(1, 2).unsqueeze(2).contiguous().numpy()
    return found


def _longer(stored: NDArray[Any], axis: int) -> NDArray[Any]:
    """Double an axis."""
    return np.concatenate((stored, np.empty_like(stored)), axis=axis)
