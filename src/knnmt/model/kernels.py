"""The decoder's small operations on a CPU, compiled with numba: attention over the past, and norms.

A decoding step has few rows. torch spends more time on dispatching the ten operations of an attention than on
computing it, and reads padding and the keys of other beams, only to mask them. These loops read what a beam sees, once.
All arrays are float32 and contiguous.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.loops import compiled, largest, powers_of_two

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TOGETHER = 4  # keys that a query is compared with at once, while it is in registers


@compiled
def append(
    first: int, last: int, projected: Floats, keys: Floats, values: Floats, slots: Ints, paths: Ints, lengths: Ints
) -> None:
    """Append a step of sentences first to last to a cache, which they are as long as with it.

    projected: (rows, 3, H, e), query, key and value of their beams; the others as `attend` has them.
    """
    beams = paths.shape[1]
    for row in range(len(projected)):
        sentence, beam = first + row // beams, row % beams
        slot = slots[sentence]
        at = lengths[slot] - 1
        keys[slot, at, beam] = projected[row, 1]
        values[slot, at, beam] = projected[row, 2]
        paths[sentence, beam, at] = beam


@compiled
def attend(
    first: int, last: int, projected: Floats, keys: Floats, values: Floats, slots: Ints, paths: Ints, lengths: Ints,
    scale: float, mixed: Floats,
) -> None:  # fmt: skip
    """Attend from the beams of sentences first to last to what each of them sees.

    projected: (rows, 1 or 3, H, e), their queries at first; keys, values: (places, steps, K or 1, H, e); slots: (B,),
    the place of a sentence in them; lengths: (places,), the steps that are there; paths: (B, K, steps), the beam that a
    beam's past is in at each step, empty where all see the same. Fills mixed: (rows, H, e).
    """
    beams = len(projected) // (last - first)
    room = keys.shape[1] + TOGETHER
    weights, bits = np.empty((mixed.shape[1], room), np.float32), np.empty(room, np.int32)
    path = np.zeros(keys.shape[1], np.int64)
    for row in range(len(projected)):
        sentence, beam = first + row // beams, row % beams
        slot = slots[sentence]
        if len(paths):
            path = paths[sentence, beam]
        _attend(projected[row, 0], keys[slot], values[slot], path, lengths[slot], scale, weights, bits, mixed[row])


@compiled
def _attend(
    query: Floats, keys: Floats, values: Floats, path: Ints, length: int, scale: float, weights: Floats, bits: Any,
    out: Floats,
) -> None:  # fmt: skip
    """Attend from a query (H, e) to rows `path` (steps,) of keys and values (steps, K, H, e), into out (H, e).

    weights: (H, steps and as many as are compared together); bits: as many int32, to compute with
    """
    last = length - 1
    for at in range(0, length, TOGETHER):
        h, i, j, k = at, min(at + 1, last), min(at + 2, last), min(at + 3, last)
        _compare(query, keys[h, path[h]], keys[i, path[i]], keys[j, path[j]], keys[k, path[k]], scale, weights, at)
    for head in range(len(query)):
        softmax(weights[head, :length], bits[:length])
        weights[head, length : length + TOGETHER] = np.float32(0.0)
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
def norm(rows: Floats, weight_and_bias: Floats, epsilon: float, out: Floats) -> None:
    """The layer norm of rows (N, d)."""
    width = rows.shape[1]
    share = np.float32(1.0 / width)
    weight, bias = weight_and_bias[0], weight_and_bias[1]
    for row in range(len(rows)):
        one, into = rows[row], out[row]
        total = np.float32(0.0)
        for number in range(width):
            total += one[number]
        mean, squares = total * share, np.float32(0.0)
        for number in range(width):
            away = one[number] - mean
            squares += away * away
        factor = np.float32(1.0) / np.sqrt(squares * share + epsilon)
        for number in range(width):
            into[number] = (one[number] - mean) * factor * weight[number] + bias[number]


@compiled
def softmax(scores: Floats, bits: Any) -> None:
    """The softmax of a row, in place. bits: as many int32, to compute with."""
    share = np.float32(1.0) / exponentials(scores, largest(scores), bits)
    for number in range(len(scores)):
        scores[number] *= share


@compiled
def exponentials(scores: Floats, most: Any, bits: Any) -> Any:
    """exp(scores - most) of a row, none above 1, in place; gives their sum. bits: as many int32, to compute with."""
    for number in range(len(scores)):
        scores[number] = (scores[number] - most) * np.float32(1.4426950408889634)
    return powers_of_two(scores, bits)
