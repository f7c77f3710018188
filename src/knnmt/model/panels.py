"""Matrix products of a CPU, in float32 and in 8 bits, by compiled loops: faster than libraries at few rows.

A weight is kept in panels of 64 outputs, in the order in which a tile reads it. In 8 bits, it has a scale for each
output, set when it is packed, and a row of inputs has one of its own, found as it comes.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from knnmt.loops import compiled, larger, powers_of_two, share_evenly
from knnmt.model.tiles import COLUMNS, FEW, HEADS, ROWS, sums_of_bytes_fit, tile
from knnmt.ready import ready

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

WORTH = {True: 1 << 23, False: 1 << 21}  # multiplications that are worth a thread, in bytes or not
CHUNK = 160  # rows that stay in the cache while all panels are read
MIDDLE = 128  # the zero of inputs in bytes
TOGETHER = 4  # bytes that are multiplied at once
FULL, SAFE = 127, 63  # the largest weight in bytes, and the largest of which two products fit in 16 bits


class Activation(NamedTuple):
    """An activation: its number in `activate`, torch's function, and oneDNN's name."""

    number: int
    torch: Callable[[Tensor], Tensor]
    onednn: str


ACTIVATIONS = {
    "none": Activation(0, lambda x: x, "none"),
    "relu": Activation(1, F.relu, "relu"),
    "gelu": Activation(2, F.gelu, "gelu"),
    "silu": Activation(3, F.silu, "swish"),
}


class Panels:
    """A weight (outputs, inputs), and a bias, in panels: (panels, head and inputs or groups of them, 64).

    `model.tiles` says what is in them. matrix: the address of the panels, inputs, outputs, and whether it is in bytes
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none", *, in_bytes: bool) -> None:
        (outputs, inputs), self.in_bytes, self.activation = weight.shape, in_bytes, ACTIVATIONS[activation]
        bias = weight.new_zeros(outputs) if bias is None else bias
        if in_bytes:
            weight, scale = rounded(weight)
            weight = F.pad(weight, (0, -inputs % TOGETHER, 0, -outputs % COLUMNS))
            middle = -MIDDLE * weight.sum(dim=1, dtype=torch.int32)  # what it adds to the sums
            head = middle, *(F.pad(each.float(), (0, -outputs % COLUMNS)).view(torch.int32) for each in (scale, bias))
            weight = weight.view(torch.int32)
        else:
            weight, head = F.pad(weight, (0, 0, 0, -outputs % COLUMNS)), (F.pad(bias, (0, -outputs % COLUMNS)),)
        parts = *(each.view(-1, 1, COLUMNS) for each in head), weight.view(-1, COLUMNS, weight.size(1)).transpose(1, 2)
        self.panels = torch.cat(parts, dim=1)
        self.matrix = np.array([self.panels.data_ptr(), inputs, outputs, int(in_bytes)])

    @property
    def weight(self) -> Tensor:
        """All that it holds: weight, bias and scales."""
        return self.panels

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if not ready():
            return self._by_torch(x)
        rows = x.reshape(-1, x.size(-1)).contiguous().numpy()
        found = np.empty((len(rows), int(self.matrix[2])), np.float32)
        by_rows = len(rows) >= ROWS * torch.get_num_threads()
        count = len(rows) if by_rows else self.panels.size(0)
        share_evenly(
            _linear, count, rows.size * found.shape[1] // max(1, count), WORTH[self.in_bytes], by_rows, self.matrix,
            rows, self.activation.number, found,
        )  # fmt: skip
        return torch.from_numpy(found).view(*x.shape[:-1], -1)

    def _by_torch(self, x: Tensor) -> Tensor:
        """The same before the loops are compiled."""
        _, inputs, outputs, _ = self.matrix.tolist()
        weight = self.panels[:, HEADS[self.in_bytes] :].transpose(1, 2).flatten(0, 1)[:outputs].contiguous()
        head = self.panels[:, : HEADS[self.in_bytes]].transpose(0, 1).flatten(1)[:, :outputs].contiguous()
        if not self.in_bytes:
            found = F.linear(x, weight, head[0])
        else:
            scales, bias = head[1:].view(torch.float32)
            scale = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / FULL
            product = F.linear((x / scale).add_(0.5).floor_(), weight.view(torch.int8)[:, :inputs].float())
            found = product * scale * scales + bias
        return self.activation.torch(found)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (outputs, inputs) as int8, and the scale of each output (outputs,)."""
    weight = weight.float()
    most = FULL if sums_of_bytes_fit() else SAFE
    scale = (weight.abs().amax(dim=1) / most).clamp_min_(torch.finfo(torch.float32).tiny)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


@compiled
def _linear(first: int, last: int, by_rows: bool, matrix: Ints, rows: Floats, activation: int, out: Floats) -> None:
    """The product of some rows with all panels, or of all rows with some panels."""
    if by_rows:
        for begin in range(first, last, CHUNK):
            end = min(begin + CHUNK, last)
            multiply(0, -(-matrix[2] // COLUMNS), matrix, rows[begin:end], activation, out[begin:end])
    else:
        multiply(first, last, matrix, rows, activation, out)


@compiled
def multiply(first: int, last: int, matrix: Ints, rows: Floats, activation: int, out: Floats) -> None:
    """Fill in the outputs of panels first to last. rows: (N, inputs); out: (N, outputs)."""
    in_bytes, outputs = matrix[3] > 0, matrix[2]
    numbers, scale = quantize(rows) if in_bytes else (np.empty((0, 0), np.uint8), np.empty(0, np.float32))
    stride = numbers.shape[1] if in_bytes else 4 * rows.shape[1]
    start = numbers.ctypes.data if in_bytes else rows.ctypes.data
    count = stride // 4
    size = (count + (3 if in_bytes else 1)) * COLUMNS * 4
    narrow = np.empty((ROWS, COLUMNS), np.float32)  # where a panel is wider than what is left
    for panel in range(first, last):
        width = min(COLUMNS, outputs - panel * COLUMNS)
        for row in range(0, len(rows), ROWS):
            some = min(ROWS, len(rows) - row)
            whole = width == COLUMNS
            into = out.ctypes.data + 4 * (row * outputs + panel * COLUMNS) if whole else narrow.ctypes.data
            _tiles(
                some, width, in_bytes, matrix[0] + panel * size, start + row * stride, stride, count,
                scale.ctypes.data + 4 * row, into, 4 * (outputs if whole else COLUMNS),
            )  # fmt: skip
            if not whole:
                for number in range(some):
                    out[row + number, outputs - width :] = narrow[number, :width]
    if activation:
        begin, end = first * COLUMNS, min(last * COLUMNS, outputs)
        bits, powers = np.empty(end - begin, np.int32), np.empty(end - begin, np.float32)
        for row in range(len(rows)):
            activate(out[row, begin:end], activation, bits, powers)
    if len(numbers):  # used here, so that numba does not free them while tiles read their addresses
        numbers[0, 0], scale[0] = 0, 0.0


@compiled
def quantize(rows: Floats) -> Any:
    """Rows (N, inputs) as bytes around 128, padded to whole groups, and the scale of each (N,)."""
    inputs = rows.shape[1]
    found = np.empty((len(rows), -(-inputs // TOGETHER) * TOGETHER), np.uint8)
    scale = np.empty(len(rows), np.float32)
    for row in range(len(rows)):
        numbers, into = rows[row], found[row]
        most = np.float32(1e-30)
        for number in range(inputs):
            most = larger(most, abs(numbers[number]))
        scale[row] = most / np.float32(FULL)
        factor = np.float32(FULL) / most
        for number in range(inputs):  # positive numbers are rounded down
            into[number] = np.int32(numbers[number] * factor + np.float32(MIDDLE + 0.5))
        into[inputs:] = np.uint8(MIDDLE)
    return found, scale


@compiled
def _tiles(
    rows: int, width: int, in_bytes: bool, panel: int, inputs: int, stride: int, count: int, scale: int, out: int,
    to: int,
) -> None:  # fmt: skip
    """A tile of as many rows, of whose columns so many are wanted."""
    if in_bytes:
        if rows == 5:
            tile(5, 1, panel, inputs, stride, count, scale, out, to)
        elif rows == 4:
            tile(4, 1, panel, inputs, stride, count, scale, out, to)
        elif rows == 3:
            tile(3, 1, panel, inputs, stride, count, scale, out, to)
        elif rows == 2:
            tile(2, 1, panel, inputs, stride, count, scale, out, to)
        else:
            tile(1, 1, panel, inputs, stride, count, scale, out, to)
    elif width <= FEW:
        for row in range(rows if rows < ROWS else 0):
            tile(1, 3, panel, inputs + row * stride, stride, count, scale, out + row * to, to)
        if rows == ROWS:
            tile(5, 3, panel, inputs, stride, count, scale, out, to)
    elif rows == 5:
        tile(5, 0, panel, inputs, stride, count, scale, out, to)
    elif rows == 4:
        tile(4, 0, panel, inputs, stride, count, scale, out, to)
    elif rows == 3:
        tile(3, 0, panel, inputs, stride, count, scale, out, to)
    elif rows == 2:
        tile(2, 0, panel, inputs, stride, count, scale, out, to)
    else:
        tile(1, 0, panel, inputs, stride, count, scale, out, to)


@compiled
def activate(values: Floats, activation: int, bits: Any, powers: Floats) -> None:
    """Apply an activation of ACTIVATIONS to values, in place. bits, powers: as many, to compute with."""
    if activation == 1:
        for number in range(len(values)):
            values[number] = max(values[number], np.float32(0.0))
    elif activation == 2:
        for number in range(len(values)):
            value = values[number]
            values[number] = np.float32(0.5) * value * np.float32(1.0 + math.erf(value * 0.7071067811865476))
    else:
        for number in range(len(values)):
            powers[number] = values[number] * np.float32(-1.4426950408889634)
        powers_of_two(powers, bits)
        for number in range(len(values)):
            values[number] /= np.float32(1.0) + powers[number]
