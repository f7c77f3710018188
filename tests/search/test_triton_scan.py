"""The scan of all rows by Triton's kernels finds what comparing all pairs finds."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt.search.cuda_tables import RoughTable
from knnmt.search.rows import FAR, Rows

from .test_triton_kernels import device


def compared(rows: Tensor, norms: Tensor, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """All pairs, in double precision; ties by place."""
    squared = (queries.double()[:, None] - rows.double()[None]).square().sum(dim=2)
    squared, places = squared.masked_fill(norms == FAR, FAR).sort(dim=1, stable=True)
    return squared[:, :count], places[:, :count]


def drawn(seed: int, rows: int, queries: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, width, generator=made).half()
    norms = values.float().square().sum(dim=1)
    norms[torch.rand(rows, generator=made) < 0.1] = FAR
    return values, norms, torch.randn(queries, width, generator=made)


@given(
    seed=st.integers(0, 2**32),
    rows=st.sampled_from([1, 63, 64, 1000, 5000]),
    queries=st.sampled_from([1, 5, 130]),
    width=st.sampled_from([16, 24, 48]),
    count=st.sampled_from([1, 16, 70]),
)
@settings(deadline=None, max_examples=12)
def test_nearest(scans: Any, seed: int, rows: int, queries: int, width: int, count: int) -> None:
    """Also with hidden rows, and fewer rows than are asked for."""
    values, norms, asked = drawn(seed, rows, queries, width)
    on = [each.to(device()) for each in (values, norms, asked)]
    squared, places = scans.nearest(on[0], scans.rough(on[0]), on[1], on[2], count)
    expected, at = compared(values, norms, asked, count)
    there = expected < FAR
    assert squared.shape == expected.shape
    assert torch.equal(squared.cpu() < FAR, there)
    assert torch.allclose(squared.cpu()[there], expected[there].float(), rtol=1e-4)
    assert torch.equal(places.cpu()[there], at[there])


def test_rows_that_are_compared_in_stretches(scans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many distances of groups are never kept at once; equal rows come in the order of their places."""
    values, norms, asked = drawn(1, 9000, 3, 16)
    values[8500], norms[8500] = values[17], 1.0
    norms[17] = 1.0
    asked[0] = values[17].float()
    monkeypatch.setattr(scans, "WRITTEN", 1)
    on = [each.to(device()) for each in (values, norms, asked)]
    squared, places = scans.nearest(on[0], scans.rough(on[0]), on[1], on[2], 4)
    assert places[0, :2].tolist() == [17, 8500]
    assert torch.equal(places.cpu(), compared(values, norms, asked, 4)[1])
    assert squared[0, :2].tolist() == [0.0, 0.0]


@given(
    seed=st.integers(0, 2**32),
    rows=st.sampled_from([1, 130, 700]),
    count=st.sampled_from([1, 16]),
    bounded=st.booleans(),
)
@settings(deadline=None, max_examples=8)
def test_rows_of_sentences(scans: Any, kernels: Any, seed: int, rows: int, count: int, bounded: bool) -> None:
    """Also where a sentence has few rows or none, some are hidden, and a query may find only some of the places."""
    values, norms, _ = drawn(seed, 400, 1, 24)
    made = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-1, 400, (3, rows), generator=made)
    numbers[1, min(rows, 5) :], numbers[2] = -1, -1
    queries = torch.randn(3, 5, 24, generator=made)
    bounds = [torch.randint(0, rows + 1, (3, 5), generator=made) for _ in range(2)]
    within = (torch.minimum(*bounds), torch.maximum(*bounds)) if bounded else None

    block = Rows(values.to(device()), norms.to(device()))
    table = RoughTable(kernels, scans, block, scans.rough(block.values), numbers.to(device()))
    limits = None if within is None else (within[0].to(device()), within[1].to(device()))
    squared, places = (each.cpu() for each in table.nearest(queries.to(device()), count, limits))
    for sentence, own in enumerate(numbers):
        given = norms[own.clamp_min(0)].masked_fill(own < 0, FAR)
        for beam, query in enumerate(queries[sentence]):
            here = given.clone()
            if within is not None:
                here[: within[0][sentence, beam]] = here[within[1][sentence, beam] :] = FAR
            expected, at = compared(values[own.clamp_min(0)], here, query[None], count)
            there = expected[0] < FAR
            assert torch.equal(squared[sentence, beam] < FAR, there)
            assert torch.allclose(squared[sentence, beam][there], expected[0][there].float(), rtol=1e-4)
            assert torch.equal(places[sentence, beam][there], at[0][there])
    table.keep(torch.tensor([0, 2], device=device()))
    assert table.nearest(queries[[0, 2]].to(device()), count)[1].shape == (2, 5, min(count, rows))


def test_bytes_of_rows(scans: Any) -> None:
    """A row's largest number is 127, whatever its size; a row of zeros stays one."""
    rows = torch.tensor([[0.5, -1.0], [100.0, 50.0], [0.0, 0.0]]).half().to(device())
    found = scans.rough(rows)
    assert found.values.tolist() == [[64, -127], [127, 64], [0, 0]]
    assert torch.allclose((found.values * found.units[:, None]).cpu(), rows.float().cpu(), atol=0.4)


def test_all_are_tried(scans: Any) -> None:
    scans.try_all(device())
