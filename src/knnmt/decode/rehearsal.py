"""Searches that use everything once, so that the first translation does not have to wait for it.

On a CPU these are the compiled loops, compiled or read from the cache on disk. On a GPU kernels are loaded on
their first use, and matrix products of other sizes are other kernels: there, products of all sizes are made that occur.
"""

from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakSet

import numpy as np
import torch

from knnmt import ready
from knnmt.decode.batches import ROOMS, batches
from knnmt.decode.beam import search
from knnmt.decode.cache import FIRST_STEPS, StaticCache
from knnmt.decode.constraints import Constraints, Edges, Forms, Wishes
from knnmt.decode.kernels import extend
from knnmt.decode.settings import TranslateSettings
from knnmt.model.panels import Panels
from knnmt.model.represent import aligned, padded
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Transformer

PAIR = (2, 1)  # sentences of these lengths: one of them is padded
ON_GPU = (256, 1)  # sentences of a batch that is searched on a GPU
BEAMS = TranslateSettings().beam
LENGTHS = sorted({aligned(length) for length in range(1, 129)})  # tokens of sentences whose products are made
CAPACITIES = tuple(FIRST_STEPS << doubled for doubled in range(3))  # steps of their caches
STEPS = 4  # of each batch: they are run, captured and replayed
_rehearsed: WeakSet[Transformer] = WeakSet()


def rehearse(model: Transformer, special: SpecialTokens) -> None:
    """Prepare a model: on a GPU now, on a CPU beside other work if the loops are cached or once they are wanted."""
    if model.device.type == "cuda" and model not in _rehearsed:
        _rehearsed.add(model)
        for size in ON_GPU:
            _search(model, special, [LENGTHS[0]] * size, [STEPS] * size, (BEAMS,))
        for size in ROOMS:
            with suppress(torch.OutOfMemoryError):  # on a small GPU, or one that others use
                _multiply(model, size)
        torch.cuda.empty_cache()  # what the largest batches took is for whoever needs it first
    if model.device.type == "cpu" and model.decoder.embedding.weight.dtype == torch.float32:
        ready.begin(lambda: _use_loops(model, special), extend.cached)  # type: ignore[attr-defined]


@torch.inference_mode()
def _use_loops(model: Transformer, special: SpecialTokens) -> None:
    """Use each compiled loop once."""
    Panels(torch.zeros(1, 4), None, in_bytes=True)(torch.zeros(1, 4))  # steps have their own way to both precisions
    _search(model, special, PAIR, (4, 3), (1, 2))
    edges = Edges(*np.ones((2, model.architecture.target_vocabulary), np.bool_))
    wishes = [Wishes(((Forms(joined=frozenset({(special.end,)})), 1),))] * len(PAIR)
    encoded = model.encode(*padded([[special.end] * length for length in PAIR], special.pad, model.device))
    search(model, encoded, special, [2] * len(PAIR), beams=2, constraints=Constraints(wishes, edges, 2, model.device))


@torch.inference_mode()
def _multiply(model: Transformer, size: int) -> None:
    """Make the products of a batch of `size` sentences of each length, as far as there is memory for them."""
    most, device = model.architecture.max_positions, model.device
    tokens, first = torch.zeros((size, BEAMS), dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int64)
    for length in sorted({min(length, most) for length in LENGTHS}):
        if len(next(batches([length] * size, None, device, model.architecture, BEAMS))) < size:
            return
        ids = torch.zeros((size, length), dtype=torch.int64, device=device)
        encoded = model.encode(ids, torch.arange(length, device=device).expand(size, -1) < max(1, length - 1))
        cache = StaticCache(model, encoded, BEAMS)
        for capacity in CAPACITIES if length == min(LENGTHS[0], most) else CAPACITIES[:1]:
            cache.reserve(capacity - 1)
            model.logits(model.step(tokens, first.to(device), encoded, cache).output)


@torch.inference_mode()
def _search(
    model: Transformer, special: SpecialTokens, lengths: Sequence[int], limits: Sequence[int], beams: Sequence[int]
) -> None:
    """Translate sentences of these lengths into as many tokens as the limits say, once with each number of beams."""
    room = model.architecture.max_positions
    encoded = model.encode(*padded([[special.end] * length for length in lengths], special.pad, model.device, room))
    for count in beams:
        search(model, encoded, special, limits, beams=count, early_stopping=count == 1)
