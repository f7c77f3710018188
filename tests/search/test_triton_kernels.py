"""Triton's kernels give what torch's plain operations give, on a GPU or, slowly, in Triton's interpreter."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.cuda_tables import SplitTable
from knnmt.search.matches import squared
from knnmt.search.mix import Falling, Scores, merge, mix
from knnmt.search.rows import Keys, Rows

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


@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 20, 70]), slope=st.sampled_from([0.0, 0.02]))
@settings(deadline=None, max_examples=15)
def test_mixing_what_the_nearest_row_has_listed(kernels: Any, seed: int, rows: int, slope: float) -> None:
    """Also where a sentence has no row or is over, with constant λ, and where tokens are those of a shortlist."""
    made, width = torch.Generator().manual_seed(seed), 24
    given = Keys([Rows(torch.randn(40, width, generator=made).half(), torch.empty(0))])
    given.blocks[0].norms = given.blocks[0].values.float().square().sum(dim=1)
    numbers = torch.randint(-1, 40, (2, rows), generator=made)
    numbers[1] = -1 if rows == 20 else numbers[1]
    states = torch.randn(2, 3, width, generator=made)
    lists = torch.randint(0, 6, (2, rows), generator=made)
    tokens, log_p = merge(torch.randint(0, VOCABULARY, (6, 5), generator=made), torch.randn(6, 5, generator=made))
    logits = 3.0 * torch.randn(2, 3, VOCABULARY, generator=made)
    normaliser = logits.logsumexp(dim=2)
    places = torch.randperm(VOCABULARY, generator=made) if rows == 70 else None

    over = torch.rand(2, generator=made) < 0.3
    table = SplitTable(given, numbers.clamp_min(0), numbers < 0)
    squared, near = table.nearest(states, 1)
    nearest = squared[..., 0].masked_fill(over[:, None], torch.inf)
    near = lists[:, None].expand(-1, 3, -1).gather(2, near)[..., 0]
    weight = torch.where(nearest < torch.inf, (0.7 - slope * nearest).clamp(0.0, 0.6), 0.0)
    chosen = tokens[near] if places is None else places[tokens[near]]
    changed, there = logits.to(device(), copy=True), [each.to(device()) for each in (table.rows, table.norms, lists)]
    after, found = kernels.mix_nearest(
        states.to(device()), *there, (tokens.to(device()), log_p.to(device())), 1.0,
        Scores(changed, normaliser.to(device()), None if places is None else places.to(device()), over.to(device())),
        Falling(0.7, slope, 0.6),
    )  # fmt: skip
    assert torch.allclose(found.cpu(), nearest, atol=1e-4)
    assert torch.allclose(after.cpu(), mix(logits, normaliser, chosen, log_p[near], weight), atol=1e-4)
    assert torch.allclose(changed.cpu(), logits, atol=1e-3)


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
