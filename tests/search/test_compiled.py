"""Compiled search among float16 rows and bytes: as NumPy sorts by (distance, number); the same in any company."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search import Chosen, Search, compiled_rows
from knnmt.search.compiled import CompiledSearch, HalfTable
from knnmt.search.compiled_rows import BLOCK, search
from knnmt.search.nearest import Table
from knnmt.search.products import TOGETHER
from knnmt.search.rows import Keys, Rows

from ..retrieval.examples import with_threads


@pytest.fixture(autouse=True, params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread, and several that each have little to do."""
    with with_threads(request.param), patch.object(compiled_rows, "WORTH", 1):
        yield


CPU = torch.device("cpu")


class Gathering(Search):
    """Scans ranges with much to compare, and gathers the rows of the others, as on a GPU."""

    scanned = 24


def rows_of(rows: Tensor) -> Rows:
    """States (N, d) as rows."""
    return Rows(rows.half(), rows.half().float().square().sum(dim=-1))


def bytes_of(rows: Tensor) -> Rows:
    """Whole states (N, d) as rows in bytes, which count halves from 1 on."""
    steps = torch.tensor([1.0, 0.5])[:, None].expand(2, rows.size(1))
    return Rows((2 * rows - 2).to(torch.int8), rows.float().square().sum(dim=-1), steps=steps)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2 * TOGETHER + 1)), max_size=6),
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)
@example([(2 * BLOCK // 64 + 7, TOGETHER + 1), (BLOCK // 64, 1)], 12, 64, 0)
@settings(deadline=None)
def test_groups_are_searched_as_numpy_sorts_them(groups: list[tuple[int, int]], count: int, d: int, seed: int) -> None:
    sizes, asking = torch.tensor(groups, dtype=torch.int64).view(-1, 2).T
    rng = np.random.default_rng(seed)
    rows, queries = (rng.integers(-2, 3, (int(each.sum()), d)) for each in (sizes, asking))
    stops = sizes.cumsum(0)
    keys = rows_of(torch.from_numpy(rows))
    squared, numbers = search(
        Keys([keys]), (stops - sizes)[:, None], stops[:, None], torch.from_numpy(queries).float(), asking, count
    )
    assert squared.shape == numbers.shape == (len(queries), count)
    at = 0
    for (size, some), stop in zip(groups, stops.tolist(), strict=True):
        for query in range(at, at + some):
            wanted = np.square(rows[stop - size : stop] - queries[query]).sum(axis=1)
            order = np.argsort(wanted, kind="stable")[:count]
            np.testing.assert_array_equal(numbers[query, : len(order)].numpy(), order + stop - size)
            np.testing.assert_array_equal(squared[query, : len(order)].numpy(), wanted[order])
            assert (squared[query, len(order) :] == torch.inf).all()
        at += some


def test_every_float16_counts_as_what_it_is() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
    every = every[every.isfinite()]
    group = torch.tensor([[0]]), torch.tensor([[len(every)]])
    for query in (0.0, 6e-8, -0.7, 300.0, -65504.0):
        asked = torch.tensor([[query]])
        squared, numbers = search(Keys([rows_of(every[:, None])]), *group, asked, torch.tensor([1]), len(every))
        wanted = (every[numbers[0]].double() - query).square()
        # what is rounded is rounded beside the squared lengths
        most = 1e-6 * (every[numbers[0]].double().square() + query**2)
        assert ((squared[0] - wanted).abs() <= most).all()
        assert len(numbers[0].unique()) == len(every)


def test_a_query_finds_the_same_bits_alone_and_among_others() -> None:
    rng = torch.Generator().manual_seed(3)
    keys, queries = rows_of(torch.randn(70, 36, generator=rng)), torch.randn(13, 36, generator=rng)
    group = torch.tensor([[0]]), torch.tensor([[70]])
    together = search(Keys([keys]), *group, queries, torch.tensor([13]), 9)
    for number, query in enumerate(queries):
        alone = search(Keys([keys]), *group, query[None], torch.tensor([1]), 9)
        for ours, theirs in zip(together, alone, strict=True):
            assert torch.equal(ours[number], theirs[0])


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(0, 60), st.integers(1, 16))
@settings(deadline=None)
def test_a_table_finds_what_torch_finds(seed: int, queries: int, count: int, width: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    keys, buffers = rows_of(torch.randint(-2, 3, (50, width), generator=rng).float()), Buffers(torch.device("cpu"))
    numbers = torch.randint(0, 50, (3, count), generator=rng)
    missing = torch.rand(numbers.shape, generator=rng) < torch.tensor([[0.0], [0.3], [1.0]])
    tables: list[Chosen] = [
        HalfTable(buffers, Keys([keys]), numbers.masked_fill(missing, -1)),
        Table(buffers, Keys([keys]), numbers, missing),
    ]
    asked = torch.randint(-2, 3, (3, queries, width), generator=rng).float()
    for sentences in (torch.arange(3), torch.tensor([0, 2]), torch.tensor([1])):
        begin, end = torch.randint(0, count + 1, (2, *asked.shape[:2]), generator=rng).sort(dim=0).values
        for within in (None, (begin, end)):
            (ours, places), (theirs, wanted) = (table.nearest(asked, 8, within) for table in tables)
            assert torch.equal(ours, theirs)
            assert torch.equal(places[ours < torch.inf], wanted[ours < torch.inf])
        for table in tables:
            table.keep(sentences)
        asked = asked[sentences]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
    st.sampled_from([rows_of, bytes_of]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_ranges_of_blocks_are_searched_as_numpy_sorts_them(
    sizes: list[int], count: int, share: float, listed: bool, kind: Callable[[Tensor], Rows], seed: int
) -> None:
    """By torch and by compiled loops, in rows that are numbered on from block to block, some of which are hidden."""
    rng = np.random.default_rng(seed)
    states = [rng.integers(-2, 3, (size, 4)) for size in sizes]
    hidden = rng.random(sum(sizes)) < share
    keys = Keys([kind(torch.from_numpy(block)) for block in states]).without(torch.from_numpy(hidden))
    queries = rng.integers(-2, 3, (7, 4))
    bounds = np.sort(rng.integers(0, np.array(sizes)[:, None, None] + 1, (len(sizes), 7, 2)), axis=2)
    bounds[:, 3] = bounds[:, 4]  # two queries of one range
    starts, stops = (torch.from_numpy(bounds[:, :, side].T.copy()) for side in (0, 1))
    members = [rng.permutation(size) for size in sizes]
    orders = members if listed else [np.arange(size) for size in sizes]
    asked = torch.from_numpy(queries).float()
    given_members = [torch.from_numpy(order).int() for order in members] if listed else None
    for found_by in (Search(CPU), Gathering(CPU), CompiledSearch(CPU)):
        squared, numbers = found_by.nearest(keys, (starts, stops), asked, count, given_members)
        chosen = None if listed else found_by.choose(keys, (starts, stops), asked, count)
        for query in range(7):
            places = [
                (block, int(row)) for block, order in enumerate(orders)
                for row in order[bounds[block, query, 0] : bounds[block, query, 1]]
            ]  # fmt: skip
            first = np.cumsum([0, *sizes])
            visible = [(block, row) for block, row in places if not hidden[first[block] + row]]
            wanted = sorted(
                (np.square(states[block][row] - queries[query]).sum(), at, first[block] + row)
                for at, (block, row) in enumerate(visible)
            )[:count]
            assert squared[query, : len(wanted)].tolist() == [each[0] for each in wanted]
            assert numbers[query].tolist() == [each[2] for each in wanted] + [-1] * (count - len(wanted))
            if chosen is not None and len(places) > count:
                assert chosen[query].tolist() == numbers[query].tolist()
            elif chosen is not None:  # all of them, hidden or not: nothing was compared
                assert sorted(chosen[query, chosen[query] >= 0].tolist()) == [
                    first[block] + row for block, row in places
                ]


def test_rows_are_nearest_to_themselves_and_no_distance_is_below_zero() -> None:
    rows = 30 * torch.randn(200, 96, generator=torch.Generator().manual_seed(4))
    keys = rows_of(rows)
    group = torch.tensor([[0]]), torch.tensor([[200]])
    squared, numbers = search(Keys([keys]), *group, keys.values.float(), torch.tensor([200]), 3)
    assert torch.equal(numbers[:, 0], torch.arange(200))
    assert not torch.signbit(squared).any()


def test_nobody_asks_and_nothing_is_asked() -> None:
    keys = rows_of(torch.randn(6, 4))
    table = HalfTable(Buffers(torch.device("cpu")), Keys([keys]), torch.arange(6).view(2, 3))
    assert table.nearest(torch.empty(2, 0, 4), 2)[1].shape == (2, 0, 2)
    table.keep(torch.empty(0, dtype=torch.int64))
    assert table.nearest(torch.empty(0, 5, 4), 2)[1].shape == (0, 5, 2)


@pytest.mark.parametrize("sizes", [[9], [3, 20, 1]])
def test_without_ranges_all_rows_are_searched(sizes: list[int]) -> None:
    rng = torch.Generator().manual_seed(5)
    keys = Keys([rows_of(torch.randint(-2, 3, (size, 4), generator=rng).float()) for size in sizes])
    keys = keys.without(torch.rand(len(keys), generator=rng) < 0.3)
    queries = torch.randint(-2, 3, (6, 4), generator=rng).float()
    every = torch.zeros((6, len(sizes)), dtype=torch.int64), torch.tensor(sizes).expand(6, -1)
    for found_by in (Search(torch.device("cpu")), CompiledSearch(torch.device("cpu"))):
        for count in (2, len(keys)):
            ours, theirs = (found_by.nearest(keys, ranges, queries, count) for ranges in (None, every))
            assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("known", [True, False])
def test_many_blocks_are_searched_as_one(known: bool) -> None:
    """Also where the norms of rows are not known yet; and rows are taken from blocks by their numbers."""
    rng = torch.Generator().manual_seed(5)
    rows, sizes = torch.randint(-2, 3, (60, 20), generator=rng).float(), [7, 0, 30, 1, 22]
    whole = rows_of(rows)
    blocks = [rows_of(some) for some in rows.split(sizes)]
    ours = CompiledSearch(CPU)
    if not known:
        blocks = [Rows(block.values, ours.norms(block.values)) for block in blocks]
    keys = Keys(blocks).without(torch.arange(60) == 11)
    kinds = torch.tensor([[0, 0, 0, 0, 0], [2, 0, 9, 1, 0], [7, 0, 30, 1, 22]])  # where types begin and end in each
    queries, types = torch.randint(-2, 3, (23, 20), generator=rng).float(), torch.arange(23) % 2
    for count in (1, 4, 40):
        for _ in range(2):  # the second time, norms are known
            squared, numbers = ours.nearest(keys, (kinds[types], kinds[types + 1]), queries, count)
            for query in range(23):
                first, last = kinds[types[query]].tolist(), kinds[types[query] + 1].tolist()
                places = [at + n for at, b, e in zip(keys.starts, first, last, strict=False) for n in range(b, e)]
                every = torch.tensor([place for place in places if place != 11])
                wanted = (rows[every] - queries[query]).square().sum(dim=1)
                order = wanted.argsort(stable=True)[:count]
                assert numbers[query, : len(order)].tolist() == every[order].tolist()
                assert squared[query, : len(order)].tolist() == wanted[order].tolist()
                assert (numbers[query, len(order) :] == -1).all()
    chosen = torch.tensor([[59, 0, 7], [6, 37, 36]])
    for search_by in (ours, Search(CPU)):
        taken = search_by.take([block.values for block in keys.blocks], keys.starts, chosen)
        assert torch.equal(taken, whole.values[chosen])
    with pytest.raises(IndexError, match="rows 3 to 60 asked for, of 60"):
        ours.take([block.values for block in keys.blocks], keys.starts, torch.tensor([3, 60]))


@pytest.mark.parametrize("kind", [rows_of, bytes_of])
@pytest.mark.parametrize("width", [9, 32, 37])
def test_a_query_finds_the_same_to_the_bit_whoever_asks_with_it(kind: Callable[[Tensor], Rows], width: int) -> None:
    rng = torch.Generator().manual_seed(6)
    keys = Keys([kind((20 * torch.randn((11, width), generator=rng)).round()) for _ in range(3)])
    queries = torch.randn((7, width), generator=rng)
    every = torch.zeros((7, 3), dtype=torch.int64), torch.full((7, 3), 11)
    ours = CompiledSearch(CPU)
    together = ours.nearest(keys, every, queries, 4)
    for some in range(1, 7):
        alone = ours.nearest(keys, (every[0][:some], every[1][:some]), queries[:some], 4)
        assert all(torch.equal(one, each[:some]) for one, each in zip(alone, together, strict=True))
    wanted = Search(CPU).nearest(keys, every, queries, 4)
    assert torch.equal(together[1], wanted[1])
    assert torch.allclose(together[0], wanted[0], rtol=1e-4)


@pytest.mark.parametrize("found_by", [Search(CPU), CompiledSearch(CPU)])
def test_a_query_may_ask_for_several_ranges(found_by: Search) -> None:
    rng = torch.Generator().manual_seed(7)
    keys = Keys([rows_of(torch.randint(-2, 3, (30, 4), generator=rng).float())])
    queries = torch.randint(-2, 3, (5, 4), generator=rng).float()
    starts = torch.randint(0, 20, (15, 1), generator=rng)
    ranges = starts, starts + 10
    ours = found_by.nearest(keys, ranges, queries, 3)
    theirs = found_by.nearest(keys, ranges, queries.repeat_interleave(3, dim=0), 3)
    assert all(map(torch.equal, ours, theirs))
