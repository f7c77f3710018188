"""Searches that use everything once, so that the first translation does not have to wait for it.

On a CPU these are the compiled loops, compiled or read from the cache on disk. On a GPU kernels are loaded on
their first use, and matrix products of other sizes are other kernels: there, batches of several sizes are searched.
"""

from collections.abc import Sequence
from itertools import product
from weakref import WeakSet

import numpy as np
import torch

from knnmt import ready
from knnmt.decode.batches import batches
from knnmt.decode.beam import search
from knnmt.decode.constraints import Constraints, Edges, Forms, Wishes
from knnmt.decode.kernels import extend
from knnmt.decode.settings import TranslateSettings
from knnmt.model.panels import Panels
from knnmt.model.represent import padded
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Transformer

PAIR = (2, 1)  # sentences of these lengths: one of them is padded
ON_GPU = (1024, 768, 512, 384, 256, 192, 128, 96, 64, 32, 8, 1)  # sentences of a batch
BEAMS = TranslateSettings().beam
LENGTHS = (96, 48, 16)  # their tokens
STEPS = 4  # of each batch: they are run, captured and replayed
_rehearsed: WeakSet[Transformer] = WeakSet()


def rehearse(model: Transformer, special: SpecialTokens) -> None:
    """Prepare a model: on a GPU now, on a CPU beside other work if the loops are cached or once they are wanted."""
    if model.device.type == "cuda" and model not in _rehearsed:
        _rehearsed.add(model)
        for size, length in product(ON_GPU, LENGTHS):
            lengths = [min(length, model.architecture.max_positions)] * size
            fitting = next(batches(lengths, None, model.device, model.architecture, BEAMS))
            if len(fitting) == size:
                _search(model, special, lengths, [STEPS] * size, (BEAMS,))
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
def _search(
    model: Transformer, special: SpecialTokens, lengths: Sequence[int], limits: Sequence[int], beams: Sequence[int]
) -> None:
    """Translate sentences of these lengths into as many tokens as the limits say, once with each number of beams."""
    room = model.architecture.max_positions
    encoded = model.encode(*padded([[special.end] * length for length in lengths], special.pad, model.device, room))
    for count in beams:
        search(model, encoded, special, limits, beams=count, early_stopping=count == 1)
