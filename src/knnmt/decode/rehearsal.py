"""A search that uses every compiled loop once, so that they are compiled, or read from the cache on disk."""

import torch

from knnmt import ready
from knnmt.decode.beam import search
from knnmt.decode.kernels import extend
from knnmt.model.panels import Panels
from knnmt.model.represent import padded
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Transformer

PAIR = (2, 1)  # sentences of these lengths: one of them is padded


def rehearse(model: Transformer, special: SpecialTokens) -> None:
    """Begin to make the loops ready for a model on a CPU, if they are cached or once they are wanted."""
    if model.device.type == "cpu" and model.decoder.embedding.weight.dtype == torch.float32:
        ready.begin(lambda: _search(model, special), extend.cached)  # type: ignore[attr-defined]


@torch.inference_mode()
def _search(model: Transformer, special: SpecialTokens) -> None:
    encoded = model.encode(*padded([[special.end] * length for length in PAIR], special.pad, model.device))
    Panels(torch.zeros(1, 4), None, in_bytes=True)(torch.zeros(1, 4))  # steps have their own way to both precisions
    for beams in (1, 2):
        search(model, encoded, special, [4, 3], beams=beams, early_stopping=beams == 1)
