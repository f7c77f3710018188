"""What the decoder attends to on a CPU: each beam reads the keys of its own past, and of its sentence's source.

A path says in which beam a beam's past is at each step: reordering beams moves paths and copies no keys. Sentences that
leave the batch leave their keys where they are; `slots` says where those of the others are.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.model.kernels import reorder
from knnmt.model.transformer import Encoded, Transformer

FIRST_STEPS = 32  # initial capacity, doubled when full


class PathCache:
    """Keys and values of B sentences with K beams; `keys` is (layers, 2, B, steps, K, H, e)."""

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        batch, heads, _, size = source.keys[0][0].shape
        self.keys = np.empty((len(source.keys), 2, batch, FIRST_STEPS, beams, heads, size), np.float32)
        self.slots = np.arange(batch)
        self.paths = np.zeros((batch, beams, FIRST_STEPS), np.int64)
        self.lengths = np.ones(batch, np.int64)  # with the step that is computed
        self.length = 0

    def advance(self, parents: Tensor) -> None:
        """Finish a step: beam b continues beam parents[:, b]. parents: (B, K) int64."""
        self.length += 1
        self.lengths += 1
        reorder(self.paths, parents.numpy(), self.length)

    def reserve(self, step: int) -> bool:
        """Make sure that there is capacity for a step; says whether the cache had to grow."""
        if step < self.paths.shape[2]:
            return False
        self.keys = _longer(self.keys[:, :, self.slots], 3)
        self.slots, self.lengths = np.arange(len(self.slots)), self.lengths[: len(self.slots)]
        self.paths = _longer(self.paths, 2)
        return True

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        self.slots, self.paths = self.slots[rows.numpy()], self.paths[rows.numpy()]


class SourceKeys:
    """The source's keys and values as a past that all beams share; `keys` is (layers, 2, B, S, 1, H, e)."""

    def __init__(self, source: Encoded) -> None:
        pairs = torch.stack([torch.stack(pair) for pair in source.keys])
        self.keys: NDArray[np.float32] = pairs.transpose(3, 4).unsqueeze(4).contiguous().numpy()
        self.paths = np.empty((0, 0, 0), np.int64)
        self.lengths = source.mask.sum(dim=1).numpy()
        self.slots = np.arange(len(self.lengths))

    def keep(self, rows: Tensor) -> "SourceKeys":
        """Keep only these sentences. rows: (N,) int64."""
        self.slots = self.slots[rows.numpy()]
        return self


def _longer(stored: NDArray[Any], axis: int) -> NDArray[Any]:
    """Double an axis."""
    return np.concatenate((stored, np.empty_like(stored)), axis=axis)
