"""The decoder's layers in a decoding step on a CPU, as one compiled loop: from the embedded tokens to their states.

A step has few rows and some twenty matrix products, of which each takes a few microseconds: called one by one, they
and what is between them would spend as much time on being called.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from knnmt.loops import compiled, share_evenly
from knnmt.model.kernels import append, attend, norm
from knnmt.model.panels import WORTH, multiply
from knnmt.model.tiles import COLUMNS

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Kept(Protocol):
    """Keys and values that a step attends to, as `model.kernels.attend` has them; `keys` is (layers, 2, …)."""

    keys: Floats
    slots: Ints
    paths: Ints
    lengths: Ints


class CompiledLayers:
    """The decoder's layers of a model on a CPU, in float32 or 8 bits.

    matrices: (layers, 6, 4), as `Panels` has them; norms: (layers, 3, 2, d), weights and biases
    """

    def __init__(self, layers: nn.ModuleList) -> None:
        each: list[Any] = list(layers)
        self.panels = [[linear.panels() for linear in _linears(layer)] for layer in each]
        self.matrices = np.array([[panels.matrix for panels in layer] for layer in self.panels])
        norms = [(layer.self_norm, layer.cross_norm, layer.ffn_norm) for layer in each]
        self.norms = torch.stack(
            [torch.stack([torch.stack((one.weight, one.bias)) for one in layer]) for layer in norms]
        ).numpy()
        attention, first = each[0].self_attention, self.panels[0][4]
        self.heads, self.scale, self.epsilon = attention.heads, np.float32(attention.scale), norms[0][0].eps
        self.norm_first, self.activation = each[0].norm_first, first.activation.number
        self.work = int(sum(p.matrix[1] * p.matrix[2] for layer in self.panels for p in layer))
        self.worth = WORTH[first.in_bytes]

    def __call__(self, x: Tensor, source: Kept, past: Kept) -> tuple[Tensor, Tensor]:
        """The input of the last feed-forward block and the output, from embedded tokens. All (B, K, d)."""
        states = x.numpy().copy()
        inner = np.empty_like(states)
        share_evenly(
            _layers, len(states), self.work * states.shape[1], self.worth, self.matrices, self.norms, self.heads, self.scale, np.float32(self.epsilon), self.norm_first, self.activation, source.keys,
            source.slots, source.paths, source.lengths, past.keys, past.slots, past.paths, past.lengths, inner, states,
        )  # fmt: skip
        return torch.from_numpy(inner), torch.from_numpy(states)


def _linears(layer: Any) -> tuple[Any, ...]:
    """The matrices of a layer, in the order in which a step needs them."""
    own, cross, ffn = layer.self_attention, layer.cross_attention, layer.ffn
    return own.inputs, own.output, cross.query, cross.output, ffn.first, ffn.second


@compiled
def _layers(
    first: int, last: int, matrices: Ints, norms: Floats, heads: int, scale: float, epsilon: float,
    norm_first: bool, activation: int, source_keys: Floats, source_slots: Ints, source_paths: Ints,
    source_lengths: Ints, past_keys: Floats, past_slots: Ints, past_paths: Ints, past_lengths: Ints,
    inner_out: Floats, states_out: Floats,
) -> None:  # fmt: skip
    """All layers for the beams of sentences first to last."""
    beams, width = states_out.shape[1], states_out.shape[2]
    rows, size = (last - first) * beams, width // heads
    states = states_out[first:last].reshape(rows, width)
    inner = inner_out[first:last].reshape(rows, width)
    projected, query = np.empty((rows, 3 * width), np.float32), np.empty((rows, width), np.float32)
    mixed, branch = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    hidden = np.empty((rows, matrices[0, 4, 2]), np.float32)
    for layer in range(len(matrices)):
        own, weights = matrices[layer], norms[layer]
        before = states
        if norm_first:
            norm(states, weights[0], epsilon, inner)
            before = inner
        _linear(own[0], before, 0, projected)
        parts = projected.reshape(rows, 3, heads, size)
        keys, values = past_keys[layer, 0], past_keys[layer, 1]
        append(first, last, parts, keys, values, past_slots, past_paths, past_lengths)
        attend(
            first, last, parts, keys, values, past_slots, past_paths, past_lengths, scale,
            mixed.reshape(rows, heads, size),
        )  # fmt: skip
        _linear(own[1], mixed, 0, branch)
        _add(states, branch, norm_first, weights[0], weights[1], epsilon, inner)
        _linear(own[2], inner, 0, query)
        attend(
            first, last, query.reshape(rows, 1, heads, size), source_keys[layer, 0], source_keys[layer, 1],
            source_slots, source_paths, source_lengths, scale, mixed.reshape(rows, heads, size),
        )  # fmt: skip
        _linear(own[3], mixed, 0, branch)
        _add(states, branch, norm_first, weights[1], weights[2], epsilon, inner)
        _linear(own[4], inner, activation, hidden)
        _linear(own[5], hidden, 0, branch)
        for row in range(rows):
            for number in range(width):
                states[row, number] += branch[row, number]
        if not norm_first:
            norm(states, weights[2], epsilon, states)


@compiled
def _linear(matrix: Ints, rows: Floats, activation: int, out: Floats) -> None:
    """A whole product."""
    multiply(0, -(-matrix[2] // COLUMNS), matrix, rows, activation, out)


@compiled
def _add(
    states: Floats, branch: Floats, norm_first: bool, own: Floats, following: Floats, epsilon: float, inner: Floats
) -> None:
    """Add a branch to the residual, and normalise; `inner` is the input of the branch that follows."""
    for row in range(len(states)):
        for number in range(states.shape[1]):
            states[row, number] += branch[row, number]
    if norm_first:
        norm(states, following, epsilon, inner)
    else:
        norm(states, own, epsilon, states)
        inner[:] = states
