"""The sums of a GPU, which come from fewer passes, and those of compiled loops are those of torch's plain way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.buffers import Buffers
from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.cuda import ScaledSoftmax
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Shares, Softmax
from knnmt.settings import Metric


@pytest.mark.parametrize("metric", ["squared", "cosine", "euclidean"])
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 3), beams=st.integers(1, 3), rows=st.integers(1, 9))
def test_a_gpu_sums_up_the_same(metric: Metric, seed: int, batch: int, beams: int, rows: int) -> None:
    made = torch.Generator().manual_seed(seed)
    device = torch.device("cpu")
    values = torch.randint(-127, 128, (12, 4), generator=made, dtype=torch.int8)
    block = ProjectedRows(values, torch.randn(6, 4, generator=made), torch.randn(4, generator=made), 0.03)
    numbers = torch.randint(-1, 12, (batch, rows), generator=made)
    tokens = torch.randint(0, 5, (batch, rows), generator=made)
    states = 0.3 * torch.randn(batch, beams, 6, generator=made)
    found, plain = (
        kind(Buffers(device), Keys([block]), numbers, tokens).shares(states, 0.7, metric, summed=True)
        for kind in (ScaledSoftmax, Softmax)
    )
    assert (found.tokens == plain.tokens).all()
    assert torch.allclose(found.nearest, plain.nearest, atol=1e-4)
    assert torch.allclose(found.log_p.exp(), plain.log_p.exp(), atol=1e-4)
    there = plain.nearest < torch.inf
    assert found.log_z is not None
    assert plain.log_z is not None
    assert torch.allclose(found.log_z[there], plain.log_z[there], atol=1e-3)


@pytest.mark.parametrize("metric", ["squared", "cosine", "euclidean"])
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 3), beams=st.integers(1, 7), rows=st.sampled_from([1, 9, 150]))
@settings(deadline=None, max_examples=30)
def test_compiled_loops_sum_up_the_same(metric: Metric, seed: int, batch: int, beams: int, rows: int) -> None:
    """Also of two blocks of rows, and when sentences have left; tokens are many, or one has most of the rows."""
    made = torch.Generator().manual_seed(seed)
    projection = torch.randn(6, 5, generator=made), torch.randn(5, generator=made), 0.03
    values = torch.randint(-127, 128, (300, 5), generator=made, dtype=torch.int8)
    keys = Keys([ProjectedRows(some, *projection) for some in values.split([100, 200])])
    numbers = torch.randint(-1, 300, (batch, rows), generator=made)
    tokens = torch.randint(0, 40, (batch, rows), generator=made) // torch.randint(1, 40, (batch, 1), generator=made)
    states, kept = 0.3 * torch.randn(batch, beams, 6, generator=made), torch.arange(batch)[seed % batch :]
    both = [kind(Buffers(torch.device("cpu")), keys, numbers, tokens) for kind in (CompiledSoftmax, Softmax)]
    for sentences in (torch.arange(batch), kept):
        for each in both:
            each.keep(sentences)  # all, then those that are left
        found, plain = (each.shares(states[sentences], 0.7, metric, summed=True) for each in both)
        assert torch.allclose(found.nearest, plain.nearest, atol=1e-4)
        assert [each.tolist() for each in both[0].listed()] == [each.tolist() for each in both[1].listed()]
        assert torch.allclose(by_token(found), by_token(plain), atol=1e-5)
        there = plain.nearest < torch.inf
        assert found.log_z is not None
        assert plain.log_z is not None
        assert torch.allclose(found.log_z[there], plain.log_z[there], atol=1e-3)


def by_token(found: Shares) -> torch.Tensor:
    """The share of each of 40 tokens. (B, K, 40)."""
    shares = torch.zeros(*found.log_p.shape[:2], 40)
    return shares.scatter_(2, found.tokens, found.log_p.exp())
