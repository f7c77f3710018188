"""What the decoder attends to on a CPU: each beam reads the keys of its own past, and of its sentence's source.

A path says in which beam a beam's past is at each step: reordering beams moves paths and copies no keys. Sentences that
leave the batch leave their keys where they are; `slots` says where those of the others are.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.model.kernels import reorder
from knnmt.model.transformer import Encoded, Transformer

FIRST_STEPS = 32  # initial capacity, doubled when full
KEPT = 1 << 26  # float32 that wait for their next use, at most: 256 MiB
PAST, SOURCE = (Buffers(torch.device("cpu"), waiting=1, most=KEPT) for _ in range(2))


class PathCache:
    """Keys and values of B sentences with K beams; `keys` is (layers, 2, B, steps, K, H, e)."""

    def __init__(self, model: Transformer, source: Encoded, beams: int) -> None:
        batch, heads, _, size = source.keys[0][0].shape
        self._reserve((len(source.keys), 2, batch), FIRST_STEPS, (beams, heads, size))
        self.slots = np.arange(batch)
        self.paths = np.zeros((batch, beams, self.keys.shape[3]), np.int64)
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
        kept, give_back = self.keys, self._give_back
        self._reserve((*kept.shape[:2], len(self.slots)), 2 * kept.shape[3], kept.shape[4:])
        for place, slot in enumerate(self.slots):
            self.keys[:, :, place, :step] = kept[:, :, slot, :step]
        give_back()
        self.slots, self.lengths = np.arange(len(self.slots)), self.lengths[: len(self.slots)]
        paths = np.zeros((*self.paths.shape[:2], self.keys.shape[3]), np.int64)
        paths[:, :, :step] = self.paths[:, :, :step]
        self.paths = paths
        return True

    def _reserve(self, before: tuple[int, ...], steps: int, after: tuple[int, ...]) -> None:
        """Make `keys` (*before, steps or as many as there is memory for, *after)."""
        step = math.prod(before) * math.prod(after)
        memory, self._give_back = PAST.lend(self, step * steps)
        steps = len(memory) // step
        self.keys: NDArray[np.float32] = memory.numpy()[: step * steps].reshape(*before, steps, *after)

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        self.slots, self.paths = self.slots[rows.numpy()], self.paths[rows.numpy()]


class SourceKeys:
    """The source's keys and values as a past that all beams share; `keys` is (layers, 2, B, S, 1, H, e)."""

    def __init__(self, source: Encoded) -> None:
        batch, heads, length, size = source.keys[0][0].shape
        shape = len(source.keys), 2, batch, length, 1, heads, size
        memory, _ = SOURCE.lend(self, math.prod(shape))
        self.keys: NDArray[np.float32] = memory.numpy()[: math.prod(shape)].reshape(shape)
        for layer, pair in enumerate(source.keys):
            for into, keys in zip(torch.from_numpy(self.keys[layer, :, :, :, 0]), pair, strict=True):
                into.copy_(keys.transpose(1, 2))
        self.paths = np.empty((0, 0, 0), np.int64)
        self.lengths = source.mask.sum(dim=1).numpy()
        self.slots = np.arange(len(self.lengths))

    def keep(self, rows: Tensor) -> "SourceKeys":
        """Keep only these sentences. rows: (N,) int64."""
        self.slots = self.slots[rows.numpy()]
        return self
