"""Which layers of a Hugging Face model receive the states that a store needs, found by running it once."""

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from knnmt.errors import ModelError
from knnmt.model.tokenizer import PROBES, SpecialTokens, Tokenizer
from knnmt.model.transformer import States


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network."""

    width: int
    source_vocabulary: int
    target_vocabulary: int
    max_positions: int


class Recorded(threading.local):
    """What the hooks of a model recorded in this thread, if it wants them to."""

    wanted = False
    ffn_input: Tensor | None = None  # (B, T, d)
    output: Tensor | None = None

    def take(self) -> States:
        """The states (B, T, d), once."""
        assert self.ffn_input is not None
        assert self.output is not None
        states = States(self.ffn_input, self.output)
        self.ffn_input = self.output = None
        return states


class Tap(NamedTuple):
    """A module whose input is a state, as (T, B, d) if `time_first`, else as (B, T, d)."""

    module: nn.Module
    time_first: bool

    def record(self, recorded: Recorded, name: str) -> RemovableHandle:
        """Record each input under a name, in threads that want it."""

        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if recorded.wanted:
                setattr(recorded, name, (inputs[0].transpose(0, 1) if self.time_first else inputs[0]).detach())

        return self.module.register_forward_pre_hook(hook)


class LayerCall(NamedTuple):
    """A call of a layer, with its input and output."""

    module: nn.Module
    input: Tensor
    output: Tensor


def probe_batch(tokenizer: Tokenizer, special: SpecialTokens, device: torch.device) -> tuple[Tensor, Tensor]:
    """A source (2, S), repeated, and two targets (2, T), T > 2, that differ in their last token only."""
    source = tokenizer.encode_source(PROBES[:1])[0]
    one, other, last = [i for i in range(6) if i not in (special.start, special.end, special.pad)][:3]
    head = [special.start, *special.prefix, one]
    return torch.tensor([source] * 2, device=device), torch.tensor([[*head, other], [*head, last]], device=device)


def find_taps(hf: Any, max_positions: int, source: Tensor, target: Tensor) -> tuple[Tap, Tap, Sizes]:
    """Find the first layer of the last feed-forward block, and the output projection, by tracing the layers."""
    calls, logits = layer_calls(hf, source, target)
    linear = [call for call in calls if isinstance(call.module, nn.Linear)]
    at = max((i for i, call in enumerate(linear) if call.output.shape == logits.shape), default=0)
    if at < 2 or linear[at].output.shape != logits.shape:
        raise ModelError(f"{type(hf).__name__}: no linear layer computes the logits; this architecture is unsupported")
    owner = {child: parent for parent in hf.modules() for child in parent.children()}
    second = linear[at - 1].module
    before = at - 1  # the block may be a module, or two layers of a decoder layer; gated ones have two first layers
    while before > 0 and owner[linear[before - 1].module] is owner[second]:
        before -= 1
    first, projection = linear[before], linear[at]
    if first.module is second:
        raise ModelError(f"{type(hf).__name__}: no feed-forward block found in the last decoder layer")
    width = projection.input.size(-1)
    shape = *target.shape, width
    if first.input.shape not in (shape, (shape[1], shape[0], width)):
        raise ModelError(f"{type(hf).__name__}: states of an unexpected shape, {tuple(first.input.shape)}")
    taps = Tap(first.module, first.input.shape != shape), Tap(projection.module, time_first=False)
    embedding = next(call.module for call in calls if isinstance(call.module, nn.Embedding))
    return *taps, Sizes(width, embedding.num_embeddings, logits.size(-1), max_positions)


def layer_calls(hf: Any, source: Tensor, target: Tensor) -> tuple[list[LayerCall], Tensor]:
    """The calls of linear layers and embeddings in one forward pass, in order, and the logits."""
    calls: list[LayerCall] = []
    with ExitStack() as hooks:
        for module in hf.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                handle = module.register_forward_hook(
                    lambda *call: calls.append(LayerCall(call[0], call[1][0], call[2]))
                )
                hooks.callback(handle.remove)
        logits = hf(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    return calls, logits
