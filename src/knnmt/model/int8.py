"""Products of 8-bit matrices on a CPU: oneDNN multiplies, and compiled loops quantize and scale.

Where processors multiply bytes in pairs (AVX2), the sum of two products may overflow 16 bits: weights then take 7 bits.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, share_evenly

Floats = NDArray[np.float32]
WORTH = 1 << 16  # numbers that are worth a thread
PACKED = 1 << 20  # weights from which oneDNN's own layout pays: calls that take it cost 20 µs more than others
MIDDLE = 128  # the zero of rows where oneDNN wants them unsigned


class Matrix:
    """A weight (outputs, inputs) in 8 bits, with a scale for each output."""

    def __init__(self, weight: Tensor) -> None:
        numbers, self.scale = rounded(weight)
        self.packed = numbers.numel() >= PACKED
        self.weight: Tensor = torch.ops.onednn.qlinear_prepack(numbers, None) if self.packed else numbers.t()
        self.zeros = torch.zeros(len(numbers) if self.packed else 0, dtype=torch.int64)

    def __call__(self, x: Tensor, bias: Floats | None) -> Tensor:
        """Rows (N, inputs) times the weight, and the bias. (N, outputs)."""
        numbers, scale = quantize(x.numpy(), unsigned=self.packed)
        rows = torch.from_numpy(numbers)
        if self.packed:
            found = torch.ops.onednn.qlinear_pointwise.default(
                rows, 1.0, MIDDLE, self.weight, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], "none"
            ).numpy()
            share_evenly(_rescale, len(rows), found.shape[1], WORTH, scale, bias, found)
        else:
            product = torch._int_mm(rows, self.weight).numpy()
            found = np.empty(product.shape, np.float32)
            share_evenly(_scale, len(rows), found.shape[1], WORTH, product, scale, self.scale.numpy(), bias, found)
        return torch.from_numpy(found)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (outputs, inputs) as int8, and the scale of each output (outputs,)."""
    weight = weight.float()
    scale = (weight.abs().amax(dim=1) / largest()).clamp_min_(torch.finfo(torch.float32).tiny)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


@cache
def largest() -> int:
    """The largest number of a weight: 127, or 63 where sums of two products of bytes overflow."""
    full = torch.full((16, 64), 127, dtype=torch.int8)
    return 127 if int(torch._int_mm(full, full.t())[0, 0]) == 64 * 127 * 127 else 63


def quantize(x: Floats, *, unsigned: bool = False) -> tuple[NDArray[Any], Floats]:
    """Rows (N, inputs) as int8, or as uint8 around 128, and the scale of each (N,)."""
    found, scale = np.empty(x.shape, np.uint8 if unsigned else np.int8), np.empty(len(x), np.float32)
    share_evenly(
        _quantize, len(x), x.shape[1], WORTH, x, np.float32(MIDDLE if unsigned else 0), found, scale
    )  # fmt: skip
    return found, scale


@compiled
def _quantize(first: int, last: int, x: Floats, middle: float, found: Any, scale: Floats) -> None:
    for row in range(first, last):
        numbers, into = x[row], found[row]
        most = np.float32(1e-30)
        for number in range(len(numbers)):
            most = max(most, abs(numbers[number]))
        scale[row] = most / np.float32(127.0)
        factor = np.float32(127.0) / most
        for number in range(len(numbers)):
            into[number] = np.int32(np.floor(numbers[number] * factor + np.float32(0.5)) + middle)


@compiled
def _scale(
    first: int, last: int, product: NDArray[np.int32], scale: Floats, weight_scale: Floats, bias: Floats | None,
    found: Floats,
) -> None:  # fmt: skip
    """found = product · scale of the row · scale of the output + bias, if there is one."""
    for row in range(first, last):
        own, numbers, into = scale[row], product[row], found[row]
        if bias is None:
            for number in range(len(into)):
                into[number] = np.float32(numbers[number]) * (own * weight_scale[number])
        else:
            for number in range(len(into)):
                into[number] = np.float32(numbers[number]) * (own * weight_scale[number]) + bias[number]


@compiled
def _rescale(first: int, last: int, scale: Floats, bias: Floats | None, found: Floats) -> None:
    """found = found · scale of the row + bias, if there is one."""
    for row in range(first, last):
        own, into = scale[row], found[row]
        if bias is None:
            for number in range(len(into)):
                into[number] *= own
        else:
            for number in range(len(into)):
                into[number] = into[number] * own + bias[number]
