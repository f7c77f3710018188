"""The decoder's small operations on a CPU, compiled with numba: attention over the past, and norms.

A decoding step has few rows. torch spends more time on dispatching the ten operations of an attention than on
computing it, and reads padding and the keys of other beams, only to mask them. These loops read what a beam sees, once.
All arrays are float32 and contiguous.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, share_evenly

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

WORTH = 1 << 18  # multiplications that are worth a thread
TOGETHER = 4  # keys that a query is compared with at once, while it is in registers


def attend_past(
    projected: Tensor, keys: Floats, values: Floats, slots: Ints, paths: Ints, length: int, scale: float
) -> Tensor:
    """Append a step to a cache, and attend from it to each beam's own past.

    projected: (B, K, 3d), query, key and value of the step; keys, values: (sentences, steps, K, H, e), of which
    `length` steps are there; slots: (B,), the places of the sentences in them; paths: (B, K, steps), the beam that a
    beam's past is in at each step. Returns (B, K, d).
    """
    batch, beams, width = projected.shape
    mixed = np.empty((batch, beams, *keys.shape[3:]), np.float32)
    share_evenly(
        _attend_past, batch, beams * (length + 1) * width, WORTH,
        projected.numpy().reshape(batch, beams, 3, *keys.shape[3:]), keys, values, slots, paths, length,
        np.float32(scale), mixed,
    )  # fmt: skip
    return torch.from_numpy(mixed.reshape(batch, beams, -1))


def attend_source(query: Tensor, keys: Floats, values: Floats, slots: Ints, lengths: Ints, scale: float) -> Tensor:
    """Attend to the source, without its padding.

    query: (B, K, d); keys, values: (sentences, S, 1, H, e), of which each has so many tokens: lengths (sentences,);
    slots: (B,), the places of the sentences in them. Returns (B, K, d).
    """
    batch, beams, width = query.shape
    mixed = np.empty((batch, beams, *keys.shape[3:]), np.float32)
    share_evenly(
        _attend_source, batch, 2 * beams * keys.shape[1] * width, WORTH, query.numpy().reshape(mixed.shape), keys,
        values, slots, lengths, np.float32(scale), mixed,
    )  # fmt: skip
    return torch.from_numpy(mixed.reshape(batch, beams, width))


def add_norm(x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """The layer norm of x + branch. All (..., d), or (d,)."""
    width = x.size(-1)
    rows = x.numpy().reshape(-1, width)
    out = np.empty(x.shape, np.float32)
    share_evenly(
        _add_norm, len(rows), 4 * width, WORTH, rows, branch.numpy().reshape(-1, width), weight.numpy(), bias.numpy(),
        np.float32(epsilon), out.reshape(-1, width),
    )  # fmt: skip
    return torch.from_numpy(out)


@compiled
def _attend_past(
    first: int, last: int, projected: Floats, keys: Floats, values: Floats, slots: Ints, paths: Ints, length: int,
    scale: float, mixed: Floats,
) -> None:  # fmt: skip
    room = -(-(length + 1) // TOGETHER) * TOGETHER
    weights, powers = np.empty((mixed.shape[2], room), np.float32), np.empty(room, np.int32)
    for sentence in range(first, last):
        slot = slots[sentence]
        for beam in range(mixed.shape[1]):
            keys[slot, length, beam] = projected[sentence, beam, 1]
            values[slot, length, beam] = projected[sentence, beam, 2]
            path = paths[sentence, beam]
            path[length] = beam
            _attend(
                projected[sentence, beam, 0], keys[slot], values[slot], path, length + 1, scale, weights, powers,
                mixed[sentence, beam],
            )  # fmt: skip


@compiled
def _attend_source(
    first: int, last: int, query: Floats, keys: Floats, values: Floats, slots: Ints, lengths: Ints, scale: float,
    mixed: Floats,
) -> None:  # fmt: skip
    room = -(-keys.shape[1] // TOGETHER) * TOGETHER
    weights, powers = np.empty((mixed.shape[2], room), np.float32), np.empty(room, np.int32)
    path = np.zeros(keys.shape[1], np.int64)
    for sentence in range(first, last):
        slot = slots[sentence]
        for beam in range(mixed.shape[1]):
            _attend(
                query[sentence, beam], keys[slot], values[slot], path, lengths[slot], scale, weights, powers,
                mixed[sentence, beam],
            )  # fmt: skip


@compiled
def _attend(
    query: Floats, keys: Floats, values: Floats, path: Ints, length: int, scale: float, weights: Floats, powers: Any,
    out: Floats,
) -> None:  # fmt: skip
    """Attend from a query (H, e) to rows `path` (steps,) of keys and values (steps, K, H, e), into out (H, e).

    weights: (H, steps, up to a whole number of those compared together); powers: as many int32, to compute with
    """
    last = length - 1
    for at in range(0, length, TOGETHER):
        h, i, j, k = at, min(at + 1, last), min(at + 2, last), min(at + 3, last)
        _compare(query, keys[h, path[h]], keys[i, path[i]], keys[j, path[j]], keys[k, path[k]], scale, weights, at)
    for head in range(len(query)):
        softmax(weights[head, :length], powers[:length])
        weights[head, length:] = np.float32(0.0)
    out[:] = np.float32(0.0)
    for at in range(0, length, TOGETHER):
        h, i, j, k = at, min(at + 1, last), min(at + 2, last), min(at + 3, last)
        _add(weights, at, values[h, path[h]], values[i, path[i]], values[j, path[j]], values[k, path[k]], out)


@compiled
def _compare(query: Floats, a: Floats, b: Floats, c: Floats, d: Floats, scale: float, weights: Floats, at: int) -> None:
    """The inner products of a query with four keys, for each head. All (H, e)."""
    for head in range(query.shape[0]):
        w, x, y, z = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for number in range(query.shape[1]):
            own = query[head, number]
            w += own * a[head, number]
            x += own * b[head, number]
            y += own * c[head, number]
            z += own * d[head, number]
        into = weights[head, at : at + TOGETHER]
        into[0], into[1], into[2], into[3] = w * scale, x * scale, y * scale, z * scale


@compiled
def _add(weights: Floats, at: int, a: Floats, b: Floats, c: Floats, d: Floats, out: Floats) -> None:
    """Add four values, weighted for each head. All (H, e)."""
    for head in range(out.shape[0]):
        some = weights[head, at : at + TOGETHER]
        w, x, y, z = some[0], some[1], some[2], some[3]
        for number in range(out.shape[1]):
            out[head, number] += w * a[head, number] + x * b[head, number] + y * c[head, number] + z * d[head, number]


@compiled
def reorder(paths: Ints, parents: Ints, length: int) -> None:
    """Let beams continue others: row b of paths (B, K, steps), so far `length` steps, becomes row parents[:, b]."""
    beams = paths.shape[1]
    before = np.empty((beams, length), np.int64)
    for sentence in range(len(paths)):
        before[:] = paths[sentence, :, :length]
        for beam in range(beams):
            paths[sentence, beam, :length] = before[parents[sentence, beam]]


@compiled
def _add_norm(
    first: int, last: int, x: Floats, branch: Floats, weight: Floats, bias: Floats, epsilon: float, out: Floats
) -> None:
    width = x.shape[1]
    share = np.float32(1.0 / width)
    for row in range(first, last):
        one, other, into = x[row], branch[row], out[row]
        total = np.float32(0.0)
        for number in range(width):
            into[number] = one[number] + other[number]
            total += into[number]
        mean, squares = total * share, np.float32(0.0)
        for number in range(width):
            away = into[number] - mean
            squares += away * away
        factor = np.float32(1.0) / np.sqrt(squares * share + epsilon)
        for number in range(width):
            into[number] = (into[number] - mean) * factor * weight[number] + bias[number]


@compiled
def softmax(scores: Floats, powers: Any) -> None:
    """The softmax of a row, in place. powers: as many int32, to compute with."""
    most = np.float32(-np.inf)
    for number in range(len(scores)):
        most = max(most, scores[number])
    share = np.float32(1.0) / exponentials(scores, most, powers)
    for number in range(len(scores)):
        scores[number] *= share


@compiled
def exponentials(scores: Floats, most: Any, powers: Any) -> Any:
    """exp(scores - most) of a row, none above 1, in place; gives their sum. powers: as many int32, to compute with.

    2^x is 2^i·2^f with -½ ≤ f ≤ ½: so many terms of its series are exact to the last bit or two, and vectors compute
    them, while a call of exp computes one number at a time.
    """
    for number in range(len(scores)):
        x = max((scores[number] - most) * np.float32(1.4426950408889634), np.float32(-126.0))
        i = np.floor(x + np.float32(0.5))
        f = np.float32(0.6931471805599453) * (x - i)
        series = np.float32(1 / 720)
        for factor in (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = series * f + np.float32(factor)
        scores[number] = series
        powers[number] = (np.int32(i) + np.int32(127)) << np.int32(23)  # the bits of 2^i
    scales = powers.view(np.float32)
    whole = np.float32(0.0)
    for number in range(len(scores)):
        scores[number] *= scales[number]
        whole += scores[number]
    return whole
