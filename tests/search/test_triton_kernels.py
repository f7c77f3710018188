"""Triton's kernels give what torch's plain operations give, on a GPU or, slowly, in Triton's interpreter."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.cuda import FusedSoftmax
from knnmt.search.mix import Falling, merge, mix
from knnmt.search.nearest import Buffers
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Softmax
from knnmt.settings import Metric

VOCABULARY = 40


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels: compiled for a GPU or, where there is none, interpreted (TRITON_INTERPRET=1)."""
    if find_spec("triton") is None:
        pytest.skip("Triton comes with torch for CUDA only")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is no CUDA device here, and TRITON_INTERPRET=1 is not set")
    return import_module("knnmt.search.triton_kernels")


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@given(seed=st.integers(0, 2**32), width=st.sampled_from([1, 3, 16, 100]))
@settings(deadline=None, max_examples=15)
def test_merging(kernels: Any, seed: int, width: int) -> None:
    """Also where some entries are nothing, or all of a row."""
    made = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 9, (2, 3, width), generator=made)
    scores = 4.0 * torch.randn(2, 3, width, generator=made)
    scores[scores < 3.0 * torch.randn((), generator=made)] = -torch.inf
    found = kernels.merge(tokens.to(device()), scores.to(device()))
    assert torch.allclose(by_token(*found), by_token(*merge(tokens, scores)), atol=1e-6)


def by_token(tokens: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
    """The share of each token; one that is there twice has it each time."""
    return torch.zeros(2, 3, VOCABULARY).scatter_(2, tokens.cpu(), log_p.exp().cpu())


@given(seed=st.integers(0, 2**32), width=st.sampled_from([1, 3, 70]))
@settings(deadline=None, max_examples=15)
def test_mixing(kernels: Any, seed: int, width: int) -> None:
    """Also of a token that is there several times, and with λ = 0, which changes no bit."""
    made = torch.Generator().manual_seed(seed)
    scores = 4.0 * torch.randn(2, 3, width, generator=made)
    tokens, log_p = merge(torch.randint(0, VOCABULARY, (2, 3, width), generator=made), scores)
    logits = 3.0 * torch.randn(2, 3, VOCABULARY, generator=made)
    normaliser, weight = logits.logsumexp(dim=2), 0.9 * torch.rand(2, 3, generator=made)
    weight[0, 0] = 0.0
    changed = logits.to(device(), copy=True)
    after = kernels.mix(changed, *(each.to(device()) for each in (normaliser, tokens, log_p, weight)))
    assert (changed[0, 0].cpu() == logits[0, 0]).all()
    assert torch.allclose(after.cpu(), mix(logits, normaliser, tokens, log_p, weight), atol=1e-5)
    assert torch.allclose(changed.cpu(), logits, atol=1e-4)


@pytest.mark.parametrize("metric", ["squared", "cosine"])
@given(
    seed=st.integers(0, 2**32),
    batch=st.integers(1, 3),
    beams=st.integers(1, 7),
    rows=st.sampled_from([1, 9, 150]),
    slope=st.sampled_from([0.0, 0.02, 0.2]),
    narrowed=st.booleans(),
)
@settings(deadline=None, max_examples=15)
def test_looking_up_and_mixing(
    kernels: Any, metric: Metric, seed: int, batch: int, beams: int, rows: int, slope: float, narrowed: bool
) -> None:
    """Also when sentences have left, where nothing was found, where λ is 0, and with a shortlist's places."""
    made = torch.Generator().manual_seed(seed)
    values = torch.randint(-127, 128, (300, 5), generator=made, dtype=torch.int8)
    block = ProjectedRows(
        values.to(device()), torch.randn(6, 5, generator=made).to(device()),
        torch.randn(5, generator=made).to(device()), 0.03,
    )  # fmt: skip
    numbers = torch.randint(-1, 300, (batch, rows), generator=made).to(device())
    tokens = torch.randint(0, VOCABULARY, (batch, rows), generator=made).to(device())
    kept = torch.arange(batch)[seed % batch :].to(device())
    states = 0.3 * torch.randn(len(kept), beams, 6, generator=made).to(device())
    stretch = 1.0 + torch.rand(len(kept), 1, generator=made).to(device())
    logits = 3.0 * torch.randn(len(kept), beams, VOCABULARY, generator=made).to(device())
    places = torch.randperm(VOCABULARY, generator=made).to(device()) if narrowed else None
    normaliser, falling = logits.logsumexp(dim=2), Falling(0.8, slope, 0.8)
    plain = Softmax(Buffers(device()), Keys([block]), numbers, tokens)
    fused = FusedSoftmax(kernels, Buffers(device()), Keys([block]), numbers, tokens)
    for each in (fused, plain):
        each.keep(kept)
    shares = plain.shares(states, 0.7, metric)
    weight = (0.8 - slope * shares.nearest / stretch).clamp(0.0, 0.8) if slope else torch.full_like(normaliser, 0.8)
    weight = torch.where(shares.nearest < torch.inf, weight, 0.0)
    expected = logits.clone()
    placed = shares.tokens if places is None else places[shares.tokens]
    after = mix(expected, normaliser, placed, shares.log_p, weight)
    mixed = fused.mix(states, 0.7, metric, stretch, falling, logits, normaliser, places)
    assert mixed is not None
    assert torch.allclose(mixed[0], after, atol=1e-4)
    assert torch.allclose(mixed[1], shares.nearest, atol=1e-4)
    assert torch.allclose((logits - mixed[0][:, :, None]).exp(), (expected - after[:, :, None]).exp(), atol=1e-4)
