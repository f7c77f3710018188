"""The memory of a cache serves the next one, and never two at once."""

import numpy as np
import torch

from knnmt.decode.paths import FIRST_STEPS, PathCache
from knnmt.model.transformer import Encoded


def encoded(batch: int = 2) -> Encoded:
    pair = torch.zeros(batch, 2, 3, 4), torch.zeros(batch, 2, 3, 4)
    return Encoded(torch.zeros(batch, 3, 8), torch.ones(batch, 3, dtype=torch.bool), None, (pair,))


def test_a_cache_that_grows_keeps_the_past_of_those_who_are_left() -> None:
    cache = PathCache(None, encoded(), beams=2)  # type: ignore[arg-type]
    beside = PathCache(None, encoded(), beams=2)  # type: ignore[arg-type]
    capacity = cache.paths.shape[2]
    assert capacity >= FIRST_STEPS
    assert not np.shares_memory(cache.keys, beside.keys)
    cache.keys[:] = np.arange(cache.keys.size).reshape(cache.keys.shape)
    cache.paths[:] = np.arange(cache.paths.size).reshape(cache.paths.shape)
    keys, paths = cache.keys[:, :, 1:].copy(), cache.paths[1:].copy()
    cache.keep(torch.tensor([1]))
    assert not cache.reserve(capacity - 1)
    assert cache.reserve(capacity)
    assert cache.paths.shape[2] >= 2 * capacity
    assert (cache.keys[:, :, :, :capacity] == keys).all()
    assert (cache.paths[:, :, :capacity] == paths).all()
    assert cache.keys.shape[3] == cache.paths.shape[2]
