"""The scan of all rows that begins with bytes finds what comparing every row as it is stored finds, to the bit."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt.model.tiles import multiplies_bytes
from knnmt.search import compiled, compiled_scan
from knnmt.search.compiled import UNKNOWN, CompiledSearch
from knnmt.search.compiled_rows import search
from knnmt.search.compiled_scan import fits, rough, scan
from knnmt.search.rows import FAR, Keys, Rows

from ..retrieval.examples import with_threads


@pytest.fixture(autouse=True, params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread, and several that each have little to do."""
    with with_threads(request.param), patch.object(compiled_scan, "WORTH", 1):
        yield


def by_every_row(rows: Rows, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """All rows, as they are stored."""
    return search(
        Keys([rows]), torch.tensor([[0]]), torch.tensor([[len(rows)]]), queries, torch.tensor([len(queries)]), count
    )


def agree(rows: Rows, queries: Tensor, count: int) -> None:
    (squared, numbers), (wanted, at) = (
        found for found in (scan(rows, rough(rows.values), queries, count), by_every_row(rows, queries, count))
    )
    assert torch.equal(squared, wanted)
    assert torch.equal(numbers[wanted < FAR], at[wanted < FAR])


@given(
    seed=st.integers(0, 2**32),
    total=st.sampled_from([1, 63, 64, 65, 700, 3000]),
    queries=st.sampled_from([0, 1, 5, 12]),
    width=st.sampled_from([1, 6, 32, 37]),
    count=st.sampled_from([1, 8, 70, 900]),
    listed=st.sampled_from([(2, 65), (3, 80), (4, 512)]),
    near=st.sampled_from([0.0, 1e-3, 0.3]),
    hidden=st.sampled_from([0.0, 0.3, 1.0]),
    known=st.booleans(),
)
@example(seed=0, total=3000, queries=5, width=32, count=8, listed=(2, 65), near=0.0, hidden=0.0, known=False)
@settings(deadline=None, max_examples=60)
def test_what_is_nearest(
    seed: int, total: int, queries: int, width: int, count: int, listed: tuple[int, int], near: float, hidden: float,
    known: bool,
) -> None:  # fmt: skip
    """Also where rows lie so near to each other that bytes cannot tell them apart, where many are equal, where most or
    all are hidden, and where too few are listed for what is as near."""
    made = torch.Generator().manual_seed(seed)
    middles = 5 * torch.randn(3, width, generator=made)
    of = torch.randint(0, 3, (total,), generator=made)
    values = (middles[of] + near * torch.randn(total, width, generator=made)).half()
    norms = values.float().square().sum(dim=1) if known else torch.full((total,), UNKNOWN)
    norms[torch.rand(total, generator=made) < hidden] = FAR
    asked = values[torch.randint(0, total, (queries,), generator=made)].float()
    asked += near * torch.randn(queries, width, generator=made)
    with patch.object(compiled_scan, "LISTED", listed):
        agree(Rows(values, norms), asked, count)


def test_rows_and_queries_of_all_lengths() -> None:
    """One row may be many times as long as another, or nothing at all."""
    made = torch.Generator().manual_seed(2)
    values = torch.randn(500, 24, generator=made) * torch.logspace(-4, 3, 500)[:, None]
    values[7] = values[8] = 0.0
    values = values[torch.randperm(500, generator=made)].half()
    rows = Rows(values, values.float().square().sum(dim=1))
    for scale in (0.0, 1e-3, 1.0, 1e3):
        agree(rows, scale * torch.randn(6, 24, generator=made), 20)


def test_few_rows_are_compared_as_they_are_stored() -> None:
    """Of thousands, no more than a few hundred are listed, while most are told apart by bytes."""
    made = torch.Generator().manual_seed(3)
    values = torch.randn(20_000, 64, generator=made).half()
    rows = Rows(values, values.float().square().sum(dim=1))
    compared = []

    def counting(keys: Keys[Rows], starts: Tensor, stops: Tensor, *others: object) -> tuple[Tensor, Tensor]:
        compared.append((stops - starts).sum(dim=1))
        return search(keys, starts, stops, *others)  # type: ignore[arg-type]

    with patch.object(compiled_scan, "search", counting):
        scan(rows, rough(values), values[:5].float() + 0.1, 8)
    assert torch.cat(compared).max() < 200


def test_a_store_that_is_large_enough_is_scanned_so() -> None:
    """And one that is small, or too large for the machine, is not."""
    made = torch.Generator().manual_seed(4)
    values = torch.randn(compiled_scan.LARGE, 16, generator=made).half()
    rows = Keys([Rows(values, values.float().square().sum(dim=1))])
    ours, queries = CompiledSearch(torch.device("cpu")), torch.randn(7, 16, generator=made)
    wanted = by_every_row(rows.blocks[0], queries, 5)
    assert fits(values) == multiplies_bytes()
    assert not fits(values[1:])
    with patch.object(compiled_scan, "installed_memory", lambda: values.nbytes):
        assert not fits(values)
    with patch.object(compiled, "scan", wraps=scan) as scanned:
        for _ in range(2):
            assert all(map(torch.equal, ours.nearest(rows, None, queries, 5), wanted))
        assert scanned.call_count == (2 if multiplies_bytes() else 0)
    assert len(ours._rough) == int(multiplies_bytes())  # made once
