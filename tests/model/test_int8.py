"""Products in 8 bits: close to those of float32, row by row."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from knnmt.model import int8
from knnmt.model.int8 import quantize, rounded
from knnmt.model.linear import Linear


@pytest.fixture(params=[1 << 20, 1])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Linear]:
    """A layer, whose weight is packed or not."""
    monkeypatch.setattr(int8, "PACKED", request.param)
    return layer


def layer(activation: str = "none") -> Linear:
    torch.manual_seed(3)
    made = Linear(96, 40, activation)
    torch.nn.init.normal_(made.weight)
    torch.nn.init.normal_(made.bias)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
def test_a_layer_in_8_bits_is_close(made: Callable[[str], Linear], activation: str) -> None:
    layer, rows = made(activation), torch.randn(3, 7, 96)
    with torch.inference_mode():
        expected = layer(rows)
        layer.pack("int8")
        found = layer(rows)
    assert layer.precision == "int8"
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


def test_a_row_does_not_depend_on_the_others(made: Callable[[str], Linear]) -> None:
    layer, rows = made("silu"), torch.randn(9, 96)
    layer.pack("int8")
    with torch.inference_mode():
        whole = layer(torch.cat((rows, 1000 * rows)))
        torch.testing.assert_close(whole[:9], layer(rows), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(whole[4:5], layer(rows[4:5]), atol=1e-6, rtol=1e-6)


def test_rows_and_weights_use_all_of_their_range() -> None:
    rows = torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.0, 0.0], [3e-4, 1e-4, -1e-4]])
    numbers, scale = map(torch.from_numpy, quantize(rows.numpy()))
    assert numbers.abs().amax(dim=1).tolist() == [127, 0, 127]
    torch.testing.assert_close(numbers * scale[:, None], rows, atol=2e-2, rtol=1e-2)
    weight, scale = rounded(rows)
    torch.testing.assert_close(weight * scale[:, None], rows, atol=2e-2, rtol=2e-2)


def test_products_do_not_overflow_where_bytes_are_multiplied_in_pairs() -> None:
    program = """
import torch
from knnmt.model import int8
from knnmt.model.linear import Linear
int8.PACKED = 1 << 12
for outputs in (16, 64):
    layer = Linear(64, outputs)
    torch.nn.init.constant_(layer.weight, 1.0), torch.nn.init.zeros_(layer.bias)
    layer.pack("int8")
    torch.testing.assert_close(layer(torch.ones(8, 64)), torch.full((8, outputs), 64.0))
    torch.testing.assert_close(layer(-torch.ones(1, 64)), torch.full((1, outputs), -64.0))
"""
    old = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}  # what torch takes this processor for
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **old}, check=True, timeout=120)
