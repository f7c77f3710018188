"""A Hugging Face encoder-decoder that gives access to its states."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from knnmt.errors import ModelError
from knnmt.hf.taps import Recorded, find_taps, layer_calls
from knnmt.model.transformer import Encoded, States


class Network:
    """A Hugging Face encoder-decoder with the interface of `knnmt.model.transformer` that building a store needs."""

    def __init__(self, hf: Any, max_positions: int, source: Tensor, target: Tensor) -> None:
        self.hf = hf
        self.first, self.projection, self.architecture = find_taps(hf, max_positions, source, target)
        self._recorded, self._lock, self._users = Recorded(), threading.Lock(), 0
        self._hooks = ExitStack()

    @property
    def encoder(self) -> nn.Module:
        """The encoder."""
        encoder: nn.Module = self.hf.get_encoder()
        return encoder

    @property
    def precision(self) -> str:
        """The precision of the weights."""
        return str(self.hf.dtype).removeprefix("torch.")

    def record(self, recorded: Recorded) -> ExitStack:
        """Record the decoder's states until the stack is closed."""
        hooks = ExitStack()
        hooks.callback(self.first.record(recorded, "ffn_input").remove)
        hooks.callback(self.projection.record(recorded, "output").remove)
        return hooks

    def encode(self, ids: Tensor, mask: Tensor) -> Encoded:
        """Encode padded sentences. ids: (B, S) int64; mask: (B, S) bool."""
        encoded = self.encoder(input_ids=ids, attention_mask=mask.long(), return_dict=True)
        return Encoded(encoded.last_hidden_state, mask, None, ())

    def force(self, ids: Tensor, source: Encoded) -> States:
        """States of all positions of known targets. ids: (B, T), the token before each position."""
        with self._forcing():
            self.hf(
                input_ids=ids,  # ignored, since the source is encoded, but FSMT needs it to apply the causal mask
                attention_mask=source.mask.long(),
                encoder_outputs=BaseModelOutput(last_hidden_state=source.states),
                decoder_input_ids=ids,
                use_cache=False,
            )
            return self._recorded.take()

    @contextmanager
    def _forcing(self) -> Iterator[None]:
        """Keep the hooks registered while any thread is inside: the threads of a build share the model."""

        def skip(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            return (inputs[0][:, :0], *inputs[1:]) if self._recorded.wanted else None  # the logits are not needed

        with self._lock:
            if self._users == 0:
                self._hooks = self.record(self._recorded)
                self._hooks.callback(self.projection.module.register_forward_pre_hook(skip).remove)
            self._users += 1
        self._recorded.wanted = True
        try:
            yield
        finally:
            self._recorded.wanted = False
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._hooks.close()


def check_network(network: Network, source: Tensor, target: Tensor) -> None:
    """Refuse a model whose states are not those of a standard decoder."""
    kind = type(network.hf).__name__
    calls, logits = layer_calls(network.hf, source, target)
    encoded = network.encode(source, torch.ones_like(source, dtype=torch.bool))
    states = network.force(target, encoded)
    if encoded.states.size(-1) != network.architecture.width:
        raise ModelError(
            f"{kind}: encoder and decoder widths differ ({encoded.states.size(-1)} and {network.architecture.width})"
        )
    bias = logits - network.projection.module(states.output)  # Marian and BART add one after the projection
    if not _close(bias, bias[:1, :1].expand_as(bias), logits):
        raise ModelError(
            f"{kind}: the logits are changed after the output projection; this architecture is unsupported"
        )
    received = [call.output for call in calls if call.module is network.first.module][-1]
    computed = network.first.module(states.ffn_input)
    if not _close(computed, received.transpose(0, 1) if network.first.time_first else received, computed):
        raise ModelError(f"{kind}: the input of the last feed-forward block differs between two forward passes")
    for some in states:
        if not _close(some[0, :-1], some[1, :-1], some):
            raise ModelError(f"{kind}: the decoder is not causal (its states depend on later tokens)")


def _close(one: Tensor, other: Tensor, scale: Tensor) -> bool:
    """Whether two tensors are equal up to rounding of numbers as large as those of `scale`."""
    return bool((one - other).abs().max() <= torch.finfo(scale.dtype).eps ** 0.5 * scale.abs().max())
