"""The decoder's small operations on a CPU, compiled with numba: attention over the past, and norms.

A decoding step has few rows. torch spends more time on dispatching the ten operations of an attention than on
computing it, and reads padding and the keys of other beams, only to mask them. These loops read what a beam sees, once.
All arrays are float32 and contiguous.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.loops import compiled, largest, powers_of_two
from knnmt.model.heads import blend, compare

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LOG2_E = 1.4426950408889634
TOGETHER = 4  # keys that a query is compared with at once, while it is in registers
LONG = 64  # numbers of which LLVM makes whole vectors; rows of weights are padded to them


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
    scale: Any, mixed: Floats,
) -> None:  # fmt: skip
    """Attend from the beams of sentences first to last to what each of them sees.

    projected: (rows, 1 or 3, H, e), their queries at first; keys, values: (places, steps, K or 1, H, e); slots: (B,),
    the place of a sentence in them; lengths: (places,), the steps that are there; paths: (B, K, steps), the beam that a
    beam's past is in at each step, empty where all see the same. Fills mixed: (rows, H, e).
    """
    beams = len(projected) // (last - first)
    heads = mixed.shape[1]
    room = -(-keys.shape[1] // LONG) * LONG
    weights, bits = np.empty(heads * room, np.float32), np.empty(heads * room, np.int32)
    path = np.zeros(keys.shape[1], np.int64)
    for row in range(len(projected)):
        sentence, beam = first + row // beams, row % beams
        slot = slots[sentence]
        if len(paths):
            path = paths[sentence, beam]
        used = heads * -(-lengths[slot] // LONG) * LONG
        _attend(
            projected[row, 0], keys[slot], values[slot], path, lengths[slot], scale, weights[:used].reshape(heads, -1),
            bits[:used], mixed[row],
        )  # fmt: skip


@compiled
def _attend(
    query: Floats, keys: Floats, values: Floats, path: Ints, length: int, scale: Any, weights: Floats, bits: Any,
    out: Floats,
) -> None:  # fmt: skip
    """Attend from a query (H, e) to rows `path` (steps,) of keys and values (steps, K, H, e), into out (H, e).

    weights: (H, steps, up to a whole number of LONG); bits: as many int32, to compute with
    """
    (heads, size), room = query.shape, weights.shape[1]
    step, beam = 4 * keys.shape[1] * heads * size, 4 * heads * size  # bytes
    factor, last = scale * np.float32(LOG2_E), length - 1
    for at in range(0, length, TOGETHER):
        rows = _addresses(keys.ctypes.data, step, beam, path, at, last)
        into = weights.ctypes.data + 4 * at
        if size % 16 == 0:
            compare(16, query.ctypes.data, rows, heads, size, factor, into, 4 * room)
        else:
            compare(4, query.ctypes.data, rows, heads, size, factor, into, 4 * room)
    rest = size - size % TOGETHER  # what is left of a row by vectors
    for head in range(heads):
        own = weights[head]
        for at in range(length):
            for number in range(rest, size):
                own[at] += factor * query[head, number] * keys[at, path[at], head, number]
        own[length:] = np.float32(-np.inf)
        most = largest(own)
        for number in range(room):
            own[number] -= most
    powers_of_two(weights.reshape(-1), bits)
    out[:] = np.float32(0.0)
    for at in range(0, length, TOGETHER):
        rows = _addresses(values.ctypes.data, step, beam, path, at, last)
        some = weights.ctypes.data + 4 * at
        if size % 16 == 0:
            blend(16, some, rows, heads, size, 4 * room, out.ctypes.data)
        else:
            blend(4, some, rows, heads, size, 4 * room, out.ctypes.data)
    for head in range(heads):
        whole = np.float32(0.0)
        for number in range(room):
            whole += weights[head, number]
        share = np.float32(1.0) / whole
        for at in range(length):
            for number in range(rest, size):
                out[head, number] += weights[head, at] * values[at, path[at], head, number]
        for number in range(size):
            out[head, number] *= share


@compiled
def _addresses(rows: int, step: int, beam: int, path: Ints, at: int, last: int) -> Any:
    """The addresses of a path's rows at four steps, none after the last."""
    i, j, k = min(at + 1, last), min(at + 2, last), min(at + 3, last)
    return (
        rows + at * step + path[at] * beam, rows + i * step + path[i] * beam, rows + j * step + path[j] * beam,
        rows + k * step + path[k] * beam,
    )  # fmt: skip


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
def norm(rows: Floats, weight_and_bias: Floats, epsilon: Any, out: Floats) -> None:
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
def exponentials(scores: Floats, most: Any, bits: Any) -> Any:
    """exp(scores - most) of a row, none above 1, in place; gives their sum. bits: as many int32, to compute with."""
    for number in range(len(scores)):
        scores[number] = (scores[number] - most) * np.float32(LOG2_E)
    return powers_of_two(scores, bits)
