"""The sums of a GPU, which come from fewer passes, are those of torch's plain way."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.search.cuda import ScaledSoftmax
from knnmt.search.nearest import Buffers
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Softmax
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
