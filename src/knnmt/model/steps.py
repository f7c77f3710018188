"""The decoder's layers in a decoding step on a CPU, as one compiled loop: from the embedded tokens to their states.

A step has few rows and some twenty matrix products, of which each takes a few microseconds: called one by one, they
and what is between them would spend as much time on being called.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from knnmt.loops import compiled, share_evenly, take, work_together
from knnmt.model.kernels import append, attend, norm
from knnmt.model.panels import WORTH, multiply
from knnmt.model.tiles import COLUMNS

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TOGETHER = 4  # times the work that is worth a thread is worth working together
TURN = 8  # int64 of a cache line


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
        embedded = x.numpy()
        count, beams, _ = embedded.shape
        inner, states, work = np.empty_like(embedded), np.empty_like(embedded), self.work * beams
        threads = torch.get_num_threads()
        workers = min(threads, count * work // (TOGETHER * self.worth)) if count < threads else 1
        arguments = (
            self.matrices, self.norms, self.heads, self.scale, np.float32(self.epsilon), self.norm_first,
            self.activation, source.keys, source.slots, source.paths, source.lengths, past.keys, past.slots,
            past.paths, past.lengths,
        )  # fmt: skip
        if workers > 1:
            turns = np.zeros((self.matrices[:, :, 0].size, TURN), np.int64)
            shared = np.empty(count * beams * int(self.matrices[:, :, 2].sum()), np.float32)
            work_together(_layers, workers, *arguments, turns, shared, embedded, inner, states)
        else:
            nothing = np.empty((0, TURN), np.int64), np.empty(0, np.float32)
            share_evenly(_layers, count, work, self.worth, 1, *arguments, *nothing, embedded, inner, states)
        return torch.from_numpy(inner), torch.from_numpy(states)


def _linears(layer: Any) -> tuple[Any, ...]:
    """The matrices of a layer, in the order in which a step needs them."""
    own, cross, ffn = layer.self_attention, layer.cross_attention, layer.ffn
    return own.inputs, own.output, cross.query, cross.output, ffn.first, ffn.second


@compiled
def _layers(
    first: int, last: int, workers: int, matrices: Ints, norms: Floats, heads: int, scale: Any, epsilon: Any,
    norm_first: bool, activation: int, source_keys: Floats, source_slots: Ints, source_paths: Ints,
    source_lengths: Ints, past_keys: Floats, past_slots: Ints, past_paths: Ints, past_lengths: Ints, turns: Ints,
    shared: Floats, embedded: Floats, inner_out: Floats, states_out: Floats,
) -> None:  # fmt: skip
    """All layers for the beams of sentences first to last; or, with several workers, what worker `first` does of all.

    A worker takes panels of the products, and does the rest for itself: what is between products is little, and nobody
    waits for it. turns: for each product, the panels that were taken, and those that are done; shared: the products,
    each in a place of its own. Worker 0 fills in inner_out and states_out. Both, and embedded: (B, K, d).
    """
    worker = first if workers > 1 else 0
    if workers > 1:
        first, last = 0, len(states_out)
    rows = (last - first) * states_out.shape[1]
    states = embedded[first:last].copy().reshape(rows, -1)
    inner = np.empty_like(states)
    if workers == 1:
        shared = np.empty(rows * matrices[0, :, 2].sum(), np.float32)
    width = states.shape[1]
    size = width // heads
    mixed, attended = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    for layer in range(len(matrices)):
        if worker and take(turns.ctypes.data + 8 * TURN * (len(turns) - 1), 0) > 0:
            return  # the others are at the last product already
        own, weights = matrices[layer], norms[layer]
        at = 0 if workers == 1 else rows * matrices[:layer, :, 2].sum()
        turn = turns.ctypes.data + 8 * TURN * 6 * layer
        before = states
        if norm_first:
            norm(states, weights[0], epsilon, inner)
            before = inner
        projected = _product(own[0], before, 0, shared, at, turn, workers)
        at += projected.size
        parts = projected.reshape(rows, 3, heads, size)
        keys, values = past_keys[layer, 0], past_keys[layer, 1]
        append(first, last, parts, keys, values, past_slots, past_paths, past_lengths)
        attend(
            first, last, parts, keys, values, past_slots, past_paths, past_lengths, scale,
            mixed.reshape(rows, heads, size),
        )  # fmt: skip
        branch = _product(own[1], mixed, 0, shared, at, turn + 8 * TURN, workers)
        at += branch.size
        _add(states, branch, norm_first, weights[0], weights[1], epsilon, inner)
        query = _product(own[2], inner, 0, shared, at, turn + 16 * TURN, workers)
        at += query.size
        attend(
            first, last, query.reshape(rows, 1, heads, size), source_keys[layer, 0], source_keys[layer, 1],
            source_slots, source_paths, source_lengths, scale, attended.reshape(rows, heads, size),
        )  # fmt: skip
        branch = _product(own[3], attended, 0, shared, at, turn + 24 * TURN, workers)
        at += branch.size
        _add(states, branch, norm_first, weights[1], weights[2], epsilon, inner)
        hidden = _product(own[4], inner, activation, shared, at, turn + 32 * TURN, workers)
        at += hidden.size
        branch = _product(own[5], hidden, 0, shared, at, turn + 40 * TURN, workers)
        for row in range(rows):
            for number in range(width):
                states[row, number] += branch[row, number]
        if not norm_first:
            norm(states, weights[2], epsilon, states)
    if worker == 0:
        inner_out[first:last].reshape(rows, -1)[:] = inner
        states_out[first:last].reshape(rows, -1)[:] = states


@compiled
def _product(matrix: Ints, rows: Floats, activation: int, shared: Floats, at: int, turn: int, workers: int) -> Any:
    """A product, in its place in `shared`. turn: the address of the panels that were taken, and of those done."""
    out = shared[at : at + len(rows) * matrix[2]].reshape(len(rows), -1)
    panels = -(-matrix[2] // COLUMNS)
    if workers == 1:
        multiply(0, panels, matrix, rows, activation, out)
        return out
    some = max(1, panels // (2 * workers))
    begin = take(turn, some)
    while begin < panels:
        end = min(begin + some, panels)
        multiply(begin, end, matrix, rows, activation, out)
        take(turn + 8, end - begin)
        begin = take(turn, some)
    while take(turn + 8, 0) < panels:  # those that others have taken
        pass
    return out


@compiled
def _add(
    states: Floats, branch: Floats, norm_first: bool, own: Floats, following: Floats, epsilon: Any, inner: Floats
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
