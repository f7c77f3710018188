"""The sums of a GPU, which come from fewer passes, and those of compiled loops are those of torch's plain way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.cuda import ScaledSoftmax
from knnmt.search.softmax import Shares, Softmax
from knnmt.settings import Metric

from .drawn import SIZES, VOCABULARY, draw


@pytest.mark.parametrize("kind", [ScaledSoftmax, CompiledSoftmax])
@pytest.mark.parametrize("metric", ["squared", "cosine", "euclidean"])
@given(**SIZES, blocks=st.sampled_from([1, 3]))
@settings(deadline=None)
def test_the_sums_are_the_same(
    kind: type[Softmax], metric: Metric, seed: int, batch: int, beams: int, rows: int, blocks: int
) -> None:
    """Also of several blocks of rows, and when sentences have left."""
    case = draw(seed, batch, beams, rows, blocks=blocks)
    both = [case.softmax(each, metric) for each in (kind, Softmax)]
    for sentences in (torch.arange(batch), torch.arange(batch)[seed % batch :]):
        for each in both:
            each.keep(sentences)  # all, then those that are left
        found, plain = (each.shares(case.states[sentences], summed=True) for each in both)
        assert torch.allclose(found.nearest, plain.nearest, atol=1e-4)
        assert [each.tolist() for each in both[0].listed()] == [each.tolist() for each in both[1].listed()]
        assert torch.allclose(by_token(found), by_token(plain), atol=1e-5 if kind is CompiledSoftmax else 1e-4)
        there = plain.nearest < torch.inf
        assert torch.allclose(found.log_z[there], plain.log_z[there], atol=1e-3)


def by_token(found: Shares) -> torch.Tensor:
    """The share of each token. (B, K, V)."""
    shares = torch.zeros(*found.log_p.shape[:2], VOCABULARY)
    return shares.scatter_(2, found.tokens, found.log_p.exp())
