"""One compiled loop that looks up and mixes gives what the steps one by one give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.mix import Falling, mix
from knnmt.search.nearest import Buffers
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Softmax
from knnmt.settings import Metric

VOCABULARY = 40


@pytest.mark.parametrize("metric", ["squared", "euclidean"])
@given(
    seed=st.integers(0, 2**32),
    batch=st.integers(1, 3),
    beams=st.integers(1, 7),
    rows=st.sampled_from([1, 9, 150]),
    slope=st.sampled_from([0.0, 0.02, 0.2]),
    narrowed=st.booleans(),
)
@settings(deadline=None, max_examples=30)
def test_a_loop_looks_up_and_mixes(
    metric: Metric, seed: int, batch: int, beams: int, rows: int, slope: float, narrowed: bool
) -> None:
    """Also when sentences have left, where nothing was found, where λ is 0, and with a shortlist's places."""
    made = torch.Generator().manual_seed(seed)
    values = torch.randint(-127, 128, (300, 5), generator=made, dtype=torch.int8)
    keys = Keys([ProjectedRows(values, torch.randn(6, 5, generator=made), torch.randn(5, generator=made), 0.03)])
    numbers = torch.randint(-1, 300, (batch, rows), generator=made)
    tokens = torch.randint(0, VOCABULARY, (batch, rows), generator=made)
    kept = torch.arange(batch)[seed % batch :]
    states = 0.3 * torch.randn(len(kept), beams, 6, generator=made)
    stretch = 1.0 + torch.rand(len(kept), 1, generator=made)
    logits = 3.0 * torch.randn(len(kept), beams, VOCABULARY, generator=made)
    normaliser, falling = logits.logsumexp(dim=2), Falling(0.8, slope, 0.8)
    places = torch.randperm(VOCABULARY, generator=made) if narrowed else None
    fused, plain = (kind(Buffers(torch.device("cpu")), keys, numbers, tokens) for kind in (CompiledSoftmax, Softmax))
    for each in (fused, plain):
        each.keep(kept)
    assert plain.mix(states, 0.7, metric, stretch, falling, logits, normaliser, places) is None

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
