"""Triton's kernels give what torch's plain operations give, on a GPU or, slowly, in Triton's interpreter."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.matches import squared
from knnmt.search.mix import merge, mix

from .drawn import VOCABULARY


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


@given(seed=st.integers(0, 2**32), count=st.sampled_from([0, 1, 70]), width=st.sampled_from([5, 72]))
@settings(deadline=None, max_examples=10)
def test_comparing_rows_by_their_numbers(kernels: Any, seed: int, count: int, width: int) -> None:
    """Also where there is no row."""
    made = torch.Generator().manual_seed(seed)
    rows = torch.randint(-127, 128, (40, width), generator=made, dtype=torch.int8)
    states, numbers = 50.0 * torch.randn(3, width, generator=made), torch.randint(-1, 40, (3, count), generator=made)
    found = kernels.squared(*(each.to(device()) for each in (rows, states, numbers)))
    assert torch.allclose(found.cpu(), squared(rows, states, numbers), rtol=1e-5)


def test_all_are_tried(kernels: Any) -> None:
    kernels.try_all(device())
