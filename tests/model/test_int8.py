"""Products of compiled loops: those of torch in float32, close to them in 8 bits, and row by row."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from knnmt.model.linear import Linear
from knnmt.model.panels import Panels, quantize, rounded
from knnmt.model.tiles import features


def layer(activation: str = "none", inputs: int = 96, outputs: int = 40) -> Linear:
    torch.manual_seed(3)
    made = Linear(inputs, outputs, activation)
    torch.nn.init.normal_(made.weight)
    torch.nn.init.normal_(made.bias)  # type: ignore[arg-type]
    return made.requires_grad_(False)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
def test_a_layer_in_8_bits_is_close(activation: str) -> None:
    made, rows = layer(activation), torch.randn(3, 7, 96)
    expected = made(rows)
    made.pack("int8")
    found = made(rows)
    assert made.precision == "int8"
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize(("inputs", "outputs"), [(96, 40), (33, 64), (7, 130)])
def test_a_product_is_that_of_torch(activation: str, inputs: int, outputs: int) -> None:
    made, rows = layer(activation, inputs, outputs), torch.randn(3, 4, inputs) * 5
    expected = made(rows)
    made.pack("float32")
    torch.testing.assert_close(made.panels()(rows), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("outputs", [40, 64, 130])
def test_in_8_bits_it_is_that_of_the_bytes(outputs: int) -> None:
    made, rows = layer(outputs=outputs, inputs=30), torch.randn(6, 30)
    numbers, scale = map(torch.from_numpy, quantize(rows.numpy()))
    weight, scales = rounded(made.weight)
    expected = (numbers[:, :30].int() - 128) @ weight.int().T * (scale[:, None] * scales) + made.bias  # type: ignore[operator]
    made.pack("int8")
    torch.testing.assert_close(made(rows), expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("in_bytes", [True, False])
def test_a_row_does_not_depend_on_the_others(in_bytes: bool) -> None:
    weight, rows = torch.randn(100, 96), torch.randn(9, 96)
    panels = Panels(weight, None, "silu", in_bytes=in_bytes)
    whole = panels(torch.cat((rows, 1000 * rows)))
    for count in range(1, 9):
        assert torch.equal(whole[:count], panels(rows[:count]))  # to the bit


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("count", [1, 40])
def test_threads_share_panels_or_rows(monkeypatch: pytest.MonkeyPatch, threads: int, count: int) -> None:
    weight, rows = torch.randn(300, 96), torch.randn(count, 96)
    panels = Panels(weight, None, in_bytes=True)
    alone = panels(rows)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("knnmt.model.panels.WORTH", {True: 1, False: 1})
    assert torch.equal(panels(rows), alone)


@pytest.mark.parametrize("in_bytes", [True, False])
def test_until_loops_are_compiled_torch_computes_the_same(monkeypatch: pytest.MonkeyPatch, in_bytes: bool) -> None:
    weight, bias, rows = torch.randn(70, 30), torch.randn(70), torch.randn(2, 5, 30)
    panels = Panels(weight, bias, "silu", in_bytes=in_bytes)
    expected = panels(rows)
    monkeypatch.setattr("knnmt.model.panels.ready", lambda: False)
    torch.testing.assert_close(panels(rows), expected, atol=1e-4, rtol=1e-4)


def test_rows_and_weights_use_all_of_their_range() -> None:
    rows = torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.0, 0.0], [3e-4, 1e-4, -1e-4]])
    numbers, scale = quantize(rows.numpy())
    assert numbers.dtype == np.uint8
    assert numbers.shape == (3, 4)  # whole groups of four
    signed = torch.from_numpy(numbers[:, :3].astype(np.int16) - 128)
    assert signed.abs().amax(dim=1).tolist() == [127, 0, 127]
    torch.testing.assert_close(signed * torch.from_numpy(scale)[:, None], rows, atol=2e-2, rtol=1e-2)
    weight, scales = rounded(rows)
    torch.testing.assert_close(weight * scales[:, None], rows, atol=2e-2, rtol=2e-2)


# LLVM's names of what a processor can do
AVX2 = "+64bit,+cx8,+cmov,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+f16c"
AVX512 = f"{AVX2},+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd"
PROCESSORS = {"AVX2": AVX2, "AVX2 and VNNI": f"{AVX2},+avxvnni", "AVX-512": AVX512, "none of them": ""}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_products_on_other_processors(name: str, tmp_path: os.PathLike[str]) -> None:
    """Sums do not overflow where bytes are multiplied in pairs."""
    program = """
import torch
from knnmt.model.panels import Panels
from knnmt import ready
ready._rehearsal.ready.set()
for weight in (torch.ones(100, 64), torch.randn(100, 64)):
    for x in (torch.ones(8, 64), -torch.ones(1, 64), torch.randn(7, 64)):
        expected = x @ weight.T
        torch.testing.assert_close(Panels(weight, None, in_bytes=False)(x), expected, atol=1e-4, rtol=1e-5)
        off = (Panels(weight, None, in_bytes=True)(x) - expected).abs().max()
        assert off < 0.03 * expected.abs().max(), off
"""
    if not {feature.removeprefix("+") for feature in PROCESSORS[name].split(",") if feature} <= features():
        pytest.skip("this processor does not have it")
    own = {"NUMBA_CPU_FEATURES": PROCESSORS[name], "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **own}, check=True, timeout=300)
