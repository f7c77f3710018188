"""Linear layers, in the layout and the precision that a processor is fastest with.

`Linear` keeps its weight as it was loaded, for any device, until `pack` converts it for the CPU: to oneDNN's layout, or
to 8 bits. The steps of a search have a way of their own through the decoder's layers (`model.steps`).
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from knnmt.model.panels import ACTIVATIONS, Panels

Precision = Literal["float32", "float16", "bfloat16", "int8"]
# what weights are loaded as
DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.float32,
}  # fmt: skip
NAMES: dict[torch.dtype, Precision] = {dtype: name for name, dtype in DTYPES.items() if name != "int8"}


class Linear(nn.Module):
    """A linear layer with an optional activation."""

    def __init__(self, inputs: int, outputs: int, activation: str = "none") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias: nn.Parameter | None = nn.Parameter(torch.empty(outputs))
        self.activation = activation
        self._packed: OneDnn | Panels | None = None

    @property
    def precision(self) -> Precision:
        """The precision that it computes in."""
        return "int8" if isinstance(self._packed, Panels) else NAMES[self.weight.dtype]

    @property
    def nbytes(self) -> int:
        """The bytes of its weight."""
        weight = self.weight if self._packed is None else self._packed.weight
        return weight.numel() * weight.element_size()

    def pack(self, precision: Precision) -> None:
        """Convert the weight for the CPU, if it can compute faster with it in that precision."""
        if self._packed is not None:
            return
        weight, bias = self.weight.detach(), None if self.bias is None else self.bias.detach()
        if precision == "int8":
            self._packed = Panels(weight, bias, self.activation, in_bytes=True)
        elif packable(weight.dtype):
            self._packed = OneDnn(weight, bias, self.activation)
        else:
            return
        self.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)

    def panels(self) -> Panels:
        """The layer as compiled loops read it: itself in 8 bits, a copy in float32."""
        if isinstance(self._packed, Panels):
            return self._packed
        weight = self.weight if self._packed is None else self._packed.weight.to_dense()
        return Panels(
            weight.detach(), None if self.bias is None else self.bias.detach(), self.activation, in_bytes=False
        )

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if self._packed is not None:
            return self._packed(x)
        return ACTIVATIONS[self.activation].torch(F.linear(x, self.weight, self.bias))


class OneDnn:
    """A layer in oneDNN's layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str) -> None:
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self.bias, self.activation = bias, ACTIVATIONS[activation].onednn

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self.weight, self.bias, self.activation, [], "none"
        )
        return found


def packable(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs weights of this dtype here: bfloat16 needs AVX-512, AVX-NE-CONVERT or similar."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
