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

from knnmt.loops import compiled, powers_of_two, share_evenly
from knnmt.model.tiles import COLUMNS, ROWS, sums_of_bytes_fit, tile
from knnmt.ready import ready

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

WORTH = {True: 1 << 23, False: 1 << 21}  # multiplications that are worth a thread, in bytes or not
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
    """A weight (outputs, inputs), and a bias, in panels.

    matrix: the address of the panels, inputs, outputs; columns: (2, outputs), scale and bias of outputs in 8 bits.
    In float32 the sums of a tile begin with the bias, in 8 bits with what the middle of the inputs adds to them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none", *, in_bytes: bool) -> None:
        (outputs, inputs), self.in_bytes, self.activation = weight.shape, in_bytes, ACTIVATIONS[activation]
        bias = weight.new_zeros(outputs) if bias is None else bias
        if in_bytes:
            weight, scale = rounded(weight)
            self.columns = torch.stack((scale, bias.float())).numpy()
            weight = F.pad(weight, (0, -inputs % TOGETHER, 0, -outputs % COLUMNS))
            begin = -MIDDLE * weight.sum(dim=1, dtype=torch.int32)
            panels = weight.view(-1, COLUMNS, weight.size(1) // TOGETHER, TOGETHER).transpose(1, 2)
            parts = begin.view(-1, 1, COLUMNS), panels.contiguous().view(torch.int32)[..., 0]
        else:
            self.columns = np.empty((2, 0), np.float32)
            weight, bias = F.pad(weight, (0, 0, 0, -outputs % COLUMNS)), F.pad(bias, (0, -outputs % COLUMNS))
            parts = bias.view(-1, 1, COLUMNS), weight.view(-1, COLUMNS, inputs).transpose(1, 2)
        self.panels = torch.cat(parts, dim=1)  # (panels, 1 + inputs or groups of them, 64)
        self.matrix = np.array([self.panels.data_ptr(), inputs, outputs])

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
            self.columns, rows, self.activation.number, found,
        )  # fmt: skip
        return torch.from_numpy(found).view(*x.shape[:-1], -1)

    def _by_torch(self, x: Tensor) -> Tensor:
        """The same before the loops are compiled."""
        _, inputs, outputs = self.matrix.tolist()
        panels = self.panels[:, 1:]
        if not self.in_bytes:
            weight = panels.transpose(1, 2).reshape(-1, inputs)[:outputs]
            found = F.linear(x, weight, self.panels[:, 0].flatten()[:outputs])
        else:
            weight = panels.unsqueeze(3).contiguous().view(torch.int8).transpose(1, 2).flatten(2).flatten(0, 1)
            scale = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / FULL
            product = F.linear((x / scale).add_(0.5).floor_(), weight[:outputs, :inputs].float())
            scales, bias = torch.from_numpy(self.columns)
            found = product * scale * scales + bias
        return self.activation.torch(found)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (outputs, inputs) as int8, and the scale of each output (outputs,)."""
    weight = weight.float()
    most = FULL if sums_of_bytes_fit() else SAFE
    scale = (weight.abs().amax(dim=1) / most).clamp_min_(torch.finfo(torch.float32).tiny)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


@compiled
def _linear(
    first: int, last: int, by_rows: bool, matrix: Ints, columns: Floats, rows: Floats, activation: int, out: Floats
) -> None:
    """The product of some rows with all panels, or of all rows with some panels."""
    if by_rows:
        some, into = rows[first:last], out[first:last]
        multiply(0, -(-matrix[2] // COLUMNS), matrix, columns, some, *quantize(some, columns.size > 0), activation, into)
    else:
        multiply(first, last, matrix, columns, rows, *quantize(rows, columns.size > 0), activation, out)


@compiled
def quantize(rows: Floats, wanted: bool) -> Any:
    """Rows (N, inputs) as bytes around 128, padded to whole groups, and the scale of each (N,); empty if not wanted."""
    count, inputs = rows.shape if wanted else (0, 0)
    found, scale = np.empty((count, -(-inputs // TOGETHER) * TOGETHER), np.uint8), np.empty(count, np.float32)
    for row in range(count):
        numbers, into = rows[row], found[row]
        most = np.float32(1e-30)
        for number in range(inputs):
            most = max(most, abs(numbers[number]))
        scale[row] = most / np.float32(127.0)
        factor = np.float32(127.0) / most
        for number in range(inputs):
            into[number] = np.int32(np.floor(numbers[number] * factor + np.float32(0.5)) + np.float32(128.0))
        into[inputs:] = np.uint8(128)
    return found, scale


@compiled
def multiply(
    first: int, last: int, matrix: Ints, columns: Floats, rows: Floats, numbers: Any, scale: Floats, activation: int,
    out: Floats,
) -> None:  # fmt: skip
    """Fill in the outputs of panels first to last: rows (N, inputs), or as `quantize` has them, to out (N, outputs)."""
    in_bytes, weights = columns.size > 0, matrix[0]
    stride = numbers.shape[1] if in_bytes else 4 * rows.shape[1]
    start = numbers.ctypes.data if in_bytes else rows.ctypes.data
    count = stride // 4
    sums, bits = np.empty((ROWS, COLUMNS), np.float32), np.empty(COLUMNS, np.int32)
    whole = sums.view(np.int32)
    for panel in range(first, last):
        at = weights + panel * (count + 1) * COLUMNS * 4
        begin = panel * COLUMNS
        width = min(COLUMNS, out.shape[1] - begin)
        for row in range(0, len(rows), ROWS):
            some = min(ROWS, len(rows) - row)
            _tiles(some, in_bytes, at, start + row * stride, stride, count, sums.ctypes.data)
            for number in range(some):
                into = out[row + number, begin : begin + width]
                if in_bytes:
                    own = scale[row + number]
                    for column in range(width):
                        factor = own * columns[0, begin + column]
                        into[column] = np.float32(whole[number, column]) * factor + columns[1, begin + column]
                else:
                    into[:] = sums[number, :width]
                if activation:
                    activate(into, activation, bits[:width], sums[number, :width])


@compiled
def _tiles(rows: int, in_bytes: bool, weights: int, inputs: int, stride: int, count: int, sums: int) -> None:
    """A tile of as many rows."""
    if in_bytes:
        if rows == 5:
            tile(5, 1, weights, inputs, stride, count, sums)
        elif rows == 4:
            tile(4, 1, weights, inputs, stride, count, sums)
        elif rows == 3:
            tile(3, 1, weights, inputs, stride, count, sums)
        elif rows == 2:
            tile(2, 1, weights, inputs, stride, count, sums)
        else:
            tile(1, 1, weights, inputs, stride, count, sums)
    elif rows == 5:
        tile(5, 0, weights, inputs, stride, count, sums)
    elif rows == 4:
        tile(4, 0, weights, inputs, stride, count, sums)
    elif rows == 3:
        tile(3, 0, weights, inputs, stride, count, sums)
    elif rows == 2:
        tile(2, 0, weights, inputs, stride, count, sums)
    else:
        tile(1, 0, weights, inputs, stride, count, sums)


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
