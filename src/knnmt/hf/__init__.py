"""Retrieval inside `model.generate()`, for any Hugging Face encoder-decoder, T5 included, without changing it.

`wrap` gives access to a model's states, so that a store can be built with it; `Retrieval` is a logits processor that
mixes p_kNN into each step. Both use forward hooks, which are registered only while they are needed.

taps.py which layers to hook · network.py the hooked network · wrap.py a model for a store · generate.py the processor.
"""

from knnmt.hf.generate import Retrieval
from knnmt.hf.wrap import Wrapped, wrap

__all__ = ["Retrieval", "Wrapped", "wrap"]
