"""To look up and mix in one loop, or in two kernels, gives what the steps one by one give."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.cuda import FusedSoftmax
from knnmt.search.mix import Falling, Scores, mix
from knnmt.search.softmax import Softmax
from knnmt.settings import Metric

from .drawn import SIZES, VOCABULARY, draw


class Way(NamedTuple):
    """A softmax that mixes; where it runs; and the kernels that sum up some rows at a time, if it has any."""

    make: Callable[..., Softmax]
    device: torch.device
    kernels: Any = None


@pytest.fixture(scope="module", params=["compiled", "kernels"])
def fusing(request: pytest.FixtureRequest) -> Way:
    if request.param == "compiled":
        return Way(CompiledSoftmax, torch.device("cpu"))
    kernels = request.getfixturevalue("kernels")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Way(partial(FusedSoftmax, kernels), device, kernels)


@pytest.mark.parametrize("metric", ["squared", "cosine", "euclidean"])
@given(**SIZES, slope=st.sampled_from([0.0, 0.02, 0.2]), narrowed=st.booleans(), known=st.booleans())
@settings(deadline=None, max_examples=20)
def test_looking_up_and_mixing(
    fusing: Way, metric: Metric, seed: int, batch: int, beams: int, rows: int, slope: float, narrowed: bool, known: bool
) -> None:
    """Also when sentences have left, where nothing was found, where λ is 0, with a shortlist's places, with rows in
    several portions, and where the loop finds the normaliser."""
    case = draw(seed, batch, beams, rows, fusing.device)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=case.made).to(fusing.device)

    kept = torch.arange(batch)[seed % batch :].to(fusing.device)
    states, stretch = case.states[kept], 1.0 + normal(len(kept), 1).abs()
    logits = 3.0 * normal(len(kept), beams, VOCABULARY)
    places = torch.randperm(VOCABULARY, generator=case.made).to(fusing.device) if narrowed else None
    normaliser, falling = logits.logsumexp(dim=2), Falling(0.8, slope, 0.8)
    fused, plain = (case.softmax(kind, metric) for kind in (fusing.make, Softmax))
    for each in (fused, plain):
        each.keep(kept)
    given = states, Scores(logits, normaliser if known or fusing.kernels else None, places), falling, stretch
    assert plain.mix(*given) is None

    shares = plain.shares(states)
    weight = (0.8 - slope * shares.nearest / stretch).clamp(0.0, 0.8) if slope else torch.full_like(normaliser, 0.8)
    weight = torch.where(shares.nearest < torch.inf, weight, 0.0)
    expected = logits.clone()
    placed = shares.tokens if places is None else places[shares.tokens]
    after = mix(expected, normaliser, placed, shares.log_p, weight)
    if fusing.kernels is None:
        mixed = fused.mix(*given)
    else:
        with patch.object(fusing.kernels, "SUMMED", 64 if seed % 2 else 1024):
            mixed = fused.mix(*given)
        if metric == "euclidean":  # which is not linear in what is multiplied
            assert mixed is None
            return
    assert mixed is not None
    assert torch.allclose(mixed[0], after, atol=1e-4)
    assert torch.allclose(mixed[1], shares.nearest, atol=1e-4)
    assert torch.allclose((logits - mixed[0][:, :, None]).exp(), (expected - after[:, :, None]).exp(), atol=1e-4)


@pytest.mark.parametrize("known", [True, False])
def test_sentences_that_are_over_are_left_as_they_are(known: bool) -> None:
    case = draw(5, batch=3, beams=2, rows=9)
    logits, over = torch.randn(3, 2, VOCABULARY, generator=case.made), torch.tensor([False, True, False])
    normaliser, falling = logits.logsumexp(dim=2) if known else None, Falling(0.8, 0.0, 0.8)
    softmax, stretch = case.softmax(CompiledSoftmax, "squared"), torch.ones(3, 1)
    wanted, mixed = logits.clone(), logits.clone()
    expected = softmax.mix(case.states, Scores(wanted, normaliser, None), falling, stretch)
    found = softmax.mix(case.states, Scores(mixed, normaliser, None, over), falling, stretch)
    assert expected is not None
    assert found is not None
    assert torch.equal(mixed[1], logits[1])
    assert not torch.equal(wanted[1], logits[1])
    for ours, theirs in zip((mixed, *found), (wanted, *expected), strict=True):
        assert torch.equal(ours[~over], theirs[~over])
        assert bool(ours.isfinite().all())
