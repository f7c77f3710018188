"""Mixing into logits is the dense formula λ·p_kNN + (1 − λ)·p_MT, and with λ = 0 nothing at all."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.retrieval.mix import MOST, weights
from knnmt.search import compiled_mix
from knnmt.search.mix import merge
from knnmt.search.mix import mix as torch_mix
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Neighbours
from knnmt.systems.table import SYSTEMS

from .examples import with_threads

V = 11
SEEDS = st.integers(0, 2**32 - 1)
Mix = Callable[..., torch.Tensor]


@pytest.fixture(scope="module", params=[torch_mix, compiled_mix.mix], ids=["torch", "compiled"])
def mix(request: pytest.FixtureRequest) -> Mix:
    """Both ways to mix."""
    found: Mix = request.param
    return found


def drawn(seed: int, k: int, spread: float = 4.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (2, 3, V), tokens (2, 3, k) with repetitions, and scores of which some are not there."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=spread, size=(2, 3, k))
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    scores[rng.random((2, 3)) < 0.2] = -np.inf  # a beam that found nothing
    logits = rng.normal(scale=spread, size=(2, 3, V))
    return (
        torch.from_numpy(logits).float(),
        torch.from_numpy(rng.integers(0, 6, (2, 3, k))),
        torch.from_numpy(scores).float(),
    )


def dense(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """p_kNN over the whole vocabulary, (2, 3, V), by its definition."""
    p = torch.zeros(2, 3, V, dtype=torch.float64)
    for row, beam in np.ndindex(2, 3):
        there = [
            (token, np.exp(score))
            for token, score in zip(tokens[row, beam].tolist(), scores[row, beam].double().tolist(), strict=True)
            if score > -np.inf
        ]
        for token, share in there:
            p[row, beam, token] += share / sum(s for _, s in there)
    return p


def nearest_of(scores: torch.Tensor) -> torch.Tensor:
    return -scores.amax(dim=-1)


@given(seed=SEEDS, k=st.integers(1, 9), weight=st.sampled_from([0.0, 1e-6, 0.3, 0.5, 0.99, 1.0]))
@settings(deadline=None)
def test_mixing_is_the_dense_formula(mix: Mix, seed: int, k: int, weight: float) -> None:
    logits, tokens, scores = drawn(seed, k)
    found = Neighbours(*merge(tokens, scores), nearest_of(scores).abs())
    chosen = RetrievalSettings(weight=weight, adapt="constant")
    lam = weights(found.nearest, chosen)
    p_mt = logits.double().softmax(-1)
    normaliser = logits.logsumexp(-1)
    after = mix(logits, normaliser, found.tokens, found.log_p, lam)
    assert logits.dtype == after.dtype == torch.float32
    p_knn = dense(tokens, scores)
    wide = lam.double()[:, :, None]
    wanted = wide * p_knn + (1 - wide) * p_mt
    mixed = (logits.double() - after.double()[:, :, None]).exp()
    torch.testing.assert_close(mixed, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mixed.sum(-1), torch.ones(2, 3, dtype=torch.float64), atol=1e-4, rtol=0)
    assert (lam[p_knn.sum(-1) == 0] == 0).all()


@given(seed=SEEDS, k=st.integers(1, 9), level=st.floats(-50, 50, width=32))
@settings(deadline=None)
def test_a_weight_of_0_changes_no_bit(mix: Mix, seed: int, k: int, level: float) -> None:
    logits, tokens, scores = drawn(seed, k)
    logits[0, 0, 3] = -torch.inf
    found = Neighbours(*merge(tokens, scores), nearest_of(scores).abs())
    before, normaliser = logits.clone(), torch.full((2, 3), level)
    after = mix(logits, normaliser, found.tokens, found.log_p, torch.zeros(2, 3))
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))
    assert torch.equal(after, normaliser)


@given(seed=SEEDS)
@settings(deadline=None)
def test_a_beam_that_found_nothing_is_left_alone(mix: Mix, seed: int) -> None:
    logits, tokens, scores = drawn(seed, 5)
    scores[1] = -torch.inf
    found = Neighbours(*merge(tokens, scores), torch.where((scores > -torch.inf).any(-1), 1.0, torch.inf))
    before, normaliser = logits.clone(), logits.logsumexp(-1)
    after = mix(
        logits,
        normaliser,
        found.tokens,
        found.log_p,
        weights(found.nearest, RetrievalSettings(adapt="constant", weight=0.9)),
    )
    assert torch.equal(logits[1], before[1])
    assert torch.equal(after[1], normaliser[1])


def test_a_weight_of_1_leaves_a_trace_of_the_model_where_the_store_is_silent(mix: Mix) -> None:
    logits = torch.zeros(1, 1, 4)
    found = Neighbours(*merge(torch.tensor([[[2]]]), torch.zeros(1, 1, 1)), torch.zeros(1, 1))
    lam = weights(found.nearest, RetrievalSettings(weight=1.0, adapt="constant"))
    assert lam.item() == pytest.approx(MOST, abs=1e-7)
    after = mix(logits, torch.full((1, 1), 4.0).log(), found.tokens, found.log_p, lam)
    p = (logits - after[:, :, None]).exp()[0, 0]
    assert p.isfinite().all()
    assert p[2].item() == pytest.approx(1.0, abs=1e-5)
    assert p[[0, 1, 3]].tolist() == pytest.approx([0.25e-6] * 3, rel=0.1)


@given(seed=SEEDS, threads=st.sampled_from([1, 3]))
@settings(deadline=None)
def test_a_compiled_loop_mixes_as_torch_does(seed: int, threads: int) -> None:
    logits, tokens, scores = drawn(seed, 7)
    logits[0, 0] = -torch.inf  # a beam whose tokens were all banned
    merged, log_p = merge(tokens, scores)
    lam, normaliser = torch.rand(2, 3, generator=torch.Generator().manual_seed(seed % 2**31)), torch.ones(2, 3)
    lam[log_p.amax(dim=2) == -torch.inf] = 0.0
    ours, theirs = logits.clone(), logits.clone()
    with with_threads(threads), patch.object(compiled_mix, "WORTH", 1):
        after = compiled_mix.mix(ours, normaliser, merged, log_p, lam)
    torch.testing.assert_close(after, torch_mix(theirs, normaliser, merged, log_p, lam))
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-6)


@given(SEEDS, st.integers(1, 9))
@settings(deadline=None)
def test_merging_sums_by_token_and_gives_a_repeated_token_one_sum(seed: int, k: int) -> None:
    _, tokens, scores = drawn(seed, k)
    merged, log_p = merge(tokens, scores)
    assert torch.equal(merged, tokens.sort(dim=-1).values)
    wanted = dense(tokens, scores).gather(-1, merged)
    torch.testing.assert_close(log_p.exp().double(), wanted, atol=1e-6, rtol=1e-5)
    assert not log_p.isnan().any()
    for row, beam in np.ndindex(2, 3):
        of: dict[int, set[float]] = {}
        for token, value in zip(merged[row, beam].tolist(), log_p[row, beam].tolist(), strict=True):
            of.setdefault(token, set()).add(value)
        assert all(len(values) == 1 for values in of.values())  # to the bit: any of them may be written last


@pytest.mark.parametrize(
    ("nearest", "wanted"), [(0.0, 0.8), (1.0, 0.6), (2.0, 0.4), (4.0, 0.0), (9.0, 0.0), (float("inf"), 0.0)]
)
def test_the_weight_falls_in_a_line_to_0_at_the_reach(nearest: float, wanted: float) -> None:
    chosen: dict[str, Any] = {"weight": 0.8, "adapt": "distance"}
    for given_reach, scale in ((4.0, 1.0), (None, 8.0)):  # a half of the scale, if it is not given
        lam = weights(
            torch.tensor([[nearest]]), SYSTEMS["knn"].complete(RetrievalSettings(**chosen, reach=given_reach), scale)
        )
        assert lam.item() == pytest.approx(wanted)
