"""Nearest rows: NumPy's sort by (distance, number), with ties, infinities and zeros."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.buffers import Buffers
from knnmt.search.nearest import Table, least, pack, runs, unpack
from knnmt.search.rows import Keys, Rows

# few values, so that ties are common; a zero, the least float that is not denormal, and what is not there
VALUES = [0.0, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3e38, np.inf]
ROWS = st.integers(1, 30).flatmap(
    lambda width: st.lists(st.lists(st.sampled_from(VALUES), min_size=width, max_size=width), min_size=1, max_size=4)
)


def table_of(rows: torch.Tensor, buffers: Buffers | None = None) -> Table:
    """A table of rows (B, N, d), all of which are there."""
    flat = rows.flatten(0, 1)
    numbers = torch.arange(len(flat)).view(rows.shape[:2])
    return Table(buffers or Buffers(rows.device), Keys([Rows(flat, flat.float().square().sum(-1))]), numbers)


@given(ROWS, st.integers(1, 30))
@settings(deadline=None)
def test_the_least_are_the_first_of_a_stable_sort(rows: list[list[float]], count: int) -> None:
    distances = np.array(rows, np.float32)
    count = min(count, distances.shape[1])
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    found, places = least(torch.from_numpy(distances), count)
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(distances, order, axis=1))


def test_the_least_of_three_dimensions_and_of_columns_that_are_not_contiguous() -> None:
    distances = torch.from_numpy(np.random.default_rng(0).choice(VALUES, (3, 11, 4)).astype(np.float32)).mT
    found, places = least(distances, 5)
    wanted = distances.sort(dim=-1, stable=True)
    assert torch.equal(found, wanted.values[..., :5])
    assert torch.equal(places, wanted.indices[..., :5])


@given(
    st.lists(st.floats(0, np.inf, width=32), min_size=1, max_size=20),
    st.lists(st.integers(0, 2**31 - 1), min_size=20, max_size=20),
)
@settings(deadline=None)
def test_what_is_packed_comes_back_and_orders_by_distance_and_then_number(
    values: list[float], numbers: list[int]
) -> None:
    distances, chosen = torch.tensor(values).abs(), torch.tensor(numbers[: len(values)])  # abs: no zero below zero
    packed = pack(distances, chosen)
    back, same = unpack(packed)
    assert torch.equal(back, distances)
    assert torch.equal(same, chosen)
    pairs = list(zip(distances.tolist(), chosen.tolist(), strict=True))
    order = packed.argsort(stable=True).tolist()
    assert [pairs[place] for place in order] == sorted(pairs)


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("length", [64 * 20, 64 * 20 + 1])  # in two passes, by blocks, and in one
@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_the_least_of_long_rows_are_the_same_by_blocks(count: int, length: int, seed: int) -> None:
    distances = np.random.default_rng(seed).integers(0, 40, (3, length)).astype(np.float32)
    distances[0] = 5.0
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    found, places = least(torch.from_numpy(distances), count)
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(found.numpy(), np.take_along_axis(distances, order, axis=1))


def test_what_rounding_puts_below_zero_counts_as_zero() -> None:
    found, places = least(torch.tensor([[0.5, -1e-7, 0.0, -3e-7, -0.25]]), 5)
    assert found.tolist() == [[0.0, 0.0, 0.0, 0.0, 0.5]]
    assert places.tolist() == [[1, 2, 3, 4, 0]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 200), st.integers(1, 16))
@settings(deadline=None)
def test_a_table_gives_the_squared_distances_of_numpy(seed: int, queries: int, keys: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, queries, width)), rng.normal(size=(2, keys, width)).astype(np.float16)
    table = table_of(torch.from_numpy(other))
    found = table.distances(torch.from_numpy(one).float())
    wanted = np.square(one[:, :, None] - other[:, None].astype(np.float64)).sum(-1)
    np.testing.assert_allclose(found[..., :keys].numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert (found[..., keys:] == torch.inf).all()
    nearest, places = table.nearest(torch.from_numpy(one).float(), 5)
    assert places.shape[-1] == min(5, keys)
    np.testing.assert_allclose(nearest.numpy(), np.sort(wanted, axis=-1)[..., :5], rtol=1e-4, atol=1e-4)
    table.keep(torch.tensor([1]))
    assert torch.equal(table.nearest(torch.from_numpy(one[1:]).float(), 5)[1], places[1:])


def test_a_row_that_is_not_there_is_infinitely_far_and_a_row_is_near_itself() -> None:
    keys = 100 * torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    norms = keys.square().sum(-1)
    table = Table(Buffers(keys.device), Keys([Rows(keys, norms)]), slice(None), torch.arange(50) == 7)
    nearest, places = table.nearest(keys, 50)
    assert not torch.signbit(nearest).any()  # a zero below zero would order before all others
    assert (places[:, -1] == 7).all()
    assert (nearest[:, -1] == torch.inf).all()
    there = torch.arange(50) != 7
    assert torch.equal(places[there, 0], torch.arange(50)[there])
    assert nearest[there, 0].max() < 1.0  # of about 1,280,000 for others


def test_zeros_are_at_distance_zero_of_zeros() -> None:
    zeros = torch.zeros(3, 4)
    found, places = table_of(zeros[None]).nearest(zeros[None], 2)
    assert torch.equal(found, torch.zeros(1, 3, 2))
    assert not torch.signbit(found).any()
    assert places.tolist() == [[[0, 1]] * 3]


def test_memory_that_is_lent_again_holds_nothing_of_its_last_use() -> None:
    buffers, rng = Buffers(torch.device("cpu")), torch.Generator().manual_seed(1)
    places = set()
    for count in (300, 70, 65, 3, 300):
        keys = torch.randn(2, count, 5, generator=rng)
        table, alone = table_of(keys, buffers), table_of(keys)
        queries = torch.randn(2, 3, 5, generator=rng)
        for ours, theirs in zip(table.nearest(queries, 4), alone.nearest(queries, 4), strict=True):
            assert torch.equal(ours, theirs)
        places.add(table.rows.data_ptr())
        del table
    assert len(places) == 1  # it is the same memory all along


def test_two_tables_at_once_have_memory_of_their_own() -> None:
    buffers, keys = Buffers(torch.device("cpu")), torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(2))
    table_of(keys, buffers)  # gone at once
    one, other = table_of(keys, buffers), table_of(keys + 1.0, buffers)
    assert torch.equal(one.distances(keys), table_of(keys).distances(keys))
    assert torch.equal(other.distances(keys), table_of(keys + 1.0).distances(keys))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), max_size=12))
@settings(deadline=None)
def test_runs_are_ranges_one_after_the_other(parts: list[tuple[int, int]]) -> None:
    starts, lengths = torch.tensor(parts, dtype=torch.int64).view(-1, 2).unbind(1)
    assert runs(starts, lengths).tolist() == [n for start, length in parts for n in range(start, start + length)]


@pytest.mark.parametrize("count", [1, 5])
def test_the_least_of_nothing_but_infinity_are_the_first(count: int) -> None:
    found, places = least(torch.full((2, 5), torch.inf), count)
    assert (found == torch.inf).all()
    assert places.tolist() == [list(range(count))] * 2
